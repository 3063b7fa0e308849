"""Values as msgpack has them in frames: read strictly, and written in their shortest form."""

from __future__ import annotations

import struct
from typing import Final

DEPTH_MAX: Final = 8
"""No message has arrays so deep within others."""

_NAMED: Final[dict[int, object]] = {0xC0: None, 0xC2: False, 0xC3: True}
_UNSIGNED: Final = {0xCC: (1, 1 << 7), 0xCD: (2, 1 << 8), 0xCE: (4, 1 << 16), 0xCF: (8, 1 << 32)}
_BIN: Final = {0xC4: (1, 0), 0xC5: (2, 1 << 8), 0xC6: (4, 1 << 16)}
_TEXT: Final = {0xD9: (1, 32), 0xDA: (2, 1 << 8), 0xDB: (4, 1 << 16)}
_ARRAY: Final = {0xDC: (2, 16), 0xDD: (4, 1 << 16)}
"""By the first byte: how many bytes of a number follow, and from which number on no form is shorter."""
_NEGATIVE: Final = ((0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8))
"""The first byte of a number below -32, and how many follow, the shortest form first."""
_SIGNED: Final = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


class Unreadable(Exception):
    """These bytes are not what the page says."""


class Ready:
    """A value that was packed before.

    Args:
        data: its bytes.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data


class Reader:
    """Reads the values in some bytes, one behind the other.

    Args:
        data: the bytes.
        at: where the first one begins.

    Attributes:
        is_shortest: whether each value so far stood in its shortest form.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.is_shortest = True
        self._data = data
        self._at = at

    @property
    def at(self) -> int:
        """Where the next value begins."""
        return self._at

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows."""
        return self._at == len(self._data)

    def value(self, depth: int = 0) -> object:
        """The next value.

        Raises:
            Unreadable: there is none, or it has a type that no message has.
        """
        first = self._take(1)[0]
        if first <= 0x7F:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first in _NAMED:
            return _NAMED[first]
        if 0xA0 <= first <= 0xBF:
            return self._text(first - 0xA0)
        if 0x90 <= first <= 0x9F:
            return self._array(first - 0x90, depth)
        if first in _UNSIGNED:
            return self._number(*_UNSIGNED[first])
        if first in _BIN:
            return self._take(self._number(*_BIN[first]))
        if first in _TEXT:
            return self._text(self._number(*_TEXT[first]))
        if first in _ARRAY:
            return self._array(self._number(*_ARRAY[first]), depth)
        if first in _SIGNED:
            self.is_shortest = False
            return int.from_bytes(self._take(_SIGNED[first]), "big", signed=True)
        raise Unreadable(f"a value that begins with {first:#x}")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise Unreadable("it ends within a value")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, size: int, least: int) -> int:
        number = int.from_bytes(self._take(size), "big")
        if number < least:
            self.is_shortest = False
        return number

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise Unreadable("a text that is not UTF-8") from None

    def _array(self, length: int, depth: int) -> tuple[object, ...]:
        if depth >= DEPTH_MAX or length > len(self._data) - self._at:
            raise Unreadable("an array that cannot be")
        return tuple([self.value(depth + 1) for _ in range(length)])


def packed(value: object) -> bytes:
    """A value in its shortest form, also one of a type that no message has.

    Args:
        value: None, a boolean, an integer, a float, a text, bytes, or a list or tuple of such; a dict
            becomes a map, `Ready` what it holds.
    """
    match value:
        case Ready():
            return value.data
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return _packed_number(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            data = value.encode()
            size = len(data)
            if size < 32:
                return bytes((0xA0 + size,)) + data
            return _sized(size, ((0xD9, 1), (0xDA, 2), (0xDB, 4))) + data
        case bytes():
            return _sized(len(value), ((0xC4, 1), (0xC5, 2), (0xC6, 4))) + value
        case list() | tuple():
            return array_head(len(value)) + b"".join(map(packed, value))
        case dict():
            pairs = (packed(key) + packed(each) for key, each in value.items())
            count = len(value)
            head = bytes((0x80 + count,)) if count < 16 else _sized(count, ((0xDE, 2), (0xDF, 4)))
            return head + b"".join(pairs)
    raise TypeError(f"no value of a message: {value!r}")


def array_head(count: int) -> bytes:
    """What stands before the items of an array."""
    if count < 16:
        return bytes((0x90 + count,))
    return _sized(count, ((0xDC, 2), (0xDD, 4)))


def _packed_number(number: int) -> bytes:
    if -32 <= number < 0x80:
        return bytes((number & 0xFF,))
    if number < 0:
        first, size = next(form for form in _NEGATIVE if number >= -(1 << 8 * form[1] - 1))
        return bytes((first,)) + number.to_bytes(size, "big", signed=True)
    return _sized(number, ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)))


def _sized(number: int, forms: tuple[tuple[int, int], ...]) -> bytes:
    for first, size in forms:
        if number < 1 << 8 * size:
            return bytes((first,)) + number.to_bytes(size, "big")
    raise ValueError(f"{number} is too much for a message")
