"""The contents of the daemon's HTTP port: probes, metrics, the page, its events and its data.

`http_server.py` says who may ask. Everything here reads; only a trace makes the daemon do something.
It is imported only with --http: a daemon without a port pays nothing.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import resources
from typing import Any, Final

from bmgd.core.commands import ShowReport, ShowStatus, TraceFrom
from bmgd.errors import BmgdError
from bmgd.readiness import unready
from bmgd.shell import exposition
from bmgd.shell.event_stream import EventStreams
from bmgd.shell.http_request import HttpError, HttpRequest
from bmgd.shell.http_server import Access, Answer, HttpServer, Note, Route, Spawn
from bmgd.shell.metrics import Sources, metrics_text
from bmgd.shell.node_report import link_rows
from bmgd.shell.surveying import Surveying
from bmgd.types import NODE_ID_MAX, NodeId

TRACE_S: Final = 5.0

PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/pictures.js": ("pictures.js", "text/javascript; charset=utf-8"),
    "/ring.js": ("ring.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The page's files in `bmgd.shell.page`, by their paths."""


class Web:
    """The HTTP port of one daemon.

    Args:
        address: ``host:port``.
        token: what clients show, or b"".
        surveying: the daemon's.
        spawn: runs a connection in the daemon's task group.
        note: writes a line of log.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(
        self, address: str, token: bytes, surveying: Surveying, spawn: Spawn, note: Note
    ) -> None:
        self._surveying = surveying
        self._streams = EventStreams(self._begin_stream, self._on_streams)
        self._server = HttpServer(address, token, self._routes(), spawn, note)
        surveying.publish = self._streams.publish
        surveying.can_trace = bool(token)

    async def start(self) -> None:
        """Begin to accept."""
        await self._server.start()

    def close(self) -> None:
        """Close the port, and cut its clients."""
        self._server.close()

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self._server.address
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def _routes(self) -> dict[str, Route]:
        routes = {path: Route(Access.OPEN, partial(_file, *PAGE[path])) for path in PAGE}
        return routes | {
            "/healthz": Route(Access.OPEN, self._healthz),
            "/readyz": Route(Access.OPEN, self._readyz),
            "/metrics": Route(Access.READ, self._metrics),
            "/events": Route(Access.READ, self._events),
            "/api/cluster": Route(Access.READ, self._cluster),
            "/api/status": Route(Access.READ, self._status),
            "/api/trace": Route(Access.ACT, self._trace),
        }

    # --- the page's events --------------------------------------------------------------------

    def _begin_stream(self) -> list[tuple[str, object]]:
        return [("cluster", self._surveying.cluster_document())]

    def _on_streams(self) -> None:
        self._surveying.watch(held=len(self._streams) > 0)

    # --- answers ------------------------------------------------------------------------------

    async def _healthz(self, request: HttpRequest) -> Answer:
        return _text("ok", 200)

    async def _readyz(self, request: HttpRequest) -> Answer:
        if not self._surveying.is_member:
            return _text("joining: not a member", 503)
        problem = unready(await self._surveying.result(ShowReport()))
        return _text(problem or "ready", 503 if problem else 200)

    async def _metrics(self, request: HttpRequest) -> Answer:
        self._check_member()
        inside = self._surveying.inside
        status = await self._surveying.result(ShowStatus())
        per_link = request.query.get("links") == "1"
        links: list[Any] = []
        if per_link:
            facts = await self._surveying.result(ShowReport())
            links = link_rows(facts["links"], inside.descriptors(), facts["id"])
        sources = Sources(
            inside.counts,
            status,
            inside.describe_process(),
            links,
            inside.vitals,
            inside.totals(),
            self._server.answered,
            (len(self._streams), self._streams.dropped, self._streams.sent_bytes),
        )
        return Answer(metrics_text(sources, per_link=per_link).encode(), exposition.CONTENT_TYPE)

    async def _events(self, request: HttpRequest) -> EventStreams:
        self._check_member()
        return self._streams

    async def _cluster(self, request: HttpRequest) -> Answer:
        self._check_member()
        return Answer.of(self._surveying.cluster_document())

    async def _status(self, request: HttpRequest) -> Answer:
        self._check_member()
        status = await self._surveying.result(ShowStatus())
        return Answer.of({**status, **self._surveying.inside.describe()})

    async def _trace(self, request: HttpRequest) -> Answer:
        self._check_member()
        source, destination = _id(request, "from"), _id(request, "to")
        try:
            found = await self._surveying.result(TraceFrom(source, destination, int(TRACE_S * 1e9)))
        except BmgdError as error:
            return Answer.of({"error": str(error)}, 409)
        return Answer.of({"path": list(found["path"]), "rtt_us": found["rtt_ns"] // 1000})

    def _check_member(self) -> None:
        if not self._surveying.is_member:
            raise HttpError(503, "joining: this daemon has no id yet")


def _text(line: str, status: int) -> Answer:
    return Answer(f"{line}\n".encode(), "text/plain; charset=utf-8", status)


def _id(request: HttpRequest, name: str) -> NodeId:
    text = request.query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= NODE_ID_MAX):
        raise HttpError(400, f"{name} must be a node id")
    return NodeId(int(text))


async def _file(name: str, content_type: str, request: HttpRequest) -> Answer:
    return Answer(_read(name), content_type)


@cache
def _read(name: str) -> bytes:
    return resources.files("bmgd.shell.page").joinpath(name).read_bytes()
