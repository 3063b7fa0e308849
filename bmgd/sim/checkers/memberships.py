"""Records, digests, layouts and ranks: that memberships are joins, and equal ones mean the same."""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import ClassVar

from bmgd.core.effects import Effect, RecordChanged
from bmgd.core.events import Event, Received
from bmgd.core.membership.membership import Membership
from bmgd.errors import GraphError
from bmgd.healing import link_diff
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene
from bmgd.types import UNKNOWN_INCARNATION, NodeId, Record, Status
from bmgd.wire.link_messages import BUCKETS, Notice, RecordPage

_GAP_MAX = 4096
_MODULUS = 2**128
_HASHED = struct.Struct(">IQIB")
RANKS_CHECKED_MAX = 64
WHOLE_LOOK = 64
"""Every so many changes all records are looked at, not only those that changed."""

_Order = tuple[int, int, int, bytes]


def order_of(record: Record) -> _Order:
    """The order of the join, by itself: incarnation, version, status, the address's bytes."""
    return record.incarnation, record.version, int(record.status), record.address.encode()


_NUMBERED = struct.Struct(">4sQ")
_RETIRED = Record(UNKNOWN_INCARNATION, 0, Status.LEFT, "")


def _counted(node_id: NodeId, record: Record, founding_size: int) -> Record:
    """A record without what does not count in the digest: of a joiner that has left, all but that."""
    is_joiner = node_id >= founding_size
    return _RETIRED if is_joiner and record.status is Status.LEFT else record


def _left_hash(number: int) -> int:
    whole = _NUMBERED.pack(b"left", number)
    return int.from_bytes(hashlib.blake2b(whole, digest_size=16).digest(), "big")


@lru_cache(maxsize=2**16)
def _hash(node_id: NodeId, record: Record) -> int:
    if record is _RETIRED:
        return _left_hash(node_id + BUCKETS) - _left_hash(node_id)
    fixed = _HASHED.pack(node_id, record.incarnation, record.version, record.status)
    whole = fixed + record.address.encode()
    return int.from_bytes(hashlib.blake2b(whole, digest_size=16).digest(), "big")


