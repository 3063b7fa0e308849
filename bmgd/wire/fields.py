"""Single fields of a message, checked as they are read, and how a kind says which fields it has.

What comes from a peer is data, not trust: whatever is not as it should be is a `ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from bmgd.dataclass import dataclass
from bmgd.errors import ProtocolError
from bmgd.types import NODE_ID_MAX, NodeId
from bmgd.wire.bounds import ROUTE_IDS_MAX, TOPIC_BYTES_MAX

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1

Fields = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """How one kind looks behind the header.

    Args:
        message: its class.
        fields: how many there are, without the state of a search.
        write: from a message to the values of the fields.
        read: from those values to the arguments of the class, behind the route where it has one;
            raises `ProtocolError`.
    """

    message: type[Any]
    fields: int
    write: Callable[[Any], tuple[object, ...]]
    read: Callable[[Fields], tuple[Any, ...]]


def read_int(value: object, low: int, high: int) -> int:
    """An integer, and no boolean, from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise ProtocolError(f"not an integer in {low}..{high}")
    return value


def read_text(value: object, bytes_max: int) -> str:
    """A text of at most so many bytes of UTF-8."""
    if type(value) is not str or len(value.encode()) > bytes_max:
        raise ProtocolError(f"not a text of at most {bytes_max} bytes")
    return value


def read_topic(value: object) -> str:
    """The name of a topic: a text that is not empty."""
    topic = read_text(value, TOPIC_BYTES_MAX)
    if not topic:
        raise ProtocolError("an empty topic")
    return topic


def read_bytes(value: object, bytes_max: int) -> bytes:
    """At most so many bytes."""
    if type(value) is not bytes or len(value) > bytes_max:
        raise ProtocolError(f"not at most {bytes_max} bytes")
    return value


def read_bool(value: object) -> bool:
    """A boolean."""
    if type(value) is not bool:
        raise ProtocolError("not a boolean")
    return value


def read_array(value: object, items_max: int) -> tuple[object, ...]:
    """An array of at most so many items, which are not looked at."""
    if type(value) is not tuple or len(value) > items_max:
        raise ProtocolError(f"not an array of at most {items_max}")
    return value


def read_id(value: object) -> NodeId:
    """The id of a node."""
    return NodeId(read_int(value, 0, NODE_ID_MAX))


def read_ids(value: object) -> tuple[NodeId, ...]:
    """The ids of a recorded way, in any order."""
    return tuple(read_id(item) for item in read_array(value, ROUTE_IDS_MAX))


def read_runs(value: object, runs_max: int) -> tuple[tuple[NodeId, NodeId], ...]:
    """Runs (first, last) of ids, at most so many, ascending, none touching another."""
    runs = tuple(_read_run(item) for item in read_array(value, runs_max))
    if any(a[1] + 1 >= b[0] for a, b in pairwise(runs)):
        raise ProtocolError("runs out of order, or touching")
    return runs


def _read_run(value: object) -> tuple[NodeId, NodeId]:
    ends = read_array(value, 2)
    if len(ends) != 2:
        raise ProtocolError("not a run of ids")
    first = read_id(ends[0])
    return first, NodeId(read_int(ends[1], first, NODE_ID_MAX))
