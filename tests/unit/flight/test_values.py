"""Every event and effect round-trips as plain data, and a recording can name nothing else."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import fields, is_dataclass, replace
from random import Random
from types import UnionType
from typing import Any, get_args, get_type_hints

import pytest

from bmgd.core import commands, effects, events
from bmgd.core.commands import Command
from bmgd.core.effects import Effect
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.core.timers import Timers
from bmgd.errors import ProtocolError
from bmgd.flight import catalog
from bmgd.flight.reader import Reader
from bmgd.flight.values import PAYLOADS, NotRecordable, Omitted, is_of_the_core
from bmgd.flight.values import packed as as_bytes
from bmgd.flight.writer import Writer
from bmgd.peers import PeerList
from bmgd.policy import HealingPolicy
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.packing import pack, unpack
from bmgd.wire.segments import end_of, packed
from bmgd.wire.stream_messages import Segment
from tests.unit.wire.examples import MESSAGES


def through(value: Any, **how: Any) -> Any:
    """A value written, packed, unpacked and read."""
    writer = Writer(**how)
    data = unpack(pack(writer.write(value)))
    return Reader(writer.table, shared=how.get("shared", False)).read(data)


def example(hint: Any) -> Any:
    """Some value of a type."""
    made: dict[Any, Any] = {
        int: 2**70,
        float: 1.5,
        str: "text",
        bytes: b"bytes",
        bool: True,
        Any: {"id": 3},
    }
    if hint in made:
        return made[hint]
    origin, args = getattr(hint, "__origin__", None), get_args(hint)
    if isinstance(hint, UnionType) or str(origin) == "typing.Union":
        return example(next(arg for arg in args if arg is not type(None)))
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return hint(*(example(each) for each in get_type_hints(hint).values()))
    if origin is tuple:
        return tuple(example(arg) for arg in args if arg is not Ellipsis)
    if origin in (dict, list):
        return origin()
    if hint is PeerList:
        return PeerList.parse("127.0.0.1:{7400+id}", 4)
    if hint is Record:
        return Record(Incarnation(2**63 + 5), 2, Status.DEAD, "h:1")
    if hint is HealingPolicy:
        return HealingPolicy()
    if hasattr(hint, "__supertype__"):
        return hint.__supertype__(7)
    if hasattr(hint, "__members__"):
        return list(hint)[-1]
    if is_dataclass(hint):
        return made_of(hint)
    pytest.fail(f"no example of {hint}: add one")


def made_of(cls: Any) -> Any:
    """An object of a dataclass, every field filled."""
    known = {**vars(events), **vars(effects), **vars(commands)}
    hints = get_type_hints(cls, {**known, **vars(sys.modules[cls.__module__])})
    return cls(**{field.name: example(hints[field.name]) for field in fields(cls)})


SIMPLE_EVENTS = [cls for cls in get_args(Event) if cls not in (Received, CommandIssued)]
RECORDED_EFFECTS = [
    cls
    for cls in get_args(Effect)
    if not {"message", "snapshot", "error"} & {field.name for field in fields(cls)}
]


@pytest.mark.parametrize("cls", SIMPLE_EVENTS)
def test_values_of_every_event_come_back(cls: Any) -> None:
    event = made_of(cls)
    assert through(event, payloads=True) == event


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_values_of_every_message_come_back(message: Any) -> None:
    event = Received(LinkId(3), message)
    assert through(event, payloads=True) == event


@pytest.mark.parametrize("cls", get_args(Command))
def test_values_of_every_command_come_back(cls: Any) -> None:
    event = CommandIssued(17, made_of(cls))
    assert through(event, payloads=True) == event


@pytest.mark.parametrize("cls", RECORDED_EFFECTS)
def test_values_of_every_effect_come_back(cls: Any) -> None:
    effect = made_of(cls)
    assert through(effect, payloads=True) == effect


def test_values_of_payloads_come_back_as_zeros_of_their_length() -> None:
    looked_at = 0
    for message in MESSAGES.values():
        name = next((n for n in ("payload", "body") if hasattr(message, n)), None)
        if name is None:
            continue
        found = through(message)
        before, after = getattr(message, name), getattr(found, name)
        if is_of_the_core(message, name):
            assert after == before
            continue
        assert len(after) == len(before)
        if before[:1] == b"\xc4":
            counts = range(getattr(message, "count", 0) + 1)
            assert [end_of(after, n) for n in counts] == [end_of(before, n) for n in counts]
        else:
            assert not any(after)
        looked_at += 1
    assert looked_at > 5


def test_values_of_a_long_segment_come_back_as_messages_of_about_their_length() -> None:
    body = b"".join(packed(bytes([7]) * size) for size in (300, 300, 301))
    segment = MESSAGES["segment"]
    assert isinstance(segment, Segment)
    found = through(replace(segment, count=3, body=Omitted(len(body)))).body  # type: ignore[arg-type]
    assert len(found) == len(body)
    assert end_of(found, 3) == len(body)
    assert 7 not in found


def test_values_of_omitted_bytes_are_their_length() -> None:
    assert through(Omitted(5)) == bytes(5)


@pytest.mark.parametrize(
    "value",
    [
        None,
        -(2**63),
        2**200,
        (1, (2, "x"), b"y"),
        [1, [2]],
        {(NodeId(1), "a"): [3], "b": {}},
        {3, 1, 2},
        frozenset({"x", "y"}),
        deque([1, 2], maxlen=5),
        OrderedDict([("b", 1), ("a", 2)]),
        defaultdict(list, {1: [2]}),
        Counter({"a": 3}),
        bytearray(b"x"),
        Evidence.EOF,
        Status.LEFT,
        Record(Incarnation(5), 0, Status.ALIVE, "a:1"),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_values_of_containers_come_back(value: Any, shared: bool) -> None:
    found = through(value, shared=shared)
    assert (found, type(found)) == (value, type(value))


def test_values_keep_the_order_and_bound_of_containers() -> None:
    assert list(through(OrderedDict([("b", 1), ("a", 2)]))) == ["b", "a"]
    assert through(deque([1], maxlen=5)).maxlen == 5


def test_values_of_randomness_go_on_alike() -> None:
    random = Random(7)
    random.random()
    copy = through(random)
    assert [copy.random() for _ in range(5)] == [random.random() for _ in range(5)]


def test_values_that_are_one_stay_one() -> None:
    inner: list[int] = []
    found = through({"a": inner, "b": inner}, shared=True)
    found["a"].append(1)
    assert found["b"] == [1]


def test_values_of_a_method_belong_to_the_object_that_came_back() -> None:
    timers = Timers()
    found = through([timers, timers.next_ns], shared=True)
    found[0].set(("x", 0, 0), 5)
    assert found[1]() == 5


@pytest.mark.parametrize(
    "value", [object(), lambda: None, iter([]), print, (number for number in range(3))]
)
def test_values_that_are_not_listed_are_refused(value: Any) -> None:
    with pytest.raises(NotRecordable):
        Writer().write(value)


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    value: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        value = [value]
    with pytest.raises(NotRecordable, match="nested too deeply"):
        Writer().write(value)


def test_values_that_cannot_be_packed_are_refused() -> None:
    value: list[Any] = []
    for _ in range(3_000):
        value = ["l", value]
    for data in (value, ["a text without an encoding: \udcff"]):
        with pytest.raises(NotRecordable, match="cannot be packed"):
            as_bytes(data)


HOSTILE: list[tuple[Any, Any]] = [
    ([["os.system", []]], ["c", 0]),
    ([["builtins.eval", []]], ["y", 0]),
    ([["core.timers.Timers", ["__class__"]]], ["c", 0, "x"]),
    ([["core.timers.Timers", ["pop_due"]]], ["c", 0, 1]),
    ([["core.timers.Timers", "x"]], ["c", 0]),
    ("x", None),
    ([], ["c", 0]),
    ([], ["r", 0]),
    ([], ["g", "os.system"]),
    ([], ["m", "text", "upper"]),
    (
        [["core.timers.Timers", ["_due", "_heap", "_count"]]],
        ["m", ["c", 0], "__init__.__globals__"],
    ),
    ([["types.Status", []]], ["e", 0, 99]),
    ([["core.timers.Timers", ["_due"]]], ["e", 0, 1]),
    ([], ["p", 2**40]),
    ([], ["p", -1]),
    ([], ["i", "x"]),
    ([], ["R", 3, b"", None]),
    ([], []),
    ([], ["z"]),
    ([], ["d", ["l"], 1]),
    ([], ["v", "eval"]),
    ([], ["q", 2**63]),
]


@pytest.mark.parametrize(("table", "data"), HOSTILE)
@pytest.mark.parametrize("shared", [False, True])
def test_values_that_are_damaged_or_hostile_are_refused(
    table: Any, data: Any, shared: bool
) -> None:
    with pytest.raises(ProtocolError):
        Reader(table, shared=shared).read(data)


def test_values_of_bytes_are_payloads_unless_they_are_known() -> None:
    """A new field of bytes is a program's until somebody says that it is not."""
    known = {
        "wire.routes.Search.visited",
        "wire.hello.Channel.binding",
        "wire.ask_messages.ProgramList.starts",
    }
    found = {
        f"{name}.{field.name}"
        for name, cls in catalog.classes().items()
        if is_dataclass(cls)
        for field in fields(cls)
        if "bytes" in str(field.type) and field.name not in PAYLOADS
    }
    assert found <= known
