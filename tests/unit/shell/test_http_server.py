"""The HTTP server: what it understands, who may ask what, and what happens at its bounds."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from bmgd.errors import ConfigError
from bmgd.shell import event_stream, http_request, http_server
from bmgd.shell.event_stream import EventStreams
from bmgd.shell.http_request import HttpError, HttpRequest, parse_head
from bmgd.shell.http_server import Access, Answer, HttpServer, Route

TOKEN = b"0123456789abcdef"
DEADLINE_S = 10.0


async def said(request: HttpRequest) -> Answer:
    return Answer.of({"path": request.path, "query": request.query})


class Served:
    """A server with a route of each kind, and its streams."""

    def __init__(self, token: bytes, tasks: asyncio.TaskGroup) -> None:
        self.streams = EventStreams(lambda: [("begin", {"n": 0})], lambda: None)

        async def stream(request: HttpRequest) -> EventStreams:
            return self.streams

        routes = {
            "/open": Route(Access.OPEN, said),
            "/read": Route(Access.READ, said),
            "/act": Route(Access.ACT, said),
            "/events": Route(Access.READ, stream),
        }
        self.server = HttpServer("127.0.0.1:0", token, routes, tasks.create_task, lambda *_: None)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.server.address)

    async def ask(self, request: str) -> tuple[int, str]:
        """Send these bytes; the status and the body of the answer."""
        head, body = await self.answer(request)
        return int(head.split(" ")[1]) if head else 0, body

    async def answer(self, request: str) -> tuple[str, str]:
        """Send these bytes; the head and the body of the answer."""
        reader, writer = await self.connect()
        writer.write(request.encode())
        async with asyncio.timeout(DEADLINE_S):
            answer = (await reader.read()).decode()
        writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        return head, body

    async def get(self, path: str, *headers: str, method: str = "GET") -> tuple[int, str]:
        lines = "".join(f"{header}\r\n" for header in headers)
        return await self.ask(f"{method} {path} HTTP/1.1\r\n{lines}\r\n")


@asynccontextmanager
async def serving(token: bytes = b"") -> AsyncIterator[Served]:
    async with asyncio.TaskGroup() as tasks:
        served = Served(token, tasks)
        await served.server.start()
        try:
            yield served
        finally:
            served.server.close()


HERE = "Host: localhost:1"
BEARER = f"Authorization: Bearer {TOKEN.decode()}"


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/open", "GET", (), 200),
        ("/open", "GET", ("Host: evil.example",), 200),
        ("/open", "HEAD", (), 200),
        ("/open", "POST", (), 405),
        ("/read", "GET", (HERE,), 200),
        ("/read", "GET", ("Host: 127.0.0.9",), 200),
        ("/read", "GET", ("Host: [::1]:7480",), 200),
        ("/read", "GET", ("Host: LOCALHOST",), 200),
        ("/read", "GET", ("Host: [::1]evil",), 403),
        ("/read", "GET", ("Host: localhost:99.evil",), 403),
        ("/read", "GET", (), 403),
        ("/read", "GET", ("Host: evil.example",), 403),
        ("/read", "GET", ("Host: 127.0.0.1.evil.example",), 403),
        ("/read", "GET", ("Host: 10.0.0.1:80",), 403),
        ("/read", "GET", (HERE, "Sec-Fetch-Site: none", "Sec-Fetch-Dest: document"), 200),
        ("/read", "GET", (HERE, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty"), 200),
        ("/read", "GET", (HERE, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document"), 200),
        ("/read", "GET", (HERE, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: empty"), 403),
        ("/read", "GET", (HERE, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe"), 403),
        ("/read", "GET", (HERE, "Sec-Fetch-Site: same-site"), 403),
        ("/open", "GET", (HERE, "Sec-Fetch-Site: cross-site"), 200),
        ("/read", "POST", (HERE,), 405),
        ("/act", "GET", (HERE,), 405),
        ("/act", "POST", (HERE,), 403),
        ("/act", "POST", (HERE, BEARER), 403),
        ("/none", "GET", (HERE,), 404),
    ],
)
async def test_http_without_a_token_shows_only_and_only_to_loopback(
    path: str, method: str, headers: tuple[str, ...], status: int
) -> None:
    async with serving() as served:
        assert (await served.get(path, *headers, method=method))[0] == status


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/open", "GET", (), 200),
        ("/read", "GET", (HERE,), 401),
        ("/read", "GET", ("Authorization: Bearer wrong",), 401),
        ("/read", "GET", (f"Authorization: Basic {TOKEN.decode()}",), 401),
        ("/read", "GET", ("Host: node3.example:7480", BEARER), 200),
        ("/read", "GET", (f"authorization: bearer {TOKEN.decode()}",), 200),
        ("/act", "POST", (BEARER,), 200),
        ("/act", "POST", (), 401),
        ("/act", "GET", (BEARER,), 405),
    ],
)
async def test_http_with_a_token_wants_it_for_everything_but_probes_and_files(
    path: str, method: str, headers: tuple[str, ...], status: int
) -> None:
    async with serving(TOKEN) as served:
        assert (await served.get(path, *headers, method=method))[0] == status
        assert served.server.answered == {status: 1}


async def test_http_answers_have_their_query_their_length_and_safe_headers() -> None:
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(b"GET /open?a=1&b=%C3%A9&a=2 HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert json.loads(body) == {"path": "/open", "query": {"a": "1", "b": "é"}}
        lines = head.decode().split("\r\n")
        assert f"Content-Length: {len(body)}" in lines
        assert "Connection: close" in lines
        assert any(line.startswith("Content-Security-Policy: default-src 'none'") for line in lines)
        writer.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET\r\n\r\n", 400),
        ("GET /open\r\n\r\n", 400),
        ("GET open HTTP/1.1\r\n\r\n", 400),
        ("GET http://x/open HTTP/1.1\r\n\r\n", 400),
        ("GET /open HTTP/2\r\n\r\n", 400),
        ("GET /open HTTP/1.1\r\nHost\r\n\r\n", 400),
        ("GET /open HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        ("GET /open HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        ("GET /open HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET /%ff HTTP/1.1\r\n\r\n", 400),
        ("GET /open?%ff HTTP/1.1\r\n\r\n", 400),
        (f"GET /open?{'&'.join('abcdefghijklmnopq')} HTTP/1.1\r\n\r\n", 400),
        ("GET /é HTTP/1.1\r\n\r\n", 400),
        ("BREW /open HTTP/1.1\r\n\r\n", 405),
        ("GET /open HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 413),
        ("GET /open HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (f"GET /open HTTP/1.1\r\nX: {'x' * 9000}\r\n\r\n", 431),
    ],
)
async def test_http_refuses_what_it_does_not_speak(head: str, status: int) -> None:
    async with serving() as served:
        assert (await served.ask(head))[0] == status


@pytest.mark.parametrize(
    ("request_line", "allow"),
    [
        ("POST /open", "GET, HEAD"),
        ("GET /act", "POST"),
        ("HEAD /act", "POST"),
        ("BREW /open", "GET, HEAD, POST"),
    ],
)
async def test_http_says_which_methods_are_answered(request_line: str, allow: str) -> None:
    async with serving() as served:
        head, _ = await served.answer(f"{request_line} HTTP/1.1\r\n\r\n")
        assert f"Allow: {allow}" in head.split("\r\n")
        head, _ = await served.answer("GET /open HTTP/1.1\r\n\r\n")
        assert "Allow" not in head


async def test_http_ends_with_a_client_that_hangs_up_or_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_request, "HEAD_S", 0.05)
    async with serving() as served:
        _, writer = await served.connect()
        writer.close()
        assert (await served.ask("GET /open HTTP/1.1\r\n"))[0] == 408
        monkeypatch.undo()
        assert (await served.get("/open"))[0] == 200


async def test_http_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 2)
    async with serving() as served:
        held = []
        for count in (1, 2):
            held.append(await served.connect())
            async with asyncio.timeout(DEADLINE_S):
                while len(served.server._tasks) < count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert (await served.get("/open"))[0] == 200
        async with asyncio.timeout(DEADLINE_S):
            assert await end_of(held[0][0]) == b"", "the oldest idle one gives way"
        assert not held[1][0].at_eof()
        held[1][1].write(b"GET /open HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            assert b" 200 " in await end_of(held[1][0])


async def test_http_streams_hold_no_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 1)
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(f"GET /events HTTP/1.1\r\n{HERE}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            await reader.readuntil(b"event: begin")
        assert (await served.get("/open"))[0] == 200
        served.streams.publish("later", {})
        async with asyncio.timeout(DEADLINE_S):
            await reader.readuntil(b"event: later")
        writer.close()


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side has closed, or cut."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


LOOPS = pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])


def _reset(sock: socket.socket) -> None:
    """Close so that the other end sees a reset, not an end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@LOOPS
