"""What checkers see: every step of every core, the faults, and a log of links kept beside the cores.

Theory of operation. A checker must not ask the core what it is to prove, so what happened is written
down in a journal from events and effects alone: which links are up and when bytes last came on them,
which hellos, dials and requests wait for an answer, whom a node suspects. Each checker reads it, and
the core's own tables where the invariant is about them. The scene keeps the journals, calls the
checkers, and gathers what they found.

A checker says which kinds of events and effects concern it, and is called for those only. What compares
the core's tables with the journal may be left out of the deadlines that are quiet (nothing but heartbeats
was sent): each few of them are enough, for what is wrong in a table stays so, and each node has a
deadline in every heartbeat interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, TypeGuard

from bmgd.chaos.verdict import Violation
from bmgd.core.commands import Unsubscribe
from bmgd.core.effects import Effect, Overlooked, Reply, StreamEnded
from bmgd.core.events import CommandIssued, DeadlineReached, Event, Received
from bmgd.linklayer import LinkEngine, LinkLayer
from bmgd.linklayer.outbox import BULK_BYTES_MAX
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import NO_KINDS, Journal
from bmgd.sim.host import Host
from bmgd.sim.linkmodel import WatchedEngine
from bmgd.sim.modellink import LOSE_NOTHING
from bmgd.sim.network import Network
from bmgd.sim.simulation import Inspector
from bmgd.types import LinkId, NodeId
from bmgd.wire.link_messages import Heartbeat

Kinds = tuple[type, ...]
"""Classes of events or effects; a message stands for its coming, or its being sent."""
EVERY: Final[Kinds] = (object,)
LOOK_EVERY: Final = 4
"""Of the quiet deadlines of a node."""
_QUIET: Final = frozenset({NO_KINDS, frozenset({Heartbeat})})
DISTURBED_NS = 8_000_000_000
"""How long after a fault ended its effects may be seen: a detection, stretched, and its veto."""
_NOTHING: Final = CommandIssued(0, Unsubscribe())
"""Nothing follows from it: a program ends what it never began."""
VIOLATIONS_MAX = 1000
"""The first ones say it; a broken invariant can be broken at every step."""


Before = Callable[[Journal, Event], None]
After = Callable[[Journal, Event, Sequence[Effect]], None]


class Look:
    """Among a checker's events: each deadline, but most of the quiet ones."""


