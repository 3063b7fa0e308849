"""What a trial's messages say of themselves."""

from __future__ import annotations

import pytest

from bmgd.trials.payloads import BROKEN, TO_MANY, number_in, payload_of


@pytest.mark.parametrize("size_bytes", [8, 9, 64, 70_000])
def test_payload_tells_its_number_and_has_its_size(size_bytes: int) -> None:
    payload = payload_of(770, size_bytes)
    assert len(payload) == size_bytes
    assert number_in(payload, node=3) == 770


def test_payload_to_many_has_a_number_for_each_node() -> None:
    payload = payload_of(100 | TO_MANY, 20)
    assert [number_in(payload, node) for node in (0, 3)] == [100, 103]


@pytest.mark.parametrize(
    "broken",
    [
        payload_of(770, 64)[:7],
        payload_of(770, 64)[:40] + b"?" + payload_of(770, 64)[41:],
        payload_of(770, 32) + payload_of(771, 64)[8:],
    ],
    ids=["cut off", "a byte is another", "two in one"],
)
def test_payload_that_is_not_as_written_is_found(broken: bytes) -> None:
    assert number_in(broken, node=0) == BROKEN
