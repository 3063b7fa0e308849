"""What a former life of a member broadcast before it ended: one node has some of it, another the rest.

A source that is gone sends nothing again, so its neighbors compare what they have. In a run by chance
they seldom have anything to compare: a source would have to end in the few milliseconds in which its
broadcasts are on their way. So here the copies of a life that ended before the run come to one node
each, in any order, as if they had been on their way; all of them come, unless nobody can be heard.

The audience changed while that life broadcast: some nodes were held dead for a while, and later frames
tell them what they skip. Some copies are pieces, of one topic or another, and some come by a search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from bmgd.core.broadcast import retention
from bmgd.sim.broadcasters import NEWS
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life, membership_of
from bmgd.sim.network import Network
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.broadcast_messages import BroadcastPiece, Piece, ReliableBroadcast, Skip
from bmgd.wire.features import Feature
from bmgd.wire.routes import Route, Search

OLD_NEWS: Final = "old news"
"""Another topic of broadcasts, which nobody reads."""
SPREAD_NS: Final = 600_000_000
"""All copies come within so long."""
_AGAIN_NS: Final = 50_000_000
_TRIES_MAX: Final = 10
_LIFE: Final = 1 << 32
_LIVES: Final = 1000
"""Lower than what a host's first life begins with, but for once in a million."""
_LIVES_LEAST: Final = 100
"""With room for few lives, one more could take that of another."""


@dataclass(frozen=True, slots=True)
class _Left:
    """What one life left.

    Args:
        away: who was held dead, from which count to which.
    """

    source: NodeId
    life: Incarnation
    id_space: int
    away: dict[NodeId, tuple[int, int]]
    has_pieces: bool


class Legacies:
    """Lets the copies come.

    Args:
        network: the cluster.
        random: chooses the lives, what they left, and to whom it comes.
        count: how many lives there are, at most.
    """

    def __init__(self, network: Network, random: Random, count: int) -> None:
        self._network = network
        self._random = random
        self._count = count
        self._until_ns = 0
        self._named = 0

    def start(self, until_ns: int) -> None:
        """Let them come until then."""
        self._until_ns = until_ns
        for _ in range(self._count):
            at_ns = self._random.randrange(max(1, until_ns))
            self._network.timeline.plan(at_ns, self._leave)

    def _leave(self) -> None:
        random, there = self._random, self._network.members()
        about = random.choice(there) if there else None
        if about is None or not self._is_known(about, there):
            return
        if retention.FORMER_MAX < 2 or retention.LIVES_MAX < _LIVES_LEAST:
            return
        count = random.choice((3, 8, 20))
        life = Incarnation(_LIFE | random.randrange(1, _LIVES))
        away = {}
        for host in random.sample(there, random.randint(0, len(there) - 1)):
            if host is not about:
                first = random.randint(1, count)
                away[host.id] = first, min(count, first + random.randrange(4))
        left = _Left(
            about.id,
            life,
            membership_of(about.node).id_space,
            away,
            all(host.features & Feature.BROADCAST_PIECES for host in there),
        )
        span_ns = max(1, min(SPREAD_NS, self._until_ns - self._network.now_ns))
        for at in range(1, count + 1):
            message = self._message(left, at)
            for _ in range(random.choice((1, 1, 2))):
                at_ns = self._network.now_ns + random.randrange(span_ns)
                self._network.timeline.plan(at_ns, self._come, message, _TRIES_MAX)

    def _is_known(self, about: Host, there: list[Host]) -> bool:
        """Whether all know its present life: else some would take the former one for it."""
        life = about.node.incarnation
        return all(known_life(host.node, about.id) == life for host in there)

    def _message(self, left: _Left, count: int) -> ReliableBroadcast:
        random = self._random
        self._named += 1
        payload = b"left %d" % self._named
        route = Route(left.source, left.source, left.life, sequence=count)
        exceptions, skips = 0, []
        for each, (first, last) in sorted(left.away.items()):
            if first <= count <= last:
                exceptions |= 1 << each
            elif last < count and random.random() < 0.5:
                skips.append(Skip(each, first, last, False))
        topic = random.choice((NEWS, OLD_NEWS))
        told = topic, payload, 0, (), left.id_space, exceptions, tuple(skips), 0
        if left.has_pieces and random.random() < 0.5:
            piece = Piece(count, 0, 2 * len(payload))
            return BroadcastPiece(route, *told, piece)
        return ReliableBroadcast(route, *told)

    def _come(self, message: ReliableBroadcast, tries: int) -> None:
        """It comes to a node of its audience that has a link, now or a little later."""
        network, random = self._network, self._random
        source, life = message.route.source, message.route.source_incarnation
        there = [
            (host, links)
            for host in network.members()
            if host.id != source and known_life(host.node, source) > life
            if (links := [end for end in host.ends.values() if network.can_come(end)])
        ]
        fits = [one for one in there if not message.exceptions >> one[0].id & 1]
        if not fits:
            if tries and network.now_ns < self._until_ns:
                at_ns = network.now_ns + _AGAIN_NS
                network.timeline.plan(at_ns, self._come, message, tries - 1)
            return
        # Who is outside of its audience may be on the way to others.
        chosen = [random.choice(fits)]
        if random.random() < 0.5:
            chosen.append(random.choice(there))
        for host, links in chosen:
            end = random.choice(links)
            assert end.other is not None
            search = None
            if random.random() < 0.3:
                search = Search(b"\0", (end.other.host.id,))
            route = replace(message.route, destination=host.id, search=search)
            network.let_come(host, LinkId(end.link), replace(message, route=route))
