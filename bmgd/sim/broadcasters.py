"""The programs of a simulated cluster that send to many: broadcasts and multicasts of every kind.

Every daemon has a program that reads one topic. It takes each message after a moment, or takes none until
faults end, and may go away for a while. A source picks a running sender by chance, what it sends and, of
a multicast, to whom, dead or alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from bmgd.chaos.plan import Workload
from bmgd.core.commands import (
    BroadcastTo,
    Consumed,
    ConsumedAnnouncements,
    MulticastTo,
    SendTo,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.effects import Announce, Deliver, Effect, Reply, TellMissed
from bmgd.core.events import Event
from bmgd.routing.id_sets import id_set
from bmgd.sim.arrivals import Arrivals
from bmgd.sim.host import Host
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher
from bmgd.sim.readers import JOINING_NS, NUMBER_BYTES, reading_ns_max
from bmgd.wire.broadcast_messages import Piece

NEWS: Final = "news"
CREDIT: Final = 64
SHARE: Final = 0.25
"""Messages to many, for each message to one."""
KINDS: Final = (
    *("reliable", "reliable", "reliable", "best effort", "multicast"),
    *("reliable multicast", "reliable multicast", "single", "long"),
)
STAYS_NS: Final = 4_000_000_000
ABSENT_MS_MAX: Final = 1_200
"""Readers go away for so long at most: at rest all are back."""
_FIRST_NUMBER: Final = 1 << 40
"""So that no payload is also one of a message to one node."""


class Broadcasters(Watcher):
    """Senders and readers of messages to many.

    Args:
        network: the cluster.
        random: the programs' own chance.
        workload: how many messages, how large.
    """

    def __init__(self, network: Network, random: Random, workload: Workload) -> None:
        self._network = network
        self._random = random
        self._workload = workload
        self._number = _FIRST_NUMBER
        self._asked: dict[int, Host] = {}
        self._readers: dict[int, Host] = {}
        self._stalled: set[int] = set()
        self._until_ns = 0
        self._arrivals = Arrivals(
            network, random, workload.messages_per_second * SHARE, self._send_any
        )

    @property
    def underway(self) -> int:
        """How many have not been answered yet."""
        return len(self._asked)

    def boot(self, host: Host) -> None:
        is_read = any(reader is host for reader in self._readers.values())
        if self._workload.messages_per_second > 0 and not is_read:
            self._network.timeline.plan(self._network.now_ns, self._subscribe, host)

    def _subscribe(self, host: Host) -> None:
        if not self._is_current(host) or host.joiner is not None:
            return
        if host.stopped:
            host.held_back.append((self._subscribe, (host,)))
            return
        if any(reader is host for reader in self._readers.values()):
            return
        network, random, conditions = self._network, self._random, self._network.conditions
        request = network.next_request()
        self._readers[request] = host
        if conditions.stalled_percent and random.randrange(100) < conditions.stalled_percent:
            self._stalled.add(request)
        network.issue_as(host, request, Subscribe(NEWS, CREDIT))
        if conditions.absent_ms_max:
            at_ns = network.now_ns + random.randrange(1, STAYS_NS)
            network.timeline.plan(at_ns, self._go_away, host, request)

    def _go_away(self, host: Host, request: int) -> None:
        network = self._network
        if network.now_ns >= self._until_ns or request not in self._readers:
            return
        if not self._is_current(host) or host.joiner is not None:
            return
        if host.stopped:
            host.held_back.append((self._go_away, (host, request)))
            return
        del self._readers[request]
        network.issue_as(host, request, Unsubscribe())
        absent_ms = min(ABSENT_MS_MAX, network.conditions.absent_ms_max)
        absent_ns = self._random.randrange(1, absent_ms * 1_000_000)
        network.timeline.plan(network.now_ns + absent_ns, self._subscribe, host)

    def _is_current(self, host: Host) -> bool:
        return host.alive and self._network.hosts.get(host.where) is host

    # --- sending ------------------------------------------------------------------------------

    def start(self, until_ns: int) -> None:
        """Send until then."""
        self._until_ns = until_ns
        self._arrivals.start(until_ns)

    def _send_any(self) -> None:
        there = [host for host in self._network.hosts.values() if host.joiner is None]
        if there:
            host, kind = self._random.choice(there), self._random.choice(KINDS)
            # Several at once, now and then: windows, gaps and acknowledgements of many.
            for _ in range(self._random.choice((1, 1, 1, 5))):
                if kind == "long":
                    self._send_pieces(host)
                else:
                    self.send(host, kind)

    def _send_pieces(self, host: Host) -> None:
        """A long broadcast, whose pieces a program gives its daemon one behind the other."""
        length = max(self._workload.payload_bytes, NUMBER_BYTES)
        count = self._random.randint(2, 5)
        named = self._number + 1
        for at in range(count):
            self.send(host, "reliable", Piece(named, at * length, count * length))

    def send(self, host: Host, kind: str, piece: Piece | None = None) -> int | None:
        """Send one message to many; returns its request, or None where the source does not run."""
        if not host.alive or host.stopped or host.joiner is not None:
            return None
        self._number += 1
        payload = self._number.to_bytes(NUMBER_BYTES, "big").ljust(
            self._workload.payload_bytes, b"."
        )
        timeout_ns = int(self._workload.timeout_s * 1e9)
        request = self._network.next_request()
        self._asked[request] = host
        command: BroadcastTo | MulticastTo | SendTo = BroadcastTo(
            NEWS, payload, kind == "reliable", timeout_ns, piece
        )
        if kind == "single":
            # In the stream that multicasts to the same node share.
            there = [other.id for other in self._network.hosts.values() if other.id >= 0]
            command = SendTo(self._random.choice(there), NEWS, payload, timeout_ns)
        elif kind.endswith("multicast"):
            ids = sorted({other.id for other in self._network.hosts.values() if other.id >= 0})
            some = self._random.sample(ids, self._random.randint(1, len(ids)))
            is_reliable = kind.startswith("reliable")
            command = MulticastTo(id_set(some), NEWS, payload, is_reliable, timeout_ns)
        self._network.issue_as(host, request, command)
        return request

    # --- what becomes of it -------------------------------------------------------------------

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._asked.pop(effect.request, None)
            elif isinstance(effect, Announce | TellMissed | Deliver):
                self._read(host, effect)

    def _read(self, host: Host, effect: Announce | TellMissed | Deliver) -> None:
        # Other programs read topics that carry no broadcasts.
        if effect.request in self._readers:
            reading_ns = reading_ns_max(self._network, self._until_ns)
            at_ns = self._network.now_ns
            if effect.request in self._stalled:
                at_ns = max(at_ns, self._until_ns)
            at_ns += self._random.randrange(max(1, reading_ns))
            is_one = isinstance(effect, Deliver)
            command = Consumed(1) if is_one else ConsumedAnnouncements(1)
            self._network.timeline.plan(at_ns, self._consume, host, effect.request, command)

    def _consume(self, host: Host, request: int, command: Consumed | ConsumedAnnouncements) -> None:
        if not self._is_current(host) or request not in self._readers:
            return
        if host.stopped:
            host.held_back.append((self._consume, (host, request, command)))
        elif host.joiner is not None:
            # Its readers go along to the next id.
            at_ns = self._network.now_ns + JOINING_NS
            self._network.timeline.plan(at_ns, self._consume, host, request, command)
        else:
            self._network.issue_as(host, request, command)

    def ended(self, host: Host) -> None:
        for request in [r for r, asker in self._asked.items() if asker is host]:
            del self._asked[request]
        if host.alive:
            return
        for request in [r for r, reader in self._readers.items() if reader is host]:
            del self._readers[request]
