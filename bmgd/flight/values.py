"""Values and whole cores as plain data, and back: what a recording is made of.

Plain data is None, bool, float, str, bytes and int where they stand for themselves, and lists whose
first element says what the rest is:

    ["c", class, value, ...]    an object, its fields in the order of the class table
    ["r", number]               an object or container that was written before, counted from 0
    ["t" | "l" | "s" | "f", item, ...]     a tuple, list, set, frozenset (sets sorted by their bytes)
    ["d" | "o", key, value, ...]           a dict, an OrderedDict
    ["q", maxlen, item, ...]               a deque
    ["v", class, key, value, ...]          a defaultdict; ["k", key, count, ...]: a Counter
    ["e", class, value]         a named constant; ["n", class, item, ...]: a named tuple
    ["i", bytes]                an int beyond 64 bits; ["R", state]: a `random.Random`
    ["m", object, name]         a method of an object; ["y", class]: a class; ["g", name]: a function
    ["p", length]               bytes of a payload, of which only the length was kept
    ["P", length, …]            those of a segment: the length of each message in it, its prefix included
    ["x", class, text]          an error; ["S", generation]: a forwarding snapshot; ["?"]: left out

Reading builds objects of the classes in `catalog` without calling anything of theirs: a recording
from elsewhere is data, never a program.
"""

from __future__ import annotations

import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from types import FunctionType, MethodType
from typing import Any, Final

from bmgd.errors import BmgdError, ProtocolError
from bmgd.flight import catalog
from bmgd.routing import Snapshot
from bmgd.wire.packing import pack
from bmgd.wire.segments import end_of
from bmgd.wire.stream_messages import SharedSegment

PAYLOADS: Final = frozenset({"payload", "body"})
"""Fields whose bytes are a program's own: a recording has their length, unless asked for all."""

_PLAIN: Final = (type(None), bool, float, str)
_INT_MAX: Final = 2**63


class NotRecordable(BmgdError):
    """A value that a recording cannot hold now: of a class that is not listed, or nested too deeply."""


def packed(data: Any) -> bytes:
    """Plain data as bytes.

    Raises:
        NotRecordable: it is nested too deeply, or has text that cannot be encoded.
    """
    try:
        return pack(data)
    except ValueError as error:
        raise NotRecordable(f"a value that cannot be packed: {error}") from None


def is_of_the_core(value: Any, name: str) -> bool:
    """Whether a payload is no program's: what the core broadcasts, and reads, has no topic."""
    return name == "payload" and getattr(value, "topic", None) == ""


class Omitted:
    """Stands for bytes of which only the length is kept."""

    __slots__ = ("length",)

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


class SnapshotNumber:
    """Stands for a forwarding snapshot, of which a recording has nothing but its generation."""

    __slots__ = ("generation",)

    def __init__(self, generation: int) -> None:
        self.generation = generation


