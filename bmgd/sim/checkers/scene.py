"""What checkers see: every step of every core, the faults, and a log of links kept beside the cores.

Theory of operation. A checker must not ask the core what it is to prove, so what happened is written
down here from events and effects alone: which links are up and when bytes last came on them, which
hellos, dials and requests wait for an answer, whom a node suspects. Each checker reads this journal,
and the core's own tables where the invariant is about them. The scene keeps the journal, calls the
checkers, and gathers what they found.

A checker says which kinds of events and effects concern it, and is called for those only. One that
compares the core's tables with the journal looks after each step but the quiet ones, most of all: those
that brought a heartbeat, bytes or a notice, and had no effects. What such a step leaves in the tables is
seen after the next deadline, and each node has one in every heartbeat interval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bmgd.chaos.verdict import Violation
from bmgd.core.commands import SendTo
from bmgd.core.effects import Close, Dial, Effect, Observed, Refuse, Renewed, Reply, Send, Welcome
from bmgd.core.events import (
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    Heard,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.host import Host
from bmgd.sim.network import Network
from bmgd.sim.simulation import Inspector
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, NodeState
from bmgd.wire.messages import Answer, Ask, Heartbeat, Notice, Unwanted

Kinds = tuple[type, ...]
"""Classes of events or effects; a message stands for its coming, or its being sent."""
EVERY: Final[Kinds] = (object,)
_QUIET: Final[Kinds] = (Heard, Heartbeat, Notice)
_NO_KINDS: Final[frozenset[type]] = frozenset()

DISTURBED_NS = 8_000_000_000
"""How long after a fault ended its effects may be seen: a detection, stretched, and its veto."""
BEATS_KEPT = 64
VIOLATIONS_MAX = 1000
"""The first ones say it; a broken invariant can be broken at every step."""


@dataclass(slots=True)
class SeenLink:
    """A link as events and effects told of it.

    Args:
        heard_ns: when bytes last came, by the network and not by the core's stamp.
        unechoed: (sequence, time) of own heartbeats that the peer has not echoed, oldest first.
        unwanted: the digest of the peer's last `Unwanted`, or None.
        beat_ns: when a heartbeat was last sent on it.
        came: the highest heartbeat that came on it.
    """

    id: LinkId
    peer: NodeId
    incarnation: Incarnation
    dialled_by: NodeId
    dial_number: int
    opened_ns: int
    heard_ns: int
    beat_ns: int
    came: int = 0
    unwanted: int | None = None
    unechoed: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=BEATS_KEPT))


@dataclass(slots=True)
class Suspected:
    """A suspicion as a node told of it."""

    incarnation: Incarnation
    since_ns: int
    why: str
    asked: set[NodeId] = field(default_factory=set)
    concurred: set[NodeId] = field(default_factory=set)


@dataclass(slots=True)
class Journal:
    """What one process (one boot of one host) did and suffered.

    Args:
        inside: the core's parts.
        now_ns: the time of the step under way, by the host's own clock, as all times of a journal.
        failed: whose last dial came to nothing, with no link since.
        ended: how the last link to each peer ended, and to which life it was.
        links_before: the links before the step under way, if it opened or ended any; else None.
        lag_ns: how late the step under way is against the core's own deadline.
        starting_ns: when it last took an event before it began to watch anybody.
        late_ns: when the core was last late enough to reset its stamps.
        asks: when another node's `Ask` came, by (asker, suspect).
    """

    host: Host
    inside: Inside
    incarnation: Incarnation
    now_ns: int = 0
    links: dict[LinkId, SeenLink] = field(default_factory=dict)
    links_before: dict[LinkId, SeenLink] | None = None
    hellos: dict[LinkId, tuple[Greeted, int]] = field(default_factory=dict)
    dials: dict[NodeId, tuple[Dial, int]] = field(default_factory=dict)
    ended: dict[NodeId, tuple[Incarnation, Evidence]] = field(default_factory=dict)
    ever_linked: set[NodeId] = field(default_factory=set)
    failed: set[NodeId] = field(default_factory=set)
    requests: dict[int, tuple[SendTo, int]] = field(default_factory=dict)
    suspected: dict[NodeId, Suspected] = field(default_factory=dict)
    convicted: dict[NodeId, Incarnation] = field(default_factory=dict)
    asks: dict[tuple[NodeId, NodeId], int] = field(default_factory=dict)
    ready: bool = False
    exited: bool = False
    lag_ns: int = 0
    late_ns: int = 0
    starting_ns: int = 0

    @property
    def place(self) -> NodeId:
        """The process's number among all: ids can be given twice, until the two meet."""
        return self.host.where

    @property
    def former_links(self) -> dict[LinkId, SeenLink]:
        """The links as they were before the step under way."""
        return self.links if self.links_before is None else self.links_before

    def to(self, peer: NodeId) -> list[SeenLink]:
        """The links to one peer, oldest first."""
        return [link for link in self.links.values() if link.peer == peer]


