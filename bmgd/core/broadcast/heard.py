"""What this node has of the reliable broadcasts of one life of another node, its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from bmgd.core.membership.membership import Membership
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import ReliableBroadcast

LifeKey = tuple[NodeId, Incarnation]


class SkippedRange(NamedTuple):
    """Counts that are not for this node, both ends included.

    Args:
        missed: whether its programs miss them.
        said: whether the source has said so, of this life.
    """

    first: int
    last: int
    missed: bool
    said: bool


@dataclass(slots=True, eq=False)
class Heard:
    """What this node has of one life of a source.

    Attributes:
        watermark: all for this node up to here was given to its readers, or is skipped.
        stable: up to where the source told that everybody has it.
        copies: what is kept, by its count: up to the watermark in order, and what waits beyond.
        copies_bytes: their cost.
        skips: ranges above the watermark that are not for this node, in order.
        given: whether readers were shown anything of it: a broadcast, or that they missed one.
        begun: whether the source itself told this life what it skips: what it sends later is for it too.
        silent: from which count on, and when last, it was passed over, no reader told, and the source
            had not said that this is right; or None.
        pieces_of: topics of which readers were given pieces since the last acknowledgement.
        asking: whether the source is to say what this node skips, until it does.
        orphan_ns: since when nobody was there who would send it again; 0 when somebody is.
        shared: whether neighbors compare what they have of it, because of that.
        told_stable: up to where neighbors told that it is stable.
        told_top: the highest count that neighbors told of, also those whose links have ended since.
        told, said, said_ns: the reach that neighbors told, that they were told, and when.
        pulled: how often neighbors were asked for copies, and none came.
        asked, asked_at: who was asked last, and the watermark and the number of copies then.
        asked_ns, awaited: when that was, and `came` when all that can come of it has come.
        unanswered: how often neighbors were asked since all of that came from them.
        asks: how often anybody was.
        wanted: from which count on neighbors asked for copies that this node skips.
        relayed, relay_from_ns: how often another was asked for those in vain, and when one may be again.
        came, came_ns: how many frames with copies have come, and when the last one did.
        gap_ns: the longest wait for one of those that a neighbor was asked for.
    """

    source: NodeId
    incarnation: Incarnation
    watermark: int = 0
    stable: int = 0
    copies: dict[int, ReliableBroadcast] = field(default_factory=dict)
    copies_bytes: int = 0
    skips: list[SkippedRange] = field(default_factory=list)
    given: bool = False
    begun: bool = False
    silent: tuple[int, int] | None = None
    unacknowledged_bytes: int = 0
    pieces_of: dict[str, None] = field(default_factory=dict)
    reminded_ns: int = 0
    asking: bool = False
    orphan_ns: int = 0
    shared: bool = False
    told_stable: int = 0
    told_top: int = 0
    told: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    said: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    said_ns: dict[NodeId, int] = field(default_factory=dict)
    pulled: dict[NodeId, int] = field(default_factory=dict)
    asked: NodeId | None = None
    asked_at: tuple[int, int] = (0, 0)
    asked_ns: int = 0
    awaited: int = 0
    unanswered: dict[NodeId, int] = field(default_factory=dict)
    asks: int = 0
    wanted: dict[NodeId, int] = field(default_factory=dict)
    relayed: int = 0
    relay_from_ns: int = 0
    came: int = 0
    came_ns: int = 0
    gap_ns: int = 0

    @property
    def key(self) -> LifeKey:
        return self.source, self.incarnation

    @property
    def reach(self) -> tuple[int, int]:
        """The watermark, and the highest count of which there is a copy, or the watermark."""
        return self.watermark, max(self.watermark, max(self.copies, default=0))

    def forget_neighbors(self) -> None:
        """Nothing is shared with neighbors any more: what they told and were told is void."""
        self.told_stable = self.told_top = 0
        self.told.clear()
        self.said.clear()
        self.said_ns.clear()
        self.pulled.clear()
        self.unanswered.clear()
        self.wanted.clear()
        self.asked, self.gap_ns = None, 0

    def note_came(self, now_ns: int) -> None:
        """A frame with a copy came."""
        if self.asked is not None and self.came < self.awaited:
            self.gap_ns = max(self.gap_ns, now_ns - max(self.asked_ns, self.came_ns))
        self.came, self.came_ns = self.came + 1, now_ns

    def is_orphan(self, membership: Membership) -> bool:
        """Whether this life is over, or is none, as far as is known here."""
        known = membership.incarnation(self.source)
        return membership.is_gone(self.source) or known != self.incarnation
