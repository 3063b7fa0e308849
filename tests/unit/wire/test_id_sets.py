"""Sets of ids in frames: what reading one costs, however it is written."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

import pytest

from bmgd.routing import id_sets
from bmgd.routing.id_sets import ID_SET_SPACE, MANY, ids_between, ids_in, set_of_runs
from bmgd.wire.id_sets import ID_SET_BYTES_MAX, decode_id_set


def test_many_ranges_are_not_joined_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each join takes a time of the whole set: seven times that of a list of as many bytes.
    joined: list[int] = []

    def between(first: int, end: int) -> int:
        joined.append(first)
        return ids_between(first, end)

    monkeypatch.setattr(id_sets, "ids_between", between)
    count = ID_SET_BYTES_MAX // 8
    step = ID_SET_SPACE // count
    ranges = b"".join(struct.pack(">II", step * i, step * i + 1) for i in range(count))
    assert decode_id_set(b"\0" + ranges).bit_count() == 2 * count
    assert len(joined) <= MANY


@pytest.mark.parametrize("count", [0, 1, 63, 64, 500])
def test_set_of_runs_has_the_ids_of_all_runs_in_any_order(count: int) -> None:
    random = Random(count)
    runs: Sequence[tuple[int, int]] = [
        (first, first + random.randrange(9)) for first in random.sample(range(ID_SET_SPACE), count)
    ]
    ids = {each for first, last in runs for each in range(first, last + 1)}
    assert ids_in(set_of_runs(runs)) == sorted(ids)
