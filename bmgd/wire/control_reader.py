"""From the bytes of a connection, as they come, to frames of the control protocol."""

from __future__ import annotations

import struct
from typing import Final

from bmgd.errors import ProtocolError
from bmgd.frameheader import BODY_BYTES_MIN
from bmgd.wire.control import Frame, decode

READ_BYTES: Final = 256 * 1024
"""So much is read of a connection at once, at most, but for a longer frame."""
_BUFFER_BYTES_MIN = 16 * 1024
_LENGTH = struct.Struct(">I")


class ReadBuffer:
    """Memory that bytes are read into; of all connections of a process, which take turns."""

    def __init__(self) -> None:
        self.bytes = bytearray(_BUFFER_BYTES_MIN)

    def reserve(self, size: int) -> None:
        """Make room for so many bytes; what is in it is lost."""
        if size > len(self.bytes):
            # Not resized: somebody may still look at the former one.
            self.bytes = bytearray(size)

    def settle(self, used: int) -> None:
        """More where a read has filled it, and what one long frame needed is given back."""
        size = len(self.bytes)
        if used == size < READ_BYTES:
            self.bytes = bytearray(min(4 * size, READ_BYTES))
        elif size > READ_BYTES:
            self.bytes = bytearray(READ_BYTES)


class FrameReader:
    """Turns the bytes of one direction into frames.

    Theory of operation. Bytes are read into a buffer that may be others' too, behind what is left of the
    bytes before. Frames are read where they lie; what is not a whole frame is set aside:

        room() --read--> filled(count) --> next_frame() ... next_frame() is None
                                                        or settle(): what is left is set aside

    Args:
        body_bytes_max: a longer frame is malformed; checked before its body is awaited.
        buffer: to be read into; by default one of its own.
    """

    def __init__(self, body_bytes_max: int, buffer: ReadBuffer | None = None) -> None:
        self._body_bytes_max = body_bytes_max
        self._shared = buffer
        self._rest = bytearray()
        self._data = self._rest
        """What is being read: the rest, or the buffer."""
        self._at = 0
        self._end = 0
        self._wanted = 0
        """Bytes of the frame that the rest is the beginning of."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that came and were not returned in a frame."""
        return self._end - self._at

    @property
    def _buffer(self) -> ReadBuffer:
        if self._shared is None:
            self._shared = ReadBuffer()
        return self._shared

    def room(self) -> memoryview:
        """Where the next bytes are to be read into; `filled` tells how many came."""
        self.settle()
        rest, buffer = self._rest, self._buffer
        buffer.reserve(max(self._wanted, len(rest) + _BUFFER_BYTES_MIN // 2))
        into = buffer.bytes
        into[: len(rest)] = rest
        return memoryview(into)[len(rest) :]

    def filled(self, count: int) -> None:
        """So many bytes were read into the room."""
        self._data = self._buffer.bytes
        self._end = len(self._rest) + count
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes as they came from the socket."""
        self.settle()
        self._rest += data
        self._end = len(self._rest)

    def settle(self) -> None:
        """Set aside what is left: the buffer is another's now."""
        if self._data is not self._rest:
            used = self._end
            self._rest = self._data[self._at : self._end]
            self._buffer.settle(used)
        elif self._at:
            del self._rest[: self._at]
        self._data, self._at, self._end = self._rest, 0, len(self._rest)

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more bytes come.

        Raises:
            ProtocolError: the bytes are not the control protocol; nothing more can be read.
        """
        start = self._at + _LENGTH.size
        if self._end < start:
            self._wanted = 0
            self.settle()
            return None
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        if not BODY_BYTES_MIN <= length <= self._body_bytes_max:
            raise ProtocolError(f"a control frame of {length} bytes")
        if self._end < start + length:
            self._wanted = _LENGTH.size + length
            self.settle()
            return None
        self._at = start + length
        with memoryview(self._data) as view, view[start : self._at] as body:
            return decode(body)
