"""Which members lack features that this node has, and so what the whole cluster can do.

A feature that needs every member is used while no member is known that lacks it. So a cluster of two
releases does what the older one can, and begins with the rest when its last old member is gone. What
`joining/older.py` learns is kept here. There is one entry for an id at most, of one life: it ends by the
entry of a later one, which may lack nothing, by a record of a later one, or when its life has left.
"""

from __future__ import annotations

from bmgd.core.membership.membership import Membership
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.link_messages import MemberFeatures


class Compatibility:
    """The features of this node, and of the members that lack some, or whose former lives did.

    Args:
        own: a bit each, see `bmgd.wire.features.Feature`.
        membership: says who is a member.
    """

    def __init__(self, own: int, membership: Membership) -> None:
        self.own = own
        self._membership = membership
        self._older: dict[NodeId, tuple[Incarnation, int]] = {}
        self._common = own
        self._looked_at = -1

    def learn(self, member: MemberFeatures) -> bool:
        """Keep what a life of a member has, if it is news. Whether it is: later than what is known.

        Nothing is kept of a life that is over, or of an id that no record would be believed for.
        """
        node_id, life, features = member
        membership = self._membership
        if not membership.can_be(node_id):
            return False
        known = self._older.get(node_id)
        if known is not None and known[0] >= life:
            return False
        record = membership.get(node_id)
        if record is not None and self._is_over(life, record):
            return False
        self._older[node_id] = life, features
        self._looked_at = -1
        return True

    def knows_former(self, node_id: NodeId, life: Incarnation) -> bool:
        """Whether something is known of a life of an id before this one."""
        known = self._older.get(node_id)
        return known is not None and known[0] < life

    def on_record(self, node_id: NodeId, record: Record) -> None:
        """What is believed of a member changed: of a life that is over nothing is kept."""
        known = self._older.get(node_id)
        if known is not None and self._is_over(known[0], record):
            del self._older[node_id]
            self._looked_at = -1

    @staticmethod
    def _is_over(life: Incarnation, record: Record) -> bool:
        """A death may be refuted; a later life, and having left, may not."""
        has_left = record.status is Status.LEFT and record.incarnation == life
        return record.incarnation > life or has_left

    def known(self) -> tuple[MemberFeatures, ...]:
        """All that is known, sorted by id."""
        return tuple(MemberFeatures(i, *known) for i, known in sorted(self._older.items()))

    def older(self) -> list[NodeId]:
        """The living members that lack a feature of this node, sorted."""
        return [
            node_id
            for node_id, (_, features) in sorted(self._older.items())
            if self.own & ~features and not self._membership.is_gone(node_id)
        ]

    @property
    def common(self) -> int:
        """The features that every living member has, as far as this node knows.

        Complexity: O(1), and O(older members) after a change of the membership.
        """
        if not self._older:
            return self.own
        if self._looked_at != self._membership.revision:
            self._looked_at = self._membership.revision
            self._common = self.own
            for node_id, (_, features) in self._older.items():
                if not self._membership.is_gone(node_id):
                    self._common &= features
        return self._common
