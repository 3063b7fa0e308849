"""Floods: a member that sends thousands of messages of one kind at once, as a defect or an attacker does.

What comes beyond its rate is not looked at; others are served meanwhile, and what keeps the cluster
together still comes.
"""

from __future__ import annotations

from random import Random
from typing import Final

from bmgd.sim.host import End, Host
from bmgd.sim.inside import membership_of
from bmgd.sim.network import Network
from bmgd.types import incarnation_tag
from bmgd.wire.ask_messages import Probe
from bmgd.wire.link_messages import Notice, Ping, Watermarks
from bmgd.wire.messages import Message
from bmgd.wire.routes import Route

COUNT_MIN: Final = 4_200
"""More than anybody may send at once."""
COUNT_MAX: Final = 4_600
_AGAIN: Final = 0.3
_AGAIN_NS: Final = 100_000_000
"""How often a flood comes again, and after how long: it is named once."""


class Floods:
    """Who floods whom, and with what.

    Args:
        network: the cluster.
        random: chooses.
        count: how many floods there are.
    """

    def __init__(self, network: Network, random: Random, count: int) -> None:
        self._network = network
        self._random = random
        self._count = count

    def start(self, until_ns: int) -> None:
        """Let them come until then."""
        for _ in range(self._count):
            self._network.timeline.plan(self._random.randrange(max(1, until_ns)), self._begin)

    def _begin(self) -> None:
        ends = [
            end
            for host in self._network.members()
            for end in host.ends.values()
            if self._network.can_come(end)
        ]
        if not ends:
            return
        end = self._random.choice(ends)
        self._come(end, self._message(end))

    def _come(self, end: End, message: Message) -> None:
        host = end.host
        # All of it takes time where steps do, so who is flooded may be late.
        self._network.blink(host.where)
        for _ in range(self._random.randint(COUNT_MIN, COUNT_MAX)):
            if not host.alive or end.link not in host.ends or not self._network.can_come(end):
                return
            self._network.let_come(host, end.link, message)
        if self._random.random() < _AGAIN:
            at_ns = self._network.now_ns + _AGAIN_NS
            self._network.timeline.plan(at_ns, self._again, end, message)

    def _again(self, end: End, message: Message) -> None:
        if end.host.alive and not end.host.pauses and self._network.can_come(end):
            self._come(end, message)

    def _message(self, end: End) -> Message:
        """What its sender might say once, and is sound."""
        host, number = end.host, self._random.getrandbits(32)
        sender = _sender(end)
        record = membership_of(host.node).get(sender.id)
        messages: list[Message] = [Ping(number), Watermarks((), asks=False)]
        life, tag = sender.node.incarnation, incarnation_tag(host.node.incarnation)
        messages.append(Probe(Route(host.id, sender.id, life, tag, number, 9), ()))
        if record is not None:
            messages.append(Notice(((sender.id, record),)))
        return self._random.choice(messages)


def _sender(end: End) -> Host:
    assert end.other is not None, "nothing can come over it"
    return end.other.host
