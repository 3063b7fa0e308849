"""Dialling: which peers to connect to, when again, and what a dial's end says about the peer.

Theory of operation. `reconcile` compares the wanted neighbors with the links that are up and dials
the difference, the higher id at once, the lower one after the join timeout. Each dial ends in
`LinkUp` or in `DialFailed` with a class of evidence; with what was known before, that decides:

    evidence             | a link of that life closed without goodbye | linked before | never linked
    ---------------------+--------------------------------------------+---------------+-------------
    refused              | proof of death                             | suspicion     | suspicion *
    EOF, reset           | again at once, until the dial timeout      | the same      | the same
    no answer, timed out | suspicion                                  | suspicion     | suspicion *
    rejected             | by its reason, see `_on_rejected`; for the own id `own_id.py`

    * only once this node has been ready, or the start deadline has passed; before that a refused
      dial means "not there yet", and is tried again.

A node that was never linked ends when all whom it wants refuse it for good; by the start deadline, or
at once where each refusal is proven.

Where daemons are dialled through a proxy, which may refuse in their place, a refused dial proves
nothing: it counts as one without an answer.

In every case but proof the peer is dialled again, with jittered backoff, until it is linked, gone or
no longer wanted. The dead are dialled again too, see `redialling.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.context import Context, Link
from bmgd.core.effects import Dial, Exit
from bmgd.core.events import DialFailed
from bmgd.core.links import Links
from bmgd.core.neighbors.detector import DIAL_LEGS, Detector
from bmgd.core.own_id import OF_OWN_ID, OwnId
from bmgd.core.timers import TimerKey
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    NodeId,
    NodeState,
)
from bmgd.wire.hello import MISCONFIGURED, Refusal

DIAL_TIMER = "dial"
JOIN_TIMER = "join"
AGAIN_NS = 2_000_000
_DIAL_NUMBER_MAX = 2**32 - 1


@dataclass(slots=True)
class Peering:
    """What this node remembers of a peer that it wants, dials or was linked to.

    Args:
        linked: the life that a link was last up to; 0 for none.
        proving: that link closed without goodbye: a refused dial is now proof of death.
        broken: an observer vetoed, or the link broke the protocol: not waited for.
        dialling: a `Dial` is under way.
        dialled_life: the highest life that was known when it began.
        attempts: failed dials since the last success.
        trying_since_ns: when the first of those dials began; 0 for none.
        rejected: the peer refused for a reason that time does not mend.
        doubtful: that refusal was not proven.
    """

    linked: Incarnation = UNKNOWN_INCARNATION
    proving: bool = False
    broken: bool = False
    dialling: bool = False
    dialled_life: Incarnation = UNKNOWN_INCARNATION
    attempts: int = 0
    trying_since_ns: int = 0
    rejected: bool = False
    doubtful: bool = False


@dataclass(slots=True)
class Dialling:
    """Dials, their outcomes, and what this node remembers of its peers.

    Attributes:
        peerings: by peer; of those wanted, linked, being dialled, or to be dialled again.
        wanted: the neighbors in the layout, sorted.
        may_suspect_never_linked: whether an id that was never linked may be suspected.
        ever_linked: whether any link has been up.
    """

    context: Context
    links: Links
    detector: Detector
    own_id: OwnId
    peerings: dict[NodeId, Peering] = field(default_factory=dict)
    wanted: tuple[NodeId, ...] = ()
    may_suspect_never_linked: bool = False
    ever_linked: bool = False
    _dial_number: int = 0
    _renewed_at_dial: int = 0
    _refusal: Refusal | None = None

    def peering(self, peer: NodeId) -> Peering:
        """What is remembered of a peer; a blank page for a new one."""
        found = self.peerings.get(peer)
        if found is None:
            found = self.peerings[peer] = Peering()
        return found

    # --- wanting ------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Dial each wanted peer that has no link and is not gone."""
        context = self.context
        for peer in self.wanted:
            if peer in self.links.by_peer or context.membership.is_gone(peer):
                continue
            if self._is_underway(peer):
                continue
            if context.id > peer:
                self.dial(peer)
            else:
                at_ns = context.now_ns + context.jitter(context.settings.join_ns)
                context.timers.set((JOIN_TIMER, peer, 0), at_ns)

    def prune(self) -> None:
        """Forget peers that are neither wanted, linked nor being dialled."""
        for peer in [p for p in self.peerings if p not in self.links.by_peer]:
            if peer not in self.wanted and not self.peerings[peer].dialling:
                del self.peerings[peer]
                self._cancel_timers(peer)

    def _is_underway(self, peer: NodeId) -> bool:
        timers = self.context.timers
        return (
            self.peering(peer).dialling
            or (DIAL_TIMER, peer, 0) in timers
            or (JOIN_TIMER, peer, 0) in timers
        )

    def _cancel_timers(self, peer: NodeId) -> None:
        self.context.timers.cancel((DIAL_TIMER, peer, 0))
        self.context.timers.cancel((JOIN_TIMER, peer, 0))

    # --- dialling -----------------------------------------------------------------------------

    def dial(self, peer: NodeId, *, renews: bool = False) -> bool:
        """Dial a peer now, unless a dial to it is under way; returns whether it is dialled.

        Args:
            renews: whether the new link is to take the place of the one that is up.
        """
        context, peering = self.context, self.peering(peer)
        record = context.membership.get(peer)
        if peering.dialling or record is None or context.state is NodeState.LEAVING:
            return False
        peering.dialling = True
        peering.trying_since_ns = peering.trying_since_ns or context.now_ns
        self._cancel_timers(peer)
        number = self.next_number()
        peering.dialled_life = context.membership.vouched(peer)
        context.emit(
            Dial(
                peer=peer,
                address=record.address,
                known=peering.dialled_life,
                dial_number=number,
                timeout_ns=self.detector.patience_ns(context.settings.dial_ns, DIAL_LEGS),
                renews=renews,
            )
        )
        return True

    def next_number(self) -> int:
        """The number of a dial that begins now."""
        self._dial_number = min(self._dial_number + 1, _DIAL_NUMBER_MAX)
        return self._dial_number

    @property
    def last_number(self) -> int:
        """The number of the last dial; 0 before the first."""
        return self._dial_number

    def on_new_life(self) -> None:
        """Dials that are under way speak for the former life."""
        self._renewed_at_dial = self._dial_number

    def speaks_for_former_life(self, dial_number: int) -> bool:
        """Whether a dial began before this node's present life."""
        return dial_number <= self._renewed_at_dial

    def on_dial_timer(self, key: TimerKey) -> None:
        """The backoff, or the time left to the other end, is over."""
        peer = NodeId(key[1])
        if peer not in self.links.by_peer and self._still_of_use(peer):
            self.dial(peer)

    def _still_of_use(self, peer: NodeId) -> bool:
        if self.context.membership.is_gone(peer):
            return False
        return peer in self.wanted or self.peering(peer).proving

    def _again(self, peer: NodeId, after_ns: int | None = None) -> None:
        """Dial again after a pause, by default one that doubles with each failure."""
        context, peering = self.context, self.peering(peer)
        if not self._still_of_use(peer):
            return
        if after_ns is None:
            settings = context.settings
            doubled = settings.backoff_min_ns << min(peering.attempts, 20)
            after_ns = min(doubled, settings.backoff_max_ns)
        context.timers.set((DIAL_TIMER, peer, 0), context.now_ns + context.jitter(after_ns))

    # --- what ended ---------------------------------------------------------------------------

    def on_link_opened(self, link: Link) -> None:
        """A link is up: nothing is held against the peer any more."""
        peering = self.peering(link.peer)
        peering.linked = link.incarnation
        peering.proving = peering.broken = peering.rejected = False
        peering.dialling = peering.dialling and link.dialled_by != self.context.id
        peering.attempts = peering.trying_since_ns = 0
        self.ever_linked = True
        self.own_id.on_linked()
        self._cancel_timers(link.peer)
        self.detector.clear_suspicion(link.peer)

    def on_link_given_up(self, link: Link) -> None:
        """A link closed as it opened, for another of its pair: the dial that made it is over."""
        peering = self.peerings.get(link.peer)
        if peering is not None and link.dialled_by == self.context.id:
            peering.dialling = False

    def on_link_lost(self, link: Link, evidence: Evidence) -> None:
        """A link is gone: find out whether its other end lives."""
        peer = link.peer
        peering = self.peering(peer)
        if peer in self.links.by_peer:
            return
        if self.context.membership.is_gone(peer):
            self._forget_if_useless(peer)
            return
        if self.context.membership.vouched(peer) > link.incarnation:
            self.reconcile()
            self._forget_if_useless(peer)
            return
        if evidence in (Evidence.EOF, Evidence.RESET):
            peering.proving = True
            self.dial(peer)
        elif evidence is Evidence.TIMED_OUT:
            self.detector.suspect(peer, "timed out")
            self._again(peer)
        elif evidence is Evidence.GOODBYE and self.context.id < peer:
            self.reconcile()
        else:
            peering.broken = evidence is not Evidence.GOODBYE
            self._again(peer)
        self._forget_if_useless(peer)

    def on_former_life_linked(self, peer: NodeId) -> None:
        """A link came up for a life that is over, here or there: its other end lived until now."""
        self.peering(peer).proving = False
        self.on_dial_failed(DialFailed(peer, Evidence.EOF))

    def on_vetoed(self, peer: NodeId) -> None:
        """The peer lives but this node does not hear it: close, and dial again with backoff."""
        peering = self.peering(peer)
        peering.broken = True
        peering.proving = False
        for link in list(self.links.by_peer.get(peer, ())):
            self.links.close(link, "broken")
        peering.attempts += 1
        if not peering.dialling:
            self._again(peer)

    def on_dial_failed(self, failed: DialFailed) -> None:
        """A dial came to nothing: conclude by the table above."""
        peer, peering = failed.peer, self.peering(failed.peer)
        peering.dialling = False
        if peering.doubtful:
            # Who said so may have been a stranger: only the last word counts.
            peering.rejected = peering.doubtful = False
        peering.attempts += 1
        if peer in self.links.by_peer:
            peering.attempts = peering.trying_since_ns = 0
            return
        # A dial that began before a link was lost says nothing of how long there is none.
        peering.trying_since_ns = peering.trying_since_ns or self.context.now_ns
        if self.context.membership.is_gone(peer):
            self._on_dead_unanswered(peer, failed)
            return
        if failed.evidence is Evidence.OWN_LACK:
            # Nobody was dialled. How long there is no link counts from the next dial on.
            peering.trying_since_ns = 0
            self._again(peer)
        elif failed.evidence is Evidence.REJECTED and failed.refusal is not None:
            self._on_rejected(peering, failed, failed.refusal)
        elif self.context.membership.vouched(peer) > peering.dialled_life:
            # Its outcome says something of a former life, nothing of the one that is known now.
            self._again(peer, AGAIN_NS)
        elif failed.evidence is Evidence.REFUSED and self._is_proof(peer, peering):
            self.detector.declare_dead(peer, peering.linked, "refused")
        elif failed.evidence in (Evidence.EOF, Evidence.RESET) and self._within_a_dial(peering):
            self._again(peer, AGAIN_NS)
        else:
            self._suspect(peer, peering, failed.evidence.value)
            self._again(peer)
        self._forget_if_useless(peer)

    def _on_dead_unanswered(self, peer: NodeId, failed: DialFailed) -> None:
        """One of the dead was dialled in vain; perhaps it lives and knows more of this id."""
        if failed.refusal in OF_OWN_ID:
            self.own_id.on_refused(peer, failed.refusal, failed.known_of_me)
        self._forget_if_useless(peer)

    def _is_proof(self, peer: NodeId, peering: Peering) -> bool:
        # A link to a former life proves nothing of the one that followed it.
        is_that_life = peering.linked == self.context.membership.vouched(peer)
        return peering.proving and is_that_life and not self.context.settings.proxied

    def _forget_if_useless(self, peer: NodeId) -> None:
        """Keep no page of a guest that went, so that the pages are bounded by wanted ones and links."""
        if peer in self.wanted or peer in self.links.by_peer or self._is_underway(peer):
            return
        del self.peerings[peer]
        self._cancel_timers(peer)

    def _within_a_dial(self, peering: Peering) -> bool:
        tried_ns = self.context.now_ns - peering.trying_since_ns
        return tried_ns < self.detector.patience_ns(self.context.settings.dial_ns, DIAL_LEGS)

    def _suspect(self, peer: NodeId, peering: Peering, why: str) -> None:
        if peering.linked != UNKNOWN_INCARNATION or self.may_suspect_never_linked:
            self.detector.suspect(peer, why)

    def _on_rejected(self, peering: Peering, failed: DialFailed, refusal: Refusal) -> None:
        context, peer = self.context, failed.peer
        context.observe("rejected", peer, detail=refusal.text)
        if refusal in MISCONFIGURED:
            peering.rejected, peering.doubtful = True, not failed.proven
            # Whoever answers there is not the peer: its address was taken over. One that was never
            # linked may be the peer, and one of the two be told something wrong: that kills nobody.
            if peering.linked != UNKNOWN_INCARNATION or refusal is Refusal.WRONG_CLUSTER:
                self._suspect(peer, peering, refusal.text)
            self._again(peer, context.settings.backoff_max_ns)
            self._refusal = refusal
            self.give_up_if_misconfigured()
        elif refusal in OF_OWN_ID:
            again_ns = self.own_id.on_refused(peer, refusal, failed.known_of_me)
            if again_ns is not None:
                self._again(peer, again_ns)
        elif refusal in (Refusal.WRONG_ID, Refusal.OWN_ADDRESS):
            self._suspect(peer, peering, refusal.text)
            self._again(peer)
        else:
            self._again(peer, AGAIN_NS if refusal is Refusal.RENEWED else None)

    def give_up_if_misconfigured(self) -> bool:
        """End this node where all that it wants refuse it; returns whether that is so.

        Before the start deadline only if all have proven themselves: a stranger on the way could refuse
        in their place, and a daemon that is started again would never come to be.
        """
        if self._refusal is None or self.ever_linked:
            return False
        pages = [self.peering(peer) for peer in self.wanted]
        if not pages or not all(page.rejected for page in pages):
            return False
        if not self.may_suspect_never_linked and any(page.doubtful for page in pages):
            return False
        self.context.emit(Exit(1, f"every neighbor refuses this node: {self._refusal.text}"))
        return True
