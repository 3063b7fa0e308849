"""The bytes of links that are up: written by partial writes, held by a pipe, read by a host in its turn.

Theory of operation. A connection holds `pipe_bytes` that were written and not yet read, as the two
kernels do. A write takes what there is room for, or less where conditions say so; the rest stays in the
link's outbox, where urgent frames overtake it and its bounds count. What a host has read makes room
again, and the writer learns of it as late as bytes take for the way back. So a slow reader, one that
is stopped or busy, fills first its pipe, then the outboxes of those who write to it. Who filled a pipe
writes again when a third of it is free, as Linux has it: with less, every piece that is read would let
one as small be written, and pieces would only ever become smaller (the silly window of RFC 813).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bmgd.errors import InvariantError, ProtocolError
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import End, Host
from bmgd.sim.malformed_frames import MalformedFrames
from bmgd.sim.timeline import Timeline
from bmgd.sim.ways import Ways
from bmgd.types import Evidence
from bmgd.wire.codec import decode, encode
from bmgd.wire.messages import Message

DECODED_MAX: Final = 4096
WRITE_AGAIN_NS: Final = 200_000
UNBOUNDED: Final = 1 << 40
_MILLION: Final = 1_000_000


class Pipes:
    """Carries the bytes of links.

    Args:
        timeline: virtual time.
        random: for the sizes of writes.
        conditions: what the network is like.
        ways: carry chunks.
        turn: lets a host look at what its links have to tell.
        close_other: tells the other end of this one how the connection ended.
        malformed: what members gone wrong have said.

    Attributes:
        on_chunk: called with each chunk's sender, receiver and bytes; None for nobody.
        on_written: called with each message and the frame that was made of it; None for nobody.
        on_read: called with the body of a frame, and the message that was read of it; None for nobody.
    """

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        conditions: Conditions,
        ways: Ways,
        turn: Callable[[Host], None],
        close_other: Callable[[End, Evidence], None],
        malformed: MalformedFrames,
    ) -> None:
        self.on_chunk: Callable[[Host, Host, bytes], None] | None = None
        self.on_written: Callable[[Message, bytes], None] | None = None
        self.on_read: Callable[[bytes, Message], None] | None = None
        self._timeline = timeline
        self._random = random
        self._ways = ways
        self._turn = turn
        self._close_other = close_other
        self._malformed = malformed
        self._torn = conditions.torn
        self._pipe_bytes = conditions.pipe_bytes
        self._write_bytes_max = conditions.write_bytes_max
        self._decoded: dict[bytes, Message] = {}

    # --- writing ------------------------------------------------------------------------------

    def write(self, end: End) -> None:
        """Write what waits on a link, as far as its kernel takes it."""
        if end.writes_later or end.is_full:
            return
        while True:
            room = self._pipe_bytes - end.in_pipe_bytes if self._pipe_bytes else UNBOUNDED
            if room <= 0:
                end.is_full = True
                return
            limit = room
            if self._write_bytes_max:
                limit = min(room, 1 + self._random.randrange(self._write_bytes_max))
            data = end.host.layer.take(end.link, limit)
            if not data:
                return
            self._carry(end, data)
            if len(data) < limit and not self._write_bytes_max:
                return
            if len(data) == limit < room:
                # The socket took no more for now.
                end.writes_later = True
                at_ns = self._timeline.now_ns + self._random.randrange(WRITE_AGAIN_NS)
                self._timeline.plan(at_ns, self._ways.tell, end.host, self._write_again, end)
                return

    def _write_again(self, end: End) -> None:
        end.writes_later = False
        self.write(end)
        self._turn(end.host)

    def write_all(self, end: End) -> None:
        """Write everything that waits: a process that ends by itself takes its time for that."""
        while data := end.host.layer.take(end.link, UNBOUNDED):
            self._carry(end, data)

    def _carry(self, end: End, data: bytes) -> None:
        end.host.bytes += len(data)
        end.in_pipe_bytes += len(data)
        if self._torn and len(data) > 1 and self._random.random() * _MILLION < self._torn:
            at = self._random.randrange(1, len(data))
            self._ways.carry(end, at, self.read, end, data[:at])
            data = data[at:]
        self._ways.carry(end, len(data), self.read, end, data)

    # --- reading ------------------------------------------------------------------------------

    def read(self, sender: End, data: bytes) -> None:
        """A host reads bytes that the sender has written: its link layer looks at them first."""
        end = sender.other
        assert end is not None
        if not (end.open or end.closing):
            self._reset(sender, end)
            return
        data += self._waiting(sender, end.host)
        if self.on_chunk is not None:
            self.on_chunk(sender.host, end.host, data)
        end.host.layer.feed(end.link, data)
        if self._pipe_bytes:
            self._ways.carry(end, 0, self.make_room, sender, len(data))
        self._turn(end.host)

    def _waiting(self, sender: End, host: Host) -> bytes:
        """What came next over the same connection while the host was busy: it reads all at once."""
        chunks, held_back = [], host.held_back
        while held_back and held_back[0][0] == self.read and held_back[0][1][0] is sender:
            chunks.append(held_back.popleft()[1][1])
        return b"".join(chunks)

    def make_room(self, sender: End, count: int) -> None:
        """The writer's kernel learns that so many bytes were read."""
        sender.in_pipe_bytes -= count
        if sender.is_full and 3 * sender.in_pipe_bytes > 2 * self._pipe_bytes:
            return
        sender.is_full = False
        if sender.open or sender.closing:
            self.write(sender)
            self._turn(sender.host)

    def _reset(self, sender: End, end: End) -> None:
        """Bytes came to an end that is closed: its kernel says so."""
        if sender.open or sender.closing:
            self._ways.carry_past_loss(end, self._close_other, end, Evidence.RESET)

    def decode(self, body: bytes) -> Message:
        """Read a frame; many hosts get the same one, so the last ones are remembered."""
        message = self._decoded.get(body)
        if message is None:
            if len(self._decoded) >= DECODED_MAX:
                self._decoded.clear()
            try:
                message = self._decoded[body] = decode(body)
            except ProtocolError as error:
                if self._malformed.has(body):
                    raise
                raise InvariantError(f"a node sent what cannot be read: {error}") from error
            if self._malformed.has(body):
                self._malformed.on_read(body)
            if self.on_read is not None:
                self.on_read(body, message)
        return message

    def encode(self, message: Message) -> bytes:
        """Make a frame of a message."""
        frame = encode(message)
        if self.on_written is not None:
            self.on_written(message, frame)
        return frame
