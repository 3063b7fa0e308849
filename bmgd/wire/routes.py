"""What every routed message carries: whom it is for, who wrote it, and its search where it has one."""

from __future__ import annotations

from bmgd.dataclass import dataclass
from bmgd.types import Incarnation, NodeId

CONTROL_PRIORITY, HIGH_PRIORITY, NORMAL_PRIORITY, BULK_PRIORITY = range(4)
"""Of routed messages: what goes first where several wait for a link."""
Visited = bytes | tuple[tuple[NodeId, NodeId], ...]
VISITED_RUN_BYTES = 11
"""The most bytes that one run of visited ids has in a frame."""


@dataclass(frozen=True, slots=True)
class Search:
    """The state of a depth-first search in careful mode (ISPA07 §5.1), carried by the message.

    Args:
        visited: a bitmap over ids, bit `id % 8` of byte `id // 8`; or runs (first, last) of ids,
            ascending, none touching another.
        stack: the ids on the way from the search's start to the sender, oldest first.
        restarts: how often the search began anew because the way back was gone.
    """

    visited: Visited
    stack: tuple[NodeId, ...]
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """The routing header of a message, and its search where it is in careful mode.

    Args:
        destination: the node id that the message is for.
        source: the node id that wrote it.
        source_incarnation: the whole incarnation of the source.
        destination_tag: `incarnation_tag` of the destination's life, 0 when not known yet.
        sequence: of a segment and its answers the stream and the number in it; of an `Ask` the
            number of the suspicion, of an `Answer` that of its ask.
        hop_budget: relays left before careful mode, 0..255.
        priority: see `CONTROL_PRIORITY`.
        record: every node on the way writes itself down.
        search: the state of careful mode, or None.
    """

    destination: NodeId
    source: NodeId
    source_incarnation: Incarnation
    destination_tag: int = 0
    sequence: int = 0
    hop_budget: int = 0
    priority: int = 0
    record: bool = False
    search: Search | None = None
