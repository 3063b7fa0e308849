"""Every deadline has its subject, and every subject its deadline."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import ClassVar, Final, get_args

from bmgd.core.broadcast.watermarks import WATERMARK_TIMER
from bmgd.core.effects import (
    Close,
    Displaced,
    Effect,
    Observed,
    RecordChanged,
    Refuse,
    Reply,
    Welcome,
)
from bmgd.core.events import CommandIssued, DialFailed, Event, Greeted, LinkDown, LinkUp
from bmgd.core.membership import retirement
from bmgd.core.streams.stream_out import NEVER_NS
from bmgd.core.timers import TimerKey
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import Incarnation, NodeId, NodeState
from bmgd.wire.messages import RoutedMessage

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
