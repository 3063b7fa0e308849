"""One stream into this node: how far it is, and what waits of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.types import Incarnation, NodeId
from bmgd.wire.stream_messages import ResetReason, Segment


@dataclass(slots=True, eq=False)
class StreamIn:
    """One stream of one life of a source.

    Args:
        next: the segment expected next.
        taken: the cost of all below.
        credit: up to which cost the source may send.
        kept: what came beyond `next`, by number.
        closed: nothing more is taken of it. reason: what a source that goes on is told then.
        awaited: `next` is the last piece of a long message, whose reader has it.
        long: within a long message.
        acked_ns: when it was acknowledged last. acked: `taken` as it was told then.
        gathered: several segments came together, and were acknowledged by one.
        flowing: cost of the long segments that came in order, none of which was waited for.
        full: the next one came, and there was no room.
        refused: a copy of it was, and its source was not told yet.
        line: the first id that is known of the stream as its program has it; 0 for its own.
    """

    source: NodeId
    incarnation: Incarnation
    id: int
    topic: str
    priority: int
    next: int = 1
    taken: int = 0
    credit: int = 0
    kept: dict[int, Segment] = field(default_factory=dict)
    kept_cost: int = 0
    closed: bool = False
    reason: ResetReason | None = None
    awaited: bool = False
    long: bool = False
    full: bool = False
    refused: bool = False
    heard_ns: int = 0
    acked_ns: int = 0
    acked: int = 0
    gathered: bool = False
    flowing: int = 0
    line: int = 0

    @property
    def key(self) -> tuple[NodeId, int]:
        """Names it among all streams into this node."""
        return self.source, self.id