class Writer:
    """Turns values into plain data.

    Args:
        payloads: whether to keep the bytes of payloads.
        shared: whether an object that comes twice is one object; for whole cores.

    Attributes:
        table: ``[name, [field, …]]`` of each class that was written.
    """

    def __init__(self, *, payloads: bool = False, shared: bool = False) -> None:
        self._payloads = payloads
        self._memo: dict[int, int] | None = {} if shared else None
        self._kept: list[object] = []
        self._numbers: dict[type[Any], int] = {}
        self._fields: list[tuple[str, ...]] = []
        self.table: list[list[Any]] = []

    @property
    def object_count(self) -> int:
        """How many objects and containers were written."""
        return len(self._kept)

    def write(self, value: Any) -> Any:
        """A value as plain data.

        Raises:
            NotRecordable: there is something in it that a recording cannot hold.
        """
        try:
            return self._write(value)
        except RecursionError:
            raise NotRecordable("a value that is nested too deeply") from None
        except (ImportError, OSError) as error:
            # The catalog imports modules: another bmgd may be installed by now, or no descriptor be free.
            raise NotRecordable(f"the classes cannot be loaded: {error}") from None

    def _write(self, value: Any) -> Any:
        cls = type(value)
        if cls in _PLAIN or cls is bytes:
            return value
        if cls is int:
            if -_INT_MAX <= value < _INT_MAX:
                return value
            return ["i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)]
        if cls is tuple:
            return ["t", *map(self._write, value)]
        if cls is Omitted:
            return ["p", value.length]
        writer = _WRITERS.get(cls)
        if writer is not None:
            seen = self._seen(value)
            return writer(self, value) if seen is None else seen
        return self._write_object(value, cls)

    def _seen(self, value: object) -> list[Any] | None:
        """A reference to what was written before; else remembers it and gives None."""
        if self._memo is None:
            return None
        number = self._memo.get(id(value))
        if number is not None:
            return ["r", number]
        self._memo[id(value)] = len(self._kept)
        # Held, so that no other object gets its place in memory meanwhile.
        self._kept.append(value)
        return None

    def _write_object(self, value: Any, cls: type[Any]) -> Any:
        if isinstance(value, Enum):
            return ["e", self._class(cls), value.value]
        if isinstance(value, tuple) and hasattr(cls, "_fields"):
            return ["n", self._class(cls), *map(self._write, value)]
        if isinstance(value, BmgdError):
            return ["x", catalog.names().get(cls, "errors.BmgdError"), str(value)]
        if isinstance(value, type):
            return ["y", self._class(value)]
        if isinstance(value, FunctionType):
            name = f"{value.__module__.removeprefix('bmgd.')}.{value.__qualname__}"
            if catalog.functions().get(name) is not value:
                raise NotRecordable(f"the function {name}")
            return ["g", name]
        if cls not in catalog.names():
            raise NotRecordable(f"a value of {cls.__module__}.{cls.__qualname__}")
        seen = self._seen(value)
        if seen is not None:
            return seen
        number = self._class(cls)
        row: list[Any] = ["c", number]
        for name in self._names(value, number):
            field: Any = getattr(value, name, _ABSENT)
            is_payload = name in PAYLOADS and type(field) in (bytes, Omitted)
            if is_payload and not (self._payloads or is_of_the_core(value, name)):
                row.append(_omitted(value, field))
            else:
                row.append(["?"] if field is _ABSENT else self._write(field))
        return row

    def _names(self, value: Any, number: int) -> Sequence[str]:
        names = self._fields[number]
        if hasattr(value, "__dict__"):
            more = [name for name in vars(value) if name not in names]
            if more:
                names = self._fields[number] = (*names, *more)
                self.table[number][1] = list(names)
        return names

    def _class(self, cls: type[Any]) -> int:
        number = self._numbers.get(cls)
        if number is None:
            name = catalog.names().get(cls)
            if name is None:
                raise NotRecordable(f"the class {cls.__module__}.{cls.__qualname__}")
            number = self._numbers[cls] = len(self.table)
            self._fields.append(catalog.slots_of(cls))
            self.table.append([name, list(catalog.slots_of(cls))])
        return number

    # --- containers and the rest --------------------------------------------------------------

    def _write_dict(self, value: dict[Any, Any]) -> list[Any]:
        return ["d", *self._items(value)]

    def _write_ordered(self, value: OrderedDict[Any, Any]) -> list[Any]:
        return ["o", *self._items(value)]

    def _write_default(self, value: defaultdict[Any, Any]) -> list[Any]:
        factory = value.default_factory
        kind = _FACTORIES.get(factory) if factory in _FACTORIES else None
        name = kind if kind is not None else self._write(factory)
        return ["v", name, *self._items(value)]

    def _write_counter(self, value: Counter[Any]) -> list[Any]:
        return ["k", *self._items(value)]

    def _items(self, value: dict[Any, Any]) -> list[Any]:
        return [self._write(part) for item in value.items() for part in item]

    def _write_list(self, value: list[Any]) -> list[Any]:
        return ["l", *map(self._write, value)]

    def _write_deque(self, value: deque[Any]) -> list[Any]:
        return ["q", value.maxlen, *map(self._write, value)]

    def _write_set(self, value: set[Any]) -> list[Any]:
        return ["s", *sorted(map(self._write, value), key=packed)]

    def _write_frozenset(self, value: frozenset[Any]) -> list[Any]:
        return ["f", *sorted(map(self._write, value), key=packed)]

    def _write_bytearray(self, value: bytearray) -> list[Any]:
        return ["b", bytes(value)]

    def _write_random(self, value: Random) -> list[Any]:
        version, words, gauss = value.getstate()
        return ["R", version, array.array("Q", words).tobytes(), gauss]

    def _write_method(self, value: MethodType) -> list[Any]:
        return ["m", self._write(value.__self__), value.__name__]

    def _write_snapshot(self, value: Snapshot | SnapshotNumber) -> list[Any]:
        return ["S", value.generation]


class _Absent:
    """A slot that holds nothing."""


_ABSENT: Final = _Absent()
_FACTORIES: Final[dict[Any, str]] = {
    None: "none", list: "list", dict: "dict", set: "set", int: "int", deque: "deque",
}  # fmt: skip
_MADE_BY: Final = {name: factory for factory, name in _FACTORIES.items()}

_WRITERS: Final[dict[type[Any], Callable[[Writer, Any], list[Any]]]] = {
    dict: Writer._write_dict,
    OrderedDict: Writer._write_ordered,
    defaultdict: Writer._write_default,
    Counter: Writer._write_counter,
    list: Writer._write_list,
    deque: Writer._write_deque,
    set: Writer._write_set,
    frozenset: Writer._write_frozenset,
    bytearray: Writer._write_bytearray,
    Random: Writer._write_random,
    MethodType: Writer._write_method,
    Snapshot: Writer._write_snapshot,
    SnapshotNumber: Writer._write_snapshot,
}


class Reader:
    """Turns plain data into values again.

    Args:
        table: the class table of the writer.
        shared: as the writer's.

    Raises:
        ProtocolError: a class of the table does not exist here, or has other fields.
    """

    def __init__(self, table: Any, *, shared: bool = False) -> None:
        self._classes: list[tuple[type[Any], list[str]]] = []
        self._memo: list[Any] | None = [] if shared else None
        try:
            for name, fields in table:
                self._classes.append((_known(name, fields), fields))
        except (TypeError, ValueError):
            raise ProtocolError("the class table is damaged") from None

    def read(self, data: Any) -> Any:
        """The value of plain data.

        Raises:
            ProtocolError: it is damaged, or names what it may not.
        """
        try:
            return self._read(data)
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            raise ProtocolError(f"a value is damaged: {error!r}") from None

    def _read(self, data: Any) -> Any:
        if not isinstance(data, list):
            return data
        kind = data[0]
        if kind == "r":
            if self._memo is None:
                raise ValueError("a reference where none can be")
            return self._memo[data[1]]
        if kind == "c":
            return self._read_object(data)
        return _READERS[kind](self, data)

    def _note(self, value: Any) -> Any:
        if self._memo is not None:
            self._memo.append(value)
        return value

    def _read_object(self, data: list[Any]) -> Any:
        cls, fields = self._classes[data[1]]
        made = self._note(cls.__new__(cls))
        # Fewer values than fields: the class gained fields in objects that came later.
        for name, value in zip(fields, data[2:], strict=False):
            if value != ["?"]:
                object.__setattr__(made, name, self._read(value))
        return made

    def _read_items(self, made: Any, data: list[Any]) -> Any:
        for place in range(0, len(data), 2):
            made[self._read(data[place])] = self._read(data[place + 1])
        return made

    def _read_enum(self, data: list[Any]) -> Any:
        cls = self._classes[data[1]][0]
        if not catalog.is_enum(cls):
            raise ValueError("no named constant")
        return cls(data[2])

    def _read_named_tuple(self, data: list[Any]) -> Any:
        cls = self._classes[data[1]][0]
        return tuple.__new__(cls, map(self._read, data[2:]))

    def _read_default(self, data: list[Any]) -> Any:
        factory = _MADE_BY[data[1]] if isinstance(data[1], str) else self._read(data[1])
        return self._read_items(self._note(defaultdict(factory)), data[2:])

    def _read_list(self, data: list[Any]) -> Any:
        made: list[Any] = self._note([])
        made.extend(map(self._read, data[1:]))
        return made

    def _read_deque(self, data: list[Any]) -> Any:
        made: deque[Any] = self._note(deque(maxlen=data[1]))
        made.extend(map(self._read, data[2:]))
        return made

    def _read_set(self, data: list[Any]) -> Any:
        made: set[Any] = self._note(set())
        made.update(map(self._read, data[1:]))
        return made

    def _read_frozenset(self, data: list[Any]) -> Any:
        place = -1 if self._memo is None else len(self._memo)
        self._note(None)
        made = frozenset(map(self._read, data[1:]))
        if self._memo is not None:
            self._memo[place] = made
        return made

    def _read_random(self, data: list[Any]) -> Any:
        made = self._note(Random())
        words = array.array("Q", data[2])
        made.setstate((data[1], tuple(words), data[3]))
        return made

    def _read_method(self, data: list[Any]) -> Any:
        place = -1 if self._memo is None else len(self._memo)
        self._note(None)
        owner, name = self._read(data[1]), data[2]
        if type(owner) not in catalog.names() or not isinstance(name, str):
            raise ValueError("no method of the core")
        method = getattr(type(owner), name)
        if not isinstance(method, FunctionType):
            raise ValueError("no method")
        made = MethodType(method, owner)
        if self._memo is not None:
            self._memo[place] = made
        return made

    def _read_error(self, data: list[Any]) -> Any:
        return BmgdError(data[2])


_READERS: Final[dict[str, Callable[[Reader, list[Any]], Any]]] = {
    "t": lambda reader, data: tuple(map(reader._read, data[1:])),
    "l": Reader._read_list,
    "d": lambda reader, data: reader._read_items(reader._note({}), data[1:]),
    "o": lambda reader, data: reader._read_items(reader._note(OrderedDict()), data[1:]),
    "k": lambda reader, data: reader._read_items(reader._note(Counter()), data[1:]),
    "v": Reader._read_default,
    "q": Reader._read_deque,
    "s": Reader._read_set,
    "f": Reader._read_frozenset,
    "b": lambda reader, data: reader._note(bytearray(data[1])),
    "e": Reader._read_enum,
    "n": Reader._read_named_tuple,
    "i": lambda reader, data: int.from_bytes(data[1], "big", signed=True),
    "R": Reader._read_random,
    "m": Reader._read_method,
    "y": lambda reader, data: reader._classes[data[1]][0],
    "g": lambda reader, data: catalog.functions()[data[1]],
    "p": lambda reader, data: bytes(_length(data[1])),
    "P": lambda reader, data: _blank_messages(data[1:]),
    "x": Reader._read_error,
    "S": lambda reader, data: reader._note(None),
    "?": lambda reader, data: None,
}


def _length(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= 2**27:
        raise ValueError("no length of a payload")
    return value


def _omitted(value: Any, field: bytes | Omitted) -> list[Any]:
    """A payload without its bytes. The core may cut a segment between messages: their lengths stay."""
    count = 1 if isinstance(value, SharedSegment) else getattr(value, "count", 0)
    length = len(field)
    if not 0 < count <= length:
        return ["p", length]
    if isinstance(field, Omitted):
        # They were not looked at one by one when it came; mostly they are alike.
        some, more = divmod(length, count)
        return ["P", *(some + (number < more) for number in range(count))]
    sizes, at = [], 0
    try:
        while at < length:
            sizes.append(end_of(field, 1, at) - at)
            at += sizes[-1]
    except ValueError:
        return ["p", length]
    return ["P", *sizes]


def _blank_messages(lengths: list[Any]) -> bytes:
    """Messages of zeros, each so long with its prefix; where that is none, zeros of that length."""
    _length(sum(map(_length, lengths)))
    parts = []
    for length in lengths:
        kind, width = (0xC4, 1) if length <= 257 else (0xC5, 2) if length <= 65_538 else (0xC6, 4)
        size = max(0, length - 1 - width)
        head = bytes((kind,)) + size.to_bytes(width, "big")
        parts.append(head[:length].ljust(length, b"\0"))
    return b"".join(parts)


def _known(name: Any, fields: Any) -> type[Any]:
    cls = catalog.classes().get(name)
    if cls is None or not isinstance(fields, list):
        raise ProtocolError(f"this bmgd has no {name}: replay with the one that recorded it")
    slots = catalog.slots_of(cls)
    for field in fields:
        # What a class has itself, its methods above all, is no field of an object.
        if field not in slots and (not isinstance(field, str) or hasattr(cls, field)):
            raise ProtocolError(
                f"{name} has no field {field!r}: replay with the bmgd that recorded it"
            )
    return cls