class RecordsAreJoined(Checker):
    """What a node believes of an id is exactly the greatest of what it was told and said itself.

    A shadow joins every record that comes or is published; the membership must equal it. So nothing is
    forgotten, nothing invented, records only grow, and revisions count the changes without a gap.
    """

    name: ClassVar[str] = "records-are-joined"
    events: ClassVar[Kinds] = (Notice, RecordPage)
    effects: ClassVar[Kinds] = (RecordChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._shadows: dict[NodeId, dict[NodeId, Record]] = {}
        self._revisions: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._shadows[journal.place] = dict(journal.inside.membership.exceptions())
        self._revisions[journal.place] = journal.inside.membership.revision

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        me = journal.host.id
        membership = journal.inside.membership
        shadow, touched = self._shadows[journal.place], set()
        if isinstance(event, Received) and isinstance(event.message, Notice | RecordPage):
            for node_id, record in event.message.records:
                if node_id != me and node_id < membership.id_space:
                    self._join(shadow, node_id, record, membership.get(node_id))
                    touched.add(node_id)
        for effect in effects:
            if isinstance(effect, RecordChanged):
                self._on_changed(journal, effect)
                touched.add(effect.id)
        for node_id in touched:
            if node_id in membership.retired:
                # It is the greatest of all records, and told in runs.
                shadow.pop(node_id, None)
                continue
            believed = membership.get(node_id)
            if node_id in shadow and believed != shadow[node_id]:
                self.violate(journal, f"id {node_id}: {believed}, was told {shadow[node_id]}")
                shadow[node_id] = believed or shadow[node_id]

    def _join(
        self,
        shadow: dict[NodeId, Record],
        node_id: NodeId,
        record: Record,
        believed: Record | None,
    ) -> None:
        before = shadow.get(node_id)
        if before is None and believed is not None and believed.status is Status.EXPECTED:
            before = believed
        if before is None or order_of(record) > order_of(before):
            shadow[node_id] = record

    def _on_changed(self, journal: Journal, changed: RecordChanged) -> None:
        shadow = self._shadows[journal.place]
        self._revisions[journal.place] += 1
        if changed.revision != self._revisions[journal.place]:
            self.violate(
                journal, f"revision {changed.revision} after {self._revisions[journal.place] - 1}"
            )
            self._revisions[journal.place] = changed.revision
        before = shadow.get(changed.id)
        if before is not None and order_of(changed.record) < order_of(before):
            self.violate(journal, f"id {changed.id} fell from {before} to {changed.record}")
        shadow[changed.id] = changed.record


class DigestsMeanMemberships(Checker):
    """A digest is the sum of its records' hashes; equal digests mean equal memberships and layouts."""

    name: ClassVar[str] = "digests-mean-memberships"
    events: ClassVar[Kinds] = (Look,)
    effects: ClassVar[Kinds] = (RecordChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._sums: dict[NodeId, _Sums] = {}
        self._meanings: dict[int, tuple[int, int]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._sums[journal.place] = _Sums()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        membership, sums = journal.inside.membership, self._sums[journal.place]
        if sums.revision == membership.revision:
            return
        changed = {effect.id for effect in effects if isinstance(effect, RecordChanged)}
        sums.take_in(membership, changed)
        self._check(journal, sums)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            sums = self._sums[journal.place]
            sums.count_all(journal.inside.membership)
            self._check(journal, sums)

    def _check(self, journal: Journal, sums: _Sums) -> None:
        membership = journal.inside.membership
        if membership.digest != sum(sums.buckets) % _MODULUS:
            self.violate(journal, "its digest is not the sum of its records")
        if membership.buckets != sums.buckets:
            self.violate(journal, "its buckets are not the sums of its records")
        layout = hash((membership.id_space, tuple(membership.outside)))
        meaning = self._meanings.setdefault(membership.digest, (sums.meaning, layout))
        if meaning != (sums.meaning, layout):
            self.violate(journal, f"another membership has its digest {membership.digest:032x}")


class _Sums:
    """What a membership's digests must be, kept along with its changes.

    Attributes:
        revision: of the membership, when this was right.
        buckets: the sums of the records' hashes, by id.
        meaning: equal for equal memberships, and not made of those hashes.
    """

    __slots__ = ("_counted", "_retired", "buckets", "meaning", "revision")

    def __init__(self) -> None:
        self.revision = -1
        self._retired = 0
        self.buckets = [0] * BUCKETS
        self.meaning = 0
        self._counted: dict[NodeId, Record] = {}

    def take_in(self, membership: Membership, changed: Collection[NodeId]) -> None:
        """Count what has changed; everything, where that cannot be all, and from time to time."""
        records, steps = membership.exceptions(), membership.revision - self.revision
        # An id that a node never knew is retired without a change that it tells.
        is_whole = steps == len(changed) and len(membership.retired) == self._retired
        if not is_whole or membership.revision % WHOLE_LOOK == 0:
            self.count_all(membership)
            return
        for node_id in changed:
            self._count(node_id, records.get(node_id), membership.founding_size)
        self.revision = membership.revision

    def count_all(self, membership: Membership) -> None:
        """Count every record anew."""
        self.buckets, self.meaning, self._counted = [0] * BUCKETS, 0, {}
        for node_id, record in membership.exceptions().items():
            self._count(node_id, record, membership.founding_size)
        for number in membership.retired:
            self._count(NodeId(number), _RETIRED, membership.founding_size)
        self.revision, self._retired = membership.revision, len(membership.retired)

    def _count(self, node_id: NodeId, record: Record | None, founding_size: int) -> None:
        bucket, before = node_id % BUCKETS, self._counted.pop(node_id, None)
        if before is not None:
            self.buckets[bucket] -= _hash(node_id, before)
            self.meaning ^= hash((node_id, before))
        if record is not None:
            record = _counted(node_id, record, founding_size)
            self.buckets[bucket] += _hash(node_id, record)
            self.meaning ^= hash((node_id, record))
            self._counted[node_id] = record
        self.buckets[bucket] %= _MODULUS


class RanksAreABijection(Checker):
    """Rank is an order-preserving bijection of the layout's ids, and the graph is built over ranks."""

    name: ClassVar[str] = "ranks-are-a-bijection"
    events: ClassVar[Kinds] = (Look,)
    effects: ClassVar[Kinds] = (RecordChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._revisions: dict[NodeId, int] = {}
        self._gone: dict[NodeId, tuple[int, list[int]]] = {}
        self._right: set[tuple[NodeId, int, tuple[int, ...]]] = set()

    def on_boot(self, journal: Journal) -> None:
        self._revisions[journal.place] = -1
        self._gone.pop(journal.place, None)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        membership, place = journal.inside.membership, journal.place
        steps = membership.revision - self._revisions[place]
        if not steps:
            return
        self._revisions[place] = membership.revision
        changed = {effect.id for effect in effects if isinstance(effect, RecordChanged)}
        id_space, gone = self._gone.get(place, (0, []))
        whole = steps != len(changed) or membership.revision % WHOLE_LOOK == 0
        if whole or id_space != membership.id_space:
            self._check_all(journal)
            return
        for node_id in changed:
            self._move(gone, node_id, self._is_outside(membership.status_of(node_id)))
        self._check_layout(journal, gone)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            self._check_all(journal)

    def _check_all(self, journal: Journal) -> None:
        membership = journal.inside.membership
        ids = range(membership.id_space)
        gone = [i for i in ids if self._is_outside(membership.status_of(NodeId(i)))]
        self._gone[journal.place] = membership.id_space, gone
        self._right.discard((journal.host.id, membership.id_space, tuple(gone)))
        self._check_layout(journal, gone)

    def _move(self, gone: list[int], node_id: int, is_outside: bool) -> None:
        at = bisect_left(gone, node_id)
        if is_outside != (gone[at : at + 1] == [node_id]):
            gone[at : at + (not is_outside)] = [node_id] if is_outside else []

    def _check_layout(self, journal: Journal, gone: list[int]) -> None:
        membership = journal.inside.membership
        if membership.outside != gone:
            self.violate(journal, f"outside the layout: {membership.outside}, by status {gone}")
            return
        if not 0 <= journal.inside.unknown_ids() < _GAP_MAX:
            self.violate(journal, "the bound of unknown ids does not hold")
        key = journal.host.id, membership.id_space, tuple(gone)
        if membership.id_space <= RANKS_CHECKED_MAX and key not in self._right:
            self._right.add(key)
            self._check_ranks(journal, set(gone))

    def _check_ranks(self, journal: Journal, outside: set[int]) -> None:
        membership = journal.inside.membership
        layout = [i for i in range(membership.id_space) if i not in outside]
        if membership.layout_size != len(layout):
            self.violate(journal, f"{membership.layout_size} ids in the layout, not {len(layout)}")
        ranks = [membership.rank(NodeId(i)) for i in layout]
        if ranks != list(range(len(layout))):
            self.violate(journal, f"ranks {ranks} of the ids {layout}")
        if any(membership.rank(NodeId(i)) is not None for i in outside):
            self.violate(journal, "an id outside the layout has a rank")
        self._check_neighbors(journal, layout)

    def _is_outside(self, status: Status | None) -> bool:
        return status is None or status in (Status.EXCLUDED, Status.LEFT)

    def _check_neighbors(self, journal: Journal, layout: list[int]) -> None:
        me, membership = journal.host.id, journal.inside.membership
        wanted = set(binomial_neighbors(layout, me))
        if set(membership.neighbors(me)) != wanted:
            self.violate(journal, f"neighbors {membership.neighbors(me)}, by rank {sorted(wanted)}")
        if me in layout and len(layout) < membership.id_space:
            self._check_healing(journal, layout, wanted)

    def _check_healing(self, journal: Journal, layout: list[int], wanted: set[int]) -> None:
        """What healing has changed at a node is in what the graph is not the one over all ids."""
        me, ids = journal.host.id, range(journal.inside.membership.id_space)
        whole, outside = set(binomial_neighbors(ids, me)), sorted({*ids} - {*layout})
        try:
            changed: object = link_diff(len(ids), me, outside)
        except GraphError as error:
            changed = error
        if changed != (tuple(sorted(wanted - whole)), tuple(sorted(whole - wanted))):
            self.violate(journal, f"healing from {outside} changes {changed}: {whole}, {wanted}")


def binomial_neighbors(layout: Sequence[int], node_id: int) -> list[int]:
    """The neighbors of an id in the binomial graph over sorted ids, by its definition (ISPA07 §2)."""
    if node_id not in layout:
        return []
    size, rank = len(layout), layout.index(node_id)
    found: set[int] = set()
    step = 1
    while step < size:
        found |= {layout[(rank + step) % size], layout[(rank - step) % size]}
        step *= 2
    return sorted(found - {node_id})
