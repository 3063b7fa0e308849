"""The readers of a simulated cluster: programs that take numbered messages slowly, and go away at times.

Every daemon has a program that reads one topic, or two of them. It takes each message for a moment, then
says that it has consumed it. It may go away with messages that it has not read: those come again to the
next reader, marked so. What is read, and what waits unread where a daemon ends, goes into the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from bmgd.chaos.history import Delivered, Fact, Unread
from bmgd.core.commands import Consumed, Subscribe, Unsubscribe
from bmgd.core.effects import Deliver
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life, unread_bodies
from bmgd.sim.network import Network
from bmgd.types import Incarnation, NodeId
from bmgd.wire.batch import unpack_messages

TOPIC: Final = "work"
NUMBER_BYTES: Final = 8
JOINING_NS: Final = 1_000_000
"""A program whose daemon has no id for the moment tries again so soon."""
READING_US: Final = 2_000
"""How long programs have a message at most, that are not slow."""
_MICROSECOND: Final = 1_000


def number_of(payload: bytes) -> int:
    """Which message it is."""
    return int.from_bytes(payload[:NUMBER_BYTES], "big")


def reading_ns_max(network: Network, until_ns: int) -> int:
    """How long a program has a message that it gets now: when faults end, nobody is slow any more."""
    us_max = network.conditions.reading_us_max
    if network.now_ns >= until_ns:
        us_max = min(us_max, READING_US)
    return us_max * _MICROSECOND


class Readers:
    """One or two readers at each daemon.

    Args:
        network: the cluster.
        random: the programs' own chance.
        note: takes facts for the history.
    """

    def __init__(self, network: Network, random: Random, note: Callable[[Fact], None]) -> None:
        self._network = network
        self._random = random
        self._note = note
        self._until_ns = 0
        self._readers: dict[int, Host] = {}
        self._counts: dict[Host, int] = {}
        self._leaving: set[int] = set()
        self._unseen: set[int] = set()
        """Messages that came to a reader which was about to go, and which it did not read."""
        self._taken_as: dict[tuple[Host, int], tuple[NodeId, Incarnation]] = {}
        """Messages that waited for a reader as their process was given another id, and its former one."""
        self._longs: dict[tuple[Host, int], int] = {}

    def start(self, until_ns: int) -> None:
        """Until then readers go away now and then, and may be slow."""
        self._until_ns = until_ns

    # --- coming and going ---------------------------------------------------------------------

    def boot(self, host: Host) -> None:
        """A daemon begins; who takes a new id after another life took its own keeps its readers."""
        if not any(reader is host for reader in self._readers.values()):
            percent = self._network.conditions.second_reader_percent
            is_read_twice = bool(percent) and self._random.randrange(100) < percent
            self._counts[host] = 1 + is_read_twice
            for _ in range(self._counts[host]):
                self._network.timeline.plan(self._network.now_ns, self._subscribe, host)

    def _subscribe(self, host: Host) -> None:
        if not self._is_current(host) or self._is_held_back(host, self._subscribe):
            return
        count = sum(reader is host for reader in self._readers.values())
        if count >= self._counts[host]:
            return
        network, conditions = self._network, self._network.conditions
        request = network.next_request()
        self._readers[request] = host
        network.issue_as(
            host,
            request,
            Subscribe(
                TOPIC, conditions.reading_messages, conditions.reading_bytes, takes_long=True
            ),
        )
        if conditions.absent_ms_max:
            stays_ns = self._random.randrange(1, 4_000_000_000)
            network.timeline.plan(network.now_ns + stays_ns, self._go_away, host, request)

    def _go_away(self, host: Host, request: int) -> None:
        network = self._network
        if network.now_ns >= self._until_ns or request not in self._readers:
            return
        if not self._is_current(host) or self._is_held_back(host, self._go_away, request):
            return
        del self._readers[request]
        self._leaving.add(request)
        network.issue_as(host, request, Unsubscribe())
        absent_ns = self._random.randrange(1, network.conditions.absent_ms_max * 1_000_000)
        network.timeline.plan(network.now_ns + absent_ns, self._subscribe, host)

    @property
    def is_one_away(self) -> bool:
        """Whether a reader is away, and comes back: it makes room then, which others are told."""
        there = Counter(self._readers.values())
        return any(
            there[host] < count
            for host, count in self._counts.items()
            if self._is_current(host) and host.joiner is None
        )

    def _is_current(self, host: Host) -> bool:
        return host.alive and self._network.hosts.get(host.where) is host

    def _is_held_back(self, host: Host, action: Callable[..., None], *args: object) -> bool:
        """Whether a process cannot act now; it will when it can."""
        if host.stopped:
            host.held_back.append((action, (host, *args)))
        elif host.joiner is not None:
            at_ns = self._network.now_ns + JOINING_NS
            self._network.timeline.plan(at_ns, action, host, *args)
        else:
            return False
        return True

    # --- reading ------------------------------------------------------------------------------

    def on_deliver(self, host: Host, deliver: Deliver) -> None:
        """A daemon hands something to a reader."""
        is_leaving = deliver.request in self._leaving
        if deliver.request not in self._readers and not is_leaving:
            return
        numbers: list[int] = []
        if not deliver.long:
            payloads = unpack_messages(deliver.body, deliver.count)
            numbers = [number_of(payload) for payload in payloads]
        if is_leaving:
            # Its daemon does not know yet that it goes: what it is given now comes again, marked so.
            self._unseen.update(numbers)
            return
        if deliver.long:
            self._on_piece(host, deliver, numbers)
        elif deliver.redelivered:
            numbers = [number for number in numbers if number in self._unseen]
            self._unseen.difference_update(numbers)
        known, life = known_life(host.node, deliver.source), host.node.incarnation
        for number in numbers:
            now_ns = self._network.now_ns
            node, led = self._taken_as.pop((host, number), (host.id, life))
            self._note(Delivered(now_ns, node, led, deliver.source, known, number))
        if not deliver.aborted:
            self._read_on(host, deliver)

    def _read_on(self, host: Host, deliver: Deliver) -> None:
        """A program consumes a segment in up to two parts: it may go away between them."""
        reading_ns, count = reading_ns_max(self._network, self._until_ns), deliver.count or 1
        first = self._random.randint(1, count)
        for part in (first, count - first):
            if part:
                at_ns = self._network.now_ns + self._random.randrange(max(1, reading_ns))
                consumed = Consumed(part, deliver.long)
                self._network.timeline.plan(at_ns, self._consume, host, deliver.request, consumed)

    def _on_piece(self, host: Host, piece: Deliver, numbers: list[int]) -> None:
        """A long message counts as read when its last piece is here."""
        key = host, piece.long
        if piece.aborted:
            self._longs.pop(key, None)
            return
        number = self._longs.setdefault(key, number_of(piece.body))
        if piece.last:
            del self._longs[key]
            numbers.append(number)

    def _consume(self, host: Host, request: int, consumed: Consumed) -> None:
        if request not in self._readers or not self._is_current(host):
            return
        if not self._is_held_back(host, self._consume, request, consumed):
            self._network.issue_as(host, request, consumed)

    # --- daemons that end ---------------------------------------------------------------------

    def ended(self, host: Host) -> None:
        """A daemon ended, or its process asks for another id and keeps its readers."""
        self._note_unread(host)
        if host.alive:
            return
        for request in [r for r, reader in self._readers.items() if reader is host]:
            del self._readers[request]

    def _note_unread(self, host: Host) -> None:
        """What waited for a reader; a process that asks for another id may end before it has one."""
        numbers = sorted(
            number_of(payload)
            for count, body in unread_bodies(host.node)
            for payload in unpack_messages(body, count)
        )
        life = host.node.incarnation
        self._note(Unread(self._network.now_ns, host.id, life, tuple(numbers)))
        if host.alive:
            self._taken_as |= {(host, number): (host.id, life) for number in numbers}
