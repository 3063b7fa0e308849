"""Members gone wrong: now and then one says a malformed frame on a link that it has.

Most of these frames are routed ones, which end no link: they go on to any node, over relays that do not
look at them, and are dropped where they are read. A few end the link that they come on.
"""

from __future__ import annotations

from random import Random
from typing import Final

from bmgd.sim.arrivals import Arrivals
from bmgd.sim.host import End
from bmgd.sim.network import Network
from bmgd.sim.witness.frames import CLOSE, DROP, GOODBYE, HEADER, HEADER_AT, judge
from bmgd.sim.witness.malformed import any_frame

CLOSING: Final = 0.04
"""The share of frames that end their link."""
TRIES: Final = 40
"""So many frames are thought of until one is malformed as it is wanted."""
_LENGTH_BYTES: Final = 4
_HOPS: Final = (0, 1, 2, 255)


class CorruptMembers:
    """All members that say such frames.

    Args:
        network: the cluster.
        random: their own chance.
        per_second: how many such frames there are.
    """

    def __init__(self, network: Network, random: Random, per_second: float) -> None:
        self._network = network
        self._random = random
        self._arrivals = Arrivals(network, random, per_second, self._lie)

    def start(self, until_ns: int) -> None:
        """Let members lie until then."""
        self._arrivals.start(until_ns)

    def _lie(self) -> None:
        hosts = self._network.hosts.values()
        there = [host for host in hosts if host.joiner is None and host.alive and not host.pauses]
        ends = [end for host in there for end in host.ends.values() if _can_be_told(end)]
        if not ends:
            return
        end = self._random.choice(ends)
        wanted = CLOSE if self._random.random() < CLOSING else DROP
        for _ in range(TRIES):
            body = self._addressed(any_frame(self._random)[_LENGTH_BYTES:])
            verdict = judge(body)
            # What has no header at all could not even be put onto a link.
            if verdict.what is wanted and verdict.kind not in (0, GOODBYE):
                self._say(end, body, closes=wanted is CLOSE)
                return

    def _addressed(self, body: bytes) -> bytes:
        """The same frame for any node, with any number of hops left."""
        if len(body) < HEADER_AT + HEADER.size:
            return body
        kind, flags, priority, _, _, _, *rest = HEADER.unpack_from(body, HEADER_AT)
        ids = self._random.choice(list(self._network.hosts)), self._random.choice((0, 1))
        where = max(0, ids[0]), ids[1]
        header = HEADER.pack(kind, flags, priority, self._random.choice(_HOPS), *where, *rest)
        return body[:HEADER_AT] + header + body[HEADER_AT + HEADER.size :]

    def _say(self, end: End, body: bytes, *, closes: bool) -> None:
        network, other = self._network, end.other
        assert other is not None
        network.malformed.add(body)
        doomed, link = network.malformed.doomed, (other.host, other.link)
        is_first = closes and link not in doomed
        if closes:
            doomed.setdefault(link, body)
            for host in (end.host, other.host):
                network.blink(host.where)
        frame = len(body).to_bytes(_LENGTH_BYTES, "big") + body
        if not network.wires.say(end.host, end.link, frame) and is_first:
            doomed.pop(link, None)


def _can_be_told(end: End) -> bool:
    return end.up and end.open and end.other is not None and end.other.up and end.other.open
