"""Copies of messages that come a second time, over the link that they came over.

Each node sends a message at best effort on once, over trees that share no node. So a second copy is a
neighbor's mistake, and what its reader is given once must be known by its number. Between the two copies
others may come, by other ways.

A segment is sent again by its source, over another way where there is one. Of two copies one may wait at
a relay that was late, until the other was taken, and perhaps the next segment refused. One that was not
taken comes no second time: its source would not know of that copy, and could tell its program that it
is not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeGuard

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event
from bmgd.sim.host import End, Host
from bmgd.sim.inside import has_passed
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import Broadcast, Multicast
from bmgd.wire.messages import Message
from bmgd.wire.stream_messages import Segment, SegmentFlag

Copied = Broadcast | Multicast | Segment
LATER_NS_MAX: Final = 200_000_000
"""It comes so long after the first one was sent, at most."""
COPIES_MAX: Final = 4
"""So many of one message come again, at most: each is sent on, and what is sent on could come again."""


_Picks = Callable[[Message], TypeGuard[Copied]]


def is_at_best_effort(message: Message) -> TypeGuard[Copied]:
    """Whether it is a message at best effort to many."""
    return isinstance(message, Broadcast | Multicast)


def is_of_a_stream(message: Message) -> TypeGuard[Copied]:
    """Whether it is a segment that its destination acknowledges, and knows by its number."""
    return isinstance(message, Segment) and not message.flags & SegmentFlag.BEST_EFFORT


class SecondCopies(Watcher):
    """Lets a share of the copies come again.

    Args:
        network: the cluster.
        random: chooses the copies, and when they come.
        percent: how many of them.
        picks: whether a message is one of which copies come again.
    """

    def __init__(self, network: Network, random: Random, percent: int, picks: _Picks) -> None:
        self._network = network
        self._random = random
        self._share = percent / 100
        self._picks = picks
        self._until_ns = 0
        self._counts = Counter[tuple[NodeId, Incarnation, int]]()

    def start(self, until_ns: int) -> None:
        """Let them come until then."""
        self._until_ns = until_ns

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        if not self._share or self._network.now_ns >= self._until_ns:
            return
        for effect in effects:
            if not isinstance(effect, Send) or not self._picks(effect.message):
                continue
            end, route = host.ends.get(effect.link), effect.message.route
            if end is None or end.other is None or self._random.random() >= self._share:
                continue
            if route.destination != end.other.host.id:
                # A relay sends it on and remembers nothing of it.
                continue
            which = route.source, route.source_incarnation, route.sequence
            if self._counts[which] < COPIES_MAX:
                self._counts[which] += 1
                at_ns = self._network.now_ns + self._random.randrange(1, LATER_NS_MAX)
                self._network.timeline.plan(at_ns, self._come, end.other, effect.message)

    def _come(self, end: End, message: Copied) -> None:
        host, network = end.host, self._network
        is_there = network.hosts.get(host.where) is host and host.joiner is None
        if not is_there or not host.alive or host.pauses or not network.can_come(end):
            return
        if not isinstance(message, Segment) or has_passed(host.node, message):
            network.let_come(host, end.link, message)
