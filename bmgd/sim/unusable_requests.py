"""Programs that ask for what cannot be, and put what no stream takes.

Their daemon has looked at types and lengths before (`bmgd.shell.verbs`); the core looks again, since what
it takes it sends to others. Each is told so at once, by an error of its own, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bmgd.core.commands import (
    BroadcastTo,
    CloseStream,
    Command,
    Evict,
    MulticastTo,
    OpenAnswers,
    OpenStream,
    PutSegment,
    Register,
    SendTo,
)
from bmgd.routing.id_sets import id_set
from bmgd.sim.arrivals import Arrivals
from bmgd.sim.host import Host
from bmgd.sim.inside import has_stream_of
from bmgd.sim.network import Network
from bmgd.sim.readers import TOPIC
from bmgd.types import Incarnation, NodeId
from bmgd.wire.bounds import (
    ENTRIES_MAX,
    LONG_BYTES_MAX,
    MESSAGES_PER_SEGMENT_MAX,
    PAYLOAD_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from bmgd.wire.program_news import NAME_BYTES_MAX
from bmgd.wire.segments import packed

TIMEOUT_NS: Final = 1_000_000_000
_BEYOND: Final = 1_000
"""Ids so far above the highest have never been given."""
_LONG_TOPICS: Final = ("", "x" * (TOPIC_BYTES_MAX + 1), "é" * (TOPIC_BYTES_MAX // 2 + 1))
NEVER_SENT: Final = b"what cannot be sent"
"""It is in whatever they want to be sent, but for what is empty."""
_TOO_LONG: Final = NEVER_SENT + bytes(PAYLOAD_BYTES_MAX)
_BODY: Final = packed(NEVER_SENT)


class UnusableRequests:
    """Programs that ask for what cannot be.

    Args:
        network: the cluster; its `unusable` gets the numbers of those requests.
        random: the programs' own chance.
        per_second: how many there are.
    """

    def __init__(self, network: Network, random: Random, per_second: float) -> None:
        self._network = network
        self._random = random
        self._arrivals = Arrivals(network, random, per_second, self._ask)
        self._wrong: tuple[Callable[[Host], Command], ...] = (
            self._send,
            self._open,
            self._broadcast,
            self._multicast,
            self._register,
            self._evict,
        )

    def start(self, until_ns: int) -> None:
        """Let them ask until then."""
        self._arrivals.start(until_ns)

    def _ask(self) -> None:
        there = [host for host in self._network.hosts.values() if host.answers_programs]
        if not there:
            return
        host = self._random.choice(there)
        if self._random.random() < 0.5:
            self._put(host)
            return
        request = self._network.next_request()
        self._network.unusable.add(request)
        self._network.issue_as(host, request, self._random.choice(self._wrong)(host))

    def _nobody(self) -> NodeId:
        return NodeId(max(self._network.hosts) + _BEYOND)

    def _topic(self) -> str:
        return self._random.choice(_LONG_TOPICS)

    # --- requests -----------------------------------------------------------------------------

    def _send(self, host: Host) -> Command:
        return self._random.choice(
            (
                SendTo(self._nobody(), TOPIC, NEVER_SENT, TIMEOUT_NS),
                SendTo(host.id, self._topic(), NEVER_SENT, TIMEOUT_NS),
                SendTo(host.id, TOPIC, _TOO_LONG, TIMEOUT_NS),
            )
        )

    def _open(self, host: Host) -> Command:
        former = Incarnation(host.node.incarnation - 1)
        return self._random.choice(
            (
                OpenStream(self._nobody(), TOPIC),
                OpenStream(host.id, self._topic()),
                OpenAnswers(host.id, former, 1, 1),
            )
        )

    def _broadcast(self, host: Host) -> Command:
        is_reliable = self._random.random() < 0.5
        return self._random.choice(
            (
                BroadcastTo(self._topic(), NEVER_SENT, is_reliable, TIMEOUT_NS),
                BroadcastTo(TOPIC, _TOO_LONG, is_reliable, TIMEOUT_NS),
            )
        )

    def _multicast(self, host: Host) -> Command:
        me = id_set([host.id])
        too_many = (1 << ENTRIES_MAX + 1) - 1
        return self._random.choice(
            (
                MulticastTo(me, self._topic(), NEVER_SENT, True, TIMEOUT_NS),
                MulticastTo(me, TOPIC, _TOO_LONG, self._random.random() < 0.5, TIMEOUT_NS),
                MulticastTo(me | id_set([self._nobody()]), TOPIC, NEVER_SENT, True, TIMEOUT_NS),
                MulticastTo(too_many, TOPIC, NEVER_SENT, True, TIMEOUT_NS),
            )
        )

    def _register(self, host: Host) -> Command:
        return Register(self._random.choice(("", "x" * (NAME_BYTES_MAX + 1))))

    def _evict(self, host: Host) -> Command:
        return Evict(self._random.choice((host.id, self._nobody())), TIMEOUT_NS)

    # --- streams ------------------------------------------------------------------------------

    def _put(self, host: Host) -> None:
        """Open a stream to a node that is there, and put what it does not take."""
        network, request = self._network, self._network.next_request()
        is_best_effort = self._random.random() < 0.3
        network.issue_as(host, request, OpenStream(host.id, TOPIC, 2, is_best_effort))
        # Refused, or not heard of yet by a host that is busy: then it is only closed.
        if has_stream_of(host.node, request):
            network.unusable.add(request)
            network.issue_as(host, request, self._segment(is_best_effort))
        network.issue_as(host, request, CloseStream(abandon=True))

    def _segment(self, is_best_effort: bool) -> PutSegment:
        piece = PutSegment(0, _BODY, 100, first=True)
        return self._random.choice(
            (
                PutSegment(1, b""),
                PutSegment(1, _TOO_LONG),
                PutSegment(0, _BODY),
                PutSegment(1, _BODY, 100, first=True),
                PutSegment(len(_BODY) + 1, _BODY),
                PutSegment(MESSAGES_PER_SEGMENT_MAX + 1, _TOO_LONG[:SEGMENT_BYTES_MAX]),
                PutSegment(0, _BODY, LONG_BYTES_MAX + 1, first=True),
                PutSegment(0, _BODY, 100, last=True),
                piece if is_best_effort else PutSegment(0, _BODY, 100),
            )
        )
