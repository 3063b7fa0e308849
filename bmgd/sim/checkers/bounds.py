"""What is bounded stays so; every deadline has its subject, and every subject its deadline."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import ClassVar, Final, get_args

from bmgd.core.broadcast import announcements, delivery, programs, retention, window
from bmgd.core.broadcast.watermarks import WATERMARK_TIMER
from bmgd.core.broadcast.window import OVERHEAD_BYTES
from bmgd.core.effects import (
    Close,
    Dial,
    Displaced,
    Effect,
    Observed,
    RecordChanged,
    Refuse,
    Renewed,
    Reply,
    Welcome,
)
from bmgd.core.events import CommandIssued, DialFailed, Event, Greeted, LinkDown, LinkUp
from bmgd.core.joining import growth
from bmgd.core.membership import retirement
from bmgd.core.neighbors import greeting
from bmgd.core.streams import finding, granting, inbound, outbound, stream_out, table
from bmgd.core.streams.stream_out import NEVER_NS, StreamOut
from bmgd.core.timers import TimerKey
from bmgd.core.topics import inboxes, long_messages, questions
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import Incarnation, NodeId, NodeState
from bmgd.wire.bounds import ROUTE_IDS_MAX, SEARCH_BYTES_MAX
from bmgd.wire.messages import RoutedMessage
from bmgd.wire.segments import COST_MAX

GUESTS_MAX = 32
STANDING = frozenset({"beat", "silence", "redial"})
"""Deadlines that every node always has, once it has started."""
SUBJECTS: Final = frozenset(
    {
        *("ask", "answer", "held", "probe", "accused"),
        *("find readers", "trace", "broadcast report", "grant", "join ask"),
    }
)
"""Deadlines that are there exactly while something waits for them."""
RESEND_MAX_NS = 2_500_000_000

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


class DeadlinesHaveSubjects(Checker):
    """Whatever waits has a deadline, and a deadline that waits for nothing is not there.

    Suspicions, asks, hellos that are held, messages, probes and ways underway, searches for readers,
    reports that programs wait for, joiners, links to the accused: each has exactly its own. A wanted peer
    without a link is dialled, or will be.
    """

    name: ClassVar[str] = "deadlines-have-subjects"
    events: ClassVar[Kinds] = (
        *get_args(RoutedMessage),
        LinkUp,
        LinkDown,
        DialFailed,
        Greeted,
        CommandIssued,
        Look,
    )
    effects: ClassVar[Kinds] = (RecordChanged, Observed, Reply, Welcome, Refuse, Close)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._neighbors: dict[NodeId, tuple[int, list[int], tuple[NodeId, ...]]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._neighbors.pop(journal.place, None)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        # Whose daemon ends has exited: the journal knows it. A displaced core is replaced by another.
        if journal.exited or any(isinstance(effect, Displaced) for effect in effects):
            return
        inside = journal.inside
        deadlines = inside.deadlines()
        waiting = {key for key in deadlines if key[0] in SUBJECTS}
        subjects = _subjects(inside)
        if waiting != subjects:
            extra, missing = sorted(waiting - subjects), sorted(subjects - waiting)
            self.violate(
                journal, f"deadlines without a subject {extra}, subjects {missing} without"
            )
        self._check_work(journal, inside)
        if is_deadline(event):
            self._check_standing(journal, inside, {key[0] for key in deadlines})

    def _check_work(self, journal: Journal, inside: Inside) -> None:
        """What is to be done in turns is being done, and nothing is done for what is over."""
        names = inside.work_underway()
        if inside.outbound.sending._ready and "streams" not in names:
            self.violate(journal, "streams have something to send, and nothing sends it")
        if inside.inbound._advancing and "advance" not in names:
            self.violate(journal, "streams have something to take, and nothing takes it")
        searches = {name for name in names if name.startswith("find ")}
        over = searches - {f"find {number}" for number in inside.finding._open}
        if over:
            self.violate(journal, f"goes on with {sorted(over)}, which are over")

    def _check_standing(self, journal: Journal, inside: Inside, purposes: Set[str]) -> None:
        state = inside.context.state
        if state is not NodeState.STARTING and not purposes >= STANDING:
            self.violate(journal, f"has no deadline for {sorted(STANDING - purposes)}")
        joining = state is NodeState.JOINING
        if (joining or state is NodeState.READY) and ("start deadline" in purposes) != joining:
            self.violate(journal, f"is {state.value}, and a start deadline is or is not set")
        self._check_forgetting(journal, inside)
        self._check_resends(journal, inside)
        lives = inside.to_many.retention.lives
        for _, source, incarnation in [k for k in inside.deadlines() if k[0] == WATERMARK_TIMER]:
            heard = lives.get((NodeId(source), Incarnation(incarnation)))
            if heard is None or not heard.unacknowledged_bytes:
                self.violate(journal, f"a deadline to acknowledge nothing of {source}")
        if "relayout" not in purposes:
            self._check_wanted(journal, inside)

    def _check_forgetting(self, journal: Journal, inside: Inside) -> None:
        """Where nobody is gone, the joiner that left first is forgotten when its time is over."""
        left = inside.retirement._left
        if not left or inside.retirement._gone:
            return
        due_ns = inside.context.timers.due_ns((retirement.RETIRE_TIMER, 0, 0))
        most_ns = min(left.values()) + retirement.LEFT_NS
        if due_ns is None or due_ns > max(most_ns, journal.now_ns + retirement.TURN_NS):
            self.violate(journal, f"forgets {next(iter(left))}, which has left, at {due_ns}")

    def _check_resends(self, journal: Journal, inside: Inside) -> None:
        streams = {stream.key: stream for stream in inside.streams_out()}
        for key in [key for key in inside.deadlines() if key[0] == "stream"]:
            if key[1] not in streams or streams[key[1]].is_idle:
                self.violate(journal, f"a deadline of a stream {key[1]} that waits for nothing")
        for stream in streams.values():
            waiting = (*stream.queue, *stream.underway.values())
            if not waiting:
                continue
            due_ns = inside.context.timers.due_ns(("stream", stream.key, 0))
            at_ns = NEVER_NS if due_ns is None else due_ns
            deadlines_ns = [s.deadline_ns for s in waiting if not s.doubted]
            deadline_ns = min(deadlines_ns, default=NEVER_NS)
            is_local = stream.destination == journal.host.id
            if is_local and stream.underway and all(s.doubted for s in stream.underway.values()):
                self.violate(journal, f"stream {stream.key} to itself waits for what is given up")
            if stream.underway and not is_local:
                deadline_ns = min(deadline_ns, journal.now_ns + RESEND_MAX_NS)
            # Of many that are due some are reached in the next step.
            if at_ns > max(deadline_ns, journal.now_ns):
                self.violate(journal, f"waits longer for {stream.destination} than it may")

    def _check_wanted(self, journal: Journal, inside: Inside) -> None:
        if inside.context.state not in (NodeState.JOINING, NodeState.READY):
            return
        if inside.dialling.wanted != self._neighbors_of(journal, inside):
            self.violate(journal, f"wants {inside.dialling.wanted}, not its layout's neighbors")
        deadlines = inside.deadlines()
        for peer in inside.dialling.wanted:
            if inside.links.to(peer) is not None or inside.membership.is_gone(peer):
                continue
            coming = ("dial", peer, 0) in deadlines or ("join", peer, 0) in deadlines
            if peer not in journal.dials and not coming:
                self.violate(journal, f"wants {peer}, and neither dials it nor will")

    def _neighbors_of(self, journal: Journal, inside: Inside) -> tuple[NodeId, ...]:
        """Of its layout; asked for again when that has changed."""
        membership = inside.membership
        known = self._neighbors.get(journal.place)
        if known is None or known[:2] != (membership.id_space, membership.outside):
            neighbors = membership.neighbors(journal.host.id)
            known = membership.id_space, list(membership.outside), neighbors
            self._neighbors[journal.place] = known
        return known[2]


def _subjects(inside: Inside) -> set[TimerKey]:
    """What waits, each as the deadline that it must have."""
    found: set[TimerKey] = {
        ("accused", i, 0) for i, link in inside.links.table.items() if link.accused_ns
    }
    for purpose, numbers in inside.subjects():
        if numbers:
            found.update([(purpose, number, 0) for number in numbers])
    return found


class MemoriesAreOfUse(Checker):
    """Nothing is remembered of a link that is gone, and no peer is held to be dialled that is not."""

    name: ClassVar[str] = "memories-are-of-use"
    events: ClassVar[Kinds] = (LinkUp, DialFailed, Look)
    effects: ClassVar[Kinds] = (Dial, Renewed)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        dialling = {p for p, peering in inside.dialling.peerings.items() if peering.dialling}
        if dialling and dialling - journal.dials.keys():
            lost = sorted(dialling - journal.dials.keys())
            self.violate(journal, f"holds {lost} to be dialled, which it does not dial")
        renewed = any(isinstance(effect, Renewed) for effect in effects)
        if renewed and inside.underway_count():
            self.violate(journal, "began a new life with messages of the former underway")
        if not is_deadline(event):
            return
        for link_id, link in inside.links.table.items():
            seen = journal.links.get(link_id)
            if seen is not None and link.heard_ns < min(seen.heard_ns, journal.now_ns):
                self.violate(journal, f"has heard {link.peer} and does not know it")
        full = inside.outbound.sending.held.links.difference(inside.links.table)
        if full:
            self.violate(journal, f"lets bulk wait for links {sorted(full)}, which are gone")
        membership = inside.membership
        for peer, peering in inside.dialling.peerings.items():
            if peer in membership.retired:
                # Of it nothing else is known, and it is forgotten with the next layout.
                continue
            if peering.linked and peering.linked > membership.vouched(peer):
                self.violate(journal, f"was linked to a life of {peer} that it does not know")
