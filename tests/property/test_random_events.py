"""A short part of `benchmarks.random_events`: what peers and programs can cause makes no core raise.

Seeds that once failed for a reason are in `FORMER_FAILURES`.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import get_args

import pytest

from benchmarks.arbitrary.messages import Messages
from benchmarks.random_events.command import run_seed
from benchmarks.random_events.world import World
from bmgd.core.events import AskFailed, Event, Granted
from bmgd.types import NodeId
from bmgd.wire.messages import Message

SEEDS = range(1_000_001, 1_000_031)
EVENTS = 300
FORMER_FAILURES = (3, 14, 103)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_events_raise_nothing(seed: int) -> None:
    assert run_seed(seed, EVENTS)["problem"] == ""


@pytest.mark.parametrize("seed", FORMER_FAILURES)
def test_random_events_that_once_raised_do_not_any_more(seed: int) -> None:
    assert run_seed(seed)["problem"] == ""


def test_random_events_are_the_same_for_the_same_seed() -> None:
    assert run_seed(7, EVENTS)["counts"] == run_seed(7, EVENTS)["counts"]


def test_random_events_are_of_every_kind() -> None:
    counts: Counter[str] = Counter()
    for seed in range(12):
        world = World(seed)
        world.run(400)
        counts.update(world.counts)
    # Those two are a joiner's, which is another core.
    wanted = {kind.__name__ for kind in get_args(Event)} - {Granted.__name__, AskFailed.__name__}
    assert wanted <= counts.keys()


def test_arbitrary_messages_are_of_every_kind() -> None:
    arbitrary = Messages(Random(1), NodeId(3), 8)
    made = {type(arbitrary.message()) for _ in range(3000)}
    assert made == set(get_args(Message))
