"""Server-sent events: what happens, written to every client that listens, each with a bound.

https://html.spec.whatwg.org/multipage/server-sent-events.html. A client that does not read fast enough
is told so in its last event, ``dropped``, and disconnected. If it connects again, it gets the whole
state.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

STREAMS_MAX: Final = 16
"""Clients at a time; one more is told so in an event, and closed."""
STREAM_BYTES_MAX: Final = 4 * 2**20
"""What may wait for one client in this process, beside the events with which it began."""
BEAT_S: Final = 10.0
"""A comment is written this often, so that a client that is gone is noticed."""

Begin = Callable[[], list[tuple[str, object]]]


def event_bytes(name: str, value: object) -> bytes:
    """One event with a JSON value."""
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


class EventStreams:
    """The clients of one stream.

    Args:
        begin: gives the events with which a new client begins.
        on_change: is called when the first client has come, or the last one gone.

    Attributes:
        dropped: clients that were cut because they read too slowly.
        sent_bytes: written to all clients.
    """

    def __init__(self, begin: Begin, on_change: Callable[[], None]) -> None:
        self.dropped = 0
        self.sent_bytes = 0
        self._begin = begin
        self._on_change = on_change
        self._writers: dict[asyncio.StreamWriter, tuple[asyncio.Event, int]] = {}
        """Those who listen: set when one is cut, and what may wait for it, 0 until it has begun."""

    def __len__(self) -> int:
        return len(self._writers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep one client until it goes away or is cut."""
        if len(self._writers) >= STREAMS_MAX:
            reason = f"{STREAMS_MAX} pages are open already"
            writer.write(event_bytes("dropped", {"reason": reason}))
            return
        cut = asyncio.Event()
        self._writers[writer] = cut, 0
        self._on_change()
        try:
            # The whole state of a large cluster is longer than what may wait.
            whole = b"".join(event_bytes(name, value) for name, value in self._begin())
            self._writers[writer] = cut, STREAM_BYTES_MAX + len(whole)
            writer.write(whole)
            while not cut.is_set() and not writer.transport.is_closing():
                try:
                    async with asyncio.timeout(BEAT_S):
                        await cut.wait()
                except TimeoutError:
                    # Who has gone is not written to: uvloop would raise.
                    if not writer.transport.is_closing():
                        writer.write(b": beat\n\n")
        finally:
            self._writers.pop(writer, None)
            self._on_change()

    def publish(self, name: str, value: object) -> None:
        """Write an event to every client."""
        if not self._writers:
            return
        data = event_bytes(name, value)
        for writer, (cut, bytes_max) in list(self._writers.items()):
            if writer.transport.is_closing():
                cut.set()
            elif bytes_max == 0:
                # What it begins with will hold this.
                continue
            elif writer.transport.get_write_buffer_size() > bytes_max:
                self.dropped += 1
                reason = f"more than {bytes_max} bytes waited: you read too slowly"
                writer.write(event_bytes("dropped", {"reason": reason}))
                del self._writers[writer]
                cut.set()
            else:
                writer.write(data)
                self.sent_bytes += len(data)
