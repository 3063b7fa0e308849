"""Runs a core over a recording, and says at which step it differs from what happened.

Each part of a recording has a state of its own to begin with, so a replay can begin anywhere, and a part
whose state could not be written does not spoil the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bmgd.core.effects import Effect
from bmgd.core.node import Node
from bmgd.dataclass import dataclass
from bmgd.errors import InvariantError, ProtocolError
from bmgd.flight.reader import OF_DAMAGE, Reader
from bmgd.flight.recording import FAILED, Part, Recording, Row, digest_of, kinds_of
from bmgd.wire.packing import unpack


@dataclass(frozen=True, slots=True)
class Replayed:
    """One step, made again.

    Args:
        row: as it was recorded.
        effects: what the core ordered now; () where it raised.
        error: what it raised now.
        same: whether this is what happened.
    """

    row: Row
    effects: tuple[Effect, ...]
    error: InvariantError | None
    same: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a replay.

    Args:
        steps: how many were made again.
        differs_at: the number of the first step that came out otherwise; None for none.
        left_out: recorded steps of parts without a state.
    """

    steps: int
    differs_at: int | None
    left_out: int


def node_of(part: Part) -> Node:
    """The core at the beginning of a part.

    Raises:
        ProtocolError: the part has no state, or a damaged one.
    """
    if part.state is None:
        raise ProtocolError(f"step {part.number} has no state before it: {part.why}")
    node = Reader(part.table, shared=True).read(unpack(part.state))
    if not isinstance(node, Node):
        raise ProtocolError("the state of the recording is no core")
    try:
        node.rebuild()
    except OF_DAMAGE as error:
        raise _no_core_has_it(part.number, error) from error
    return node


def steps(part: Part, node: Node) -> Iterator[Replayed]:
    """Make the steps of a part again, on `node_of(part)`; ends after a step on which the core raises.

    Raises:
        ProtocolError: the state, or an event, has values that no core has.
    """
    for row in part.rows:
        try:
            effects = tuple(node.step(row.now_ns, row.event))
        except InvariantError as error:
            yield Replayed(row, (), error, row.kinds == (FAILED,))
            return
        except OF_DAMAGE as error:
            raise _no_core_has_it(row.number, error) from error
        same = row.digest == digest_of(effects) and row.kinds == tuple(kinds_of(effects))
        yield Replayed(row, effects, None, same)


def _no_core_has_it(number: int, error: Exception) -> ProtocolError:
    return ProtocolError(f"step {number} has, or follows, values that no core has: {error!r}")


def replay(recording: Recording) -> Outcome:
    """Make all steps again, up to the first that differs.

    Raises:
        ProtocolError: a state, or an event, is damaged, or has values that no core has.
    """
    count = left_out = 0
    for part in recording.parts:
        if part.state is None:
            left_out += len(part.rows)
            continue
        for replayed in steps(part, node_of(part)):
            count += 1
            if not replayed.same:
                return Outcome(count, replayed.row.number, left_out)
    return Outcome(count, None, left_out)


def at_step(recording: Recording, number: int) -> tuple[Replayed, Node]:
    """One step made again, and the core right after it.

    Raises:
        ProtocolError: the recording has no such step, or no state before it.
    """
    for part in recording.parts:
        if part.rows and part.number <= number <= part.rows[-1].number:
            node = node_of(part)
            for replayed in steps(part, node):
                if replayed.row.number == number:
                    return replayed, node
    ranges = [(p.rows[0].number, p.rows[-1].number) for p in recording.parts if p.rows]
    known = f"{ranges[0][0]} to {ranges[-1][1]}" if ranges else "none"
    raise ProtocolError(f"the recording has no step {number}; it has {known}")


def state_of(node: Node) -> dict[str, Any]:
    """The core's state as `bmgd status --json` and `bmgd members --json` would have shown it.

    Raises:
        ProtocolError: it has values that no core has.
    """
    try:
        return node.show()
    except OF_DAMAGE as error:
        raise ProtocolError(f"a state with values that no core has: {error!r}") from error
