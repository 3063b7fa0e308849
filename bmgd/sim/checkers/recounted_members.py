"""What a core keeps of its deadlines, of other members and of its links, held against what it counts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Set
from math import inf
from typing import Final

from bmgd.core.membership.allowance import ID_GAP_MAX, RETIRED_AT_ONCE
from bmgd.core.membership.contests import CONTEST_TIMER
from bmgd.core.membership.notices import NOTICES_TIMER
from bmgd.core.membership.retirement import RETIRE_TIMER
from bmgd.core.neighbors.redialling import SEARCH_TIMER
from bmgd.healing import hop_overhead
from bmgd.routing import rank_of
from bmgd.sim.checkers.inside import Inside
from bmgd.types import NodeId, NodeState, Status

_WALKED_MAX: Final = 64
"""In a graph that is not larger all ways are walked."""
Counted = tuple[str, object, object]
"""What is counted; what the core says; what is there."""


def _deadlines(inside: Inside) -> Iterator[Counted]:
    """Of two that are due at the same time the one that was set first is reached first."""
    numbers = [number for _, number in inside.context.timers._due.values()]
    yield "deadlines that were set", len(set(numbers)), len(numbers)
    timers = inside.context.timers
    for key, at_ns in inside.timers().items():
        yield f"when {key} is due", timers.due_ns(key), at_ns
    yield "number of the last deadline", inside.deadlines_set() >= max(numbers, default=0), True


def _ids(inside: Inside) -> Iterator[Counted]:
    """The lists of ids by what is believed of them, and the ids of which nothing is known."""
    membership = inside.membership
    records, size = membership.exceptions(), membership.founding_size
    retired = [last for _, last in membership.retired.pairs]
    yield "ids with a record", inside.ids_with_record(), sorted(records)
    space = max(size, 1 + max(records, default=-1), 1 + max(retired, default=-1))
    # An id can have been met and forgotten: the space never shrinks.
    yield "id space", membership.id_space >= space, True
    statuses = {i: membership.status_of(NodeId(i)) for i in range(membership.id_space)}
    unknown = [i for i, s in statuses.items() if s is None and i not in membership.retired]
    yield "unknown ids", inside.unknown_ids(), len(unknown)
    outside = [i for i, s in statuses.items() if s is None or s >= Status.EXCLUDED]
    yield "ids outside the layout", list(membership.outside), outside
    yield "dead ids", membership.dead, [i for i, s in statuses.items() if s is Status.DEAD]
    quorum = inside.quorum
    counted = [s for s in statuses.values() if s is not None and s is not Status.LEFT]
    yield "ids that count", quorum.counted, len(counted)
    yield "living ids", quorum.living, sum(s < Status.DEAD for s in counted)


def _awaited(inside: Inside) -> Iterator[Counted]:
    """Joiners that are forgotten when they have been gone, or have left, for long enough; contests."""
    membership, retirement = inside.membership, inside.retirement
    # Of one that is forgotten already there is no record. Where others forgot it first, it still waits.
    records, retired = membership.exceptions().items(), membership.retired
    joiners = {i: r.status for i, r in records if i >= membership.founding_size}
    left = {i for i, status in joiners.items() if status is Status.LEFT}
    yield "joiners that have left", {i for i in retirement._left if i not in retired}, left
    gone = {i for i, status in joiners.items() if status in (Status.DEAD, Status.EXCLUDED)}
    yield "joiners that are gone", {i for i in retirement._gone if i not in retired}, gone
    is_planned = (RETIRE_TIMER, 0, 0) in inside.context.timers
    yield "when one is forgotten is planned", is_planned, bool(retirement._left or retirement._gone)
    asked = sum(kind == CONTEST_TIMER for kind, *_ in inside.deadlines())
    yield "contests", inside.contests._open, asked


def _given(inside: Inside) -> Iterator[Counted]:
    """A joiner that asks again is given the id that it has: by its life and its address."""
    membership = inside.membership
    living = {
        (record.incarnation, record.address): node_id
        for node_id, record in sorted(membership.exceptions().items())
        if node_id >= membership.founding_size and record.status is Status.ALIVE
    }
    known = {life: inside.growth._given.get(life) for life in living}
    yield "ids that joiners were given", known, living


def _links(inside: Inside) -> Iterator[Counted]:
    by_peer: dict[NodeId, list[int]] = {}
    for link in inside.links.table.values():
        by_peer.setdefault(link.peer, []).append(link.id)
    indexed = {peer: [link.id for link in links] for peer, links in inside.links.by_peer.items()}
    yield "links by peer", indexed, by_peer


def _planned(inside: Inside) -> Iterator[Counted]:
    """What is to be told, and whoever is looked for, has its deadline."""
    deadlines, context = inside.deadlines(), inside.context
    is_planned = (NOTICES_TIMER, 0, 0) in deadlines
    yield "when records are told is planned", is_planned or not inside.notices._pending, True
    if context.state is NodeState.JOINING and not inside.dialling.ever_linked:
        yield "when others are looked for is planned", (SEARCH_TIMER, 0, 0) in deadlines, True


def _healing(inside: Inside) -> Iterator[Counted]:
    """How many neighbors of each id are dead, as far as the present layout has been counted."""
    healing, membership = inside.healing, inside.membership
    if healing._counted_at != membership.layout_revision:
        return
    there: Counter[NodeId] = Counter()
    for dead in healing._neighbors:
        there.update(membership.neighbors(NodeId(dead)))
    yield "dead neighbors", +healing._dead_neighbors, there


def _detours(inside: Inside) -> Iterator[Counted]:
    """By how much ways around the dead are too long, found by going from each survivor to all others."""
    dead, size = inside.membership.dead, inside.membership.layout_size
    if not dead or size > _WALKED_MAX:
        return
    ranks = {rank_of(node_id, inside.membership.outside) for node_id in dead}
    found, survivors = hop_overhead(size, ranks), size - len(ranks)
    there = [
        hops for start in range(size) if start not in ranks for hops in _hops(size, start, ranks)
    ]
    healed = list(_hops(survivors, 0, set())) if survivors > 1 else []
    yield "the longest way", found.longest, max(there, default=0)
    yield "the longest way of the healed graph", found.optimal_longest, max(healed, default=0)
    if survivors > 1 and inf not in there:
        average = sum(there) / (survivors * (survivors - 1))
        yield "the average way", round(found.average, 9), round(average, 9)
        average = sum(healed) / (survivors - 1)
        yield "that of the healed graph", round(found.optimal_average, 9), round(average, 9)


def _hops(size: int, start: int, dead: Set[int]) -> Iterator[float]:
    """How far each other survivor is from one of them; infinitely, where there is no way."""
    steps = [1 << k for k in range(size.bit_length()) if 1 << k < size]
    distance, reached = {start: 0}, deque([start])
    while reached:
        rank = reached.popleft()
        for step in (*steps, *(-step for step in steps)):
            other = (rank + step) % size
            if other not in distance and other not in dead:
                distance[other] = distance[rank] + 1
                reached.append(other)
    return (distance.get(i, inf) for i in range(size) if i not in dead and i != start)


def _features(inside: Inside) -> Iterator[Counted]:
    """Of a life that is over no features are kept."""
    for node_id, life, _ in inside.context.compatibility.known():
        record = inside.membership.exceptions().get(node_id)
        if record is not None:
            has_left = record.status is Status.LEFT and record.incarnation == life
            yield f"{node_id} leads its life", record.incarnation <= life and not has_left, True


def _allowance(inside: Inside) -> Iterator[Counted]:
    """How many ids may become known at once: never less than none, and never more than is stated."""
    allowance = inside.membership.allowance
    yield "ids become known at a rate", allowance._at_ns is not None, True
    yield "ids that may be skipped", 0 <= allowance.skips <= ID_GAP_MAX, True
    yield "ids that may be retired", 0 <= allowance.retired <= RETIRED_AT_ONCE, True


def members(inside: Inside) -> Iterator[Counted]:
    """All of these."""
    for part in (
        _deadlines,
        _ids,
        _awaited,
        _given,
        _links,
        _planned,
        _healing,
        _detours,
        _features,
        _allowance,
    ):
        yield from part(inside)
