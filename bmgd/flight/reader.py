"""Plain data as values again; `values.py` says what each was written as.

Objects are built of the classes in `catalog` without calling anything of theirs: a recording from
elsewhere is data, never a program.
"""

from __future__ import annotations

import array
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from random import Random
from types import FunctionType, MethodType
from typing import Any, Final

from bmgd.errors import BmgdError, ProtocolError
from bmgd.flight import catalog
from bmgd.flight.values import FACTORIES

_MADE_BY: Final = {name: factory for factory, name in FACTORIES.items()}
OF_DAMAGE: Final = (
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError),
    struct.error,
)
"""What is raised where plain data is none of a writer, and where a core meets values of none."""


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
        except OF_DAMAGE as error:
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
