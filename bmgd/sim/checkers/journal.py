"""What one process did and suffered, written down from events and effects alone."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bmgd.core.commands import SendTo
from bmgd.core.effects import (
    AbsorbHeartbeats,
    Announce,
    Close,
    Deliver,
    Dial,
    Effect,
    Exit,
    ForwardingChanged,
    Observed,
    Overlooked,
    RecordChanged,
    Refuse,
    Renewed,
    Reply,
    Send,
    Welcome,
)
from bmgd.core.events import (
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    Heard,
    HeartbeatsAbsorbed,
    KeysChanged,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.rates import Rates
from bmgd.sim.host import Host
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, NodeState
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.features import SPOKEN
from bmgd.wire.link_messages import Heartbeat, Unwanted
from bmgd.wire.messages import Message

BEATS_KEPT = 64
ASKS_KEPT = 64
NO_KINDS: Final[frozenset[type]] = frozenset()
_UNWRITTEN: Final = frozenset({RecordChanged, ForwardingChanged, AbsorbHeartbeats, Overlooked})


@dataclass(slots=True)
class SeenLink:
    """A link as events and effects told of it.

    Args:
        heard_ns: when bytes last came, by the network and not by the core's stamp.
        unechoed: (sequence, time) of own heartbeats that the peer has not echoed, oldest first.
        unwanted: the digest of the peer's last `Unwanted`, or None.
        beat_ns: when a heartbeat was last sent on it.
        came: the highest heartbeat that came on it.
        came_before: the highest one before the event that told of `came`; an event can tell of several.
        features: what the other end can do, as its hello said.
        key: what it was made under.
        renews: it takes the place of the others of its pair.
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
    came_before: int = 0
    unwanted: int | None = None
    features: int = SPOKEN
    key: str = ""
    renews: bool = False
    unechoed: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=BEATS_KEPT))

    def take_in(self, sequence: int, echo: int) -> None:
        """A heartbeat came on it."""
        if sequence > self.came:
            self.came_before, self.came = self.came, sequence
        while self.unechoed and self.unechoed[0][0] <= echo:
            self.unechoed.popleft()


@dataclass(slots=True)
class Suspected:
    """A suspicion as a node told of it."""

    incarnation: Incarnation
    since_ns: int
    why: str
    number: int = -1
    asked: set[NodeId] = field(default_factory=set)
    concurred: set[NodeId] = field(default_factory=set)


