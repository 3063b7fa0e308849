"""The program's end of the socket to its daemon: frames in and out, and no more than the daemon reads.

What of it is bounded, and what happens there:

    segments on their way to the daemon  `CROWDED_BYTES`  streams wait until it has read some
    what it has not read at the end      `CLOSE_S`        dropped, and the socket is closed
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Protocol, cast

from bmgd.client import forked
from bmgd.client.items import check_loop
from bmgd.errors import BmgdError, NoDaemonError, ProtocolError
from bmgd.transports import write_parts
from bmgd.wire import control
from bmgd.wire.control import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, Frame
from bmgd.wire.control_reader import FrameReader

CROWDED_BYTES: Final = 128 * 1024
"""So many bytes wait beside what the kernel holds, before streams put no further segment."""
UNCROWDED_BYTES: Final = 32 * 1024

CLOSE_S: Final = 1.0
"""How long a daemon may take to read what waits for it when the connection is closed."""


class Sender(Protocol):
    """What puts segments."""

    def on_writable(self) -> None:
        """The daemon has read some of what was written."""


class DaemonSocket(asyncio.BufferedProtocol, ABC):
    """A socket that speaks frames; what they mean a `Connection` knows."""

    def __init__(self) -> None:
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Sender, None] = {}
        """Who has segments to put, and waits until it may."""
        self._served: Sender | None = None
        """Whose turn it is to write, while others wait."""
        self._is_serving = False
        """Whether the next one has its turn in the next turn of the loop."""
        self._uncrowded = asyncio.Event()
        """Set while more may be written: the daemon has read enough, or is gone."""
        self._uncrowded.set()
        self._has_ended = asyncio.Event()
        """Set while there is no socket."""
        self._has_ended.set()
        self._lost: BmgdError | None = None
        self._descriptor = -1

    @abstractmethod
    def _on_frame(self, frame: Frame) -> None:
        """A frame has come."""

    @abstractmethod
    def _lose(self, error: BmgdError) -> None:
        """The connection is over; nothing happens when it is already."""

    @property
    def lost(self) -> BmgdError | None:
        """Why the connection is over; None while it is not."""
        return self._lost

    @property
    def unwritten_bytes(self) -> int:
        """What the daemon has not read, and the kernel does not hold."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def check_loop(self) -> None:
        """Refuse what is done in another event loop.

        Raises:
            RequestError: it is not that of the connection.
        """
        check_loop(self._loop)

    def may_write(self, sender: Sender) -> bool:
        """Whether a segment may be written now; else `on_writable` tells when."""
        if self._uncrowded.is_set() and (not self._waiting or self._served is sender):
            return True
        self._waiting[sender] = None
        return False

    def write(self, frame: Frame) -> None:
        """Send a frame; nothing happens when the connection is over."""
        transport = self._transport
        if self._lost is None and transport is not None and not transport.is_closing():
            write_parts(transport, control.encode_parts(frame, REQUEST_BYTES_MAX))

    async def until_closed(self) -> None:
        """Wait until the socket of a connection that was closed is, too.

        A daemon that is stopped reads nothing: what it has not read within `CLOSE_S` is dropped.
        """
        if asyncio.get_running_loop() is not self._loop:
            # It cannot be told of the end.
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._has_ended.wait()
        finally:
            if self._transport is not None and not self._has_ended.is_set():
                self._transport.abort()
        await self._has_ended.wait()

    # --- asyncio.BufferedProtocol -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._descriptor = transport.get_extra_info("socket").fileno()
        forked.keep_from_children(self._descriptor)
        self._transport.set_write_buffer_limits(CROWDED_BYTES, UNCROWDED_BYTES)
        self._waiting, self._served = {}, None
        self._uncrowded.set()
        self._has_ended.clear()

    def pause_writing(self) -> None:
        self._uncrowded.clear()

    def resume_writing(self) -> None:
        self._uncrowded.set()
        if not self._is_serving:
            self._serve_next()

    def _serve_next(self) -> None:
        """Who has waited for longest writes; the next one in the next turn of the loop."""
        self._served = None
        self._is_serving = bool(self._waiting) and self._uncrowded.is_set()
        if self._is_serving:
            self._served = sender = next(iter(self._waiting))
            del self._waiting[sender]
            sender.on_writable()
            # A task that puts the pieces of a long message is woken before.
            asyncio.get_running_loop().call_soon(self._serve_next)

    def connection_lost(self, exc: Exception | None) -> None:
        forked.forget(self._descriptor)
        self._has_ended.set()
        self._lose(NoDaemonError("the daemon closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.filled(nbytes)
        try:
            while self._lost is None:
                frame = self._reader.next_frame()
                if frame is None:
                    return
                self._on_frame(frame)
        except ProtocolError as error:
            self._lose(error)
