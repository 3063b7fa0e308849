"""Values as plain data; `values.py` says what each is written as."""

from __future__ import annotations

import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from types import FunctionType, MethodType
from typing import Any, Final

from bmgd.errors import BmgdError
from bmgd.flight import catalog
from bmgd.flight.values import (
    FACTORIES,
    PAYLOADS,
    NotRecordable,
    Omitted,
    SnapshotNumber,
    is_of_the_core,
    packed,
)
from bmgd.routing import Snapshot
from bmgd.wire.segments import end_of
from bmgd.wire.stream_messages import SharedSegment

_PLAIN: Final = (type(None), bool, float, str)
_INT_MAX: Final = 2**63


class _Absent:
    """A slot that holds nothing."""


_ABSENT: Final = _Absent()


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
        kind = FACTORIES.get(factory) if factory in FACTORIES else None
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
