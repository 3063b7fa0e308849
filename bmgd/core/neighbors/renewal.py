"""Renewing links: a link that was made under a key which is used no more is made anew.

Theory of operation. A key is whatever the shell calls what a link was proven by: the fingerprint of a
secret, of a certificate, or of both. `KeysChanged` says which keys there are now, the first one first.
Every link that was not made under the first is then dialled anew, one peer at a time, in the order of
ids. The hello of such a dial says that it *renews*, and of two links of one pair the one that renews
stays (`links.py`), once it is up at both ends. So there is a link at every moment.

    waiting --its turn--> dialled --link up--> done
       ^                     |
       +----backoff_max------+--the dial failed, or came to a link of a former life

A link whose hello was underway when the keys changed waits too: it can open under any key. Of one that
this node dials its number says that, of others the time, since a hello takes no longer than `HELLO_NS`
and what it may be held. Any other link that does not open under the first key is left as it is: the other
end does not have that one yet, and will renew the link when it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.context import Context, Link
from bmgd.core.events import DialFailed
from bmgd.core.links import Links
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.timers import TimerKey
from bmgd.types import NodeId

RENEW_TIMER = "renew"
HELLO_NS = 3_000_000_000
"""So long the hello of a dialer may take."""


@dataclass(slots=True)
class Renewal:
    """Dials anew, one after the other, the peers whose links were made under an old key."""

    context: Context
    links: Links
    dialling: Dialling
    _waiting: dict[NodeId, None] = field(default_factory=dict)
    _dialled: NodeId | None = None
    _changed_at_dial: int = 0
    _changed_ns: int = 0

    def on_keys_changed(self, keys: tuple[str, ...]) -> None:
        """The keys are others now; () for none at all."""
        self.context.keys = keys
        self._changed_at_dial, self._changed_ns = self.dialling.last_number, self.context.now_ns
        first = self.context.first_key
        self._waiting = dict.fromkeys(
            sorted(peer for peer, links in self.links.by_peer.items() if links[-1].key != first)
        )
        self.context.observe("keys changed", detail=f"{len(self._waiting)} links to be renewed")
        self._go_on()

    def on_link_opened(self, link: Link) -> None:
        """A dial that renews has succeeded, or a link is outdated as it opens."""
        if link.peer == self._dialled and link.dialled_by == self.context.id:
            self._dialled = None
            self.context.observe("renewed link", link.peer, link.incarnation, link.key)
        if link.key != self.context.first_key and self._was_underway(link):
            self._waiting[link.peer] = None
        self._go_on()

    def _was_underway(self, link: Link) -> bool:
        """Whether the hello of a link that opens may have begun before the keys changed."""
        context = self.context
        if context.keys is None:
            return False
        if link.key not in context.keys:
            return True
        if link.dialled_by == context.id:
            return link.dial_number <= self._changed_at_dial
        return context.now_ns - self._changed_ns < HELLO_NS + context.settings.dial_ns

    def on_dial_failed(self, failed: DialFailed) -> None:
        """The link that is up stays, and is renewed later."""
        if failed.peer != self._dialled:
            return
        self._dialled = None
        if failed.peer in self.links.by_peer:
            why = failed.evidence.value if failed.refusal is None else failed.refusal.text
            self.context.observe("not renewed", failed.peer, detail=why)
            self._waiting[failed.peer] = None
        self._pause()

    def on_timer(self, _: TimerKey) -> None:
        """The pause is over."""
        self._go_on()

    def _pause(self) -> None:
        context = self.context
        if self._waiting and (RENEW_TIMER, 0, 0) not in context.timers:
            pause_ns = context.jitter(context.settings.backoff_max_ns)
            context.timers.set((RENEW_TIMER, 0, 0), context.now_ns + pause_ns)

    def _go_on(self) -> None:
        if self._dialled is not None or (RENEW_TIMER, 0, 0) in self.context.timers:
            return
        while self._waiting:
            peer = next(iter(self._waiting))
            links = self.links.by_peer.get(peer)
            is_outdated = links is not None and links[-1].key != self.context.first_key
            if is_outdated and self.dialling.peering(peer).dialling:
                self._pause()
                return
            del self._waiting[peer]
            if is_outdated and self.dialling.dial(peer, renews=True):
                self._dialled = peer
                return
