"""Messages of former lives that come late, while a node waits for its first answer of another.

A node that knows no life of another sends its first segment for none, and the life that is there tells
its tag. What comes from a former life meanwhile is all that it knows, and what its programs send next is
meant for that life: nobody takes it. Programs seldom send twice in such a moment, so here one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from bmgd.core.commands import SendTo
from bmgd.core.effects import Effect, Send
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.ask_messages import Answer
from bmgd.wire.routes import Route
from bmgd.wire.stream_messages import Segment

TIMEOUT_NS: Final = 10_000_000_000
"""A second goes by until the life that is there is vouched for, and then the source asks again."""
_FIRST_LIFE: Final = 1 << 32

SendAgain = Callable[[Host, NodeId, int], object]
"""Sends one message to a node, with this time for it."""


class FormerLives(Watcher):
    """What is left of former lives on its way.

    Args:
        network: the cluster.
        random: chooses the lives, and the links that their messages come over.
        count: how many such messages there are at most.
        send: sends what is meant for the former life.
    """

    def __init__(self, network: Network, random: Random, count: int, send: SendAgain) -> None:
        self._network = network
        self._random = random
        self._left = count
        self._send = send
        self._until_ns = 0

    def start(self, until_ns: int) -> None:
        """Let them come until then."""
        self._until_ns = until_ns

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        if not self._left or self._network.now_ns >= self._until_ns:
            return
        if not isinstance(event, CommandIssued) or not isinstance(event.command, SendTo):
            return
        peer = event.command.destination
        if any(_is_for_any_life(effect, peer) for effect in effects):
            self._network.timeline.plan(self._network.now_ns, self._come, host, peer)

    def _come(self, host: Host, peer: NodeId) -> None:
        """Before the answer, a message of a former life of it is here; then a program sends again."""
        about = next((h for h in self._network.hosts.values() if h.alive and h.id == peer), None)
        links = [end.link for end in host.ends.values() if self._network.can_come(end)]
        if about is None or about.joiner is not None or not self._left or not links:
            return
        is_current = self._network.hosts.get(host.where) is host and host.joiner is None
        if not (host.alive and is_current) or host.pauses or known_life(host.node, peer):
            return
        self._left -= 1
        former = Incarnation(self._random.randrange(_FIRST_LIFE, about.node.incarnation))
        route = Route(host.id, peer, former)
        link = LinkId(self._random.choice(links))
        self._network.let_come(host, link, Answer(route, peer, former, alive=True))
        self._send(host, peer, TIMEOUT_NS)


def _is_for_any_life(effect: Effect, peer: NodeId) -> bool:
    """Whether an effect sends a segment to a node of which no life is known."""
    if not isinstance(effect, Send) or not isinstance(effect.message, Segment):
        return False
    return effect.message.route.destination == peer and not effect.message.route.destination_tag
