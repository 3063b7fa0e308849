"""Types of fields: whole numbers, texts, rows, arrays; which values each has, at and beyond its bounds.

`read` takes a value of msgpack and gives what it means. `edge` gives one at a bound that is good, `wrong`
one that no message may have: a little beyond a bound, or of another type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from random import Random
from typing import Any, Final

from bmgd.sim.witness.packed import Ready, Unreadable, array_head, packed

U8, U16, U32, U64 = 2**8 - 1, 2**16 - 1, 2**32 - 1, 2**64 - 1
ID_MAX: Final = 2**31 - 1
SET_SPACE: Final = 2**17
"""Ids in a set are below."""
FOREIGN: Final[tuple[Any, ...]] = (1.0, {}, {1: 1}, Ready(b"\xd4\x05\x00"), Ready(b"\xc1"))
"""Values of types that no field has: floats, maps, extensions; the last is no value at all."""


def is_rare(random: Random) -> bool:
    """Whether a value may be one that takes long to make and to read."""
    return random.random() < 0.08


class Field(ABC):
    """A type of fields."""

    @abstractmethod
    def read(self, value: object) -> Any:
        """What a value means.

        Raises:
            Unreadable: it is none of this type.
        """

    def plain(self, value: Any) -> Any:
        """The same of the attribute of a message."""
        return value

    @abstractmethod
    def edge(self, random: Random) -> Any:
        """A good value, at a bound where there is one."""

    def wrong(self, random: Random) -> Any:
        """A value that is none of this type."""
        if random.random() < 0.3:
            return random.choice(FOREIGN)
        return random.choice(self.wrongs(random))

    @abstractmethod
    def wrongs(self, random: Random) -> tuple[Any, ...]:
        """Some of those values, but for `FOREIGN`."""


class Whole(Field):
    """An integer from `low` to `high`."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def read(self, value: object) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise Unreadable(f"{value!r} is not an integer in {self.low}..{self.high}")
        return value

    def edge(self, random: Random) -> int:
        return random.choice((self.low, self.high, random.randint(self.low, self.high)))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        below, above = self.low - 1, self.high + 1
        return below, *([above, above] if above <= U64 else []), True, False, "1", b"1", None, [1]


class Truth(Field):
    """A boolean."""

    def read(self, value: object) -> bool:
        if type(value) is not bool:
            raise Unreadable(f"{value!r} is not a boolean")
        return value

    def edge(self, random: Random) -> bool:
        return random.random() < 0.5

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        return 0, 1, None, "true", b"\x01", [True]


class Text(Field):
    """A text of `low` to `high` bytes."""

    def __init__(self, high: int, low: int = 0) -> None:
        self.low, self.high = low, high

    def read(self, value: object) -> str:
        if type(value) is not str or not self.low <= len(value.encode()) <= self.high:
            raise Unreadable(f"not a text of {self.low}..{self.high} bytes")
        return value

    def edge(self, random: Random) -> str:
        two = "é" * (self.high // 2) + "x" * (self.high % 2)
        return random.choice(("x" * self.low, "x" * self.high, two))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        long = "x" * (self.high + 1), "é" * (self.high // 2 + 1)
        torn = Ready(b"\xa2\xc3\x28"), Ready(b"\xa3\xed\xa0\x80")
        return *long, *([""] if self.low else []), *torn, b"text", 1, None, ["x"]


class Bytes(Field):
    """`low` to `high` bytes."""

    def __init__(self, high: int, low: int = 0) -> None:
        self.low, self.high = low, high

    def read(self, value: object) -> bytes:
        if type(value) is not bytes or not self.low <= len(value) <= self.high:
            raise Unreadable(f"not {self.low}..{self.high} bytes")
        return value

    def edge(self, random: Random) -> bytes:
        return bytes(random.choice((self.low, self.low + 1, self.high)))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        short = [bytes(self.low - 1)] if self.low else []
        return bytes(self.high + 1), *short, "bytes", 1, None, [1]


class Digest(Field):
    """128 bits."""

    def read(self, value: object) -> int:
        return int.from_bytes(Bytes(16, 16).read(value), "big")

    def edge(self, random: Random) -> bytes:
        return random.choice((bytes(16), b"\xff" * 16, random.randbytes(16)))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        return b"", bytes(15), bytes(17), "0" * 16, 0, None


class Either(Field):
    """`nil`, or what another type has."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def read(self, value: object) -> Any:
        return None if value is None else self._field.read(value)

    def edge(self, random: Random) -> Any:
        return None if random.random() < 0.3 else self._field.edge(random)

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        return tuple(each for each in self._field.wrongs(random) if each is not None)


class Row(Field):
    """An array with one value of each of some types."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields

    def read(self, value: object) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) != len(self.fields):
            raise Unreadable(f"not an array of {len(self.fields)}")
        return tuple([field.read(each) for field, each in zip(self.fields, value, strict=True)])

    def edge(self, random: Random) -> list[Any]:
        return [field.edge(random) for field in self.fields]

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        row, bad = self.edge(random), self.edge(random)
        at = random.randrange(len(row))
        bad[at] = self.fields[at].wrong(random)
        return bad, bad, bad, row[:-1], [*row, 0], [], 3, None


class Items(Field):
    """An array of `low` to `high` values of one type."""

    def __init__(self, field: Field, high: int, low: int = 0) -> None:
        self.field, self.low, self.high = field, low, high

    def read(self, value: object) -> Any:
        if type(value) is not tuple or not self.low <= len(value) <= self.high:
            raise Unreadable(f"not an array of {self.low}..{self.high}")
        return tuple([self.field.read(each) for each in value])

    def edge(self, random: Random) -> Any:
        most = self.high if is_rare(random) else min(self.high, self.low + 2)
        return self._of(random, random.choice((self.low, self.low + 1, most)))

    def _of(self, random: Random, count: int) -> Any:
        """So many values, or a few more than `high`."""
        head, item = array_head(count), packed(self.field.edge(random))
        return Ready(head + item * count)

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        many = [self._of(random, self.high + 1)] if is_rare(random) else []
        few = [self._of(random, self.low - 1)] if self.low else []
        items = [self.field.edge(random) for _ in range(max(1, self.low))]
        items[-1] = self.field.wrong(random)
        return *many, *many, *many, *few, items, items, items, {}, 1, None, "array"


class Rows(Items):
    """An array of rows; where they are `ordered`, their first values ascend strictly."""

    def __init__(self, row: Row, high: int, *, ordered: bool = False) -> None:
        super().__init__(row, high)
        self._row, self._ordered = row, ordered

    def read(self, value: object) -> Any:
        rows = super().read(value)
        if self._ordered and any(a[0] >= b[0] for a, b in pairwise(rows)):
            raise Unreadable("rows out of order")
        return rows

    def _of(self, random: Random, count: int) -> Any:
        if not self._ordered:
            return super()._of(random, count)
        row = b"".join(packed(field.edge(random)) for field in self._row.fields[1:])
        first = random.choice((0, ID_MAX + 1 - count))
        head = array_head(len(self._row.fields))
        rows = [head + packed(first + number) + row for number in range(count)]
        return Ready(array_head(count) + b"".join(rows))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        wrongs = super().wrongs(random)
        if not self._ordered:
            return wrongs
        low, high = self._row.edge(random), self._row.edge(random)
        low[0], high[0] = 7, 8
        return *wrongs, [high, low], [low, low], [low, high, high]