class Checker:
    """One invariant. A subclass overrides what it needs, and calls `violate`.

    Attributes:
        name: in the table of checkers, in violations and in reports.
        events, effects: a step with any of these is told to `after`.
        before_events: a step with any of these is told to `before`.
        sees_unusable: whether it is told of what programs ask for and cannot be, and how that is
            answered. Others are told only what else such a step orders.
        sees_dropped: the same of messages that are beyond their senders' rates.
    """

    name: ClassVar[str]
    events: ClassVar[Kinds] = EVERY
    effects: ClassVar[Kinds] = ()
    before_events: ClassVar[Kinds] = EVERY
    sees_unusable: ClassVar[bool] = False
    sees_dropped: ClassVar[bool] = False

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

    def on_disturbed(self, place: NodeId) -> None:
        """A fault at a process, by its place, has just begun."""

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
        calm_ns: how long each process, by its place, had been undisturbed when its last fault began.
    """

    looks_before: ClassVar[bool] = True

    def __init__(self, network: Network, checkers: Iterable[type[Checker]]) -> None:
        super().__init__()
        self.network = network
        self.journals: dict[NodeId, Journal] = {}
        self.given_twice: set[NodeId] = set()
        self.disturbed: dict[NodeId, int] = {}
        self.disturbances: dict[NodeId, int] = {}
        self.calm_ns: dict[NodeId, int] = {}
        self.checkers = [checker(self) for checker in checkers]
        self._before = [c for c in self.checkers if type(c).before is not Checker.before]
        self._on_disturbed = [
            c for c in self.checkers if type(c).on_disturbed is not Checker.on_disturbed
        ]
        self._after = [c for c in self.checkers if type(c).after is not Checker.after]
        self._of_unusable = [c for c in self.checkers if c.sees_unusable]
        self._of_dropped = [c for c in self.checkers if c.sees_dropped]
        self._told_after: dict[tuple[type, frozenset[type]], list[After]] = {}
        self._told_before: dict[type, list[Before]] = {}
        self._by_name = {checker.name: checker for checker in self.checkers}
        network.wires.make_layer = self._watched
        for host in network.hosts.values():
            network.wires.equip(host)
            self.boot(host)

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.network.now_ns

    # --- what links tell ----------------------------------------------------------------------

    def _watched(self, host: Host) -> LinkEngine:
        """The links of a process, compared with what they must do."""
        bulk_bytes_max = self.network.conditions.bulk_bytes_max or BULK_BYTES_MAX
        return WatchedEngine(
            LinkLayer(bulk_bytes_max),
            lambda name, text: self.on_link_rule_broken(host, name, text),
            lambda link, came: self._on_goodbye(host, LinkId(link), came),
            bulk_bytes_max,
        )

    def on_link_rule_broken(self, host: Host, name: str, text: str) -> None:
        """A rule of the link layer, by the name of its checker, does not hold at a host."""
        checker = self._by_name.get(name)
        if checker is not None:
            checker.violate(self.journals.get(host.where), text)

    def _on_goodbye(self, host: Host, link: LinkId, came: int) -> None:
        """All that the other end accepted has come before its goodbye."""
        end = host.ends.get(link) or host.closing.get(link)
        if end is None or end.other is None or not isinstance(end.other.host.layer, WatchedEngine):
            return
        accepted = end.other.host.layer.accepted.get(end.other.link, came)
        if accepted != came:
            text = f"{accepted} frames were accepted on link {link} before the goodbye, {came} came"
            self.on_link_rule_broken(host, LOSE_NOTHING, text)

    # --- what the network tells ---------------------------------------------------------------

    def boot(self, host: Host) -> None:
        """A process begins at a host; what was there before is over."""
        self.disturb(host.where)
        self.disturb(host.where, over=True)
        if host.id >= self.network.size and self._runs_elsewhere(host):
            self.given_twice.add(host.id)
        journal = Journal(host, Inside(host.node), host.node.incarnation, host.where)
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

    def disturb(self, place: NodeId, *, over: bool = False) -> None:
        """A fault at a host began, or one ended: stop, cut, slow, clock, reset."""
        former_ns = self.disturbed.get(place, 0)
        if not over and self.now_ns > former_ns:
            is_calm = not self.disturbances.get(place)
            self.calm_ns[place] = self.now_ns - former_ns if is_calm else 0
        count = self.disturbances.get(place, 0) + (-1 if over else 1)
        self.disturbances[place] = max(0, count)
        self.disturbed[place] = self.now_ns
        if not over:
            for checker in self._on_disturbed:
                checker.on_disturbed(place)

    def is_disturbed(self, place: NodeId) -> bool:
        """Whether a fault at a host is under way, or ended not long ago, whatever id it has now."""
        if self.disturbances.get(place):
            return True
        return self.now_ns - self.disturbed.get(place, -DISTURBED_NS) < DISTURBED_NS

    def mended(self) -> None:
        """All disturbances end now."""
        for place, count in self.disturbances.items():
            if count:
                self.disturbed[place] = self.now_ns
                self.disturbances[place] = 0

    def before(self, host: Host, event: Event) -> None:
        """A core is about to take an event."""
        journal = self.journals[host.where]
        journal.begin(host.local_ns(self.network.now_ns), event)
        if journal.drops:
            event = _NOTHING
        asked = event if self._is_unusable(event) else None
        if asked is not None:
            event = _NOTHING
        came: type = type(event.message) if isinstance(event, Received) else type(event)
        told = self._told_before.get(came)
        if told is None:
            kinds = (type(event), came)
            told = self._told_before[came] = [
                checker.before
                for checker in self._before
                if any(issubclass(kind, checker.before_events) for kind in kinds)
            ]
        for before in told:
            before(journal, event)
        if asked is not None:
            # Last: what they were told before is of nothing.
            for checker in self._of_unusable:
                checker.before(journal, asked)

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        """A core took an event; the effects are not carried out yet."""
        journal = self.journals[host.where]
        kinds = journal.write(event, effects)
        if self._is_unusable(event):
            for checker in self._of_unusable:
                checker.after(journal, event, effects)
            effects = [effect for effect in effects if not _answers(effect, event)]
            event = _NOTHING
        if journal.drops:
            for checker in self._of_dropped:
                checker.after(journal, event, effects)
            effects = [effect for effect in effects if not isinstance(effect, Overlooked)]
            event = _NOTHING
        came: type = type(event)
        if isinstance(event, Received):
            came = type(event.message)
        elif came is DeadlineReached:
            came = self._deadline_kind(journal, kinds)
        told = self._told_after.get((came, kinds))
        if told is None:
            told = self._told_after[came, kinds] = self._concerned_by(event, came, kinds)
        for after in told:
            after(journal, event, effects)

    def _is_unusable(self, event: Event) -> TypeGuard[CommandIssued]:
        """Whether a program asks for what cannot be: nothing of it is to be expected."""
        return isinstance(event, CommandIssued) and event.request in self.network.unusable

    def _deadline_kind(self, journal: Journal, kinds: frozenset[type]) -> type:
        if kinds in _QUIET:
            journal.quiet_deadlines += 1
            if journal.quiet_deadlines % LOOK_EVERY:
                return DeadlineReached
        return Look

    def _concerned_by(self, event: Event, came: type, kinds: frozenset[type]) -> list[After]:
        return [
            checker.after
            for checker in self._after
            if issubclass(type(event), checker.events)
            or issubclass(came, checker.events)
            or any(issubclass(kind, checker.effects) for kind in kinds)
        ]

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


def is_deadline(event: Event) -> bool:
    """Whether a step was the core's own, with everything due done."""
    return isinstance(event, DeadlineReached)


def _answers(effect: Effect, event: CommandIssued) -> bool:
    return isinstance(effect, Reply | StreamEnded) and effect.request == event.request
