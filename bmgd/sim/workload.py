"""The programs of a simulated cluster: they send numbered messages in all ways; `readers.py` reads them.

A source of messages picks a running sender and a receiver, dead or alive, by chance, and a way: singly,
in a segment of a stream, or as a long message. What becomes of each goes into the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bmgd.chaos.history import Acknowledged, Fact, Failed, Sent
from bmgd.chaos.plan import Workload
from bmgd.core.commands import (
    CloseStream,
    OpenStream,
    PutSegment,
    SendTo,
    Withdraw,
)
from bmgd.core.effects import Deliver, Effect, Reply, StreamEnded, StreamMoved
from bmgd.core.events import Event
from bmgd.sim.arrivals import Arrivals
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher
from bmgd.sim.readers import NUMBER_BYTES, TOPIC, Readers
from bmgd.types import NodeId
from bmgd.wire.batch import pack_messages
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from bmgd.wire.segments import OVERHEAD_BYTES

FINISHING_NS: Final = 50_000_000
BATCH_MAX: Final = 8
"""Messages in one segment."""
_BURST: Final = (2, 8)
"""Messages that are sent at one moment, at least and at most."""
FLEETING: Final = 99
"""Of a hundred things that a program does with a stream, the one that opens others and abandons them."""
MISCOUNTED: Final = 0.03
"""So often the pieces of a long message have a byte more or less than it says, and end its stream."""
BURST_MEAN: Final = sum(_BURST) / 2
BEST_EFFORT: Final = "best effort"
ABANDONED: Final = "abandoned"
"""Not errors: what becomes of such a message its program is not told."""


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
        self._streams: dict[int, _Stream] = {}
        self._readers = Readers(network, random, note)
        self._arrivals = Arrivals(network, random, workload.messages_per_second, self._send_any)

    @property
    def underway(self) -> int:
        """How many messages have not been answered yet."""
        return len(self._asked) + sum(len(s.waiting) for s in self._streams.values())

    @property
    def is_a_reader_away(self) -> bool:
        """Whether a reader is away, and comes back."""
        return self._readers.is_one_away

    def boot(self, host: Host) -> None:
        if self._workload.messages_per_second > 0:
            self._readers.boot(host)

    # --- sending ------------------------------------------------------------------------------

    def start(self, until_ns: int) -> None:
        """Send messages until then."""
        self._readers.start(until_ns)
        # Where time goes in ticks the last messages are begun at the end itself.
        self._network.timeline.plan(until_ns + FINISHING_NS, self._finish_longs)
        self._arrivals.start(until_ns)

    def _send_any(self) -> None:
        hosts, random, conditions = self._network.hosts, self._random, self._network.conditions
        there = [host for host in hosts.values() if host.joiner is None]
        if there:
            source, destination = random.choice(there), random.choice(there).id
            percent = conditions.bursts_percent
            is_burst = bool(percent) and random.randrange(100) < percent
            for _ in range(random.randint(*_BURST) if is_burst else 1):
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
        elif chance == FLEETING:
            self._open_and_abandon(host, destination)
        elif chance < 15 + self._network.conditions.long_percent and not stream.best_effort:
            self._begin_long(request, stream)
        else:
            self._put(request, stream)

    def _open(self, host: Host, destination: NodeId) -> int:
        network, random = self._network, self._random
        request = network.next_request()
        best_effort = random.random() < 0.1
        self._streams[request] = _Stream(host, destination, best_effort)
        command = OpenStream(destination, TOPIC, random.choice((1, 2, 3)), best_effort)
        network.issue_as(host, request, command)
        return request

    def _close(self, host: Host, request: int, stream: _Stream, *, abandon: bool) -> None:
        if abandon:
            del self._streams[request]
            self._fail(request, stream, ABANDONED, *stream.waiting)
        elif stream.pieces:
            return
        stream.credit = None
        self._network.issue_as(host, request, CloseStream(abandon))

    def _open_and_abandon(self, host: Host, destination: NodeId) -> None:
        """A few streams, one after the other, each for a segment that is given up at once."""
        for _ in range(self._random.randint(*_BURST)):
            request = self._open(host, destination)
            stream = self._streams.get(request)
            if stream is None or stream.credit is None:
                return
            self._put(request, stream)
            if request in self._streams:
                self._close(host, request, stream, abandon=True)

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
        said_bytes = size + (random.choice((-1, 1)) if random.random() < MISCOUNTED else 0)
        stream.pieces = [
            PutSegment(
                0,
                whole[at : at + piece_bytes],
                said_bytes,
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
                    self._readers.on_deliver(host, effect)
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

    def ended(self, host: Host) -> None:
        # Who asked a daemon that ended never gets its answer.
        for request in [r for r, (_, asker) in self._asked.items() if asker is host]:
            del self._asked[request]
        for request in [r for r, s in self._streams.items() if s.host is host]:
            del self._streams[request]
        self._readers.ended(host)
