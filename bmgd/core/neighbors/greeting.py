"""Answering hellos: who is welcome, who is refused, and who has to wait for a probe.

Theory of operation. A hello reaches the core authenticated. A newcomer that speaks for the life that
is known, or for the first one, is welcome. One with a higher incarnation claims that the known life
is over; if a link to that life is up, the link is probed, and without one, the recorded address if it
differs from the newcomer's:

    hello --nothing to check--------------------------------> Welcome
    hello --old link, or another address--> held --answered--> Refuse(duplicate)
                                            held --link down, dial failed, or silence--> Welcome,
                                                   if nothing was learnt meanwhile that refuses it
                                            held --other bytes on it, no answer--> Refuse(busy)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.context import Context, Link
from bmgd.core.effects import Refuse, Welcome
from bmgd.core.events import DialFailed, Greeted
from bmgd.core.links import Links
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.timers import TimerKey
from bmgd.types import UNKNOWN_INCARNATION, Evidence, LinkId, NodeId, NodeState, Status, outranks
from bmgd.wire.hello import Refusal

HELD_MAX = 16
VERSION_MAX = 2**32 - 1
"""The version of an eviction."""
HELD_TIMER = "held"
_ANSWERS = frozenset(
    {
        Refusal.STALE_INCARNATION,
        Refusal.DUPLICATE,
        Refusal.RENEWED,
        Refusal.BUSY,
        Refusal.LEFT,
        Refusal.RETIRED,
    }
)
"""Refusals that only the core of the dialled id gives."""


@dataclass(slots=True)
class _Held:
    """A hello that waits; `nonce` is that of the ping on the old link, 0 when its address is dialled."""

    greeted: Greeted
    nonce: int
    since_ns: int


@dataclass(slots=True)
class Greeting:
    """Decides on hellos; at most one per peer is held, at most `HELD_MAX` in all (else: busy)."""

    context: Context
    links: Links
    dialling: Dialling
    _held: dict[NodeId, _Held] = field(default_factory=dict)

    def on_greeted(self, greeted: Greeted) -> None:
        """Answer a hello, or hold it until a probe has answered."""
        refusal = self._refusal(greeted)
        if refusal is not None:
            self._refuse(greeted, refusal)
            return
        old = self.links.to(greeted.peer)
        if old is not None and old.incarnation < greeted.incarnation:
            self._hold(greeted, self.links.probe(old))
        elif self._may_live_elsewhere(greeted):
            self._hold(greeted, 0)
            self.dialling.dial(greeted.peer)
        else:
            self._welcome(greeted)

    def _refusal(self, greeted: Greeted) -> Refusal | None:
        context, membership = self.context, self.context.membership
        if context.state is NodeState.LEAVING:
            return Refusal.BUSY
        if greeted.peer in membership.retired:
            return Refusal.RETIRED
        # A joiner can be here before the news of it.
        if not membership.can_be(greeted.peer):
            return Refusal.WRONG_SIZE
        if outranks(greeted.known_of_me, context.incarnation):
            context.begin_above(greeted.known_of_me, f"told by node {greeted.peer}")
            return Refusal.RENEWED
        known = membership.vouched(greeted.peer)
        if outranks(known, greeted.incarnation):
            return Refusal.STALE_INCARNATION
        record = membership.get(greeted.peer)
        # The record of a former life does not evict the one that followed it.
        if record and (record.incarnation, record.status) == (greeted.incarnation, Status.LEFT):
            is_evicted = record.version >= VERSION_MAX or greeted.peer < membership.founding_size
            return Refusal.LEFT if is_evicted else Refusal.RETIRED
        if greeted.peer in self._held or len(self._held) >= HELD_MAX:
            return Refusal.BUSY
        return None

    def _may_live_elsewhere(self, greeted: Greeted) -> bool:
        """Whether the known life could be alive at an address that is not the newcomer's."""
        membership = self.context.membership
        # An assumed life is enough to look, and not to refuse.
        known = membership.incarnation(greeted.peer)
        record = membership.get(greeted.peer)
        return (
            known not in (UNKNOWN_INCARNATION, greeted.incarnation)
            and record is not None
            and record.address != greeted.address
            and not membership.is_gone(greeted.peer)
        )

    # --- held hellos --------------------------------------------------------------------------

    def _hold(self, greeted: Greeted, nonce: int) -> None:
        self._held[greeted.peer] = _Held(greeted, nonce, self.context.now_ns)
        patience_ns = self.context.settings.ask_ns if nonce else self.context.settings.dial_ns
        at_ns = self.context.now_ns + patience_ns
        self.context.timers.set((HELD_TIMER, greeted.peer, 0), at_ns)

    def _release(self, peer: NodeId) -> Greeted | None:
        held = self._held.pop(peer, None)
        if held is None:
            return None
        self.context.timers.cancel((HELD_TIMER, peer, 0))
        return held.greeted

    def on_pong(self, link: Link, nonce: int) -> None:
        """The old link answered its probe: the newcomer is a duplicate."""
        held = self._held.get(link.peer)
        if held is not None and held.nonce == nonce:
            self._release(link.peer)
            self._refuse(held.greeted, Refusal.DUPLICATE)

    def on_link_opened(self, link: Link) -> None:
        """A dial of the recorded address was answered by the known life: a duplicate."""
        held = self._held.get(link.peer)
        if held is not None and link.id != held.greeted.link:
            self._release(link.peer)
            self._refuse(held.greeted, Refusal.DUPLICATE)

    def on_gone(self, peer: NodeId) -> None:
        """The old link closed, or the recorded address did not answer: the newcomer is welcome.

        Unless what became known while it waited speaks against it: a later life, its eviction.
        """
        greeted = self._release(peer)
        if greeted is None:
            return
        refusal = self._refusal(greeted)
        if refusal is None:
            self._welcome(greeted)
        else:
            self._refuse(greeted, refusal)

    def on_dial_failed(self, failed: DialFailed) -> None:
        """The recorded address did not answer, or somebody of that id refused there."""
        held = self._held.get(failed.peer)
        if held is None or held.nonce:
            return
        if failed.refusal in _ANSWERS or failed.evidence is Evidence.OWN_LACK:
            # That id lives there, or nobody knows; whether it is the known life, its next word will say.
            self._release(failed.peer)
            self._refuse(held.greeted, Refusal.BUSY)
        else:
            self.on_gone(failed.peer)

    def on_held_timer(self, key: TimerKey) -> None:
        """Silence admits the newcomer as well; one whose bytes came meanwhile may yet answer."""
        peer = NodeId(key[1])
        held, old = self._held.get(peer), self.links.to(peer)
        if held is not None and held.nonce and old is not None and old.heard_ns > held.since_ns:
            self._release(peer)
            self._refuse(held.greeted, Refusal.BUSY)
        else:
            self.on_gone(peer)

    def on_hello_lost(self, link_id: LinkId) -> None:
        """The newcomer itself went away before it was answered."""
        for peer, held in list(self._held.items()):
            if held.greeted.link == link_id:
                self._release(peer)

    # --- answers ------------------------------------------------------------------------------

    def _refuse(self, greeted: Greeted, refusal: Refusal) -> None:
        known = self.context.membership.vouched(greeted.peer)
        self.context.observe("refused", greeted.peer, greeted.incarnation, refusal.text)
        self.context.emit(Refuse(greeted.link, refusal, known))

    def _welcome(self, greeted: Greeted) -> None:
        context = self.context
        known = context.membership.vouched(greeted.peer)
        context.emit(Welcome(greeted.link, known))
        self.links.open(
            Link(
                id=greeted.link,
                peer=greeted.peer,
                incarnation=greeted.incarnation,
                address=greeted.address,
                dialled_by=greeted.peer,
                dial_number=greeted.dial_number,
                heard_ns=context.now_ns,
                known_of_me=greeted.known_of_me,
                key=greeted.key,
                renews=greeted.renews,
                features=greeted.features,
            )
        )
