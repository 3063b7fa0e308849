"""What this node believes of every id: a baseline for all founders, and records that differ.

Records are joined by taking the greater, so any two memberships that saw the same records are equal,
in whatever order those came (design: "a true join, so memberships converge without consensus"). The
digest is the sum, modulo 2**128, of one hash per record that differs from the baseline: it changes
in O(1), and 64 partial sums by id tell where two memberships differ.

The ids of joiners that have left are *retired* after a while: their records are forgotten, and what
remains is a run of ids. Retired is above every record, so whoever comes back under such an id takes a
new one. In the digest a joiner's ``left`` counts by its id alone, as much as the retired id does: so
nodes that forget at different times have equal digests, and a run's part of the digest is a difference of
few hashes (ADR 47).

    no record --a record--> record <--a greater record--> record
    record of a joiner, left --forgotten here--> retired <--known to be retired elsewhere-- any
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from bmgd.core.membership.allowance import ID_GAP_MAX, Allowance
from bmgd.core.membership.retired import DIGEST_MODULUS, retired_hash, retired_sums
from bmgd.peers import PeerList
from bmgd.routing import id_of, neighbor_ids, rank_of
from bmgd.routing.id_sets import ID_SET_SPACE, id_set, ids_between, set_of_runs
from bmgd.routing.runs import Runs
from bmgd.types import (
    NODE_ID_MAX,
    UNKNOWN_INCARNATION,
    Incarnation,
    NodeId,
    Rank,
    Record,
    Status,
)
from bmgd.wire.bounds import RECORDS_PER_NOTICE_MAX
from bmgd.wire.link_messages import BUCKETS

RETIRED_PIECE = 2**16
"""A run of more is taken over as far as it is allowed, if it is allowed so far."""

JOINED_MAX = 2**17
"""So many joiners have a record at a time. No id is given to more; twice as many are believed."""
LIVES_MAX = 2**18
"""Lives of so many ids are remembered without a record, linked and assumed ones each; others count as
not known yet."""
LISTED_SPACE_MAX = 2**17
"""Up to this id space the ids outside the layout are a list, above it they are runs."""
LOOKED_AT_MAX = 4096
"""So many ids are looked at for one page."""

_HASHED = struct.Struct(">IQIB")
_GONE = (Status.EXCLUDED, Status.LEFT)
_RETIRED = Record(UNKNOWN_INCARNATION, 0, Status.LEFT, "")
EVERY_BUCKET = 2**BUCKETS - 1


def record_hash(node_id: NodeId, record: Record) -> int:
    """128 bits over an id and its record (BLAKE2b)."""
    fixed = _HASHED.pack(node_id, record.incarnation, record.version, record.status)
    return int.from_bytes(
        hashlib.blake2b(fixed + record.address.encode(), digest_size=16).digest(), "big"
    )


class Standing(Enum):
    """What a life that a routed message names is, by what is known of its id.

    CURRENT: the one that is believed. FORMER: one below it. UNVOUCHED: another one, of which neither a
    record nor a link has told.
    """

    CURRENT = "current"
    FORMER = "former"
    UNVOUCHED = "unvouched"


class Page(NamedTuple):
    """A part of a membership, by ascending ids.

    Args:
        records: at most as many as a notice has.
        retired: (first, last) of runs of retired ids, at most as many.
        following: where the next page begins; None behind the last one.
    """

    records: tuple[tuple[NodeId, Record], ...]
    retired: tuple[tuple[NodeId, NodeId], ...]
    following: NodeId | None


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
        gone: sorted ids with a record that says dead, excluded or left.
        retired: ids of joiners that have left for good, and whose records are forgotten.
        digest: 128 bits; equal digests mean equal memberships.
        buckets: the digest's 64 parts, by ``id % 64``.
        revision: counts the changes.
        allowance: how many ids others' words may make known.
    """

    def __init__(self, founding_size: int, peers: PeerList) -> None:
        self.founding_size = founding_size
        self.id_space = founding_size
        self.outside: list[int] | Runs = []
        self.dead: list[int] = []
        self.gone: list[int] = []
        self.retired = Runs()
        self.digest = 0
        self.buckets = [0] * BUCKETS
        self.revision = 0
        self.layout_revision = 0
        self.allowance = Allowance()
        self._peers = peers
        self._records: dict[NodeId, Record] = {}
        self._ids: list[int] = []
        self._lives: dict[NodeId, Incarnation] = {}
        self._assumed: dict[NodeId, Incarnation] = {}
        self._unknown_ids = 0
        self._living_set: tuple[tuple[int, int], int] = (-1, -1), 0

    # --- looking ------------------------------------------------------------------------------

    def get(self, node_id: NodeId) -> Record | None:
        """What is believed of an id; None for an id that nobody was given.

        Of a retired id only that it has left is known: life 0, no address.
        """
        record = self._records.get(node_id)
        if record is not None:
            return record
        if node_id < self.founding_size:
            return self._baseline(node_id) if node_id >= 0 else None
        return _RETIRED if node_id in self.retired else None

    def exceptions(self) -> dict[NodeId, Record]:
        """The records that differ from the baseline (the membership's own table: do not change)."""
        return self._records

    def known_ids(self) -> Iterator[NodeId]:
        """Founders and ids with a record, ascending; not the retired ones."""
        yield from map(NodeId, range(self.founding_size))
        joined = bisect_left(self._ids, self.founding_size)
        yield from map(NodeId, self._ids[joined:])

    def known_at(self, place: int) -> NodeId:
        """The id at a place, from 0 on, among `known_ids`. O(log(known ids))."""
        if place < self.founding_size:
            return NodeId(place)
        joined = bisect_left(self._ids, self.founding_size)
        return NodeId(self._ids[joined + place - self.founding_size])

    def known_place(self, node_id: NodeId) -> int:
        """The place of an id among `known_ids`, of which it is one. O(log(known ids))."""
        if node_id < self.founding_size:
            return node_id
        joined = bisect_left(self._ids, self.founding_size)
        return self.founding_size + bisect_left(self._ids, node_id) - joined

    @property
    def known_count(self) -> int:
        """How many founders and ids with a record there are."""
        return self.founding_size + self.joined_count

    @property
    def joined_count(self) -> int:
        """How many ids above the founders have a record."""
        return len(self._ids) - bisect_left(self._ids, self.founding_size)

    def status_of(self, node_id: NodeId) -> Status | None:
        """The status of an id; None for one that nobody was given. Builds no address."""
        record = self._records.get(node_id)
        if record is not None:
            return record.status
        if node_id < self.founding_size:
            return Status.EXPECTED if node_id >= 0 else None
        return Status.LEFT if node_id in self.retired else None

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

    def outside_runs(self) -> list[int] | list[tuple[int, int]]:
        """The ids outside the layout as a snapshot takes them."""
        return self.outside if isinstance(self.outside, list) else self.outside.pairs

    def outside_copy(self) -> Sequence[int]:
        """The ids outside the layout, sorted, as they are now."""
        return self.outside.copy()

    def layout_set(self) -> int:
        """The ids of the layout as a set; those from `ID_SET_SPACE` on, which no set has, are left out.

        O(id space / 64 + ids outside, or runs of them).
        """
        everybody = ids_between(0, min(self.id_space, ID_SET_SPACE))
        if isinstance(self.outside, list):
            return everybody & ~id_set(self.outside)
        return everybody & ~set_of_runs(self.outside.within(0, ID_SET_SPACE - 1))

    def living_set(self) -> int:
        """The ids of `layout_set` that are not held dead. O(1) until something changes."""
        of = self.revision, self.layout_revision
        if self._living_set[0] != of:
            dead = id_set(each for each in self.dead if each < ID_SET_SPACE)
            self._living_set = of, self.layout_set() & ~dead
        return self._living_set[1]

    def living(self) -> Iterator[NodeId]:
        """The ids that are held to live, ascending. O(log) for each id of the layout passed."""
        for rank in range(self.layout_size):
            node_id = id_of(rank, self.outside)
            if not self.is_gone(node_id):
                yield node_id

    def rank(self, node_id: NodeId) -> Rank | None:
        """The id's position among the ids in the layout; None when it is not among them."""
        return rank_of(node_id, self.outside) if self.in_layout(node_id) else None

    def neighbors(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """The ids that the layout's graph links an id to, sorted; () when it is not in the layout."""
        if not self.in_layout(node_id):
            return ()
        return neighbor_ids(node_id, self.id_space, self.outside)

    def page(self, after: NodeId, buckets: int = EVERY_BUCKET) -> Page:
        """The records from an id on, a bounded number, and the retired ids among them.

        Args:
            after: the lowest id that it may have.
            buckets: of which buckets records are wanted, one bit each; retired ids come of all.
        """
        at = bisect_left(self._ids, after)
        records: list[tuple[NodeId, Record]] = []
        until = min(at + LOOKED_AT_MAX, len(self._ids))
        while at < until and len(records) < RECORDS_PER_NOTICE_MAX:
            node_id = NodeId(self._ids[at])
            if buckets >> node_id % BUCKETS & 1:
                records.append((node_id, self._records[node_id]))
            at += 1
        last = self._ids[at] - 1 if at < len(self._ids) else NODE_ID_MAX
        runs = self.retired.within(after, last)[: RECORDS_PER_NOTICE_MAX + 1]
        if len(runs) > RECORDS_PER_NOTICE_MAX:
            last = runs.pop()[0] - 1
            records = [row for row in records if row[0] <= last]
        retired = tuple((NodeId(a), NodeId(b)) for a, b in runs)
        return Page(tuple(records), retired, None if last == NODE_ID_MAX else NodeId(last + 1))

    # --- lives --------------------------------------------------------------------------------

    def vouched(self, node_id: NodeId) -> Incarnation:
        """The highest incarnation of an id that a record or a link has told; 0 for none."""
        life = self.linked(node_id)
        record = self._records.get(node_id)
        return life if record is None else max(life, record.incarnation)

    def linked(self, node_id: NodeId) -> Incarnation:
        """The highest incarnation of an id that a link has told; 0 for none."""
        return self._lives.get(node_id, UNKNOWN_INCARNATION)

    def incarnation(self, node_id: NodeId) -> Incarnation:
        """The life of an id that is believed: the vouched one, else the assumed one; 0 for none."""
        return self.vouched(node_id) or self._assumed.get(node_id, UNKNOWN_INCARNATION)

    def meet_life(self, node_id: NodeId, incarnation: Incarnation) -> None:
        """Remember a life that was linked; lower ones, and ids above the bound, change nothing."""
        has_room = node_id in self._lives or len(self._lives) < LIVES_MAX
        if has_room and incarnation > self._lives.get(node_id, UNKNOWN_INCARNATION):
            self._lives[node_id] = incarnation
            self._assumed.pop(node_id, None)

    def standing(self, node_id: NodeId, incarnation: Incarnation) -> Standing:
        """What a life is that a routed message names as its source's.

        Where nothing vouches for any life of the id, the first that is named is assumed from now on
        (unless ids above the bound are: those are not remembered). ADR 54 says why no later one is.
        """
        vouched = self.vouched(node_id)
        if vouched:
            if incarnation == vouched:
                return Standing.CURRENT
            return Standing.FORMER if incarnation < vouched else Standing.UNVOUCHED
        assumed = self._assumed.get(node_id)
        if assumed is None and len(self._assumed) < LIVES_MAX and incarnation:
            self._assumed[node_id] = incarnation
        return Standing.CURRENT if assumed in (None, incarnation) else Standing.UNVOUCHED

    # --- changing -----------------------------------------------------------------------------

    def can_be(self, node_id: NodeId) -> bool:
        """Whether a record for this id would be believed: not retired, few below it unknown."""
        if not 0 <= node_id <= NODE_ID_MAX or node_id in self.retired:
            return False
        is_new = node_id >= self.founding_size and node_id not in self._records
        if is_new and self.joined_count >= 2 * JOINED_MAX:
            return False
        return self._may_skip(node_id - self.id_space)

    def _may_skip(self, skipped: int) -> bool:
        return skipped <= 0 or (
            self._unknown_ids + skipped < ID_GAP_MAX and skipped <= self.allowance.skips
        )

    def join(self, node_id: NodeId, record: Record) -> bool:
        """Take the greater of what is believed and `record`; tell whether anything changed."""
        if not self.can_be(node_id):
            return False
        before = self.get(node_id)
        if before is not None and record <= before:
            return False
        change = self._worth(node_id, record)
        if node_id in self._records and before is not None:
            change -= self._worth(node_id, before)
        else:
            insort(self._ids, node_id)
        self._count(node_id % BUCKETS, change)
        self._grow(node_id)
        was_in, was_dead = self.in_layout(node_id), self.status_of(node_id) is Status.DEAD
        was_gone = before is not None and before.status >= Status.DEAD
        self._records[node_id] = record
        if record.incarnation:
            self._assumed.pop(node_id, None)
        self._move(node_id, was_in, self.in_layout(node_id))
        _keep(self.dead, node_id, was_dead, record.status is Status.DEAD)
        _keep(self.gone, node_id, was_gone, record.status >= Status.DEAD)
        self.revision += 1
        return True

    def retire(self, node_id: NodeId) -> bool:
        """Forget the record of a joiner that has left; False for any other. The digest stays."""
        record = self._records.get(node_id)
        if record is None or node_id < self.founding_size or record.status is not Status.LEFT:
            return False
        self._forget(node_id)
        self.retired.add(node_id, node_id)
        return True

    def retire_run(
        self, first: NodeId, last: NodeId, records_max: int = RECORDS_PER_NOTICE_MAX
    ) -> tuple[list[tuple[NodeId, Record]], NodeId | None]:
        """Take over that ids above the founders are retired elsewhere.

        Args:
            first, last: of a run.
            records_max: so many records are forgotten at most; then it ends before `last`.

        Returns:
            The records that said something else than that the id has left, and the last id that was
            retired; None if nothing was, because too many ids below it are unknown, or too many
            became known just now.

        O(records in the run + runs).
        """
        first, last = NodeId(max(first, self.founding_size)), NodeId(min(last, NODE_ID_MAX))
        if first > last or not self._may_skip(first - self.id_space):
            return [], None
        fresh_from = max(first, self.id_space)
        if self.allowance.retired < min(last - fresh_from + 1, RETIRED_PIECE):
            return [], None
        last = NodeId(min(last, fresh_from + self.allowance.retired - 1))
        low, high = bisect_left(self._ids, first), bisect_right(self._ids, last)
        if high - low > records_max:
            high = low + records_max
            last = NodeId(self._ids[high] - 1)
        fresh = self.retired.missing(first, last)
        known = [NodeId(number) for number in self._ids[low:high]]
        self._count_run(fresh, known)
        moved = [(i, self._records[i]) for i in known if self._records[i].status is not Status.LEFT]
        self.layout_revision += any(self.in_layout(node_id) for node_id in known)
        below = [(a, min(b, self.id_space - 1)) for a, b in fresh if a < self.id_space]
        self._unknown_ids -= sum(b - a + 1 for a, b in below) - len(known)
        self._skip(first - self.id_space)
        self.allowance.retired -= max(0, last + 1 - fresh_from)
        for node_id in known:
            self._forget(node_id)
        self._leave_out(min(first, NodeId(self.id_space)), last)
        self.retired.add(first, last)
        self.revision += len(moved)
        return moved, last

    def _forget(self, node_id: NodeId) -> None:
        record = self._records.pop(node_id)
        self._lives.pop(node_id, None)
        self._assumed.pop(node_id, None)
        self._ids.pop(bisect_left(self._ids, node_id))
        _keep(self.dead, node_id, record.status is Status.DEAD, is_kept=False)
        _keep(self.gone, node_id, record.status >= Status.DEAD, is_kept=False)

    # --- the digest ---------------------------------------------------------------------------

    def _worth(self, node_id: NodeId, record: Record) -> int:
        if record.status is Status.LEFT and node_id >= self.founding_size:
            return retired_hash(node_id)
        return record_hash(node_id, record)

    def _count(self, bucket: int, change: int) -> None:
        self.digest = (self.digest + change) % DIGEST_MODULUS
        self.buckets[bucket] = (self.buckets[bucket] + change) % DIGEST_MODULUS

    def _count_run(self, fresh: list[tuple[int, int]], known: list[NodeId]) -> None:
        for first, last in fresh:
            for bucket, change in enumerate(retired_sums(first, last)):
                if change:
                    self._count(bucket, change)
        for node_id in known:
            self._count(node_id % BUCKETS, -self._worth(node_id, self._records[node_id]))

    # --- the layout ---------------------------------------------------------------------------

    def _baseline(self, node_id: NodeId) -> Record:
        address = self._peers.address_of(node_id)
        return Record(UNKNOWN_INCARNATION, 0, Status.EXPECTED, address)

    def _grow(self, node_id: NodeId) -> None:
        if node_id >= self.id_space:
            self._skip(node_id - self.id_space)
            self._leave_out(NodeId(self.id_space), node_id)
        elif node_id >= self.founding_size and node_id not in self._records:
            self._unknown_ids -= 1

    def _skip(self, count: int) -> None:
        if count > 0:
            self._unknown_ids += count
            self.allowance.skips -= count

    def _leave_out(self, first: NodeId, last: NodeId) -> None:
        """Count these ids to the id space, and none of them to the layout."""
        self.id_space = max(self.id_space, last + 1)
        if isinstance(self.outside, list) and self.id_space > LISTED_SPACE_MAX:
            self.outside = Runs((number, number) for number in self.outside)
        if isinstance(self.outside, Runs):
            self.outside.add(first, last)
        else:
            low, high = bisect_left(self.outside, first), bisect_right(self.outside, last)
            self.outside[low:high] = range(first, last + 1)

    def _move(self, node_id: NodeId, was_in: bool, is_in: bool) -> None:
        self.layout_revision += was_in != is_in
        if isinstance(self.outside, list):
            _keep(self.outside, node_id, not was_in, not is_in)
        elif is_in and not was_in:
            self.outside.discard(node_id)
        elif was_in and not is_in:
            self.outside.add(node_id, node_id)


def _keep(ids: list[int], node_id: int, was_kept: bool, is_kept: bool) -> None:
    """Enter an id into a sorted list, or take it out."""
    if is_kept and not was_kept:
        insort(ids, node_id)
    elif was_kept and not is_kept:
        ids.pop(bisect_left(ids, node_id))