def test_http_client_that_resets_before_its_answer_ends_only_its_connection(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def run() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        async def late(request: HttpRequest) -> Answer:
            asked.set()
            await gone.wait()
            return Answer(b"late")

        async with serving() as served:
            served.server._routes = {"/late": Route(Access.OPEN, late)}
            client = socket.create_connection(served.server.address)
            client.sendall(b"GET /late HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(DEADLINE_S):
                await asked.wait()
                _reset(client)
                # The loop is to see the reset first.
                await asyncio.sleep(0.1)
                gone.set()
                while served.server._tasks:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@LOOPS
def test_http_client_that_reads_late_ends_only_its_connection(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def run() -> None:
        async def large(request: HttpRequest) -> Answer:
            return Answer(bytes(int(request.query["size"])))

        async with serving() as served:
            served.server._routes = {"/large": Route(Access.OPEN, large)}
            # So small that a part of each answer waits in the process when the connection is closed.
            served.server._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            for size in range(5_000, 60_000, 5_000):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(served.server.address)
                reader, writer = await asyncio.open_connection(sock=client)
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(f"GET /large?size={size} HTTP/1.1\r\n\r\n".encode())
                async with asyncio.timeout(DEADLINE_S):
                    while not served.server.answered:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                    reader._transport.resume_reading()  # type: ignore[attr-defined]
                    assert len(await reader.read()) > size
                    while served.server._tasks:  # noqa: ASYNC110
                        await asyncio.sleep(0.001)
                served.server.answered.clear()
                writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@LOOPS
def test_events_client_that_resets_ends_only_its_connection(
    loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "BEAT_S", 0.05)

    async def run() -> None:
        async with serving() as served:
            client = socket.create_connection(served.server.address)
            client.sendall(f"GET /events HTTP/1.1\r\n{HERE}\r\n\r\n".encode())
            async with asyncio.timeout(DEADLINE_S):
                while not len(served.streams):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                _reset(client)
                while len(served.streams) or served.server._tasks:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_http_port_that_is_taken_is_a_configuration_error() -> None:
    async with serving() as served, asyncio.TaskGroup() as tasks:
        host, port = served.server.address
        with pytest.raises(ConfigError, match="cannot listen on"):
            HttpServer(f"{host}:{port}", b"", {}, tasks.create_task, lambda *_: None)


# --- server-sent events ---------------------------------------------------------------------------


async def _block(reader: asyncio.StreamReader) -> str:
    async with asyncio.timeout(DEADLINE_S):
        return (await reader.readuntil(b"\n\n")).decode()


async def _stream(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await served.connect()
    writer.write(f"GET /events HTTP/1.1\r\n{HERE}\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE_S):
        head = await reader.readuntil(b"\r\n\r\n")
    assert b"text/event-stream" in head
    return reader, writer


async def test_events_begin_with_the_state_and_go_on() -> None:
    async with serving() as served:
        reader, writer = await _stream(served)
        assert await _block(reader) == 'event: begin\ndata: {"n":0}\n\n'
        served.streams.publish("news", {"text": "a\nb"})
        assert await _block(reader) == 'event: news\ndata: {"text":"a\\nb"}\n\n'
        writer.close()
        async with asyncio.timeout(DEADLINE_S):
            while len(served.streams):
                served.streams.publish("news", {})
                await asyncio.sleep(0.01)


async def test_events_of_a_head_are_its_head_alone() -> None:
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(b"HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"\r\n\r\n")
        assert not len(served.streams)
        writer.close()


async def test_events_are_written_to_so_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "STREAMS_MAX", 1)
    async with serving() as served:
        first, writer = await _stream(served)
        await _block(first)
        second, other = await _stream(served)
        assert "1 pages are open already" in await _block(second)
        assert await second.read() == b""
        writer.close()
        other.close()


async def test_events_drop_a_client_that_does_not_read_and_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "STREAM_BYTES_MAX", 100_000)
    async with serving() as served:
        reader, writer = await _stream(served)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(DEADLINE_S):
            while served.streams.dropped == 0:
                served.streams.publish("news", "x" * 50_000)
                await asyncio.sleep(0)
        assert len(served.streams) == 0
        assert served.streams.sent_bytes < 20_000_000
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        last = ""
        async with asyncio.timeout(DEADLINE_S):
            while chunk := await reader.read(1 << 20):
                last = (last + chunk.decode())[-200:]
        assert "event: dropped" in last
        assert "you read too slowly" in last
        writer.close()


async def test_events_let_a_client_read_its_beginning_however_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "STREAM_BYTES_MAX", 100_000)
    async with serving() as served:
        served.streams._begin = lambda: [("begin", "x" * 20_000_000)]
        reader, writer = await served.connect()
        writer.write(f"GET /events HTTP/1.1\r\n{HERE}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            while not len(served.streams):  # noqa: ASYNC110
                await asyncio.sleep(0)
        for _ in range(3):
            served.streams.publish("news", {})
        assert served.streams.dropped == 0
        # Its bound counts what has come since.
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        while served.streams.dropped == 0:
            served.streams.publish("news", "x" * 60_000)
        assert served.streams.sent_bytes < 30_000_000
        writer.close()


async def test_events_begin_before_what_follows_of_who_listens() -> None:
    async with serving() as served:
        served.streams._on_change = lambda: served.streams.publish("news", {})
        reader, writer = await _stream(served)
        assert (await _block(reader)).startswith("event: begin")
        writer.close()


def test_http_head_is_read_into_names_in_lower_case() -> None:
    request = parse_head(b"GET /a%20b HTTP/1.0\r\nHOST: h\r\nX-Y:  z \r\n\r\n")
    assert request == HttpRequest("GET", "/a b", {}, {"host": "h", "x-y": "z"})
    with pytest.raises(HttpError):
        parse_head(b"\r\n\r\n")
