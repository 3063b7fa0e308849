"""Recordings of several nodes as one sequence of what happened, on the wall clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from bmgd.core.effects import Observed, RecordChanged
from bmgd.core.events import CommandIssued, DeadlineReached, Heard, HeartbeatsAbsorbed, Received
from bmgd.dataclass import dataclass
from bmgd.flight.recording import Recording
from bmgd.flight.replay import Replayed, node_of, steps
from bmgd.routing import Snapshot
from bmgd.types import Record

_QUIET: Final = (Received, Heard, HeartbeatsAbsorbed, DeadlineReached, CommandIssued)
"""Events of every day: shown only with all."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened at one node.

    Args:
        wall_ns: when, on the clock of that node's machine.
        step: the node's step.
        what: a short name; an event's class, or ``-> `` and an effect's.
        text: the rest, for a person.
    """

    wall_ns: int
    node: int
    step: int
    what: str
    text: str


def timeline(recordings: Sequence[Recording], *, everything: bool = False) -> Iterator[Moment]:
    """All recordings as one sequence, in the order of their wall clocks.

    Args:
        everything: every event and effect; else what an operator would be shown, and links.
    """
    return heapq.merge(
        *(_moments(recording, everything) for recording in recordings),
        key=lambda moment: (moment.wall_ns, moment.node, moment.step),
    )


def _moments(recording: Recording, everything: bool) -> Iterator[Moment]:
    head = recording.head
    offset_ns = head.wall_ns - head.monotonic_ns
    for part in recording.parts:
        if part.state is None:
            for row in part.rows:
                yield from _of_event(Replayed(row, (), None, True), head.id, offset_ns, everything)
            continue
        for replayed in steps(part, node_of(part)):
            yield from _of_event(replayed, head.id, offset_ns, everything)
            yield from _of_effects(replayed, head.id, offset_ns, everything)


def _of_event(replayed: Replayed, node: int, offset_ns: int, everything: bool) -> Iterator[Moment]:
    row = replayed.row
    if everything or not isinstance(row.event, _QUIET):
        name = type(row.event).__name__
        yield Moment(row.now_ns + offset_ns, node, row.number, name, brief(row.event))


def _of_effects(
    replayed: Replayed, node: int, offset_ns: int, everything: bool
) -> Iterator[Moment]:
    row = replayed.row
    for effect in replayed.effects:
        if everything or isinstance(effect, Observed | RecordChanged):
            name = f"-> {type(effect).__name__}"
            yield Moment(row.now_ns + offset_ns, node, row.number, name, brief(effect))
    if replayed.error is not None:
        name = "-> InvariantError"
        yield Moment(row.now_ns + offset_ns, node, row.number, name, str(replayed.error))


def brief(value: Any, depth: int = 2) -> str:
    """An event or effect on one line: its fields, payloads as lengths, long things cut."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, Record):
        return f"({value.incarnation:#x}, {value.version}, {value.status.name.lower()})"
    if is_dataclass(value) and not isinstance(value, type):
        if depth == 0:
            return type(value).__name__
        # A recording need not have each field.
        named = [(field.name, getattr(value, field.name, None)) for field in fields(value)]
        words = [
            f"{name}={_field(name, each, depth - 1)}"
            for name, each in named
            if each not in (None, "")
        ]
        return " ".join(words) if depth == 2 else f"{type(value).__name__}({', '.join(words)})"
    if isinstance(value, Snapshot):
        # In C: it has no fields to show.
        return "Snapshot"
    text = value.name.lower() if isinstance(value, Enum) else str(value)
    return text if len(text) <= 120 else text[:119] + "…"


def _field(name: str, value: Any, depth: int) -> str:
    if name.endswith(("incarnation", "known", "known_of_me")) and isinstance(value, int):
        return f"{value:#x}"
    return brief(value, depth)