class Checker:
    """One invariant. A subclass overrides what it needs, and calls `violate`.

    Attributes:
        name: in the table of checkers, in violations and in reports.
        events, effects: a step with any of these is told to `after`.
        looks: so is every other step, but the quiet ones.
    """

    name: ClassVar[str]
    events: ClassVar[Kinds] = EVERY
    effects: ClassVar[Kinds] = ()
    looks: ClassVar[bool] = False

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def violate(self, journal: Journal | None, text: str, name: str = "") -> None:
        """Write down that the invariant (or one of its parts, by its name) does not hold."""
        if len(self.scene.violations) < VIOLATIONS_MAX:
            node = None if journal is None else int(journal.host.id)
            violation = Violation(name or self.name, self.scene.now_ns, node, text)
            self.scene.violations.append(violation)

    def on_boot(self, journal: Journal) -> None:
        """A process began."""

    def before(self, journal: Journal, event: Event) -> None:
        """A core is about to take an event; the journal does not have it yet."""

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        """A core took an event; the journal has it and its effects, which are not carried out yet."""

    def at_rest(self, journals: Sequence[Journal]) -> None:
        """The faults ended long enough ago; `journals` are those of all hosts that run."""


class Scene(Inspector):
    """The journals of all processes, and the checkers over them.

    Args:
        network: where time and hosts are; no host has made a step yet.
        checkers: the invariants.

    Attributes:
        given_twice: ids that two processes had at a time, on two sides of a partition.
    """

    def __init__(self, network: Network, checkers: Iterable[type[Checker]]) -> None:
        super().__init__()
        self.network = network
        self.journals: dict[NodeId, Journal] = {}
        self.given_twice: set[NodeId] = set()
        self.disturbed: dict[NodeId, int] = {}
        self.disturbances: dict[NodeId, int] = {}
        self.checkers = [checker(self) for checker in checkers]
        self._before = [c for c in self.checkers if type(c).before is not Checker.before]
        self._after = [c for c in self.checkers if type(c).after is not Checker.after]
        self._concerned: dict[tuple[type, type, frozenset[type]], list[Checker]] = {}
        for host in network.hosts.values():
            self.boot(host)

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.network.now_ns

    # --- what the network tells ---------------------------------------------------------------

    def boot(self, host: Host) -> None:
        """A process begins at a host; what was there before is over."""
        self.disturb(host.id)
        self.disturb(host.id, over=True)
        if host.id >= self.network.size and self._runs_elsewhere(host):
            self.given_twice.add(host.id)
        journal = Journal(host, Inside(host.node), host.node.incarnation)
        self.journals[host.where] = journal
        for checker in self.checkers:
            checker.on_boot(journal)

    def _runs_elsewhere(self, host: Host) -> bool:
        return any(
            journal.host.id == host.id and journal.host is not host and journal.host.alive
            for journal in self.journals.values()
        )

    def ended(self, host: Host) -> None:
        """A process is over, or is no member any more."""
        journal = self.journals.get(host.where)
        if journal is not None and journal.host is host:
            journal.exited = True

    def disturb(self, node_id: NodeId, *, over: bool = False) -> None:
        """A fault at a host began, or one ended: stop, cut, slow, clock, reset."""
        count = self.disturbances.get(node_id, 0) + (-1 if over else 1)
        self.disturbances[node_id] = max(0, count)
        self.disturbed[node_id] = self.now_ns

    def is_disturbed(self, node_id: NodeId) -> bool:
        """Whether a fault at a host is under way, or ended not long ago."""
        if self.disturbances.get(node_id):
            return True
        return self.now_ns - self.disturbed.get(node_id, -DISTURBED_NS) < DISTURBED_NS

    def mended(self) -> None:
        """All disturbances end now."""
        for node_id, count in self.disturbances.items():
            if count:
                self.disturbed[node_id] = self.now_ns
                self.disturbances[node_id] = 0

    def before(self, host: Host, event: Event) -> None:
        """A core is about to take an event."""
        journal, now_ns = self.journals[host.where], host.local_ns(self.now_ns)
        due_ns = host.node.deadline_ns
        journal.now_ns = now_ns
        journal.links_before = None
        if host.node.state is NodeState.STARTING:
            journal.starting_ns = now_ns
        journal.lag_ns = 0 if due_ns is None else max(0, now_ns - due_ns)
        for checker in self._before:
            checker.before(journal, event)

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        """A core took an event; the effects are not carried out yet."""
        journal = self.journals[host.where]
        self._write_event(journal, event)
        for effect in effects:
            self._write_effect(journal, effect)
        for checker in self._concerned_by(event, effects):
            checker.after(journal, event, effects)

    def _concerned_by(self, event: Event, effects: Sequence[Effect]) -> list[Checker]:
        came = type(event.message) if isinstance(event, Received) else type(event)
        kinds = frozenset(map(_kind_of, effects)) if effects else _NO_KINDS
        key = type(event), came, kinds
        concerned = self._concerned.get(key)
        if concerned is None:
            quiet = not kinds and issubclass(came, _QUIET)
            concerned = self._concerned[key] = [
                checker
                for checker in self._after
                if (checker.looks and not quiet)
                or issubclass(type(event), checker.events)
                or issubclass(came, checker.events)
                or any(issubclass(kind, checker.effects) for kind in kinds)
            ]
        return concerned

    def of_node(self, node_id: NodeId) -> Journal | None:
        """The journal of an id's process; of several the one that runs."""
        found = [journal for journal in self.journals.values() if journal.host.id == node_id]
        return max(found, key=lambda journal: journal.host.alive, default=None)

    def disquiet(self) -> list[Violation]:
        """What is not yet as it must be at rest; [] when everything is. Nothing is written down."""
        running = [
            journal
            for _, journal in sorted(self.journals.items())
            if journal.host.alive and journal.host.joiner is None and not journal.exited
        ]
        written, self.violations = self.violations, []
        for checker in self.checkers:
            checker.at_rest(running)
        found, self.violations = self.violations, written
        return found

    def at_rest(self) -> None:
        """The faults ended long enough ago: what is not as it must be is a violation."""
        self.violations += self.disquiet()

    # --- the journal --------------------------------------------------------------------------

    def _write_event(self, journal: Journal, event: Event) -> None:
        now_ns = journal.now_ns
        match event:
            case Received(link_id, message):
                self._hear(journal, link_id)
                link = journal.links.get(link_id)
                if isinstance(message, Heartbeat) and link is not None:
                    link.came = max(link.came, message.sequence)
                    while link.unechoed and link.unechoed[0][0] <= message.echo:
                        link.unechoed.popleft()
                elif isinstance(message, Unwanted) and link is not None:
                    link.unwanted = message.digest
                elif isinstance(message, Ask) and message.route.destination == journal.host.id:
                    journal.asks[message.route.source, message.suspect] = now_ns
                elif isinstance(message, Answer) and message.route.destination == journal.host.id:
                    self._write_answer(journal, message)
            case Heard(link_ids):
                for link_id in link_ids:
                    self._hear(journal, link_id)
            case LinkUp():
                journal.dials.pop(event.peer, None)
                self._open(journal, event, journal.host.id)
            case LinkDown(link_id, evidence):
                journal.hellos.pop(link_id, None)
                link = self._end(journal, link_id)
                if link is not None:
                    journal.ended[link.peer] = link.incarnation, evidence
            case DialFailed(peer):
                journal.dials.pop(peer, None)
                journal.failed.add(peer)
            case Greeted():
                journal.hellos[event.link] = event, now_ns
            case CommandIssued(request, SendTo() as command):
                journal.requests[request] = command, now_ns
            case _:
                pass

    def _hear(self, journal: Journal, link_id: LinkId) -> None:
        link = journal.links.get(link_id)
        if link is not None:
            link.heard_ns = journal.now_ns

    def _open(self, journal: Journal, up: LinkUp | Greeted, dialled_by: NodeId) -> None:
        now_ns = journal.now_ns
        if journal.links_before is None:
            journal.links_before = dict(journal.links)
        journal.links[up.link] = SeenLink(
            up.link, up.peer, up.incarnation, dialled_by, up.dial_number, now_ns, now_ns, now_ns
        )
        journal.ever_linked.add(up.peer)
        journal.failed.discard(up.peer)
        journal.ended.pop(up.peer, None)
        journal.suspected.pop(up.peer, None)

    def _end(self, journal: Journal, link_id: LinkId) -> SeenLink | None:
        if journal.links_before is None:
            journal.links_before = dict(journal.links)
        return journal.links.pop(link_id, None)

    def _write_answer(self, journal: Journal, answer: Answer) -> None:
        suspected = journal.suspected.get(answer.suspect)
        if suspected is not None and not answer.alive:
            suspected.concurred.add(answer.route.source)

    def _write_effect(self, journal: Journal, effect: Effect) -> None:
        match effect:
            case Send(link_id, message):
                link = journal.links.get(link_id)
                if isinstance(message, Heartbeat) and link is not None:
                    link.beat_ns = journal.now_ns
                    link.unechoed.append((message.sequence, journal.now_ns))
                elif isinstance(message, Ask) and message.route.source == journal.host.id:
                    suspected = journal.suspected.get(message.suspect)
                    if suspected is not None:
                        suspected.asked.add(message.route.destination)
            case Dial(peer):
                journal.dials[peer] = effect, journal.now_ns
            case Welcome(link_id):
                hello = journal.hellos.pop(link_id, None)
                if hello is not None:
                    self._open(journal, hello[0], hello[0].peer)
            case Refuse(link_id):
                journal.hellos.pop(link_id, None)
            case Close(link_id):
                self._end(journal, link_id)
            case Reply(request):
                journal.requests.pop(request, None)
            case Renewed(incarnation):
                journal.incarnation = incarnation
            case Observed():
                self._write_observed(journal, effect)
            case _:
                journal.exited = journal.exited or type(effect).__name__ == "Exit"

    def _write_observed(self, journal: Journal, observed: Observed) -> None:
        peer = observed.peer
        if observed.event == "ready":
            journal.ready = True
        elif observed.event == "late":
            journal.late_ns = journal.now_ns
            journal.suspected.clear()
        elif observed.event == "suspected" and peer is not None:
            life = observed.incarnation
            assert life is not None
            journal.suspected[peer] = Suspected(life, journal.now_ns, observed.detail)
        elif observed.event == "verdict" and peer is not None and observed.incarnation is not None:
            journal.convicted[peer] = observed.incarnation


def _kind_of(effect: Effect) -> type:
    """What an effect counts as: a message that is sent as a message of its kind."""
    return type(effect.message) if isinstance(effect, Send) else type(effect)


def is_deadline(event: Event) -> bool:
    """Whether a step was the core's own, with everything due done."""
    return isinstance(event, DeadlineReached)
