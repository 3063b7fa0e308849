"""Bounds that are small for one run."""

from __future__ import annotations

import pytest

from bmgd.core import deadlines, work
from bmgd.core.streams import inbound, outbound
from bmgd.core.streams import table as stream_table
from bmgd.sim.narrowing import NARROW, narrowed, refusing


def test_narrow_bounds_are_small_inside_and_as_before_afterwards() -> None:
    before = deadlines.DEADLINES_PER_STEP, work.PIECES_PER_STEP, inbound.SPAN, stream_table.SPAN
    with narrowed(1, 100):
        assert deadlines.DEADLINES_PER_STEP < 8
        assert inbound.SPAN == stream_table.SPAN < 64
    after = deadlines.DEADLINES_PER_STEP, work.PIECES_PER_STEP, inbound.SPAN, stream_table.SPAN
    assert after == before


def test_narrow_bounds_are_as_before_after_an_error() -> None:
    before = work.PIECES_PER_STEP
    with pytest.raises(LookupError), narrowed(1, 100):
        raise LookupError
    assert before == work.PIECES_PER_STEP


def chosen(seed: int, percent: int) -> list[int]:
    with narrowed(seed, percent):
        return [work.PIECES_PER_STEP, deadlines.DEADLINES_PER_STEP, inbound.KEPT_MAX]


def test_narrow_bounds_are_chosen_by_the_seed() -> None:
    assert chosen(3, 50) == chosen(3, 50)
    assert len({tuple(chosen(seed, 50)) for seed in range(16)}) > 2
    assert chosen(3, 0) == chosen(4, 0)


def test_narrow_bounds_are_narrower_than_those_of_a_daemon() -> None:
    before = {name: value for name, value in vars(inbound).items() if name.isupper()}
    narrow = {name: value for modules, name, value in NARROW if "core.streams.inbound" in modules}
    assert narrow
    assert all(value < before[name] for name, value in narrow.items())


def test_bounds_that_refuse_are_narrow_inside_and_as_before_afterwards() -> None:
    before = inbound.STREAMS_MAX, outbound.STREAMS_MAX
    with refusing(1, 100):
        assert outbound.STREAMS_MAX < 8
        assert inbound.STREAMS_MAX < 8
    assert before == (inbound.STREAMS_MAX, outbound.STREAMS_MAX)
