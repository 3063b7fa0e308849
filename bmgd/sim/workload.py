"""The programs of a simulated cluster: they send numbered messages in all ways, and read them.

Every daemon has a program that reads one topic, or two of them; it takes each message for a moment before
it says that it has consumed it, and may go away for a while. A source of messages picks a running sender
and a receiver, dead or alive, by chance, and a way: singly, in a segment of a stream, or as a long
message. What programs see goes into the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bmgd.chaos.history import Acknowledged, Delivered, Fact, Failed, Sent, Unread
from bmgd.chaos.plan import Workload
from bmgd.core.commands import (
    CloseStream,
    Consumed,
    OpenStream,
    PutSegment,
    SendTo,
    Subscribe,
    Unsubscribe,
    Withdraw,
)
from bmgd.core.effects import Deliver, Effect, Reply, StreamEnded, StreamMoved
from bmgd.core.events import Event
from bmgd.sim.arrivals import Arrivals
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life, unread_bodies
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, NodeId
from bmgd.wire.batch import pack_messages, unpack_messages
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from bmgd.wire.segments import OVERHEAD_BYTES

TOPIC: Final = "work"
NUMBER_BYTES: Final = 8
JOINING_NS: Final = 1_000_000
"""A program whose daemon has no id for the moment tries again so soon."""
FINISHING_NS: Final = 50_000_000
BATCH_MAX: Final = 8
"""Messages in one segment."""
BEST_EFFORT: Final = "best effort"
ABANDONED: Final = "abandoned"
"""Not errors: what becomes of such a message its program is not told."""
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


@dataclass(slots=True)
class _Stream:
    """A program's stream.

    Args:
        host: of the program.
        credit: up to which cost it may put, once the daemon has told it.
        put_cost: of what it has put.
        next: number of the segment that it puts next.
        waiting: the numbers of the messages of each segment that is not done.
        pieces: what is left of the long message that it is putting.
        longs: the first piece of each long message, by its last one.
    """

    host: Host
    destination: NodeId
    best_effort: bool
    credit: int | None = None
    put_cost: int = 0
    next: int = 1
    waiting: dict[int, list[int]] = field(default_factory=dict)
    pieces: list[PutSegment] = field(default_factory=list)
    longs: dict[int, int] = field(default_factory=dict)

    def last_of(self, number: int) -> int:
        """The last piece of the long message that a segment is a piece of; else the segment."""
        for last, first in self.longs.items():
            if first <= number <= last:
                return last
        return number


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
        self._reader_counts: dict[Host, int] = {}
        self._leaving: set[int] = set()
        self._unseen: set[int] = set()
        """Messages that came to a reader which was about to go, and which it did not read."""
        self._taken_as: dict[tuple[Host, int], tuple[NodeId, Incarnation]] = {}
        """Messages that waited for a reader as their process was given another id, and its former one."""
        self._streams: dict[int, _Stream] = {}
        self._longs: dict[tuple[Host, int], int] = {}
        self._until_ns = 0
        self._arrivals = Arrivals(network, random, workload.messages_per_second, self._send_any)

    @property
    def underway(self) -> int:
        """How many messages have not been answered yet."""
        return len(self._asked) + sum(len(s.waiting) for s in self._streams.values())

    # --- reading ------------------------------------------------------------------------------

    def boot(self, host: Host) -> None:
        # Who takes a new id after another life took its own keeps its readers.
        is_read = any(reader is host for reader in self._readers.values())
        if self._workload.messages_per_second > 0 and not is_read:
            percent = self._network.conditions.second_reader_percent
            is_read_twice = bool(percent) and self._random.randrange(100) < percent
            self._reader_counts[host] = 1 + is_read_twice
            for _ in range(self._reader_counts[host]):
                self._network.timeline.plan(self._network.now_ns, self._subscribe, host)

    def _subscribe(self, host: Host) -> None:
        if not self._is_current(host) or self._is_held_back(host, self._subscribe):
            return
        count = sum(reader is host for reader in self._readers.values())
        if count >= self._reader_counts[host]:
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

    # --- sending ------------------------------------------------------------------------------

    def start(self, until_ns: int) -> None:
        """Send messages until then."""
        self._until_ns = until_ns
        self._network.timeline.plan(until_ns, self._finish_longs)
        self._arrivals.start(until_ns)

    def _send_any(self) -> None:
        hosts, random, conditions = self._network.hosts, self._random, self._network.conditions
        there = [host for host in hosts.values() if host.joiner is None]
        if there:
            source, destination = random.choice(there), random.choice(there).id
            if random.randrange(100) >= conditions.streams_percent:
                self.send(source, destination)
            elif source.alive and not source.stopped:
                self._use_stream(source, destination)

    def _new_number(self, host: Host, request: int, destination: NodeId) -> int:
        self._payload_id += 1
        life, addressed = host.node.incarnation, known_life(host.node, destination)
        now_ns, number = self._network.now_ns, self._payload_id
        self._note(Sent(now_ns, host.id, life, request, destination, addressed, number))
        return number

    def _payload(self, number: int) -> bytes:
        return number.to_bytes(NUMBER_BYTES, "big").ljust(self._workload.payload_bytes, b".")

    @property
    def _timeout_ns(self) -> int:
        return int(self._workload.timeout_s * 1e9)

    def send(self, host: Host, destination: NodeId, timeout_ns: int = 0) -> int | None:
        """Send one message; returns its number, or None where the source does not run.

        Args:
            timeout_ns: the time that it has; 0 for that of the workload.
        """
        network = self._network
        if not host.alive or host.stopped:
            return None
        request = network.next_request()
        number = self._new_number(host, request, destination)
        self._asked[request] = number, host
        command = SendTo(destination, TOPIC, self._payload(number), timeout_ns or self._timeout_ns)
        network.issue_as(host, request, command)
        return number

    # --- streams ------------------------------------------------------------------------------

    def _use_stream(self, host: Host, destination: NodeId) -> None:
        """Do something with a stream to a node: open it, put into it, give something up, close it."""
        random = self._random
        mine = [
            (request, stream)
            for request, stream in self._streams.items()
            if stream.host is host and stream.destination == destination
        ]
        chance = random.randrange(100)
        if not mine or (chance < 5 and len(mine) < 3):
            self._open(host, destination)
            return
        request, stream = random.choice(mine)
        if stream.credit is None:
            return
        if chance < 10:
            self._close(host, request, stream, abandon=chance < 7)
        elif chance < 15 and stream.waiting:
            number = random.choice(list(stream.waiting))
            self._network.issue_as(host, request, Withdraw(number))
        elif stream.pieces:
            self._put_piece(request, stream)
        elif chance < 15 + self._network.conditions.long_percent and not stream.best_effort:
            self._begin_long(request, stream)
        else:
            self._put(request, stream)

    def _open(self, host: Host, destination: NodeId) -> None:
        network, random = self._network, self._random
        request = network.next_request()
        best_effort = random.random() < 0.1
        self._streams[request] = _Stream(host, destination, best_effort)
        command = OpenStream(destination, TOPIC, random.choice((1, 2, 3)), best_effort)
        network.issue_as(host, request, command)

    def _close(self, host: Host, request: int, stream: _Stream, *, abandon: bool) -> None:
        if abandon:
            del self._streams[request]
            self._fail(request, stream, ABANDONED, *stream.waiting)
        elif stream.pieces:
            return
        stream.credit = None
        self._network.issue_as(host, request, CloseStream(abandon))

    def _put(self, request: int, stream: _Stream) -> None:
        host, random = stream.host, self._random
        numbers = range(self._payload_id + 1, self._payload_id + 1 + random.randint(1, BATCH_MAX))
        payloads = [self._payload(number) for number in numbers]
        while sum(map(len, payloads)) > PAYLOAD_BYTES_MAX:
            payloads.pop()
        body = pack_messages(payloads)
        if not self._may_put(stream, len(body)):
            return
        timeout_ns = self._timeout_ns if random.random() < 0.8 else 0
        for _ in payloads:
            number = self._new_number(host, request, stream.destination)
            stream.waiting.setdefault(stream.next, []).append(number)
        self._issue_put(request, stream, PutSegment(len(payloads), body, timeout_ns=timeout_ns))

    def _may_put(self, stream: _Stream, body_bytes: int) -> bool:
        cost = stream.put_cost + body_bytes + OVERHEAD_BYTES
        return cost <= (stream.credit or 0)

    def _issue_put(self, request: int, stream: _Stream, put: PutSegment) -> None:
        stream.next += 1
        stream.put_cost += len(put.body) + OVERHEAD_BYTES
        self._network.issue_as(stream.host, request, put)

    def _begin_long(self, request: int, stream: _Stream) -> None:
        random = self._random
        size = random.randint(NUMBER_BYTES, self._network.conditions.long_bytes_max)
        number = self._new_number(stream.host, request, stream.destination)
        whole = number.to_bytes(NUMBER_BYTES, "big") + random.randbytes(size - NUMBER_BYTES)
        piece_bytes = min(PAYLOAD_BYTES_MAX, max(NUMBER_BYTES, random.choice((500, 9_000, 65_536))))
        starts = range(0, size, piece_bytes)
        timeout_ns = self._timeout_ns if random.random() < 0.5 else 0
        stream.pieces = [
            PutSegment(
                0,
                whole[at : at + piece_bytes],
                size,
                first=at == 0,
                last=at == starts[-1],
                timeout_ns=timeout_ns,
            )
            for at in starts
        ]
        # It is lost with any of its pieces, and done with its last.
        last = stream.next + len(starts) - 1
        stream.longs[last] = stream.next
        stream.waiting[last] = [number]
        self._put_piece(request, stream)

    def _put_piece(self, request: int, stream: _Stream) -> None:
        for _ in range(self._random.randint(1, 4)):
            if request not in self._streams or not stream.pieces:
                return
            if not self._may_put(stream, len(stream.pieces[0].body)):
                return
            self._issue_put(request, stream, stream.pieces.pop(0))

    def _finish_longs(self) -> None:
        """When nothing new is begun: put what is left of long messages, as far as credit goes."""
        if any(stream.pieces for stream in self._streams.values()):
            at_ns = self._network.now_ns + FINISHING_NS
            self._network.timeline.plan(at_ns, self._finish_longs)
        for request, stream in list(self._streams.items()):
            if stream.pieces and stream.host.alive and not stream.host.stopped:
                self._put_piece(request, stream)

    # --- what becomes of it -------------------------------------------------------------------

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    self._on_reply(host, effect)
                case Deliver():
                    self._on_deliver(host, effect)
                case StreamMoved():
                    self._on_moved(effect)
                case StreamEnded():
                    self._on_ended(effect)
                case _:
                    pass

    def _on_reply(self, host: Host, reply: Reply) -> None:
        stream = self._streams.get(reply.request)
        if stream is not None:
            if reply.error is None:
                stream.credit = reply.result["credit"]
            else:
                del self._streams[reply.request]
            return
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

    def _on_moved(self, moved: StreamMoved) -> None:
        stream = self._streams.get(moved.request)
        if stream is None:
            return
        if stream.credit is not None:
            stream.credit = moved.credit
        lost = [stream.last_of(number) for number in (*moved.withdrawn, *moved.doubted)]
        if stream.pieces and stream.next + len(stream.pieces) - 1 in lost:
            # The daemon takes nothing more of it.
            del stream.longs[stream.next + len(stream.pieces) - 1]
            stream.pieces.clear()
        self._fail(moved.request, stream, moved.error, *lost)
        for number in [n for n in stream.waiting if n < moved.next]:
            if stream.best_effort:
                self._fail(moved.request, stream, BEST_EFFORT, number)
            else:
                self._confirm(moved.request, stream, number)

    def _on_ended(self, ended: StreamEnded) -> None:
        stream = self._streams.pop(ended.request, None)
        if stream is None:
            return
        for number in [n for n in stream.waiting if n < ended.next]:
            if stream.best_effort:
                self._fail(ended.request, stream, BEST_EFFORT, number)
            else:
                self._confirm(ended.request, stream, number)
        error = type(ended.error).__name__ if ended.error else "closed"
        self._fail(ended.request, stream, error, *stream.waiting)

    def _confirm(self, request: int, stream: _Stream, segment: int) -> None:
        for number in stream.waiting.pop(segment, ()):
            self._note(Acknowledged(self._network.now_ns, stream.host.id, request, number))

    def _fail(self, request: int, stream: _Stream, error: str, *segments: int) -> None:
        for segment in segments:
            for number in stream.waiting.pop(segment, ()):
                now_ns = self._network.now_ns
                self._note(Failed(now_ns, stream.host.id, request, number, error))

    def _on_deliver(self, host: Host, deliver: Deliver) -> None:
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

    def ended(self, host: Host) -> None:
        # Who asked a daemon that ended never gets its answer.
        for request in [r for r, (_, asker) in self._asked.items() if asker is host]:
            del self._asked[request]
        for request in [r for r, s in self._streams.items() if s.host is host]:
            del self._streams[request]
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
