"""The workload of a plan: what is read, what is refused, and that it is written as it is read."""

from __future__ import annotations

from typing import Any

import pytest

from bmgd.chaos.plan import KINDS, Plan, Workload, read_workload
from bmgd.errors import PlanError


def test_workload_is_read_with_its_kinds_and_sizes() -> None:
    kinds = {kind: number for number, kind in enumerate(KINDS)}
    row = {"messages_per_second": 500, "payload_bytes_max": 100_000, "kinds": kinds}
    assert read_workload(row) == Workload(500, 64, 10.0, 100_000, kinds)


def test_workload_is_written_as_it_is_read() -> None:
    plan = Plan(4, 1.0, workload=Workload(5, 16, 3.0, 4096, {"stream": 2, "request": 1}))
    assert Plan.parse(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"kinds": {"telegram": 1}}, "no kind 'telegram'"),
        ({"kinds": {"send": 0}}, "every weight is 0"),
        ({"kinds": {"send": -1}}, "kinds"),
        ({"kinds": ["send"]}, "not a JSON object"),
        ({"payload_bytes_max": 1 << 40}, "payload_bytes_max"),
        ({"size": 3}, "no key 'size'"),
        (7, "not a JSON object"),
    ],
)
def test_workload_that_cannot_be_is_refused(row: Any, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        read_workload(row)