@dataclass(slots=True)
class Journal:
    """What one process (one boot of one host) did and suffered.

    Args:
        inside: the core's parts.
        place: the process's number among all: ids can be given twice, until the two meet.
        now_ns: the time of the step under way, by the host's own clock, as all times of a journal.
        failed: whose last dial came to nothing, with no link since.
        ended: how the last link to each peer ended, and to which life it was.
        links_before: the links before the step under way, if it opened or ended any; else None.
        lag_ns: how late the step under way is against the core's own deadline.
        longest_lag_ns: the longest until now.
        starting_ns: when it last took an event before it began to watch anybody.
        late_ns: when the core was last late enough to reset its stamps.
        quiet_deadlines: how many there were.
        first_key: what links are to be made under; "" before that has changed.
        ordered: how many effects there were of each kind; a message stands for its being sent.
        named: how many there were of each event of the log, reason of a close, evidence of a link or a
            dial that ended, and refusal: each by its counter and its name.
        delivered: messages that were handed out.
        rates: what of its neighbors' messages it has looked at.
        drops: the message of the step under way is beyond its sender's rate.
        absorbs: nothing follows from the heartbeat of the step under way, which costs nothing.
        relaid: links that it said were to be added, and removed, by its changes of layout.
        asks: when another node's last asks came, by (asker, suspect) and number, oldest first.
    """

    host: Host
    inside: Inside
    incarnation: Incarnation
    place: NodeId
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
    declared_dead: dict[NodeId, Incarnation] = field(default_factory=dict)
    asks: dict[tuple[NodeId, NodeId], dict[int, int]] = field(default_factory=dict)
    ready: bool = False
    exited: bool = False
    lag_ns: int = 0
    longest_lag_ns: int = 0
    late_ns: int = 0
    starting_ns: int = 0
    quiet_deadlines: int = 0
    first_key: str = ""
    ordered: Counter[type] = field(default_factory=Counter)
    named: Counter[tuple[str, object]] = field(default_factory=Counter)
    delivered: int = 0
    rates: Rates = field(default_factory=Rates)
    drops: bool = False
    absorbs: bool = False
    relaid: tuple[int, int] = (0, 0)

    @property
    def former_links(self) -> dict[LinkId, SeenLink]:
        """The links as they were before the step under way."""
        return self.links if self.links_before is None else self.links_before

    def to(self, peer: NodeId) -> list[SeenLink]:
        """The links to one peer, oldest first."""
        return [link for link in self.links.values() if link.peer == peer]

    def is_linked_to(self, other: Journal) -> bool:
        """Whether it has a link to the present life of another process."""
        return any(link.incarnation == other.incarnation for link in self.to(other.host.id))

    # --- writing ------------------------------------------------------------------------------

    def begin(self, now_ns: int, event: Event) -> None:
        """A step begins, with this event."""
        self.now_ns, self.links_before = now_ns, None
        self.drops = self.absorbs = False
        if isinstance(event, Received):
            link = self.links.get(event.link)
            if link is not None:
                self.absorbs = self._is_absorbed(event.link, event.message)
                if not self.absorbs:
                    self.drops = not self.rates.admits(now_ns, link.peer, event.message)
        node = self.host.node
        due_ns = node.deadline_ns
        if node.state is NodeState.STARTING:
            self.starting_ns = now_ns
        self.lag_ns = 0 if due_ns is None or due_ns > now_ns else now_ns - due_ns
        if self.lag_ns > self.longest_lag_ns:
            self.longest_lag_ns = self.lag_ns

    def _is_absorbed(self, link: LinkId, message: Message) -> bool:
        """Whether it is a heartbeat from which nothing follows: no difference, suspicion or answer."""
        inside = self.inside
        if not isinstance(message, Heartbeat) or message.digest != inside.membership.digest:
            return False
        known = inside.links.get(link)
        is_answered = message.answer and known is not None and not known.watched_ns
        return not is_answered and not inside.suspected()

    def write(self, event: Event, effects: Sequence[Effect]) -> frozenset[type]:
        """What a step took and gave; returns the kinds of its effects."""
        if self.absorbs and effects and isinstance(event, Received):
            # It found itself late, and then looked at it.
            self.rates.admits(self.now_ns, self.former_links[event.link].peer, event.message)
            self.absorbs = False
        self._write_event(event)
        if not effects:
            return NO_KINDS
        kinds = set()
        for effect in effects:
            kind: type = type(effect)
            if isinstance(effect, Send):
                kind = type(effect.message)
                self._write_sent(effect.link, effect.message)
            elif kind not in _UNWRITTEN:
                self._write_effect(effect)
            self.ordered[kind] += 1
            kinds.add(kind)
        return frozenset(kinds)

    def _write_event(self, event: Event) -> None:
        match event:
            case DeadlineReached():
                pass
            case Received(link_id, message):
                link = self.links.get(link_id)
                if link is not None:
                    link.heard_ns = self.now_ns
                    if self.drops:
                        return
                    if isinstance(message, Heartbeat):
                        link.take_in(message.sequence, message.echo)
                    elif isinstance(message, Unwanted):
                        link.unwanted = message.digest
                if isinstance(message, Ask | Answer):
                    self._write_question(message)
            case Heard(link_ids):
                for link_id in link_ids:
                    link = self.links.get(link_id)
                    if link is not None:
                        link.heard_ns = self.now_ns
            case HeartbeatsAbsorbed(beats):
                for beat in beats:
                    link = self.links.get(beat.link)
                    if link is not None:
                        link.heard_ns = max(link.heard_ns, beat.at_ns)
                        link.take_in(beat.sequence, beat.echo)
            case KeysChanged(keys):
                self.first_key = keys[0] if keys else ""
            case LinkUp():
                self.dials.pop(event.peer, None)
                self._open(event, self.host.id)
            case LinkDown(link_id, evidence):
                self.hellos.pop(link_id, None)
                link = self._end(link_id)
                if link is not None:
                    self.ended[link.peer] = link.incarnation, evidence
                    self.named["lost", evidence] += 1
            case DialFailed(peer):
                self.named["failed", event.evidence] += 1
                self.dials.pop(peer, None)
                self.failed.add(peer)
            case Greeted():
                self.hellos[event.link] = event, self.now_ns
            case CommandIssued(request, SendTo() as command):
                self.requests[request] = command, self.now_ns
            case _:
                pass

    def _open(self, up: LinkUp | Greeted, dialled_by: NodeId) -> None:
        now_ns = self.now_ns
        if self.links_before is None:
            self.links_before = dict(self.links)
        others = self.to(up.peer)
        if len(others) == 1:
            # It has taken that place already.
            others[0].renews = False
        self.links[up.link] = SeenLink(
            up.link,
            up.peer,
            up.incarnation,
            dialled_by,
            up.dial_number,
            now_ns,
            now_ns,
            now_ns,
            features=up.features,
            key=up.key,
            renews=up.renews and bool(others),
        )
        self.ever_linked.add(up.peer)
        self.failed.discard(up.peer)
        ended = self.ended.get(up.peer)
        if ended is not None and ended[0] <= up.incarnation:
            # A link to a life before it says nothing of the one that ended.
            del self.ended[up.peer]
        self.suspected.pop(up.peer, None)

    def _end(self, link_id: LinkId) -> SeenLink | None:
        if self.links_before is None:
            self.links_before = dict(self.links)
        return self.links.pop(link_id, None)

    def _write_question(self, message: Ask | Answer) -> None:
        route = message.route
        if route.destination != self.host.id:
            return
        if isinstance(message, Ask):
            asks = self.asks.setdefault((route.source, message.suspect), {})
            asks[route.sequence] = self.now_ns
            if len(asks) > ASKS_KEPT:
                del asks[next(iter(asks))]
            return
        suspected = self.suspected.get(message.suspect)
        if suspected is not None and not message.alive and route.sequence == suspected.number:
            suspected.concurred.add(route.source)

    def _write_sent(self, link_id: LinkId, message: Message) -> None:
        if isinstance(message, Heartbeat):
            link = self.links.get(link_id)
            if link is not None:
                link.beat_ns = self.now_ns
                link.unechoed.append((message.sequence, self.now_ns))
        elif isinstance(message, Ask) and message.route.source == self.host.id:
            suspected = self.suspected.get(message.suspect)
            if suspected is not None:
                suspected.number = message.route.sequence
                suspected.asked.add(message.route.destination)

    def _write_effect(self, effect: Effect) -> None:
        match effect:
            case Observed():
                self.named["events", effect.event] += 1
                self._write_observed(effect)
            case Deliver():
                # A long message is whole with its last piece.
                self.delivered += effect.count + (effect.last and not effect.aborted)
            case Announce():
                self.delivered += 1
            case Dial(peer):
                self.dials[peer] = effect, self.now_ns
            case Welcome(link_id):
                hello = self.hellos.pop(link_id, None)
                if hello is not None:
                    self._open(hello[0], hello[0].peer)
            case Refuse(link_id, refusal):
                self.named["refused", refusal] += 1
                self.hellos.pop(link_id, None)
            case Close(link_id, reason):
                self.named["closed", reason] += 1
                self._end(link_id)
            case Reply(request):
                self.requests.pop(request, None)
            case Renewed(incarnation):
                self.incarnation = incarnation
            case Exit():
                self.exited = True
            case _:
                pass

    def _write_observed(self, observed: Observed) -> None:
        peer = observed.peer
        if observed.event == "ready":
            self.ready = True
        elif observed.event == "late":
            self.late_ns = self.now_ns
            self.suspected.clear()
        elif observed.event == "relayout":
            words = observed.detail.split()
            self.relaid = self.relaid[0] + int(words[0]), self.relaid[1] + int(words[4])
        elif observed.event == "suspected" and peer is not None:
            life = observed.incarnation
            assert life is not None
            self.suspected[peer] = Suspected(life, self.now_ns, observed.detail)
        elif observed.event == "verdict" and peer is not None and observed.incarnation is not None:
            self.declared_dead[peer] = observed.incarnation
