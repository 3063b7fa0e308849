"""Keeps what entered a living core: the last minutes, bounded in bytes, at next to no cost.

Theory of operation. A *segment* is the state of a core and the steps that followed it. While it is kept,
a step is only noted: its time, its event, its effects, as the objects that the core gave; nothing is
turned into bytes before somebody asks. A new segment begins after `INTERVAL_NS`, or when the present one
is a quarter of the bound; then the oldest go, so that the rest fits. While the core has work under way
(`core/work.py`) its state cannot be written, and the present segment goes on:

    note(step) --room, and time is left--> the segment grows
               --full, or INTERVAL_NS over, no work under way--> a new segment, the oldest go
               --full, a state that cannot be written--> the older half of the steps goes, the state too

Payloads are replaced by their length as they come, unless they are asked for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from bmgd.core.effects import Effect, Reply
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.core.node import Node
from bmgd.flight import catalog
from bmgd.flight.values import PAYLOADS, NotRecordable, Omitted, Writer
from bmgd.wire.packing import pack

INTERVAL_NS: Final = 30_000_000_000
STEP_BYTES: Final = 320
"""What a step takes in memory, its event and the tuple that holds them, about."""
EFFECT_BYTES: Final = 200
RECORD_BYTES: Final = 160
SEGMENTS: Final = 4
"""A segment is full at this part of the bound."""
STATE_OBJECTS_MAX: Final = 50_000
"""A core with more objects would stand still for too long while it is written: about 50 ms."""

Step = tuple[int, Event, list[Effect]]
"""When, what entered, and what the core ordered."""


@dataclass(slots=True)
class Segment:
    """A starting state and the steps after it.

    Args:
        began_ns: when it begins, monotonic.
        number: of its first step in the core's life, counted from 1.
        table: the class table of `state`.
        state: the core, packed; None where it could not be written, so that nothing can be replayed.
        why: why there is no state.
    """

    began_ns: int
    number: int
    table: list[list[Any]] = field(default_factory=list)
    state: bytes | None = None
    why: str = ""
    steps: list[Step] = field(default_factory=list)
    step_bytes: int = 0

    @property
    def held_bytes(self) -> int:
        """What it takes in memory, about."""
        return self.step_bytes + (0 if self.state is None else len(self.state))


class FlightRecorder:
    """The flight recorder of one core, from its first step on.

    Args:
        node: the core, before its first step.
        now_ns: monotonic.
        limit_bytes: what all that it keeps may take in memory.
        payloads: whether the bytes of payloads are kept too.
    """

    def __init__(
        self, node: Node, now_ns: int, limit_bytes: int, *, payloads: bool = False
    ) -> None:
        self.payloads = payloads
        self.segments: deque[Segment] = deque()
        self._node = node
        self._full_bytes = max(1, limit_bytes // SEGMENTS)
        self._limit_bytes = limit_bytes
        self._count = 0
        self._is_hopeless = False
        self._begin(now_ns)

    @property
    def step_count(self) -> int:
        """How many steps are kept."""
        return sum(len(segment.steps) for segment in self.segments)

    @property
    def held_bytes(self) -> int:
        """What is kept takes so much memory, about."""
        return sum(segment.held_bytes for segment in self.segments)

    def note(self, now_ns: int, event: Event, effects: list[Effect]) -> None:
        """Keep one step that the core has just made. The list must not change any more."""
        segment = self._segment
        size = STEP_BYTES + EFFECT_BYTES * len(effects)
        kind = type(event)
        if kind is Received or kind is CommandIssued:
            event, size = self._light_event(event, size)
        for place, effect in enumerate(effects):
            if type(effect) in _PLAIN_EFFECTS:
                continue
            light, more = self._light_effect(effect)
            size += more
            if light is not effect:
                # A copy: the daemon is about to carry out the original.
                effects = [*effects[:place], light, *effects[place + 1 :]]
        segment.steps.append((now_ns, event, effects))
        segment.step_bytes += size
        self._count += 1
        if segment.step_bytes > self._full_bytes or now_ns > self._due_ns:
            self._turn(now_ns)

    def note_failure(self, now_ns: int, event: Event) -> None:
        """Keep the event on which the core raised `InvariantError`; nothing follows it."""
        self._segment.steps.append((now_ns, event, [_FAILED]))

    # --- segments -----------------------------------------------------------------------------

    def _begin(self, now_ns: int) -> None:
        segment = Segment(now_ns, self._count + 1)
        writer = Writer(payloads=self.payloads, shared=True)
        try:
            data = writer.write(self._node)
            segment.state, segment.table = pack(data), writer.table
            self._is_hopeless = writer.object_count > STATE_OBJECTS_MAX
        except NotRecordable as error:
            segment.why = str(error)
            self._is_hopeless = True
        self._segment = segment
        self._due_ns = now_ns + INTERVAL_NS
        self.segments.append(segment)

    def _turn(self, now_ns: int) -> None:
        """Begin a new segment if the core's state can be written now, and keep to the bound."""
        if not self._is_hopeless and not self._node.has_work:
            self._begin(now_ns)
        elif self._is_hopeless:
            self._due_ns = now_ns + INTERVAL_NS
        while len(self.segments) > 1 and self.held_bytes > self._limit_bytes:
            self.segments.popleft()
        if self.held_bytes > self._limit_bytes:
            self._halve()

    def _halve(self) -> None:
        """One segment is too much, and no new one can begin: only its newer steps can be kept."""
        segment = self._segment
        gone = len(segment.steps) // 2
        segment.step_bytes = segment.step_bytes * (len(segment.steps) - gone) // len(segment.steps)
        del segment.steps[:gone]
        segment.number += gone
        segment.began_ns = segment.steps[0][0]
        segment.state, segment.table = None, []
        segment.why = segment.why or "the state grew too large to be written"

    # --- what is too large to be kept ---------------------------------------------------------

    def _light_event(self, event: Event, size: int) -> tuple[Event, int]:
        match event:
            case Received(link, message):
                light, more = self._light(message)
                return (event if light is message else Received(link, light)), size + more
            case CommandIssued(request, command):
                light, more = self._light(command)
                return (event if light is command else CommandIssued(request, light)), size + more
        return event, size

    def _light_effect(self, effect: Any) -> tuple[Any, int]:
        if type(effect) is Reply:
            # A listing can be long, and is made again by the replay.
            if isinstance(effect.result, list | dict):
                return Reply(effect.request, None, effect.error), 0
            return effect, 0
        inner = getattr(effect, "message", None)
        if inner is None:
            return self._light(effect)
        light, more = self._light(inner)
        return (effect if light is inner else _copy(effect, "message", light)), more

    def _light(self, value: Any) -> tuple[Any, int]:
        """The value without its payload's bytes, and what more than usual it takes in memory."""
        name = _payload_of(type(value))
        if name is None:
            records = getattr(value, "records", None)
            return value, 0 if records is None else RECORD_BYTES * len(records)
        payload = getattr(value, name)
        if self.payloads or type(payload) is not bytes:
            return value, len(payload)
        return _copy(value, name, Omitted(len(payload))), 0


def _copy(value: Any, name: str, replaced: Any) -> Any:
    """The value with another field; made for frozen dataclasses with slots, and faster than `replace`."""
    cls = type(value)
    made = object.__new__(cls)
    for slot in catalog.slots_of(cls):
        object.__setattr__(made, slot, replaced if slot == name else getattr(value, slot))
    return made


_PAYLOAD_OF: dict[type[Any], str | None] = {}


def _payload_of(cls: type[Any]) -> str | None:
    """The field of a class that holds a program's bytes; None for none."""
    try:
        return _PAYLOAD_OF[cls]
    except KeyError:
        found = next((name for name in catalog.slots_of(cls) if name in PAYLOADS), None)
        _PAYLOAD_OF[cls] = found
        return found


def _is_plain(cls: type[Any]) -> bool:
    slots = catalog.slots_of(cls)
    return cls is not Reply and not PAYLOADS & {*slots} and not {"message", "records"} & {*slots}


class Failed:
    """Stands for the effects of a step that raised `InvariantError`."""


_FAILED: Final[Any] = Failed()
_PLAIN_EFFECTS: Final = frozenset(
    cls
    for name, cls in catalog.classes().items()
    if name.startswith("core.effects.") and _is_plain(cls)
)
