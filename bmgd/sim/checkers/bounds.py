"""What is bounded stays so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.broadcast import announcements, delivery, programs, retention, window
from bmgd.core.broadcast.window import OVERHEAD_BYTES
from bmgd.core.effects import Close, Effect, Welcome
from bmgd.core.events import Event, LinkDown, LinkUp
from bmgd.core.joining import growth
from bmgd.core.neighbors import greeting
from bmgd.core.streams import finding, granting, inbound, outbound, stream_out, table
from bmgd.core.streams.stream_out import StreamOut
from bmgd.core.topics import inboxes, long_messages, questions
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, is_deadline
from bmgd.types import NodeState
from bmgd.wire.bounds import ROUTE_IDS_MAX, SEARCH_BYTES_MAX
from bmgd.wire.segments import COST_MAX

GUESTS_MAX = 32

BOUNDS = {
    "segments of a stream underway": 1024,
    "bytes of a stream flying": 4 * 2**20 + COST_MAX,
    "ids of a stream's span": 4096,
    "bytes of programs' segments": 64 * 2**20,
    "streams with credit": 32,
    "credit granted": 8 * 2**20,
    "bytes behind gaps": 8 * 2**20,
    "segments behind a gap": 1024,
    "topics": 1024,
    "bytes of a topic": 64 * 2**20 // 3 + COST_MAX,
    "bytes of all topics": 64 * 2**20,
    "bytes beyond a reader's credit": 0,
    "subscriptions": 1024,
    "streams of programs": 1024,
    "shared streams": 1024,
    "messages sent singly": 8192,
    "streams in": 65_536,
    "sources": 65_536,
    "searches for readers": 16,
    "long messages": 1024,
    "questions owed": 65_536,
    "questions underway": 8192,
    "programs of other nodes": 131_072,
    "registered programs": 1024,
    "topics of pieces unacknowledged": 16,
    "topics of broadcasts": 1024,
    "lives of sources": 65_536,
    "payloads that wait for room": 64 << 20,
    "joiners that wait": 1024,
    "requests for an id": 1024,
    "probes": 1024,
    "asks": 64,
    "held hellos": 16,
    "heartbeats until echoed": 32,
    "unknown ids": 4095,
    "bytes of a search": SEARCH_BYTES_MAX,
    "ids of a route": ROUTE_IDS_MAX,
}
"""docs/architecture.md, "What is bounded": those of the core."""
SMALL: Final = {
    "segments of a stream underway": (stream_out, "UNDERWAY_MAX"),
    "ids of a stream's span": (table, "SPAN"),
    "streams with credit": (granting, "ACTIVE_MAX"),
    "segments behind a gap": (inbound, "KEPT_MAX"),
    "held hellos": (greeting, "HELD_MAX"),
    "streams of programs": (outbound, "STREAMS_MAX"),
    "shared streams": (outbound, "SHARED_MAX"),
    "messages sent singly": (outbound, "SENT_MAX"),
    "streams in": (inbound, "STREAMS_MAX"),
    "sources": (inbound, "SOURCES_MAX"),
    "searches for readers": (finding, "FINDS_MAX"),
    "long messages": (long_messages, "LONGS_MAX"),
    "questions owed": (questions, "OWED_MAX"),
    "questions underway": (inboxes, "QUESTIONS_MAX"),
    "programs of other nodes": (programs, "KNOWN_MAX"),
    "registered programs": (programs, "REGISTERED_MAX"),
    "topics of pieces unacknowledged": (delivery, "PIECE_TOPICS_MAX"),
    "topics of broadcasts": (announcements, "TOPICS_MAX"),
    "lives of sources": (retention, "LIVES_MAX"),
    "payloads that wait for room": (window, "WAITING_BYTES_MAX"),
    "joiners that wait": (growth, "JOINS_OPEN_MAX"),
    "requests for an id": (growth, "JOINS_OPEN_MAX"),
}
"""Those that a seed may have made small, where they are."""


def most_of(what: str) -> int:
    """What is allowed now."""
    if what not in SMALL:
        return BOUNDS[what]
    module, name = SMALL[what]
    bound: int = getattr(module, name)
    return min(bound, BOUNDS[what])


class BoundsHold(Checker):
    """Every queue and table of the core is within its bound, and counts what is in it."""

    name: ClassVar[str] = "bounds-hold"
    events: ClassVar[Kinds] = (LinkUp, LinkDown, Look)
    effects: ClassVar[Kinds] = (Welcome, Close)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        if is_deadline(event):
            sizes = measure(inside)
            for what, size in sizes.items():
                if size > most_of(what):
                    self.violate(journal, f"{what}: {size}, at most {most_of(what)}")
            self._check_counts(journal, inside, sizes)
        self._check_links(journal, inside)

    def _check_counts(self, journal: Journal, inside: Inside, sizes: dict[str, int]) -> None:
        for what, (counted, there) in (
            ("bytes behind gaps", inside.kept_bytes()),
            ("streams in", inside.stream_count()),
            ("bytes beyond one segment a stream", inside.extra_bytes()),
        ):
            if counted != there:
                self.violate(journal, f"counts {counted} {what}, there are {there}")
        for stream in inside.streams_out():
            self._check_stream(journal, stream)
        counted, held = inside.counted_bytes(), sizes["bytes of all topics"]
        if counted != held:
            self.violate(journal, f"counts {counted} bytes held, there are {held}")
        if any(queue[1] != queue[2] for queue in inside.queues()):
            self.violate(journal, "counts other bytes in a topic than are there")
        heap, due = inside.timer_entries(), len(inside.deadlines())
        if heap > 2 * due + 17:
            self.violate(journal, f"{heap} entries for {due} deadlines")
        remembered = len(inside.dialling.peerings)
        known = len(inside.dialling.wanted) + len(inside.links.by_peer) + len(journal.dials)
        known += len(inside.former()) + len(inside.membership.exceptions()) + GUESTS_MAX
        if remembered > known:
            self.violate(journal, f"remembers {remembered} peers, {known} are of use")

    def _check_stream(self, journal: Journal, stream: StreamOut) -> None:
        underway = stream.underway.values()
        flying = sum([s.cost for s in underway if s.flying]) if underway else 0
        lost = sum([s.lost for s in underway]) if underway else 0
        if (stream.flight, stream.losses) != (flying, lost):
            self.violate(journal, f"counts {stream.flight} flying, there are {flying}")
        deadlines_ns = [s.deadline_ns for s in (*stream.queue, *underway) if not s.doubted]
        if deadlines_ns and stream.earliest_ns > min(deadlines_ns):
            self.violate(
                journal, f"sees late that something of stream {stream.key} has no time left"
            )

    def _check_links(self, journal: Journal, inside: Inside) -> None:
        wanted, former = set(inside.dialling.wanted), inside.former()
        if inside.context.state in (NodeState.STARTING, NodeState.LEAVING) or journal.exited:
            return
        unwanted = sum(1 for link in journal.links.values() if link.peer not in wanted)
        most = sum(1 for peer in former if peer not in wanted) + GUESTS_MAX + 1
        if unwanted > most:
            self.violate(journal, f"{unwanted} links that it does not want, at most {most}")


def measure(inside: Inside) -> dict[str, int]:
    """The size of everything in `BOUNDS` that lasts from step to step."""
    queues, readers, out = inside.queues(), inside.readers(), inside.streams_out()
    streams, topics = inside.outbound.table, inside.topics
    return {
        "segments of a stream underway": max((len(s.underway) for s in out), default=0),
        "bytes of a stream flying": max((s.flight for s in out), default=0),
        "ids of a stream's span": max(inside.spans(), default=0),
        "bytes of programs' segments": inside.extra_bytes()[0],
        "streams with credit": len(inside.granted()),
        "credit granted": sum(inside.granted()),
        "bytes behind gaps": inside.kept_bytes()[0],
        "segments behind a gap": max((len(s.kept) for s in inside.streams_in()), default=0),
        "topics": len(queues),
        "bytes of a topic": max((q[2] for q in queues), default=0),
        "bytes of all topics": sum(q[2] for q in queues) + inside.handed_bytes(),
        "bytes beyond a reader's credit": max((r[1] - r[2] for r in readers), default=0),
        "subscriptions": len(readers),
        "streams of programs": len(streams.owned) + len(streams.abandoned),
        "shared streams": len(streams.shared),
        "messages sent singly": streams.sent_count,
        "streams in": inside.stream_count()[0],
        "sources": len(inside.inbound._sources),
        "searches for readers": inside.searches_for_readers(),
        "long messages": len(topics.longs.by_stream),
        "questions owed": len(topics.questions),
        "questions underway": topics.inboxes.underway,
        "programs of other nodes": sum(
            len(row.names) for row in inside.to_many.programs._rows.values()
        ),
        "registered programs": inside.to_many.programs.registered,
        "topics of pieces unacknowledged": max(
            (len(heard.pieces_of) for heard in inside.to_many.retention.lives.values()), default=0
        ),
        "topics of broadcasts": len(inside.to_many.announcements._carrying),
        "lives of sources": len(inside.to_many.retention.lives),
        "payloads that wait for room": _waiting_bytes(inside),
        "joiners that wait": len(inside.growth._open),
        "requests for an id": len(inside.growth._wishes),
        "probes": len(inside.probes()),
        "asks": len(inside.asks()),
        "held hellos": len(inside.held()),
        "heartbeats until echoed": max(
            (len(link.unechoed) for link in inside.links.table.values()), default=0
        ),
        "unknown ids": inside.unknown_ids(),
    }


def _waiting_bytes(inside: Inside) -> int:
    """What programs' broadcasts cost that wait for room, but for the overhead of the one put last."""
    waiting = [s for s in inside.to_many.source.window.waiting if s.command.topic]
    return sum([sent.cost for sent in waiting]) - (OVERHEAD_BYTES if waiting else 0)
