"""What a core keeps of reliable broadcasts, its own and others', held against what it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from bmgd.core.broadcast.heard import SkippedRange
from bmgd.core.broadcast.orphans import ORPHAN_TIMER, TELL_NS
from bmgd.core.broadcast.watermarks import REMIND_TIMER
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.recounted_members import Counted


def broadcasts(inside: Inside) -> Iterator[Counted]:
    """All that is counted of broadcasts."""
    yield from _sent(inside)
    yield from _peers(inside)
    yield from _retained(inside)
    yield from _announced(inside)


def _sent(inside: Inside) -> Iterator[Counted]:
    """This node's own reliable broadcasts."""
    source, window = inside.to_many.source, inside.to_many.source.window
    yield "bytes that wait", window.waiting_bytes, sum(sent.cost for sent in window.waiting)
    sequences = [sent.sequence for sent in window.unstable]
    yield "unstable broadcasts", sequences, list(range(window.stable + 1, window.next))
    unanswered = [sent.request for sent in (*window.unstable, *window.waiting) if not sent.answered]
    yield "broadcasts to be answered", sorted(source.reports.awaited), sorted(unanswered)


def _peers(inside: Inside) -> Iterator[Counted]:
    """What a source knows of others: nobody has more than was sent, and what touches is one."""
    source = inside.to_many.source
    for node_id, peer in source.peers.by_id.items():
        yield f"{node_id} has what was sent", peer.watermark < source.window.next, True
        touching = [
            (a, b)
            for a, b in pairwise(peer.skips)
            if b.first <= a.last + 1 and b.missed == a.missed
        ]
        yield f"skips of {node_id} that could be one", touching, []


def _retained(inside: Inside) -> Iterator[Counted]:
    """What is kept of others' reliable broadcasts, and of whom nobody sends again."""
    retention, orphans = inside.to_many.retention, inside.to_many.orphans
    by_source = {h.key for lives in retention.by_source.values() for h in lives.values()}
    yield "lives by source", by_source, set(retention.lives)
    yield "sources without a life", [s for s, lives in retention.by_source.items() if not lives], []
    yield "orphans that are forgotten", set(orphans._orphans) - set(retention.lives), set()
    planned_ns = inside.context.timers.due_ns((ORPHAN_TIMER, 0, 0))
    is_soon = planned_ns is not None and planned_ns <= inside.context.now_ns + TELL_NS
    yield "when neighbors are told of orphans is planned", is_soon or not orphans._untold, True
    for key, heard in retention.lives.items():
        is_orphan = key in orphans._orphans
        if is_orphan:
            yield f"source of orphan {key} is gone", retention.is_orphan(heard), True
        elif heard.copies and not retention.changed and retention.is_orphan(heard):
            # A message of the next life came before its record: a deadline sees to what is here.
            record = inside.membership.exceptions().get(heard.source)
            known = 0 if record is None else record.incarnation
            is_over = inside.membership.is_gone(heard.source) or known > heard.incarnation
            yield f"source of {key} is over by its record", is_over, False
            is_planned = (REMIND_TIMER, *key) in inside.context.timers
            yield f"when {key} is looked at", is_planned, True
        elif heard.copies and not retention.is_orphan(heard):
            is_planned = (REMIND_TIMER, *key) in inside.context.timers
            yield f"when the source of {key} is reminded is planned", is_planned, True
        yield f"since when {key} is an orphan", bool(heard.orphan_ns) or not is_orphan, True
        passed = [skip for skip in heard.skips if skip[1] <= heard.watermark]
        yield f"skips of {key} that are passed", passed, []
        yield f"skips of {key} that could be one", touching(heard.skips), []


def touching(skips: Sequence[SkippedRange]) -> list[tuple[SkippedRange, SkippedRange]]:
    """Those that tell the same and lie side by side."""
    return [
        (a, b)
        for a, b in combinations(skips, 2)
        if (a.missed, a.said) == (b.missed, b.said)
        and a.first <= b.last + 1
        and b.first <= a.last + 1
    ]


def _announced(inside: Inside) -> Iterator[Counted]:
    """What waits for readers of broadcasts."""
    announcements = inside.to_many.announcements
    topics = Counter((reader.topic, request) for request, reader in announcements._readers.items())
    indexed = Counter(
        (topic, request) for topic, each in announcements._by_topic.items() for request in each
    )
    yield "readers of broadcasts", indexed, topics
    for request, reader in announcements._readers.items():
        sizes = [len(each.payload) for each in reader.queue if hasattr(each, "payload")]
        yield f"bytes that wait for {request}", reader.queue_bytes, sum(sizes)
        lost = [
            gap for gap in reader.gaps.values() if not any(gap is each for each in reader.queue)
        ]
        yield f"gaps of {request} that are told already", lost, []
        keys = [key for key, gap in reader.gaps.items() if key != (gap.source, gap.incarnation)]
        yield f"gaps of {request} under another key", keys, []
        is_carried = reader.topic in announcements._carrying
        yield f"what {request} is not told yet", bool(reader.untold) and is_carried, False
        taken = sum(reader.unconsumed)
        yield f"bytes that {request} has", reader.unconsumed_bytes, taken
