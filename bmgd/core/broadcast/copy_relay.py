"""Copies of a gone source's broadcasts that a node skips itself, and that a neighbor asks it for.

Theory of operation. A node that skips a broadcast keeps no copy of it: one that began after it was sent
does. Where all neighbors of a node that lacks it are such nodes, none of them can give it a copy. So
who is asked for what it has not got asks a neighbor that told of it, and the copies that come are passed
on, and not kept. That neighbor may do the same. The first that told of a life is asked first: word of it
went out from those with copies, so it is the next on the shortest way to one. If nothing comes, the one
that told next is asked the next time, at least 250 ms later.
"""

from __future__ import annotations

from bmgd.core.broadcast.copies import copy_for
from bmgd.core.broadcast.heard import Heard
from bmgd.core.context import Context, Link
from bmgd.core.links import Links
from bmgd.wire.broadcast_messages import ReliableBroadcast
from bmgd.wire.link_messages import Pull

ASK_NS = 250_000_000
"""So long a node waits for what it asked for in the name of others, before it asks another neighbor."""


class CopyRelay:
    """What neighbors asked this node for in vain, and what it does about that."""

    def __init__(self, context: Context, links: Links) -> None:
        self._context = context
        self._links = links

    def ask_for(self, link: Link, heard: Heard, first: int) -> None:
        """A neighbor asks for copies from a count on, and there are none here: ask another for them."""
        heard.wanted[link.peer] = first
        now_ns = self._context.now_ns
        others = [
            self._links.by_peer[peer][0]
            for peer, (_, top) in heard.told.items()
            if peer != link.peer and peer in self._links.by_peer and top >= first
        ]
        if not others or now_ns < heard.relay_from_ns:
            return
        heard.relay_from_ns = now_ns + ASK_NS
        heard.asks += 1
        other = others[heard.relayed % len(others)]
        heard.relayed += 1
        self._context.send(other.id, Pull(heard.source, heard.incarnation, first))

    def pass_on(self, heard: Heard, message: ReliableBroadcast) -> None:
        """A copy came that is not kept here: it goes to each neighbor that asked for it, once."""
        count = message.route.sequence
        heard.relayed, heard.relay_from_ns = 0, 0
        for peer, first in heard.wanted.items():
            links = self._links.by_peer.get(peer)
            if not links or count < first:
                continue
            heard.wanted[peer] = count + 1
            copy = copy_for(message, peer, heard.stable)
            if links[0].knows(type(copy)):
                self._context.send(links[0].id, copy)
