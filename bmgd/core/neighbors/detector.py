"""The failure detector: heartbeats, suspicion, indirect confirmation.

Theory of operation. Every watched link (`watched_links.py`: all of them in a small cluster) carries a
heartbeat each interval; of the others one, in turn, carries one that asks for an answer. Two things
count as silence: no byte came within the timeout on a watched link, or the peer has not echoed a
heartbeat that it should have for the timeout and one interval (a one-way cut, or a link that only
looks open). Silence, like a dial that nobody answers, is only *suspicion*:

    heard ----silence, or a dial without an answer----> suspected: ask up to three of its neighbors
    suspected ----any of them heard from it-----------> Vetoed: the link is broken, nothing more
    suspected ----bytes from it, or a new link--------> heard
    suspected ----all asked concur, or the ask time is over without a veto----> verdict

A question, or the answer to it, can be lost with a link on its way. Who has not answered after three
quarters of the ask time, when all who could have, is asked once more.

What an asked node does is in `observer.py`. Proof (design: "Proof of death") needs no asking:
`dialling.py` calls `declare_dead` directly.

A node that was itself late must not accuse: it resets its stamps, shows its digest to everybody
(whoever declared it dead will say so) and suspects nobody for one timeout; what a dial or a link
seems to say may only be that nobody was here to listen. And it stretches its timeout by its own lag,
and what it waits for an answer by that lag for each process that the answer passes: where this one is
late, those may be too.

Heartbeats are nearly all that an idle node gets, and from most of them nothing follows: the digests are
equal, nobody is suspected, and no answer is wanted. With each round of heartbeats the node lets the
engine of links absorb such ones on its watched links. In the step in which its digest changes it names
the new one; in that in which it suspects somebody, or no longer watches a link, it takes all back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bmgd.core.context import Context, Link, Vetoed
from bmgd.core.effects import AbsorbHeartbeats
from bmgd.core.events import AbsorbedBeat
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.links import Links
from bmgd.core.membership.comparison import Comparison
from bmgd.core.membership.notices import Notices
from bmgd.core.neighbors.healing_policy import Healing
from bmgd.core.neighbors.watched_links import watched_peers
from bmgd.core.timers import TimerKey
from bmgd.types import Incarnation, LinkId, NodeId, NodeState, Record
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.link_messages import Heartbeat

OBSERVERS_MAX = 3
LATE_NS = 400_000_000
STRETCH_MAX = 3
DIAL_LEGS = 2
ASK_LEGS = 4
"""How many processes an answer passes, the own one included: to a dial, to an ask."""
UNECHOED_MAX = 32
FIRST_MISMATCH_NS = 20_000_000
_NEVER_NS = 2**63

BEAT_TIMER = "beat"
SILENCE_TIMER = "silence"
ASK_TIMER = "ask"
DIGEST_TIMER = "digest"


@dataclass(slots=True)
class _Suspicion:
    incarnation: Incarnation
    number: int
    why: str
    waiting_for: set[NodeId]
    until_ns: int
    asked_again: bool = False


@dataclass(slots=True)
class Detector:
    """Heartbeats, suspicion and verdicts of one node.

    Attributes:
        stretch_ns: added to the timeout, from this node's own recent lag.
    """

    context: Context
    links: Links
    notices: Notices
    comparison: Comparison
    forwarding: Forwarding
    healing: Healing
    stretch_ns: int = 0
    _trusts_until_ns: int = 0
    _watched: frozenset[NodeId] | None = None
    _watched_at_revision: int = -1
    _tried: int = 0
    _suspicions: dict[NodeId, _Suspicion] = field(default_factory=dict)
    _absorbing: AbsorbHeartbeats | None = None

    @property
    def timeout_ns(self) -> int:
        """Silence for this long makes a suspect."""
        return self.patience_ns(self.context.settings.timeout_ns, 1)

    def patience_ns(self, wait_ns: int, legs: int) -> int:
        """How long to wait for others in place of `wait_ns`: longer by this node's own lag.

        Args:
            wait_ns: how long nodes that never lag would wait.
            legs: how many processes what is waited for passes, this one included.
        """
        most_ns = STRETCH_MAX * self.context.settings.timeout_ns
        return wait_ns + min(legs * self.stretch_ns, most_ns)

    def start(self) -> None:
        """Begin to send heartbeats and to watch for silence, which counts from now on."""
        context = self.context
        self._hear_all_anew()
        interval = context.settings.heartbeat_ns
        first = context.now_ns + context.random.randrange(interval // 2, interval)
        context.timers.set((BEAT_TIMER, 0, 0), first)
        context.timers.set((SILENCE_TIMER, 0, 0), context.now_ns + self.timeout_ns)

    # --- signs of life ------------------------------------------------------------------------

    def on_link_opened(self, link: Link) -> None:
        """A link is up: watch it if it is to be watched, and show the digest."""
        self._watch()
        self.beat(link)

    def beat(self, link: Link, *, answer: bool = False) -> None:
        """Send one heartbeat; `answer` asks for one where the peer sends none by itself."""
        link.sequence += 1
        answer = answer or link.watched_ns > 0
        if answer and len(link.unechoed) < UNECHOED_MAX:
            link.unechoed.append((link.sequence, self.context.now_ns))
        digest = self.context.membership.digest
        self.context.send(link.id, Heartbeat(link.sequence, link.echo, digest, answer))

    def on_beat_timer(self, key: TimerKey) -> None:
        """Send a heartbeat on every watched link and on one other; forget a part of the own lag."""
        context = self.context
        if self._watched_at_revision != context.membership.revision:
            self._watch()
        others: dict[LinkId, Link] = {}
        for link in self.links.table.values():
            if link.watched_ns:
                self.beat(link)
            else:
                others[link.id] = link
        if others:
            self._tried = min((i for i in others if i > self._tried), default=min(others))
            self.beat(others[self._tried], answer=True)
        self._let_absorb()
        self.stretch_ns = self.stretch_ns * 3 // 4
        context.timers.set((BEAT_TIMER, 0, 0), context.now_ns + context.settings.heartbeat_ns)

    def _watch(self) -> None:
        """Let each link be watched or not, as the present layout has it."""
        context = self.context
        if self._watched_at_revision != context.membership.revision:
            self._watched_at_revision = context.membership.revision
            self._watched = watched_peers(context.membership, context.id)
        for link in self.links.table.values():
            is_watched = self._watched is None or link.peer in self._watched
            if is_watched != (link.watched_ns > 0):
                if not is_watched:
                    self._absorb_no_more()
                link.watched_ns = context.now_ns if is_watched else 0
                link.unechoed.clear()

    def on_heartbeat(self, link: Link, heartbeat: Heartbeat) -> None:
        """A heartbeat came: note its echo, compare its digest, answer it if it asks for that."""
        link.echo = max(link.echo, heartbeat.sequence)
        while link.unechoed and link.unechoed[0][0] <= heartbeat.echo:
            link.unechoed.popleft()
        self._clear_if_heard(link)
        if self.comparison.on_digest(link, heartbeat.digest):
            at_ns = self.context.now_ns + FIRST_MISMATCH_NS
            self.context.timers.set((DIGEST_TIMER, link.id, 0), at_ns)
        if heartbeat.answer and not link.watched_ns:
            self.beat(link)

    def absorb(self, link: Link, heartbeat: Heartbeat) -> bool:
        """Take in a heartbeat from which nothing follows; False, and nothing changed, for any other.

        Nothing follows where the digests are equal, its sender is not suspected and wants no answer.
        """
        if heartbeat.digest != self.context.membership.digest or self._suspicions:
            return False
        if heartbeat.answer and not link.watched_ns:
            return False
        link.heard_ns = self.context.now_ns
        if heartbeat.sequence > link.echo:
            link.echo = heartbeat.sequence
        unechoed, echo = link.unechoed, heartbeat.echo
        while unechoed and unechoed[0][0] <= echo:
            unechoed.popleft()
        link.mismatches = 0
        link.agreed = True
        return True

    # --- heartbeats that the engine of links absorbs --------------------------------------------

    def _let_absorb(self) -> None:
        """Let the engine absorb what `absorb` would take in on the watched links."""
        if self._suspicions:
            return
        watched = tuple(link.id for link in self.links.table.values() if link.watched_ns)
        wanted = AbsorbHeartbeats(self.context.membership.digest, watched)
        if wanted != self._absorbing:
            self._absorbing = wanted
            self.context.emit(wanted)

    def _absorb_no_more(self) -> None:
        if self._absorbing is not None:
            self._absorbing = None
            self.context.emit(AbsorbHeartbeats(0, ()))

    def settle(self) -> None:
        """At the end of a step: take back, or say anew, what no longer holds."""
        if self._absorbing is None:
            return
        if self._suspicions:
            self._absorb_no_more()
        elif self._absorbing.digest != self.context.membership.digest:
            # Those of neighbors that have heard of it too are absorbed at once.
            self._let_absorb()

    def on_absorbed(self, beats: tuple[AbsorbedBeat, ...]) -> None:
        """Heartbeats came from which nothing follows but what they say of their links."""
        received = self.context.counts.received
        for beat in beats:
            received[Heartbeat] += beat.heartbeats
            link = self.links.get(beat.link)
            if link is None:
                continue
            link.heard_ns = max(link.heard_ns, beat.at_ns)
            link.echo = max(link.echo, beat.sequence)
            while link.unechoed and link.unechoed[0][0] <= beat.echo:
                link.unechoed.popleft()
            link.mismatches = 0
            link.agreed = True
            self._clear_if_heard(link)

    def on_digest_timer(self, key: TimerKey) -> None:
        """The digests differed a moment ago: show the own one again before comparing buckets."""
        link = self.links.get(LinkId(key[1]))
        if link is not None:
            self.beat(link)

    def heard(self, link: Link) -> None:
        """Any byte counts as life."""
        link.heard_ns = self.context.now_ns
        self._clear_if_heard(link)

    def _clear_if_heard(self, link: Link) -> None:
        if link.peer in self._suspicions and self._silent_at(link) > self.context.now_ns:
            self.clear_suspicion(link.peer)

    # --- silence ------------------------------------------------------------------------------

    def on_silence_timer(self, key: TimerKey) -> None:
        """Suspect every peer whose links are all silent; wake again when the next could be."""
        context = self.context
        next_ns = context.now_ns + self.timeout_ns
        if context.now_ns < self._trusts_until_ns:
            # Who is silent by then is suspected then.
            next_ns = min(next_ns, self._trusts_until_ns)
        for peer, links in list(self.links.by_peer.items()):
            silent_at = max(self._silent_at(link) for link in links)
            if silent_at > context.now_ns:
                next_ns = min(next_ns, silent_at)
                self._close_silent(links)
            elif context.membership.is_gone(peer):
                for link in list(links):
                    self.links.close(link, "declared dead")
            else:
                self.suspect(peer, "silence")
        context.timers.set((SILENCE_TIMER, 0, 0), next_ns)

    def look_at(self, peer: NodeId) -> None:
        """A peer counts as alive from now: if its links are silent, suspect it without waiting."""
        if peer in self.links.by_peer:
            self.context.timers.set((SILENCE_TIMER, 0, 0), self.context.now_ns)

    def _close_silent(self, links: list[Link]) -> None:
        """Of several links to one peer, those that are silent while another is heard are broken."""
        for link in list(links):
            if len(links) > 1 and self._silent_at(link) <= self.context.now_ns:
                self.links.close(link, "silent, another link is heard")

    def _silent_at(self, link: Link) -> int:
        silent_at = _NEVER_NS
        if link.watched_ns:
            silent_at = max(link.heard_ns, link.watched_ns) + self.timeout_ns
        if link.unechoed:
            grace = self.timeout_ns + self.context.settings.heartbeat_ns
            silent_at = min(silent_at, link.unechoed[0][1] + grace)
        return silent_at

    def on_late(self, lag_ns: int) -> None:
        """This node was itself late by `lag_ns`: accuse nobody for what it did not hear."""
        context = self.context
        context.observe("late", detail=f"{lag_ns // 1_000_000} ms")
        self.note_lag(lag_ns)
        self._hear_all_anew()
        for link in self.links.table.values():
            self.beat(link)
        for peer in list(self._suspicions):
            self.clear_suspicion(peer)
        self._trusts_until_ns = context.now_ns + self.timeout_ns
        context.timers.set((SILENCE_TIMER, 0, 0), context.now_ns + self.timeout_ns)

    def _hear_all_anew(self) -> None:
        """Nobody was silent until now: this node did not listen."""
        for link in self.links.table.values():
            link.heard_ns = self.context.now_ns
            link.unechoed.clear()

    def note_lag(self, lag_ns: int) -> None:
        """Stretch the timeout by this node's own lag (Lifeguard's local health)."""
        most = STRETCH_MAX * self.context.settings.timeout_ns
        self.stretch_ns = min(max(self.stretch_ns, lag_ns), most)

    @property
    def suspects(self) -> list[NodeId]:
        """Whom this node suspects now, sorted."""
        return sorted(self._suspicions)

    # --- suspicion ----------------------------------------------------------------------------

    def suspect(self, peer: NodeId, why: str) -> None:
        """Ask up to three of the suspect's neighbors, unless this is already under way."""
        context, membership = self.context, self.context.membership
        if peer in self._suspicions or membership.is_gone(peer):
            return
        if context.state is NodeState.LEAVING or context.now_ns < self._trusts_until_ns:
            return
        incarnation = membership.vouched(peer)
        observers = self._observers(peer)
        # By its moment: no other suspicion of this process has it, nor one of its former life.
        number = context.now_ns
        ask_ns = self.patience_ns(context.settings.ask_ns, ASK_LEGS)
        until_ns = context.now_ns + ask_ns
        suspicion = _Suspicion(incarnation, number, why, set(observers), until_ns)
        self._suspicions[peer] = suspicion
        context.observe("suspected", peer, incarnation, why)
        context.timers.set((ASK_TIMER, peer, 0), until_ns - ask_ns // 4)
        self._ask(peer, suspicion, observers)

    def _ask(self, peer: NodeId, suspicion: _Suspicion, observers: Sequence[NodeId]) -> None:
        for observer in observers:
            route = self.forwarding.route_to(observer, sequence=suspicion.number)
            self.forwarding.originate(Ask(route, peer, suspicion.incarnation), avoiding=peer)

    def _observers(self, suspect: NodeId) -> list[NodeId]:
        """Three of the suspect's neighbors, two of them linked to this node where that can be.

        What a direct link carries cannot get lost in the very link that is in question; the third
        sees the suspect from elsewhere.
        """
        context, membership = self.context, self.context.membership
        others = [
            other
            for other in membership.neighbors(suspect)
            if other != context.id and not membership.is_gone(other)
        ]
        near = [other for other in others if self._is_heard(other)]
        chosen = context.random.sample(near, min(OBSERVERS_MAX - 1, len(near)))
        rest = [other for other in others if other not in chosen]
        return chosen + context.random.sample(rest, min(OBSERVERS_MAX - len(chosen), len(rest)))

    def _is_heard(self, peer: NodeId) -> bool:
        link = self.links.to(peer)
        return (
            link is not None
            and peer not in self._suspicions
            and (not link.watched_ns or self.is_fresh(link))
        )

    def is_fresh(self, link: Link) -> bool:
        """Whether bytes came over a link since about the last heartbeat that was due."""
        silent_ns = self.context.now_ns - link.heard_ns
        return silent_ns <= self.context.settings.heartbeat_ns * 5 // 4

    def clear_suspicion(self, peer: NodeId) -> None:
        """Drop a suspicion: the suspect was heard from, or is known to be gone."""
        if self._suspicions.pop(peer, None) is not None:
            self.context.timers.cancel((ASK_TIMER, peer, 0))

    def on_answer(self, answer: Answer) -> None:
        """An observer answered: a veto always counts, another answer only in the suspicion it is for."""
        suspicion = self._suspicions.get(answer.suspect)
        if suspicion is None or answer.incarnation < suspicion.incarnation:
            return
        if answer.alive:
            self.clear_suspicion(answer.suspect)
            self.context.observe("vetoed", answer.suspect, detail=f"by {answer.route.source}")
            self.context.tell(Vetoed(answer.suspect))
            return
        is_asked = answer.route.source in suspicion.waiting_for
        if is_asked and answer.route.sequence == suspicion.number:
            suspicion.waiting_for.discard(answer.route.source)
            if not suspicion.waiting_for:
                self._confirm(answer.suspect)

    def on_ask_timer(self, key: TimerKey) -> None:
        """The ask time is over without a veto, or nearly: then who has not answered is asked again."""
        peer = NodeId(key[1])
        suspicion = self._suspicions.get(peer)
        if suspicion is None:
            return
        if suspicion.asked_again or self.context.now_ns >= suspicion.until_ns:
            self._confirm(peer)
            return
        suspicion.asked_again = True
        self.context.timers.set((ASK_TIMER, peer, 0), suspicion.until_ns)
        self._ask(peer, suspicion, sorted(suspicion.waiting_for))

    def _confirm(self, peer: NodeId) -> None:
        suspicion = self._suspicions.get(peer)
        if suspicion is not None:
            self.declare_dead(peer, suspicion.incarnation, suspicion.why)

    def declare_dead(self, peer: NodeId, incarnation: Incarnation, why: str) -> None:
        """Declare a life dead, and tell everybody."""
        context = self.context
        self.clear_suspicion(peer)
        current = context.membership.get(peer)
        if current is None or current.incarnation > incarnation:
            return
        same_life = current.incarnation == incarnation
        version = current.version if same_life else 0
        context.observe("verdict", peer, incarnation, why)
        record = Record(incarnation, version, self.healing.verdict(), current.address)
        self.notices.publish(peer, record)
        self.healing.on_verdict()
