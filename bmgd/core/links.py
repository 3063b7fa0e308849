"""The links that are up: one table, by link and by peer, and the rules for closing one.

Theory of operation. Which links *should* be up follows from the layout (`Membership.neighbors`).
This module only knows those that are, and closes those that must go:

* Of two links of one pair and the same lives the higher id closes one: its own dial stays if it
  answers a probe, else the one with the newest dial number. The lower id closes neither, so the two
  ends can never close one each.
* A link that renews (`neighbors/renewal.py`) stays instead of the others of its pair, by the same end and
  rules. One that the other end has dialled stays once it has answered a probe: then the other end
  has it too. A link under the first key is not given up for one under another.
* A link that the layout no longer wants is closed at rest and by agreement: an end whose wanted
  links are settled sends `Unwanted(digest)`, and an end that is settled too, does not want the link
  either and has an equal digest closes it (make before break).
* A link to a peer that hearsay declares dead is not closed while it is heard from: the peer is told
  first, with a ping, and the link goes only when nothing comes back within the timeout.
* Above the links wanted now and before and `GUESTS_MAX` others, the oldest unwanted one closes.
"""

from __future__ import annotations

from collections.abc import Collection

from bmgd.core.context import Context, Link, LinkLost, LinkOpened
from bmgd.core.effects import Close
from bmgd.core.timers import TimerKey
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, Status
from bmgd.wire.link_messages import Notice, Ping, Pong, RecordPage, Unwanted

GUESTS_MAX = 32
ACCUSED_TIMER = "accused"


