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

`writer.py` writes it, `reader.py` reads it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from bmgd.errors import BmgdError
from bmgd.wire.packing import pack

PAYLOADS: Final = frozenset({"payload", "body"})
"""Fields whose bytes are a program's own: a recording has their length, unless asked for all."""

FACTORIES: Final[dict[Any, str]] = {
    None: "none", list: "list", dict: "dict", set: "set", int: "int", deque: "deque",
}  # fmt: skip
"""What makes the values of a defaultdict, and how each is named."""


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
