"""The page with 256 nodes: fed by the daemon's own HTTP server, from reports that are made up.

What 256 real daemons cost is no matter of a test on two cores; what the page does with their reports is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bmgd.shell.event_stream import EventStreams
from bmgd.shell.http_request import HttpRequest
from bmgd.shell.http_server import Access, Answer, HttpServer, Route
from bmgd.shell.web import PAGE, _file
from bmgd.topology import BinomialGraph
from tests.page.browser import needs_chromium, shown

pytestmark = needs_chromium

SIZE = 256
ROUNDS = 12
HEAP_BYTES_MAX = 200e6
FRAME_MS_MAX = 250.0
GRAPH = BinomialGraph(SIZE)
Record = Callable[[str, object], None]


def report(node: int, second: int) -> dict[str, Any]:
    """A report of a node with all its links, and some traffic."""
    carried = 1000 * second * (1 + node % 7) ** 4
    links = [[peer, 0, 3, 9000, 0, carried, carried, 0, 250] for peer in GRAPH.neighbors(node)]
    return {
        "id": node,
        "state": "ready",
        "digest": "ab" * 16,
        "incarnation": "4294967297",
        "record_version": 0,
        "suspects": [],
        "wanted": list(GRAPH.neighbors(node)),
        "isolated": False,
        "stands_aside": False,
        "links": links,
        "version": "0",
        "uptime_s": 10.0 + second,
        "sent_bytes": carried * len(links),
        "received_bytes": carried * len(links),
        "delivered": 5 * second,
        "backlog_bytes": 0,
        "cpu_ms": 10 * second,
        "rss_bytes": 27_000_000,
    }


SUMMARY = {
    "alive": SIZE,
    "dead": 0,
    "left": 0,
    "reported": SIZE,
    "silent": [],
    "agree": "yes",
    "digests": {"ab" * 16: SIZE},
    "unsettled": [],
    "isolated": [],
    "stand_aside": [],
    "suspected": [],
}


def document() -> dict[str, Any]:
    members = [
        {"id": i, "status": "alive", "incarnation": "1", "version": 0, "address": f"host{i}:7400"}
        for i in range(SIZE)
    ]
    return {
        "own_id": 0,
        "cluster": "many",
        "can_trace": False,
        "members": members,
        "reports": [report(i, 0) for i in range(SIZE)],
        "summary": SUMMARY,
        "events": [],
    }


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, EventStreams]]:
    """The page's files, and a stream of events."""
    streams = EventStreams(lambda: [("cluster", document())], lambda: None)

    async def events(request: HttpRequest) -> EventStreams:
        return streams

    def file_at(path: str) -> Route:
        async def give(request: HttpRequest) -> Answer:
            return await _file(*PAGE[path], request)

        return Route(Access.OPEN, give)

    async with asyncio.TaskGroup() as tasks:
        routes = {path: file_at(path) for path in PAGE} | {"/events": Route(Access.READ, events)}
        server = HttpServer("127.0.0.1:0", b"", routes, tasks.create_task, lambda *_: None)
        await server.start()
        host, port = server.address
        try:
            yield f"http://{host}:{port}/", streams
        finally:
            server.close()


async def test_page_of_256_nodes_is_drawn_in_time_and_its_memory_is_bounded(
    record_property: Record,
) -> None:
    async with serving() as (url, streams), shown(url) as page:
        await page.until(
            "every node is in the table",
            lambda rows: rows == SIZE,
            "return document.querySelectorAll('#nodes tbody tr').length",
        )
        edges = sum(len(GRAPH.neighbors(i)) for i in range(SIZE)) // 2
        await page.until(
            "all links are counted",
            lambda text: text == str(edges),
            "return document.querySelector('#count-links').innerText",
        )
        began_s = time.monotonic()
        for second in range(1, ROUNDS + 1):
            for node in range(SIZE):
                streams.publish("report", report(node, second))
                if node % 26 == 0:
                    await asyncio.sleep(0.1)
            if second == 6:
                for kind in ("record", "links", "suspects"):
                    streams.publish("event", {"n": second, "t": 1, "kind": kind, "node": 3})
        took_s = time.monotonic() - began_s
        await page.until(
            "the last report is shown",
            lambda text: text.startswith(f"{5:d}"),
            "return document.querySelector('#nodes tr[data-node=\"255\"]').children[4].innerText",
        )
        slowest_ms, frames = await page.script("return [bmgdRing.slowest_ms, bmgdRing.frames]")
        # The browser may not run in the middle of a frame; then the next one counts.
        frame_ms = await page.until(
            "a frame is drawn in time",
            lambda last_ms: last_ms < FRAME_MS_MAX,
            "bmgdRing.redraw(); return bmgdRing.last_ms",
        )
        heap = await page.script("return performance.memory.usedJSHeapSize")
        record_property("frame_ms", round(frame_ms, 1))
        record_property("slowest_frame_ms", round(slowest_ms, 1))
        record_property("frames_per_s", round(frames / took_s, 1))
        record_property("heap_mb", round(heap / 1e6, 1))
        print(frame_ms, slowest_ms, frames / took_s, heap / 1e6, streams.sent_bytes / took_s)
        assert frames > ROUNDS
        assert heap < HEAP_BYTES_MAX
        assert streams.dropped == 0
        await page.picture("8-many")
        assert await page.complaints() == []
