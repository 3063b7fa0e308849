"""Types of fields that only docs/wire-protocol.md has: records, runs, gaps, sets, branches, skips."""

from __future__ import annotations

import struct
from itertools import pairwise
from random import Random
from typing import Any

from bmgd.sim.witness.fields import (
    ID_MAX,
    SET_SPACE,
    U32,
    U64,
    Bytes,
    Field,
    Items,
    Row,
    Rows,
    Text,
    Truth,
    Whole,
    is_rare,
)
from bmgd.sim.witness.packed import Unreadable


class Records(Rows):
    """Records by id."""

    def __init__(self) -> None:
        row = Row(Whole(0, ID_MAX), Whole(0, U64), Whole(0, U32), Whole(0, 4), Text(255))
        super().__init__(row, 256, ordered=True)

    def plain(self, value: Any) -> Any:
        return tuple([(node_id, *record) for node_id, record in value])


class Runs(Items):
    """Runs (first, last) of ids; they ascend and do not touch."""

    def __init__(self, high: int) -> None:
        super().__init__(Row(Whole(0, ID_MAX), Whole(0, ID_MAX)), high)

    def read(self, value: object) -> Any:
        runs = super().read(value)
        if any(first > last for first, last in runs):
            raise Unreadable("a run that ends before it begins")
        if any(a[1] + 1 >= b[0] for a, b in pairwise(runs)):
            raise Unreadable("runs out of order, or touching")
        return runs

    def _of(self, random: Random, count: int) -> Any:
        last = ID_MAX if random.random() < 0.5 else 2 * count
        return [[last - 2 * left, last - 2 * left] for left in range(count - 1, -1, -1)]

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        bad = [[6, 5]], [[7, 8], [5, 6]], [[5, 6], [6, 7]], [[5, 6], [7, 8]], [[5]], [[5, 6, 7]]
        many = [self._of(random, self.high + 1)] * 3 if is_rare(random) else []
        return *many, *bad, [[-1, 5]], [[5, ID_MAX + 1]], [5], None


class Gaps(Items):
    """Pairs (first, last) of numbers of segments in one array, ascending."""

    def __init__(self) -> None:
        super().__init__(Whole(1, U32), 64)

    def read(self, value: object) -> Any:
        numbers = super().read(value)
        if len(numbers) % 2 or any(a > b for a, b in pairwise(numbers)):
            raise Unreadable("not the gaps of a stream")
        return numbers

    def plain(self, value: Any) -> Any:
        return tuple([number for gap in value for number in gap])

    def edge(self, random: Random) -> Any:
        return random.choice(([], [1, 1], [3, 5, 9, U32], list(range(2, 130, 2))))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        return [0, 1], [3], [5, 3], [3, 5, 4, 4], list(range(2, 134, 2)), [1, U32 + 1], 3, None


