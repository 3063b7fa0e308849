"""A segment that this node answers for, from its taking until a program has consumed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bmgd.core.topics.questions import Asker
from bmgd.types import Incarnation, NodeId
from bmgd.wire.segments import OVERHEAD_BYTES


class Offer(Enum):
    """What became of a segment that was offered."""

    TAKEN = "taken"
    FULL = "full"
    NO_READER = "no reader"
    """Of pieces, and of answers: who could take them is gone, or was never there."""
    AWAITED = "awaited"
    """The last piece of a long message: `LongSettled` tells when its reader has taken the whole."""


@dataclass(slots=True, eq=False)
class Taken:
    """A segment that this node answers for until a program has consumed it.

    Args:
        stream: of the source; 0 for none.
        count: whole messages in the body; 0 of a piece.
        size, first, last: of a piece, see `bmgd.core.commands.PutSegment`.
        inbox, question: of questions, see `bmgd.wire.stream_messages.Segment`.
        line: as of a `StreamIn`; 0 where it is the stream.
    """

    source: NodeId
    incarnation: Incarnation
    stream: int
    count: int
    body: bytes = field(repr=False)
    size: int = 0
    first: bool = False
    last: bool = False
    redelivered: bool = False
    consumed: int = 0
    inbox: int = 0
    question: int = 0
    line: int = 0

    @property
    def line_key(self) -> tuple[NodeId, int]:
        """The stream as its program has it: what belongs to it is in order."""
        return self.source, self.line or self.stream

    @property
    def cost(self) -> int:
        """What it costs in memory and credit, in bytes."""
        return len(self.body) + OVERHEAD_BYTES

    @property
    def asker(self) -> Asker:
        """Who asked, of questions."""
        return Asker(self.source, self.incarnation, self.inbox)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the questions in it, or of the one that it is a piece of."""
        return tuple(range(self.question, self.question + max(1, self.count)))
