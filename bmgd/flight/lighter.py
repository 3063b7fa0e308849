"""What a recorder keeps of a step: all but long payloads, listings and forwarding snapshots.

A step is kept as the objects that the core was given and gave. Of one with a long payload a `Light` is
kept instead: the other fields, and the payload's length. `restored` makes objects of the core's classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple, get_args

from bmgd.core.effects import Effect, ForwardingChanged, Reply, Send
from bmgd.core.events import Event, Received
from bmgd.flight import catalog
from bmgd.flight.values import PAYLOADS, Omitted, SnapshotNumber, is_of_the_core
from bmgd.wire.holding import held_bytes

STEP_BYTES: Final = 320
"""What a step takes in memory, its event and the tuple that holds them, about."""
EFFECT_BYTES: Final = 200
RECORD_BYTES: Final = 160
SHORT_BYTES: Final = 1024
"""A payload up to this length is left out when the file is written, a longer one as it comes."""

Step = tuple[int, Event, list[Effect]]
"""When, what entered, and what the core ordered."""


KeptStep = tuple[int, Any, list[Any]]
"""The same with `Light` where a payload was left out."""


class Light(NamedTuple):
    """Stands for an object of which a payload is not kept: to copy it would cost much more.

    Args:
        kind: its class.
        name: of the field that is replaced.
        replaced: what stands for that field; `Light` where only something in it is replaced.
        others: the fields that are kept, in the order of the slots; alone where there is one.
    """

    kind: type[Any]
    name: str
    replaced: Any
    others: Any


def lightened(event: Event, effects: list[Effect], *, payloads: bool) -> tuple[int, Any, list[Any]]:
    """A step without its long payloads and listings, and what it takes in memory then."""
    sizes = [STEP_BYTES]
    event = light(event, sizes, payloads=payloads)
    effects = [light(effect, sizes, payloads=payloads) for effect in effects]
    return sum(sizes), event, effects


def light(value: Any, sizes: list[int], *, payloads: bool) -> Any:
    """What is kept of an event or effect; adds what it takes in memory to `sizes`."""
    kind = type(value)
    outer = _OUTER.get(kind)
    if outer is not None:
        inner = getattr(value, outer)
        lighter = light(inner, sizes, payloads=payloads)
        return value if lighter is inner else Light(kind, outer, lighter, _OTHERS[kind](value))
    if kind is Reply:
        sizes.append(EFFECT_BYTES)
        # A listing can be long, and is made again by the replay.
        listing = is_listing(value.result)
        return Reply(value.request, None, value.error) if listing else value
    if kind is ForwardingChanged:
        sizes.append(EFFECT_BYTES)
        return numbered(value)
    name = LONG.get(kind)
    if name == "records":
        sizes.append(EFFECT_BYTES + listing_bytes(value))
        return value
    size = 0 if name is None else len(getattr(value, name))
    if size <= SHORT_BYTES or payloads or is_of_the_core(value, str(name)):
        # A short one is kept for now: to leave it out would cost more than it takes.
        sizes.append(EFFECT_BYTES + size)
        return value
    sizes.append(EFFECT_BYTES)
    return Light(kind, str(name), Omitted(size), _OTHERS[kind](value))


def numbered(changed: ForwardingChanged) -> ForwardingChanged:
    """Without the snapshot: some bytes for each id that left, for each change, would outgrow all else."""
    number: Any = SnapshotNumber(changed.snapshot.generation)
    return ForwardingChanged(number)


def beside_bytes(event: Event, effects: list[Effect]) -> int:
    """What the messages of a step take beside what is counted, or left out, of each."""
    size = held_bytes(event.message) if type(event) is Received else 0
    counted: object = None
    for effect in effects:
        # The same goes to many links.
        if type(effect) is Send and effect.message is not counted:
            counted = effect.message
            size += held_bytes(counted)
    return size


def is_listing(result: object) -> bool:
    """Whether an answer may be long: one of some plain values is not."""
    if type(result) is dict:
        return any(type(item) in _LISTS for item in result.values())
    return type(result) is list


def listing_bytes(message: Any) -> int:
    """What the records of a notice or a page take, and the runs of a page."""
    return RECORD_BYTES * (len(message.records) + len(getattr(message, "retired", ())))


def restored(kept: Iterable[KeptStep]) -> list[Step]:
    """Steps as objects of the core's classes, what was left out of them replaced by its length."""
    return [
        (now_ns, _restored(event), [_restored(effect) for effect in effects])
        for now_ns, event, effects in kept
    ]


def _restored(value: Any) -> Any:
    """What is held of an event or effect as an object of its class."""
    if type(value) is not Light:
        return value
    made = object.__new__(value.kind)
    names = [name for name in catalog.slots_of(value.kind) if name != value.name]
    object.__setattr__(made, value.name, _restored(value.replaced))
    others = value.others if len(names) > 1 else (value.others,)
    for name, other in zip(names, others, strict=True):
        object.__setattr__(made, name, other)
    return made


LONG: Final = {
    cls: name
    for cls in catalog.names()
    for name in (*PAYLOADS, "records")
    if name in catalog.slots_of(cls)
}
"""The field of a class that can be long: a program's bytes, or records."""

_OUTER: Final = {
    cls: name
    for cls in catalog.names()
    for name in ("message", "command")
    if name in catalog.slots_of(cls)
}
"""The field of a class that holds what may be long."""

_OTHERS: Final = {
    cls: attrgetter(*(slot for slot in catalog.slots_of(cls) if slot != name))
    for cls, name in (*LONG.items(), *_OUTER.items())
    if name != "records"
}
"""What gives all fields of such a class but that one."""

HELD: Final = {Reply: "result", ForwardingChanged: "snapshot"} | {
    cls: LONG[cls] for cls in get_args(Effect) if cls in LONG
}
"""The field of an effect that can be long; of a Send it is the body of its message."""

_LISTS: Final = frozenset({list, dict, tuple})
