"""Registered programs, as one program follows them through the restarts of its daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bmgd import Program, ProgramEnd, SubscriptionError
from bmgd.client.program_stream import DOUBT_S, ProgramStream

ONE, TWO = Program(1, 100, "one"), Program(2, 200, "two")


class Clock:
    """What is to be done later, and when."""

    def __init__(self) -> None:
        self.planned: dict[Clock.Handle, Callable[[], None]] = {}

    class Handle(asyncio.TimerHandle):
        """Of one call."""

        def __init__(self, clock: Clock) -> None:
            self.clock = clock

        def __hash__(self) -> int:
            return id(self)

        def __eq__(self, other: object) -> bool:
            return self is other

        def cancel(self) -> None:
            """It is not to be done."""
            self.clock.planned.pop(self, None)

    def call_later(self, delay_s: float, what: Callable[[], None]) -> Handle:
        """As that of an event loop."""
        assert delay_s == DOUBT_S
        handle = self.Handle(self)
        self.planned[handle] = what
        return handle

    def pass_by(self) -> None:
        """The time of all that is planned comes."""
        planned, self.planned = list(self.planned.values()), {}
        for what in planned:
            what()


def snapshot(*programs: Program) -> dict[str, Any]:
    """A first item."""
    return {"programs": [each._asdict() for each in programs]}


def changes(*items: Program | ProgramEnd) -> dict[str, Any]:
    """A further item."""
    return {"changes": [each._asdict() for each in items]}


def taken(stream: ProgramStream) -> list[Program | ProgramEnd]:
    """What waits for the program, which takes it."""
    items = list(stream.items._items)
    stream.items._items.clear()
    return items


@pytest.fixture
def clock() -> Clock:
    """Of the stream."""
    return Clock()


@pytest.fixture
def stream(clock: Clock) -> ProgramStream:
    """One whose daemon was started again, and knows of nobody yet."""
    followed = ProgramStream(4, clock.call_later)
    followed.on_item(snapshot(ONE, TWO))
    assert taken(followed) == [ONE, TWO]
    followed.interrupt()
    followed.on_item(snapshot())
    return followed


def test_programs_that_a_restarted_daemon_hears_of_again_have_not_ended(
    stream: ProgramStream, clock: Clock
) -> None:
    stream.on_item(changes(TWO))
    stream.on_item(changes(ONE))
    clock.pass_by()
    assert taken(stream) == []


def test_program_that_a_restarted_daemon_does_not_hear_of_ends_after_a_time(
    stream: ProgramStream, clock: Clock
) -> None:
    stream.on_item(changes(TWO))
    assert taken(stream) == []
    clock.pass_by()
    assert taken(stream) == [ProgramEnd(*ONE, None)]


def test_end_that_is_told_while_in_doubt_is_told_once(stream: ProgramStream, clock: Clock) -> None:
    stream.on_item(changes(TWO, ProgramEnd(*TWO, 3)))
    clock.pass_by()
    assert taken(stream) == [ProgramEnd(*TWO, 3), ProgramEnd(*ONE, None)]


def test_program_of_another_life_ends_those_of_the_life_before(stream: ProgramStream) -> None:
    again = Program(1, 101, "one")
    stream.on_item(changes(again))
    assert taken(stream) == [ProgramEnd(*ONE, None), again]


def test_doubt_begins_anew_with_a_further_restart(stream: ProgramStream, clock: Clock) -> None:
    stream.interrupt()
    assert not clock.planned
    stream.on_item(snapshot(ONE))
    assert len(clock.planned) == 1
    clock.pass_by()
    assert taken(stream) == [ProgramEnd(*TWO, None)]


def test_program_that_ended_in_doubt_can_start_again(stream: ProgramStream, clock: Clock) -> None:
    clock.pass_by()
    assert taken(stream) == [ProgramEnd(*ONE, None), ProgramEnd(*TWO, None)]
    stream.on_item(changes(TWO))
    assert taken(stream) == [TWO]


def test_ends_after_doubt_respect_the_bound(clock: Clock) -> None:
    cancelled: list[bool] = []
    stream = ProgramStream(1, clock.call_later, lambda: cancelled.append(True))
    stream.on_item(snapshot(ONE, TWO))
    stream.interrupt()
    stream.on_item(snapshot())
    clock.pass_by()
    assert isinstance(stream.items.error, SubscriptionError)
    assert cancelled == [True]


def test_stream_that_is_over_is_told_nothing_later(stream: ProgramStream, clock: Clock) -> None:
    stream.on_end(None, {})
    assert not clock.planned
    stream.on_item(changes(TWO))
    assert taken(stream) == []
