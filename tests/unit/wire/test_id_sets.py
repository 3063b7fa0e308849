"""Sets of ids in frames: what reading one costs, however it is written."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from random import Random

import pytest

from bmgd.routing.id_sets import ID_SET_SPACE, ids_in, set_of_runs
from bmgd.wire.id_sets import ID_SET_BYTES_MAX, decode_id_set

SLOWER_MAX = 3
"""Than a list of as many bytes; ranges that are joined one by one are seven times slower."""


def _least_s(packed: bytes) -> float:
    """The CPU time of reading a set, of several times the least."""
    took_s = []
    for _ in range(7):
        began_s = time.process_time()
        decode_id_set(packed)
        took_s.append(time.process_time() - began_s)
    return min(took_s)


def test_ranges_are_read_about_as_fast_as_a_list_of_as_many_bytes() -> None:
    count = ID_SET_BYTES_MAX // 8
    step = ID_SET_SPACE // count
    ranges = b"".join(struct.pack(">II", step * i, step * i + 1) for i in range(count))
    ids = b"".join(struct.pack(">I", step // 2 * i) for i in range(2 * count))
    assert _least_s(b"\0" + ranges) < SLOWER_MAX * _least_s(b"\1" + ids)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 500])
def test_set_of_runs_has_the_ids_of_all_runs_in_any_order(count: int) -> None:
    random = Random(count)
    runs: Sequence[tuple[int, int]] = [
        (first, first + random.randrange(9)) for first in random.sample(range(ID_SET_SPACE), count)
    ]
    ids = {each for first, last in runs for each in range(first, last + 1)}
    assert ids_in(set_of_runs(runs)) == sorted(ids)
