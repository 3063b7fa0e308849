"""The daemon's HTTP server: who may ask for what, and how a request is answered.

Theory of operation. One task of the daemon's group per connection, one request per connection. What a
path gives is in a table of `Route`s (`web.py`); this module decides only who may have it:

    open     `/healthz`, `/readyz` and the page's own files, which tell nothing about the cluster
    read     with the token; without one configured: on loopback, by GET, with a loopback Host header,
             and for no page of another origin
    act      with the token, by POST; without a configured token nobody may

What is bounded, and what happens there:

    connections     `CONNECTIONS_MAX`  one more is let in, another is closed, see `slots.py`; so who holds
                                       them all idle keeps no probe out
    a request       `HEAD_BYTES_MAX`, `HEAD_S`  431, 408
    an answer       `ANSWER_S`         a client that does not read it is cut
    streams         `STREAMS_MAX`, beside these; `STREAM_BYTES_MAX`, see `event_stream.py`
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any, Final

from bmgd.dataclass import dataclass
from bmgd.errors import BmgdError
from bmgd.shell.addresses import bind_listener
from bmgd.shell.event_stream import EventStreams
from bmgd.shell.http_request import HEAD_BYTES_MAX, HttpError, HttpRequest, read_request
from bmgd.shell.slots import Slots

CONNECTIONS_MAX: Final = 64
ANSWER_S: Final = 10.0

_SAFE: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Access(Enum):
    """Who may use a route."""

    OPEN = "open"
    READ = "read"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200

    @classmethod
    def of(cls, value: object, status: int = 200) -> Answer:
        """A value as JSON."""
        return cls(json.dumps(value, separators=(",", ":")).encode() + b"\n", status=status)


Handler = Callable[[HttpRequest], Awaitable[Answer | EventStreams]]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
Note = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Route:
    """What one path gives: an answer, or the streams that the client joins."""

    access: Access
    handle: Handler


class HttpServer:
    """Serves one daemon's routes.

    Args:
        address: ``host:port``; port 0 lets the system choose.
        token: what clients show, or b"" for none.
        routes: by path.
        spawn: runs a connection in the daemon's task group.
        note: writes a line of log.

    Attributes:
        answered: responses by status, for the metrics.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(
        self,
        address: str,
        token: bytes,
        routes: Mapping[str, Route],
        spawn: Spawn,
        note: Note,
    ) -> None:
        self.answered: dict[int, int] = {}
        self._token = token
        self._routes = routes
        self._spawn = spawn
        self._note = note
        self._listener = bind_listener(address)
        self._server: asyncio.Server | None = None
        self._slots = Slots[asyncio.StreamWriter](CONNECTIONS_MAX)
        self._tasks: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        """Begin to accept."""
        self._server = await asyncio.start_server(
            self._on_connection, sock=self._listener, limit=HEAD_BYTES_MAX
        )

    def close(self) -> None:
        """Stop accepting, and cut every connection."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        for task in list(self._tasks.values()):
            task.cancel()

    # --- one connection -----------------------------------------------------------------------

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who has gone already has no address.
        peer = writer.get_extra_info("peername") or ("",)
        given_way = self._slots.enter(writer, str(peer[0]))
        if given_way is not None:
            self._tasks[given_way].cancel()
            given_way.transport.abort()
        task = self._tasks[writer] = self._spawn(self._serve(reader, writer))
        task.add_done_callback(lambda _: self._forget(writer))

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        del self._tasks[writer]
        self._slots.leave(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
            async with asyncio.timeout(ANSWER_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            # The client is gone, or does not read.
            pass
        finally:
            # One of asyncio's that has closed by itself cannot be aborted; it has nothing left to write.
            if not writer.is_closing() or writer.transport.get_write_buffer_size():
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_head, allow = False, ""
        try:
            request = await read_request(reader)
            if request is None:
                return
            self._slots.speaks(writer)
            is_head = request.method == "HEAD"
            answer = await self._handle(request)
        except HttpError as error:
            allow = error.allow
            text = f"{error.status} {error.detail}\n".encode()
            answer = Answer(text, "text/plain; charset=utf-8", error.status)
        except BmgdError as error:
            answer = Answer.of({"error": str(error)}, 500)
        if writer.is_closing():
            # The client has gone meanwhile; uvloop raises for what is written to it.
            return
        if isinstance(answer, EventStreams):
            self._count(200)
            # Streams have a bound of their own.
            self._slots.leave(writer)
            writer.write(self._head(200, "text/event-stream", None))
            if is_head:
                return
            await answer.serve(reader, writer)
            return
        writer.write(self._head(answer.status, answer.content_type, len(answer.body), allow))
        if not is_head:
            writer.write(answer.body)

    async def _handle(self, request: HttpRequest) -> Answer | EventStreams:
        route = self._routes.get(request.path)
        if route is None:
            raise HttpError(404, "nothing is here; the page is at /")
        self._check(request, route.access)
        return await route.handle(request)

    def _check(self, request: HttpRequest, access: Access) -> None:
        if (request.method == "POST") != (access is Access.ACT):
            allow = "POST" if access is Access.ACT else "GET, HEAD"
            raise HttpError(405, f"this is done by {allow}", allow)
        if access is Access.OPEN:
            return
        if self._token:
            if not hmac.compare_digest(request.bearer.encode(), self._token):
                raise HttpError(401, "this needs the token: Authorization: Bearer ...")
        elif access is Access.ACT:
            raise HttpError(403, "this needs a token; start the daemon with --http-token-file")
        elif not request.names_loopback:
            raise HttpError(403, "without a token only a loopback name is answered: localhost")
        elif request.is_of_a_foreign_page:
            raise HttpError(403, "without a token a page of another origin is not answered")

    def _head(self, status: int, content_type: str, length: int | None, allow: str = "") -> bytes:
        if length is not None:
            self._count(status)
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {content_type}"]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        if status == 401:
            lines.append('WWW-Authenticate: Bearer realm="bmgd"')
        if allow:
            lines.append(f"Allow: {allow}")
        lines += [f"{name}: {value}" for name, value in _SAFE.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def _count(self, status: int) -> None:
        self.answered[status] = self.answered.get(status, 0) + 1
