"""What this node believes of every id: a baseline for all founders, and records that differ.

Records are joined by taking the greater, so any two memberships that saw the same records are equal,
in whatever order those came (design: "a true join, so memberships converge without consensus"). The
digest is the sum, modulo 2**128, of one hash per record that differs from the baseline: it changes
in O(1), and 64 partial sums by id tell where two memberships differ.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left, insort

from bmgd.peers import PeerList
from bmgd.routing import neighbor_ids, rank_of
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId, Rank, Record, Status
from bmgd.wire.messages import BUCKETS

ID_GAP_MAX = 4096
"""A record is not believed that would make this many ids between the founders and it unknown."""

JOINED_MAX = 2**17
"""No id is believed that is this far above the founders: members cannot be invented without bound."""
LIVES_MAX = 2**18
"""Lives of so many ids are remembered without a record; others count as not known yet."""

_MODULUS = 2**128
_HASHED = struct.Struct(">IQIB")
_GONE = (Status.EXCLUDED, Status.LEFT)


def record_hash(node_id: NodeId, record: Record) -> int:
    """128 bits over an id and its record (BLAKE2b)."""
    fixed = _HASHED.pack(node_id, record.incarnation, record.version, record.status)
    return int.from_bytes(
        hashlib.blake2b(fixed + record.address.encode(), digest_size=16).digest(), "big"
    )


class Membership:
    """Records that differ from the baseline, the lives known from links, and the layout.

    Args:
        founding_size: how many ids are expected from the beginning.
        peers: the founders' addresses, part of the baseline.

    Attributes:
        id_space: 1 + the highest id known.
        outside: sorted ids of the id space that are not in the layout.
        layout_revision: counts the changes of the layout.
        dead: sorted ids of the layout that are held dead.
        digest: 128 bits; equal digests mean equal memberships.
        buckets: the digest's 64 parts, by ``id % 64``.
        revision: counts the changes.
    """

    def __init__(self, founding_size: int, peers: PeerList) -> None:
        self.founding_size = founding_size
        self.id_space = founding_size
        self.outside: list[int] = []
        self.dead: list[int] = []
        self.digest = 0
        self.buckets = [0] * BUCKETS
        self.revision = 0
        self.layout_revision = 0
        self._peers = peers
        self._records: dict[NodeId, Record] = {}
        self._lives: dict[NodeId, Incarnation] = {}
        self._unknown_ids = 0

    def get(self, node_id: NodeId) -> Record | None:
        """What is believed of an id; None for an id that nobody was given."""
        record = self._records.get(node_id)
        if record is None and 0 <= node_id < self.founding_size:
            return self._baseline(node_id)
        return record

    def exceptions(self) -> dict[NodeId, Record]:
        """The records that differ from the baseline (the membership's own table: do not change)."""
        return self._records

    def status_of(self, node_id: NodeId) -> Status | None:
        """The status of an id; None for one that nobody was given. O(1), builds no address."""
        record = self._records.get(node_id)
        if record is not None:
            return record.status
        return Status.EXPECTED if 0 <= node_id < self.founding_size else None

    def is_gone(self, node_id: NodeId) -> bool:
        """Whether the id is dead, excluded, left or was never given."""
        status = self.status_of(node_id)
        return status is None or status >= Status.DEAD

    def in_layout(self, node_id: NodeId) -> bool:
        """Whether the graph is built over this id."""
        status = self.status_of(node_id)
        return status is not None and status not in _GONE

    @property
    def layout_size(self) -> int:
        """How many ids the graph is built over."""
        return self.id_space - len(self.outside)

    def rank(self, node_id: NodeId) -> Rank | None:
        """The id's position among those in the layout; None when it is not among them."""
        return rank_of(node_id, self.outside) if self.in_layout(node_id) else None

    def neighbors(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """The ids that the layout's graph links an id to, sorted; () when it is not in the layout."""
        if not self.in_layout(node_id):
            return ()
        return neighbor_ids(node_id, self.id_space, self.outside)

    def incarnation(self, node_id: NodeId) -> Incarnation:
        """The highest incarnation of an id that is known, from a record or a link; 0 for none."""
        life = self._lives.get(node_id, UNKNOWN_INCARNATION)
        record = self._records.get(node_id)
        return life if record is None else max(life, record.incarnation)

    def learn_life(self, node_id: NodeId, incarnation: Incarnation) -> None:
        """Remember an incarnation that was met; lower ones, and ids above the bound, change nothing."""
        has_room = node_id in self._lives or len(self._lives) < LIVES_MAX
        if has_room and incarnation > self._lives.get(node_id, UNKNOWN_INCARNATION):
            self._lives[node_id] = incarnation

    def can_be(self, node_id: NodeId) -> bool:
        """Whether a record for this id would be believed: not too high, few below it unknown."""
        skipped = node_id - self.id_space
        if node_id >= self.founding_size + JOINED_MAX:
            return False
        return node_id >= 0 and (skipped < 0 or self._unknown_ids + skipped < ID_GAP_MAX)

    def join(self, node_id: NodeId, record: Record) -> bool:
        """Take the greater of what is believed and `record`; tell whether anything changed."""
        if not self.can_be(node_id):
            return False
        before = self.get(node_id)
        if before is not None and record <= before:
            return False
        change = record_hash(node_id, record)
        if node_id in self._records and before is not None:
            change -= record_hash(node_id, before)
        bucket = node_id % BUCKETS
        self.digest = (self.digest + change) % _MODULUS
        self.buckets[bucket] = (self.buckets[bucket] + change) % _MODULUS
        self._grow(node_id)
        was_in, was_dead = self.in_layout(node_id), self.status_of(node_id) is Status.DEAD
        self._records[node_id] = record
        self._move(node_id, was_in, self.in_layout(node_id))
        _keep(self.dead, node_id, was_dead, record.status is Status.DEAD)
        self.revision += 1
        return True

    def _baseline(self, node_id: NodeId) -> Record:
        address = self._peers.address_of(node_id)
        return Record(UNKNOWN_INCARNATION, 0, Status.EXPECTED, address)

    def _grow(self, node_id: NodeId) -> None:
        if node_id >= self.id_space:
            self.outside.extend(range(self.id_space, node_id + 1))
            self._unknown_ids += node_id - self.id_space
            self.id_space = node_id + 1
        elif node_id >= self.founding_size and node_id not in self._records:
            self._unknown_ids -= 1

    def _move(self, node_id: NodeId, was_in: bool, is_in: bool) -> None:
        self.layout_revision += was_in != is_in
        _keep(self.outside, node_id, not was_in, not is_in)


def _keep(ids: list[int], node_id: int, was_kept: bool, is_kept: bool) -> None:
    """Enter an id into a sorted list, or take it out."""
    if is_kept and not was_kept:
        insort(ids, node_id)
    elif was_kept and not is_kept:
        ids.pop(bisect_left(ids, node_id))
