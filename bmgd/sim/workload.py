"""The programs of a simulated cluster: they send numbered messages, and read them.

Every daemon has a program that reads one topic; it takes each message for a moment before it says
that it has consumed it. A source of messages picks a running sender and a receiver, dead or alive, by
chance. What they see goes into the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from bmgd.chaos.history import Acknowledged, Delivered, Fact, Failed, Sent
from bmgd.chaos.plan import Workload
from bmgd.core.commands import Consumed, SendTo, Subscribe
from bmgd.core.effects import Deliver, Effect, Reply
from bmgd.core.events import Event
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life
from bmgd.sim.network import Network
from bmgd.sim.watching import Watcher
from bmgd.types import NodeId

TOPIC: Final = "work"
NUMBER_BYTES: Final = 8
JOINING_NS: Final = 1_000_000
"""A program whose daemon has no id for the moment tries again so soon."""
_MICROSECOND: Final = 1_000


class Programs(Watcher):
    """Senders and readers.

    Args:
        network: the cluster.
        random: the programs' own chance.
        workload: how many messages, how large.
        note: takes facts for the history.
    """

    def __init__(
        self,
        network: Network,
        random: Random,
        workload: Workload,
        note: Callable[[Fact], None],
    ) -> None:
        self._network = network
        self._random = random
        self._workload = workload
        self._note = note
        self._payload_id = 0
        self._asked: dict[int, tuple[int, Host]] = {}
        self._readers: dict[int, Host] = {}

    @property
    def underway(self) -> int:
        """How many messages have not been answered yet."""
        return len(self._asked)

    def boot(self, host: Host) -> None:
        # Who takes a new id after another life took its own keeps its readers.
        is_read = any(reader is host for reader in self._readers.values())
        if self._workload.messages_per_second > 0 and not is_read:
            self._network.timeline.plan(self._network.now_ns, self._subscribe, host)

    def _subscribe(self, host: Host) -> None:
        if not self._is_current(host) or host.joiner is not None:
            return
        if host.stopped:
            host.held_back.append((self._subscribe, (host,)))
            return
        network = self._network
        request = network.next_request()
        self._readers[request] = host
        network.issue_as(host, request, Subscribe(TOPIC, network.conditions.reading_messages))

    def _is_current(self, host: Host) -> bool:
        return host.alive and self._network.hosts.get(host.where) is host

    # --- sending ------------------------------------------------------------------------------

    def start(self, until_ns: int) -> None:
        """Send messages until then."""
        if self._workload.messages_per_second > 0:
            self._plan_next(until_ns)

    def _plan_next(self, until_ns: int) -> None:
        pause_ns = int(self._random.expovariate(self._workload.messages_per_second) * 1e9)
        at_ns = self._network.now_ns + max(pause_ns, _MICROSECOND)
        if at_ns < until_ns:
            self._network.timeline.plan(at_ns, self._send_any, until_ns)

    def _send_any(self, until_ns: int) -> None:
        hosts, random = self._network.hosts, self._random
        there = [host for host in hosts.values() if host.joiner is None]
        if there:
            self.send(random.choice(there), random.choice(there).id)
        self._plan_next(until_ns)

    def send(self, host: Host, destination: NodeId) -> int | None:
        """Send one message; returns its number, or None where the source does not run."""
        network = self._network
        if not host.alive or host.stopped:
            return None
        self._payload_id += 1
        number = self._payload_id
        payload = number.to_bytes(NUMBER_BYTES, "big").ljust(self._workload.payload_bytes, b".")
        request = network.next_request()
        self._asked[request] = number, host
        life = host.node.incarnation
        addressed = known_life(host.node, destination)
        self._note(Sent(network.now_ns, host.id, life, request, destination, addressed, number))
        timeout_ns = int(self._workload.timeout_s * 1e9)
        network.issue_as(host, request, SendTo(destination, TOPIC, payload, timeout_ns))
        return number

    # --- what becomes of it -------------------------------------------------------------------

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._on_reply(host, effect)
            elif isinstance(effect, Deliver):
                self._on_deliver(host, effect)

    def _on_reply(self, host: Host, reply: Reply) -> None:
        asked = self._asked.pop(reply.request, None)
        if asked is None:
            return
        number = asked[0]
        now_ns = self._network.now_ns
        if reply.error is None:
            self._note(Acknowledged(now_ns, host.id, reply.request, number))
        else:
            error = type(reply.error).__name__
            self._note(Failed(now_ns, host.id, reply.request, number, error))

    def _on_deliver(self, host: Host, deliver: Deliver) -> None:
        if deliver.request not in self._readers:
            return
        now_ns = self._network.now_ns
        number = int.from_bytes(deliver.payload[:NUMBER_BYTES], "big")
        known = known_life(host.node, deliver.source)
        life = host.node.incarnation
        self._note(Delivered(now_ns, host.id, life, deliver.source, known, number))
        reading_ns = self._network.conditions.reading_us_max * 1_000
        at_ns = now_ns + self._random.randrange(max(1, reading_ns))
        self._network.timeline.plan(at_ns, self._consume, host, deliver.request)

    def _consume(self, host: Host, request: int) -> None:
        if not self._is_current(host):
            return
        if host.stopped:
            host.held_back.append((self._consume, (host, request)))
        elif host.joiner is not None:
            at_ns = self._network.now_ns + JOINING_NS
            self._network.timeline.plan(at_ns, self._consume, host, request)
        else:
            self._network.issue_as(host, request, Consumed(1))

    def ended(self, host: Host) -> None:
        # Who asked a daemon that ended never gets its answer.
        for request in [r for r, (_, asker) in self._asked.items() if asker is host]:
            del self._asked[request]
        if host.alive:
            return
        for request in [r for r, reader in self._readers.items() if reader is host]:
            del self._readers[request]
