"""Every counter and index of a core, held against what it counts: at rest, and at random steps.

A counter is there so that nothing has to be counted. If one step forgets it, nothing shows at once:
a window that is never full again, a topic that has no room for ever. So each part of a core is counted
anew here. What is kept twice (a table and its index) must be the same twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import ClassVar, Final

from bmgd.core.effects import Dial, Effect, RecordChanged
from bmgd.core.events import Event
from bmgd.core.streams.inbound import Inbound
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.topics.inboxes import is_inbox, topic_of
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.recounted_broadcasts import broadcasts
from bmgd.sim.checkers.recounted_members import Counted, members
from bmgd.sim.checkers.scene import EVERY, Checker, Kinds, Scene
from bmgd.types import NodeId
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.segments import COST_MAX, cost_of

_MILLISECOND: Final = 1_000_000
STEPS_MAX: Final = 400
"""One of so many steps of a node is looked at, at least."""


class CountsAreTrue(Checker):
    """Every counter and index of the core is what it counts: at rest, and at random steps."""

    name: ClassVar[str] = "counts-are-true"
    events: ClassVar[Kinds] = EVERY

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._random = Random(scene.network.size)
        self._left: dict[NodeId, int] = {}
        self._limited: dict[NodeId, bool] = {}
        """Whether each process could let fewer ids become known than ever, after its last step."""

    def on_boot(self, journal: Journal) -> None:
        self._left[journal.place], self._limited[journal.place] = 0, False

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        allowance = journal.inside.membership.allowance
        since_ns = journal.now_ns if allowance._at_ns is None else allowance._at_ns
        if self._limited[journal.place] and journal.now_ns - since_ns >= _MILLISECOND:
            self.violate(journal, "has let time pass, and lets no more ids become known")
        self._limited[journal.place] = allowance.is_limited
        if self._left[journal.place] > 0:
            self._left[journal.place] -= 1
            return
        self._left[journal.place] = self._random.randrange(STEPS_MAX)
        if not journal.exited:
            self._recount(journal)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            self._recount(journal)

    def _recount(self, journal: Journal) -> None:
        inside = journal.inside
        for part in (
            members,
            _topics,
            _requests,
            _streams_out,
            _streams_in,
            broadcasts,
        ):
            for what, counted, there in part(inside):
                if counted != there:
                    self.violate(journal, f"{what}: says {counted}, there is {there}")
        for what, counted, there in _orders(journal):
            if counted != there:
                self.violate(journal, f"{what}: says {counted}, there were {there}")


def _orders(journal: Journal) -> Iterator[Counted]:
    """What operators are shown that a node has done. Heartbeats that are absorbed have no effect."""
    counts, ordered = journal.inside.context.counts, journal.ordered
    sent = {kind: count for kind, count in counts.sent.items() if count and kind is not Heartbeat}
    there = {kind: ordered[kind] for kind in counts.sent if kind in ordered}
    there.pop(Heartbeat, None)
    yield "messages sent", sent, there
    yield "messages delivered", counts.delivered, journal.delivered
    yield "dials", counts.dials, ordered[Dial]
    yield "records changed", counts.changes, ordered[RecordChanged]
    for name in ("closed", "events", "failed", "lost", "refused"):
        said: dict[object, int] = getattr(counts, name)
        named = {key: count for (kind, key), count in journal.named.items() if kind == name}
        yield f"{name}, by name", {key: count for key, count in said.items() if count}, named


def _topics(inside: Inside) -> Iterator[Counted]:
    """Queues, what readers have in their hands, and long messages on their way to them."""
    topics = inside.topics
    held = 0
    for name, topic in topics.table.topics.items():
        readers = [s for s in topics.table.subscriptions.values() if s.topic == name]
        longs = [each for each in topics.longs.by_stream.values() if each.topic == name]
        waiting = [(segment.count - segment.consumed, segment.cost) for segment in topic.waiting]
        yield f"messages of {name!r}", topic.waiting_count, sum(count for count, _ in waiting)
        yield f"bytes of {name!r}", topic.waiting_bytes, sum(cost for _, cost in waiting)
        streams = Counter(segment.line_key for segment in topic.waiting)
        yield f"streams that wait for {name!r}", topic.waiting_of, streams
        in_hands = sum(segment.cost for reader in readers for segment in reader.unconsumed)
        pieces = sum(piece.cost for each in longs for piece in (*each.waiting, *each.unconsumed))
        there = topic.waiting_bytes + in_hands + pieces
        yield f"bytes held for {name!r}", topic.held_bytes, there
        held += there
        yield (
            f"readers of {name!r}",
            {r.request for r in topic.readers},
            {r.request for r in readers},
        )
        yield f"readers of {name!r}, each once", len(topic.readers), len(readers)
    yield "bytes held", inside.counted_bytes(), held
    for request, reader in topics.table.subscriptions.items():
        yield f"topic of reader {request}", reader.topic in topics.table.topics, True
        mine = [each for each in topics.longs.by_stream.values() if each.reader is reader]
        count = sum(segment.count - segment.consumed for segment in reader.unconsumed)
        yield f"messages in the hands of {request}", reader.count, count
        cost = sum(segment.cost for segment in reader.unconsumed)
        cost += sum(piece.cost for each in mine for piece in each.unconsumed)
        yield f"bytes in the hands of {request}", reader.bytes, cost
        numbers = {each.number for each in mine}
        yield f"long messages of {request}", set(reader.longs), numbers


def _requests(inside: Inside) -> Iterator[Counted]:
    """Questions that are owed an answer by somebody, and wait for somebody; inboxes of somebody."""
    topics = inside.topics
    owed = topics.questions.owed()
    yield "questions owed", len(topics.questions), len(owed)
    gone = sorted({reader for reader, _ in owed if reader not in topics.table.subscriptions})
    yield "readers that owe and are gone", gone, []
    for name, topic in topics.table.topics.items():
        if any(segment.inbox for segment in topic.waiting):
            able = any(reader.takes_long for reader in topic.readers)
            yield f"a reader for the questions of {name!r}", able, True
    opened = {topic_of(inbox.number) for inbox in topics.inboxes.inboxes()}
    yield "inboxes", opened, {name for name in topics.table.topics if is_inbox(name)}
    numbers = [inbox.number for inbox in topics.inboxes.inboxes()]
    yield "programs with an inbox", len(topics.inboxes), len(set(numbers))
    are_numbers = all(0 < number <= topics.inboxes._last_number for number in numbers)
    yield "numbers of inboxes", are_numbers, True


def _streams_out(inside: Inside) -> Iterator[Counted]:
    """The tables of streams by program, by destination and topic, and by id."""
    table = inside.outbound.table
    streams = set(table.streams.values())
    yield "streams of programs", set(table.owned.values()) <= streams, True
    yield "shared streams", set(table.shared.values()) <= streams, True
    left = {s.key for s in streams if s.abandoned and not s.ending}
    yield "abandoned streams", set(table.abandoned), left
    yield "owners", set(table.owned), {s.owner for s in table.owned.values()}
    keys = {(s.destination, s.topic) for s in table.shared.values()}
    yield "keys of shared streams", set(table.shared), keys
    for peer, known in table.peers.items():
        opened = {s.id: s.key for s in streams if s.id and s.destination == peer}
        yield f"open streams to {peer}", {i: s.key for i, s in known.open.items()}, opened
        others = [key for key, s in known.waiting.items() if table.streams.get(key) is not s]
        yield f"streams that wait for an id to {peer} and are not there", others, []
        # Programs can go on with streams in the order in which they began.
        yield f"order of streams to {peer}", list(known.open), sorted(known.open)
    asked = sum(
        bool(sending.request)
        for stream in streams
        for sending in (*stream.queue, *stream.underway.values())
    )
    yield "messages sent singly", table.sent_count, asked
    for stream in streams:
        yield from _stream_out(stream.key, stream.underway, stream.next_sequence)
        cost = sum(sending.put_cost for sending in (*stream.queue, *stream.underway.values()))
        yield f"cost of stream {stream.key}", stream.put_cost - stream.done_cost, cost
        if stream.owner:
            has_one = stream.granted >= stream.done_cost + COST_MAX
            yield f"credit for one segment of stream {stream.key}", has_one, True


def _stream_out(key: int, underway: Iterable[int], following: int) -> Iterator[Counted]:
    sequences = list(underway)
    yield f"order of stream {key}", sequences, sorted(sequences)
    yield f"next segment of stream {key}", max(sequences, default=0) < following, True


def _streams_in(inside: Inside) -> Iterator[Counted]:
    """What waits behind gaps, and the tables of streams that have, or want, something."""
    inbound = inside.inbound
    known = {(s.source, s.id): s for s in inside.streams_in()}
    for key, stream in known.items():
        cost = sum(cost_of(segment.body) for segment in stream.kept.values())
        yield f"kept bytes of stream {key}", stream.kept_cost, cost
        searches = any(segment.route.search is not None for segment in stream.kept.values())
        yield f"searches, in no count, kept of stream {key}", searches, False
        lowest = stream.next if key in inbound._advancing else stream.next + 1
        yield f"what stream {key} keeps", all(n >= lowest for n in stream.kept), True
        yield f"credit of stream {key}", stream.credit >= stream.taken or stream.closed, True
    for name, index in (
        ("with credit", inbound.granting.active),
        ("owed an answer", inbound.acknowledging.owed),
        ("whose acknowledgement waits for an answer", _with_answers(inbound)),
        ("being taken", inbound._advancing),
        ("that want room", inbound.granting.starved),
    ):
        others = [key for key, stream in index.items() if known.get(key) is not stream]
        yield f"streams {name} that are not there", others, []
    for source_id, source in inbound._sources.items():
        ids = list(source.streams)
        yield f"floor of {source_id}", min(ids, default=source.floor) >= source.floor, True
        yield f"highest of {source_id}", max(ids, default=0) <= source.highest, True


def _with_answers(inbound: Inbound) -> dict[tuple[NodeId, int], StreamIn]:
    waiting = inbound.acknowledging._with_answers
    return {
        (source, number): stream
        for source, streams in waiting.items()
        for number, stream in streams.items()
    }
