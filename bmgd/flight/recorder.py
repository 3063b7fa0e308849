"""Keeps what entered a living core: the last minutes, bounded in bytes, at next to no cost.

Theory of operation. A *segment* is the state of a core and the steps that followed it. While it is kept,
a step is only noted: its time, its event, its effects, as the objects that the core gave; nothing is
turned into bytes before somebody asks. A new segment begins after `INTERVAL_NS`, or when the present one
is a quarter of the bound; then the oldest go, so that the rest fits. While the core has work under way
(`core/work.py`) its state cannot be written, and the present segment goes on:

    first segment --the core can be made again--> its state is written when somebody asks
    note(step) --room, and time is left--> the segment grows
               --full, or INTERVAL_NS over, no work under way--> a new segment, the oldest go
               --full, a state that cannot be written--> the older half of the steps goes, the state too
               --`STEPS_PER_S` steps in this second--> a gap until it is over, then a new segment

Long payloads are replaced by their length as they come, short ones when the file is written, unless they
are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bmgd.core.effects import Effect, ForwardingChanged, Send
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.core.node import Node
from bmgd.flight.lighter import (
    EFFECT_BYTES,
    HELD,
    LONG,
    SHORT_BYTES,
    STEP_BYTES,
    KeptStep,
    Step,
    beside_bytes,
    is_listing,
    light,
    lightened,
    listing_bytes,
    numbered,
    restored,
)
from bmgd.flight.values import PAYLOADS, NotRecordable, packed
from bmgd.flight.writer import Writer

INTERVAL_NS: Final = 30_000_000_000
STEPS_PER_S: Final = 3_000
"""So many steps of a second are kept, the first: at about 8 microseconds each 2.5 % of a processor."""
SECOND_NS: Final = 1_000_000_000
SEGMENTS: Final = 4
"""A segment is full at this part of the bound."""
STATE_OBJECTS_MAX: Final = 50_000
"""A core with more objects would stand still for too long while it is written: about 50 ms."""

_TOO_LARGE: Final = "the state grew too large to be written"


@dataclass(slots=True)
class Segment:
    """A starting state and the steps after it.

    Args:
        began_ns: when it begins, monotonic.
        number: of its first step in the core's life, counted from 1.
        table: the class table of `state`, packed: as lists it would hold hundreds of objects.
        state: the core, packed; None where it could not be written, so that nothing can be replayed.
        why: why there is no state.
        make: makes the core as it was, where nothing was written of it so far.
    """

    began_ns: int
    number: int
    table: bytes = b""
    state: bytes | None = None
    why: str = ""
    kept: list[KeptStep] = field(default_factory=list)
    """The steps as they are held."""
    step_bytes: int = 0
    make: Callable[[], Node] | None = None

    @property
    def steps(self) -> list[Step]:
        """The steps after the state."""
        return restored(self.kept)

    @property
    def held_bytes(self) -> int:
        """What it takes in memory, about."""
        return self.step_bytes + (0 if self.state is None else len(self.state))

    def write(self, node: Node, *, payloads: bool) -> int:
        """Write the core as it is now; returns how many objects it has.

        Raises:
            NotRecordable: there is something in it that a recording cannot hold.
        """
        writer = Writer(payloads=payloads, shared=True)
        data = writer.write(node)
        self.state, self.table = packed(data), packed(writer.table)
        return writer.object_count

    def drop_state(self, why: str) -> None:
        """Keep no state, so that the steps after it are not replayed."""
        self.state, self.table, self.make = None, b"", None
        self.why = self.why or why

    def write_now(self, *, payloads: bool) -> None:
        """Write the state that was not written so far."""
        if self.make is None:
            return
        try:
            self.write(self.make(), payloads=payloads)
        except NotRecordable as error:
            self.why = str(error)
        self.make = None


class FlightRecorder:
    """The flight recorder of one core, from its first step on.

    Args:
        node: the core, before its first step.
        now_ns: monotonic.
        limit_bytes: what all that it keeps may take in memory.
        payloads: whether the bytes of payloads are kept too.
        steps_per_s: how many steps of a second are kept at most.
        make: makes a core that is equal to `node` as it is now. A daemon that starts has more to do than
            to write one down that it can make again.
    """

    def __init__(
        self,
        node: Node,
        now_ns: int,
        limit_bytes: int,
        *,
        payloads: bool = False,
        steps_per_s: int = STEPS_PER_S,
        make: Callable[[], Node] | None = None,
    ) -> None:
        self.payloads = payloads
        self.segments: deque[Segment] = deque()
        self._node = node
        self._full_bytes = max(1, limit_bytes // SEGMENTS)
        self._limit_bytes = limit_bytes
        self._left_bytes = 0
        self._is_hopeless = False
        self._steps_per_s = self._left_steps = steps_per_s
        self._second_ns = now_ns
        self._resume_ns = 0
        self._skipped = 0
        self._begin(now_ns, make)

    @property
    def step_count(self) -> int:
        """How many steps are kept."""
        return sum(len(segment.kept) for segment in self.segments)

    @property
    def held_bytes(self) -> int:
        """What is kept takes so much memory, about."""
        self._segment.step_bytes = self._full_bytes - self._left_bytes
        return sum(segment.held_bytes for segment in self.segments)

    def note(self, now_ns: int, event: Event, effects: list[Effect]) -> None:
        """Keep one step that the core has just made. The list must not change any more."""
        # This runs once for every step of a daemon: nothing is called but for what is long.
        if self._resume_ns:
            self._skip(now_ns)
            return
        size = STEP_BYTES + EFFECT_BYTES * len(effects)
        beside = beside_bytes(event, effects)
        kind = type(event)
        if kind is Received or kind is CommandIssued:
            inner: Any = event.message if kind is Received else event.command  # type: ignore[union-attr]
            name = LONG.get(type(inner))
            if name == "records":
                size += listing_bytes(inner)
            elif name is not None:
                long = len(getattr(inner, name))
                size += long
                if long > SHORT_BYTES:
                    size, event, effects = lightened(event, effects, payloads=self.payloads)
        listed: Any = None
        has_ways = False
        for effect in effects:
            order: Any = effect
            if type(order) is Send:
                if LONG.get(type(order.message)) == "records":
                    # One notice goes to many links; a page was made for this one.
                    if order.message is not listed:
                        listed = order.message
                        size += listing_bytes(listed)
                    continue
                # A segment may have come long before, and have waited for its window or its credit.
                body_bytes = len(getattr(order.message, "body", b""))
                if body_bytes <= SHORT_BYTES or self.payloads:
                    size += body_bytes
                    continue
                size, event, effects = lightened(event, effects, payloads=self.payloads)
                break
            name = HELD.get(type(order))
            if name is None:
                continue
            if name == "snapshot":
                has_ways = True
                continue
            held = getattr(order, name)
            if name == "result":
                if not is_listing(held):
                    continue
            elif name in PAYLOADS and (len(held) <= SHORT_BYTES or self.payloads):
                size += len(held)
                continue
            size, event, effects = lightened(event, effects, payloads=self.payloads)
            break
        else:
            if has_ways:
                effects = [numbered(e) if type(e) is ForwardingChanged else e for e in effects]
        self._append((now_ns, event, effects))
        self._left_bytes -= size + beside
        self._left_steps -= 1
        if self._left_steps <= 0:
            self._pace(now_ns)
        if self._left_bytes < 0 or now_ns > self._due_ns:
            self._turn(now_ns)

    def note_failure(self, now_ns: int, event: Event) -> None:
        """Keep the event on which the core raised `InvariantError`; nothing follows it."""
        if self._resume_ns:
            # The state before it is not known; what the event was is.
            number = self._next_number()
            self._skipped = 0
            self._segment = Segment(now_ns, number, why="the steps before it came too fast")
            self._append = self._segment.kept.append
            self.segments.append(self._segment)
        self._append((now_ns, light(event, [], payloads=self.payloads), [_FAILED]))

    # --- not too much of a processor ----------------------------------------------------------

    def _pace(self, now_ns: int) -> None:
        """So many steps as a second may have were kept: was it a second?"""
        if now_ns - self._second_ns < SECOND_NS:
            self._resume_ns = self._second_ns + SECOND_NS
        self._second_ns, self._left_steps = now_ns, self._steps_per_s

    def _skip(self, now_ns: int) -> None:
        """A step of a gap; once the second is over, and no work is under way, the gap ends."""
        self._skipped += 1
        if now_ns >= self._resume_ns and not self._node.has_work and not self._is_hopeless:
            self._resume_ns = 0
            self._second_ns, self._left_steps = now_ns, self._steps_per_s
            self._turn(now_ns)

    def _next_number(self) -> int:
        before = self.segments[-1]
        return before.number + len(before.kept) + self._skipped

    # --- segments -----------------------------------------------------------------------------

    def _begin(self, now_ns: int, make: Callable[[], Node] | None = None) -> None:
        segment = Segment(now_ns, self._next_number() if self.segments else 1, make=make)
        self._skipped = 0
        if make is None:
            try:
                count = segment.write(self._node, payloads=self.payloads)
                self._is_hopeless = count > STATE_OBJECTS_MAX
            except NotRecordable as error:
                segment.why = str(error)
                self._is_hopeless = True
            if segment.held_bytes > self._limit_bytes - self._full_bytes:
                # Alone it is more than may be kept: the steps before it would go for its sake.
                segment.drop_state(_TOO_LARGE)
        self._segment = segment
        self._append = segment.kept.append
        self._left_bytes = self._full_bytes
        self._due_ns = now_ns + INTERVAL_NS
        self.segments.append(segment)

    def _turn(self, now_ns: int) -> None:
        """Begin a new segment if the core's state can be written now, and keep to the bound."""
        segment = self._segment
        segment.step_bytes = self._full_bytes - self._left_bytes
        if not self._is_hopeless and not self._node.has_work:
            self._begin(now_ns)
        elif self._is_hopeless:
            self._due_ns = now_ns + INTERVAL_NS
        # So much room is left as the present segment takes until the next turn.
        allowed_bytes = self._limit_bytes - self._full_bytes
        while len(self.segments) > 1 and self.held_bytes > allowed_bytes:
            self.segments.popleft()
        if self.held_bytes > allowed_bytes:
            self._halve()

    def _halve(self) -> None:
        """One segment is too much, and no new one can begin: only its newer steps can be kept."""
        segment = self._segment
        segment.drop_state(_TOO_LARGE)
        if not segment.kept:
            return
        gone = len(segment.kept) // 2
        segment.step_bytes -= segment.step_bytes * gone // len(segment.kept)
        self._left_bytes = self._full_bytes - segment.step_bytes
        del segment.kept[:gone]
        segment.number += gone
        segment.began_ns = segment.kept[0][0]


class Failed:
    """Stands for the effects of a step that raised `InvariantError`."""


_FAILED: Final[Any] = Failed()