class IdSet(Field):
    """A set of ids, as an integer with a bit for each; at most so many bytes."""

    def __init__(self, high: int = 5 + SET_SPACE // 8) -> None:
        self._high = high

    def read(self, value: object) -> int:
        data = Bytes(self._high).read(value)
        if not data:
            return 0
        form, body = data[0], data[1:]
        if form == 2:
            return self._bitmap(body)
        if form > 2 or not body or len(body) % (4 if form else 8):
            raise Unreadable("not a set of ids")
        numbers = [number for (number,) in struct.iter_unpack(">I", body)]
        runs = list(zip(numbers[::2], numbers[1::2], strict=True)) if form == 0 else []
        pairs = runs or [(number, number) for number in numbers]
        apart = 1 if runs else 0
        if any(a[1] + apart >= b[0] for a, b in pairwise(pairs)):
            raise Unreadable("ids of a set out of order")
        if any(first > last for first, last in pairs) or pairs[-1][1] >= SET_SPACE:
            raise Unreadable("ids of a set out of range")
        return sum((1 << last + 1) - (1 << first) for first, last in pairs)

    def _bitmap(self, body: bytes) -> int:
        base = int.from_bytes(body[:4], "big")
        bits = body[4:]
        if not bits or not bits[0] or not bits[-1] or base % 8:
            raise Unreadable("not a bitmap of ids")
        if base + 8 * len(bits) > SET_SPACE:
            raise Unreadable("ids of a bitmap out of range")
        return int.from_bytes(bits, "little") << base

    def edge(self, random: Random) -> bytes:
        if random.random() < 0.5:
            return _some_set(random)
        last = _u32(SET_SPACE - 1)
        return random.choice(
            (
                *(b"", b"\x01" + last, b"\x01" + _u32(0, 1) + last, b"\x00" + _u32(0, 0)),
                *(b"\x00" + _u32(1, 2, 4, 5), b"\x00" + _u32(3) + last),
                *(b"\x02" + _u32(0) + b"\x01", b"\x02" + _u32(SET_SPACE - 8) + b"\x80"),
                b"\x02" + _u32(8) + b"\x80\x00\x01",
            )
        )

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        u32 = _u32
        return (
            *(b"\x00", b"\x01", b"\x02", b"\x03" + u32(1), b"\x00" + u32(1, 2, 3)),
            *(b"\x00" + u32(2, 1), b"\x00" + u32(1, 2, 3, 4), b"\x00" + u32(1, SET_SPACE)),
            *(b"\x00" + u32(5, 6, 1, 2), b"\x01\x00", b"\x01" + u32(2, 2), b"\x01" + u32(3, 2)),
            *(b"\x01" + u32(SET_SPACE), b"\x02" + u32(0), b"\x02" + u32(4) + b"\x01"),
            *(b"\x02" + u32(0) + b"\x00\x01", b"\x02" + u32(0) + b"\x01\x00"),
            *(b"\x02" + u32(SET_SPACE) + b"\x01", b"\x02" + u32(SET_SPACE - 8) + b"\x01\x01"),
            *(b"\x02\x00\x00", b"\x02" + u32(0) + b"\x00", bytes(self._high + 1), "", 9, None),
            b"\x02" + u32(0) + b"\x01" * (self._high - 4),
        )


def _some_set(random: Random) -> bytes:
    """A list of a few ids near to each other: each form of a set is the shortest one of some."""
    first, span = random.randrange(300), random.choice((3, 9, 17, 40, 120))
    count = random.randint(1, min(span, 12))
    if random.random() < 0.3:
        ids = list(range(first, first + count))
    else:
        ids = sorted(random.sample(range(first, first + span), count))
    return b"\x01" + _u32(*ids)


def _u32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def shortest_set_bytes(members: int) -> int:
    """How long the shortest form of a set of ids is."""
    if not members:
        return 0
    digits = f"{members:b}"
    highest = len(digits) - 1
    lowest = highest - digits.rindex("1")
    runs = f"0{digits}".count("01")
    bitmap = 4 + highest // 8 - lowest // 8 + 1
    return 1 + min(8 * runs, 4 * digits.count("1"), bitmap)


class Entries(Field):
    """The destinations of a shared segment: rows of 24 bytes, ascending by id."""

    def read(self, value: object) -> Any:
        data = Bytes(512 * 24, 24).read(value)
        if len(data) % 24:
            raise Unreadable("not the entries of a shared segment")
        entries = tuple(struct.iter_unpack(">IIQII", data))
        if any(a[0] >= b[0] for a, b in pairwise(entries)) or entries[-1][0] > ID_MAX:
            raise Unreadable("entries out of order, or out of range")
        return entries

    def edge(self, random: Random) -> bytes:
        count = 512 if is_rare(random) else random.choice((1, 2))
        first = random.choice((0, ID_MAX + 1 - count))
        return b"".join(_u32(first + number) + random.randbytes(20) for number in range(count))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        one, other = (_u32(number) + random.randbytes(20) for number in (9, 10))
        order = one + one, other + one
        few = b"", one[:-1], one + b"\x00", *order, _u32(ID_MAX + 1) + one[4:], "x", None
        if not is_rare(random):
            return few
        return *few, *([b"".join(_u32(number) + one[4:] for number in range(513))] * 3)


class Branches(Rows):
    """Branches, whose covers have at most 1 MiB as bitmaps from id 0 on."""

    def __init__(self) -> None:
        super().__init__(Row(Whole(0, ID_MAX), IdSet()), 1024)

    def read(self, value: object) -> Any:
        branches = super().read(value)
        if sum((cover.bit_length() + 7) // 8 for _, cover in branches) > 2**20:
            raise Unreadable("covers of more than 1 MiB")
        return branches

    def edge(self, random: Random) -> Any:
        cover, last = self._row.fields[1].edge(random), b"\x01" + _u32(SET_SPACE - 1)
        few: tuple[list[Any], ...] = [], [[0, cover]], [[ID_MAX, cover]], [[9, b""], [9, cover]]
        wide = [[9, last]] * 64
        return random.choice(([[9, b""]] * 1024, wide) if is_rare(random) else few)

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        row, last = self._row.wrong(random), b"\x01" + _u32(SET_SPACE - 1)
        many = ([[9, b""]] * 1025, [[9, last]] * 65) * 2 if is_rare(random) else ()
        return *many, [row], [row], [row], [[9, b""], row], {}, 9, None


class Skips(Rows):
    """What nodes need not wait for: (id, first, last, missed)."""

    def __init__(self) -> None:
        super().__init__(Row(Whole(0, ID_MAX), Whole(1, U64), Whole(1, U64), Truth()), 16)

    def read(self, value: object) -> Any:
        skips = super().read(value)
        if any(first > last for _, first, last, _ in skips):
            raise Unreadable("a skip that ends before it begins")
        return skips

    def edge(self, random: Random) -> Any:
        first = random.choice((1, 7, U64))
        skip = [random.choice((0, ID_MAX)), first, random.choice((first, U64)), True]
        return [skip] * random.choice((0, 1, 16))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        bad = [[9, 3, 2, True]], [[9, 0, 2, True]], [[9, 1, 2, 1]], [[9, 1, 2]], [[-1, 1, 2, True]]
        return *bad, [[9, 1, 2, True]] * 17, [[9, 1, 2, True, 0]], [[ID_MAX + 1, 1, 1, True]], 9


class Piece(Row):
    """Where a piece stands in a long broadcast: number, at, size."""

    def __init__(self) -> None:
        super().__init__(Whole(1, U64), Whole(0, 2**40), Whole(0, 2**40))


class Size(Field):
    """The size of a piece; of questions with their inbox and the number of the first."""

    def __init__(self) -> None:
        self._size = Whole(0, 2**40)
        self._asks = Row(self._size, Whole(1, U32), Whole(1, U64))

    def read(self, value: object) -> Any:
        return self._asks.read(value) if type(value) is tuple else self._size.read(value)

    def edge(self, random: Random) -> Any:
        return random.choice((self._size, self._asks)).edge(random)

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        bad = (
            [0, 3],
            [0, 3, 9, 1],
            [0, 0, 9],
            [0, U32 + 1, 9],
            [0, 3, 0],
            [0, True, 9],
            [True, 3, 9],
        )
        return *bad, [], [0, 3, None], [2**40 + 1, 3, 9], -1, 2**40 + 1, True, None, "1"