class Links:
    """The table of links that are up.

    Attributes:
        table: every link by its id, oldest first.
        by_peer: the links of each peer, oldest first, never an empty list.
        forwarding_stale: whether the set of linked peers changed since it was last published.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.table: dict[LinkId, Link] = {}
        self.by_peer: dict[NodeId, list[Link]] = {}
        self.forwarding_stale = True
        self._probes = 0

    # --- looking ------------------------------------------------------------------------------

    def get(self, link_id: LinkId) -> Link | None:
        """The link, if it is still up."""
        return self.table.get(link_id)

    def to(self, peer: NodeId) -> Link | None:
        """The link that messages to this peer take, if one is up."""
        links = self.by_peer.get(peer)
        return links[0] if links else None

    # --- opening and losing -------------------------------------------------------------------

    def open(self, link: Link) -> None:
        """Enter a link; of two links of one pair and life, let the higher id choose."""
        self.table[link.id] = link
        link.opened_ns = self._context.now_ns
        self.by_peer.setdefault(link.peer, []).append(link)
        self.forwarding_stale = True
        self._context.tell(LinkOpened(link))
        for old in list(self.by_peer[link.peer]):
            if old.incarnation < link.incarnation:
                self.close(old, "replaced by a new life")
        if len(self.by_peer[link.peer]) > 1:
            self._settle_pair(link.peer)
        else:
            link.renews = False

    def lose(self, link_id: LinkId, evidence: Evidence) -> None:
        """Forget a link that is gone, and tell what is left to conclude."""
        link = self._forget(link_id)
        if link is None:
            return
        self._context.tell(LinkLost(link, evidence))
        if link.peer in self.by_peer and len(self.by_peer[link.peer]) > 1:
            self._settle_pair(link.peer)

    def close(self, link: Link, reason: str) -> None:
        """Say goodbye and forget the link."""
        if self._forget(link.id) is not None:
            self._context.emit(Close(link.id, reason))

    def close_life(self, peer: NodeId, incarnation: Incarnation, reason: str) -> None:
        """Close all links to one life of a peer."""
        for link in list(self.by_peer.get(peer, ())):
            if link.incarnation <= incarnation:
                self.close(link, reason)

    def _forget(self, link_id: LinkId) -> Link | None:
        link = self.table.pop(link_id, None)
        if link is None:
            return None
        links = self.by_peer[link.peer]
        links.remove(link)
        if not links:
            del self.by_peer[link.peer]
        elif len(links) == 1:
            # A choice between two is over: what one of them sent for it says nothing in the next.
            links[0].renews, links[0].probe = False, 0
        self._context.timers.cancel((ACCUSED_TIMER, link_id, 0))
        self.forwarding_stale = True
        return link

    # --- two links of one pair ----------------------------------------------------------------

    def _settle_pair(self, peer: NodeId) -> None:
        me = self._context.id
        if me < peer:
            return
        links = self.by_peer[peer]
        if any(link.renews for link in links):
            self._keep_renewed(max(links, key=self._rank_in_renewal))
            return
        mine = [link for link in links if link.dialled_by == me]
        if mine and len(mine) < len(links):
            keep = max(mine, key=lambda link: link.dial_number)
            if not keep.probe:
                keep.probe = self.probe(keep)
            return
        self._keep_only(max(links, key=lambda link: link.dial_number))

    def _rank_in_renewal(self, link: Link) -> tuple[bool, bool, int]:
        """Two dials that renew can cross, and the later one be made under the older key."""
        return link.key == self._context.first_key, link.renews, link.opened_ns

    def _keep_renewed(self, keep: Link) -> None:
        if not keep.renews or keep.dialled_by == self._context.id:
            self._keep_only(keep)
        elif not keep.probe:
            keep.probe = self.probe(keep)

    def probe(self, link: Link) -> int:
        """Ping a link; returns the nonce that its `Pong` will carry."""
        self._probes += 1
        self._context.send(link.id, Ping(self._probes))
        return self._probes

    def on_ping(self, link: Link, ping: Ping) -> None:
        """Answer a ping."""
        self._context.send(link.id, Pong(ping.nonce))

    def on_pong(self, link: Link, pong: Pong) -> None:
        """A probed link answered: if it was in a choice between two, it stays."""
        if link.probe and pong.nonce == link.probe:
            link.probe = 0
            links = self.by_peer[link.peer]
            best = max(links, key=self._rank_in_renewal)
            if best is not link and any(other.renews for other in links):
                self._keep_renewed(best)
            else:
                self._keep_only(link)

    def _keep_only(self, keep: Link) -> None:
        keep.renews = False
        for link in list(self.by_peer[keep.peer]):
            if link is not keep:
                self.close(link, "another link of this pair stays")

    # --- unwanted links -----------------------------------------------------------------------

    def release_unwanted(
        self, wanted: Collection[NodeId], former: Collection[NodeId], *, settled: bool
    ) -> None:
        """Offer to close, and close by agreement, the links that nobody wants.

        Args:
            wanted: the neighbors in the layout.
            former: those in the layout before; their links may stay beside the guests'.
            settled: whether each wanted link is up, or its id is dead, broken or never came.
        """
        peers = self.by_peer.keys() - wanted
        if not peers:
            return
        unwanted = [link for link in self.table.values() if link.peer in peers]
        kept = len(set(former).difference(wanted)) + GUESTS_MAX
        for link in unwanted[: max(0, len(unwanted) - kept)]:
            self.close(link, "too many links")
        if not settled:
            return
        digest = self._context.membership.digest
        for link in unwanted:
            if link.id not in self.table:
                continue
            if link.unwanted == digest:
                self.close(link, "unwanted")
            elif link.unwanted_sent != digest:
                link.unwanted_sent = digest
                self._context.send(link.id, Unwanted(digest))

    # --- hearsay ------------------------------------------------------------------------------

    def accuse(self, peer: NodeId) -> None:
        """A record says that the peer is gone: tell it over its own links before closing any."""
        context = self._context
        record = context.membership.get(peer)
        assert record is not None
        for link in list(self.by_peer.get(peer, ())):
            if peer in context.membership.retired:
                context.send(link.id, RecordPage((), ((peer, peer),)))
                self.close(link, "its id is retired")
                continue
            if link.incarnation > record.incarnation:
                continue
            context.send(link.id, Notice(((peer, record),)))
            silent_ns = context.now_ns - max(link.heard_ns, link.watched_ns)
            was_silent = link.watched_ns > 0 and silent_ns > context.settings.timeout_ns
            if record.status is Status.LEFT or was_silent:
                self.close(link, f"declared {record.status.name.lower()}")
                continue
            self.probe(link)
            link.accused_ns = context.now_ns
            context.timers.set(
                (ACCUSED_TIMER, link.id, 0), context.now_ns + context.settings.timeout_ns
            )

    def on_accused_timer(self, key: TimerKey) -> None:
        """Nothing that came back within the timeout: then hearsay was right."""
        link = self.table.get(LinkId(key[1]))
        if link is None:
            return
        if link.heard_ns <= link.accused_ns and self._context.membership.is_gone(link.peer):
            self.close(link, "declared dead")
        link.accused_ns = 0
