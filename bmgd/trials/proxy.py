"""The fault proxy: a process that every connection between a cluster's daemons passes.

    daemon a ──dials──▶ 127.0.0.1:P+b  gate b │ splice │ ──▶ 127.0.0.1:L+b  daemon b listens

All daemons advertise the addresses of their gates, so their configurations are equal (and with them
the fingerprint in their hellos), and each binds another port behind its gate. Orders come over a
Unix socket, one JSON line each way, from one controller at a time:

    {"order": "cut", "links": [[1, 2]], "one_way": false}     {"order": "half-open", "links": [[1, 2]]}
    {"order": "part", "groups": [[0, 1], [2, 3]], "one_way": false}      {"order": "reset", "links": null}
    {"order": "slow", "links": [], "nodes": [4], "delay_ms": 200, "bytes_per_second": 0}
    {"order": "mend", "links": null}     null means all

each answered by ``{"connections": …}`` or ``{"error": …}``. When the controller's connection ends,
however it ends, everything is mended: a killed `bmgd chaos` leaves no link cut.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import resource
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from bmgd.errors import LaunchError, RequestError
from bmgd.launcher.detour import Detour
from bmgd.trials.gate import Gate
from bmgd.trials.impairments import Impairments, Pair, Slowness
from bmgd.trials.priority import hurry
from bmgd.trials.splice import Phase, Splice

FOLLOW_S: Final = 0.01
"""How often shut gates look for daemons that began."""

FOLLOWS_OF_SHUT: Final = 20
ORDER_BYTES_MAX: Final = 1 << 20
LINKS_MAX: Final = 1 << 17
NUMBER_MAX: Final = 10**12
"""Of a delay in milliseconds, or of a rate in bytes per second: no plan has a greater one."""


class Proxy:
    """All gates and splices of one cluster.

    Args:
        routes: one for each daemon.

    Attributes:
        impairments: what is wrong now.
    """

    def __init__(self, routes: Sequence[Detour]) -> None:
        self.impairments = Impairments()
        self._all = [Gate(r.node_id, r.outside, r.inside, self._on_accepted) for r in routes]
        self._gates = {gate.node_id: gate for gate in self._all if gate.node_id is not None}
        self._splices: set[Splice] = set()

    def follow(self, *, all_gates: bool = True) -> None:
        """Open gates whose daemons began; shut (all of them looked at) those whose daemons ended."""
        for gate in self._all:
            if all_gates or not gate.is_open:
                gate.follow()

    # --- what splices tell --------------------------------------------------------------------

    def _on_accepted(self, gate: Gate, near: socket.socket) -> None:
        self._splices.add(Splice(self, gate, near))

    def on_identified(self, gate: Gate, node_id: int) -> None:
        """A joiner's gate: whose it is may change, when two joiners were given one id."""
        self._gates[node_id] = gate

    def on_end_closed(self, node_id: int) -> None:
        """A process may have ended: shut its gate before its peers hear of it and dial."""
        gate = self._gates.get(node_id)
        if gate is not None and gate.is_open:
            gate.follow()

    def on_refused(self, gate: Gate) -> None:
        """Nobody listens behind it: whoever dials again shall be refused too."""
        gate.close()

    def on_closed(self, splice: Splice) -> None:
        """A splice is over."""
        self._splices.discard(splice)

    # --- orders -------------------------------------------------------------------------------

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order.

        Raises:
            RequestError: it is not one.
        """
        match order:
            case {"order": "cut", "links": links, **rest}:
                self.impairments.cut(_pairs(links), one_way=_flag(rest))
            case {"order": "part", "groups": groups, **rest}:
                self.impairments.part([_ids(group) for group in _rows(groups)], one_way=_flag(rest))
            case {"order": "slow", "links": links, "nodes": nodes, "delay_ms": delay_ms, **rest}:
                rate = _number(rest.get("bytes_per_second", 0))
                slowness = Slowness(_number(delay_ms) / 1000, rate)
                self.impairments.slow(_pairs(links), _ids(nodes), slowness)
            case {"order": "half-open", "links": links}:
                for splice in self._between(_pairs(links)):
                    splice.go_dark()
            case {"order": "reset", "links": links}:
                for splice in self._between(None if links is None else _pairs(links)):
                    splice.reset()
            case {"order": "mend", "links": links}:
                self.mend(None if links is None else _pairs(links))
            case {"order": "show"}:
                pass
            case _:
                raise RequestError("not an order of the fault proxy")
        for splice in list(self._splices):
            splice.update()
        return {"connections": len(self._splices)}

    def mend(self, links: list[Pair] | None = None) -> None:
        """Take faults back; half-open connections are then found dead by both ends."""
        self.impairments.mend(links)
        for splice in self._between(links):
            if splice.phase is Phase.DARK:
                splice.reset()
        for splice in list(self._splices):
            splice.update()

    def _between(self, links: Iterable[Pair] | None) -> list[Splice]:
        if links is None:
            return list(self._splices)
        wanted = {frozenset(pair) for pair in links}
        return [s for s in self._splices if frozenset((s.dialer, s.destination)) in wanted]

    def stop(self) -> None:
        """Close everything."""
        for gate in self._all:
            gate.close()
        for splice in list(self._splices):
            splice.close()


def _rows(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > LINKS_MAX:
        raise RequestError(f"not a list of at most {LINKS_MAX}")
    return value


def _ids(value: Any) -> list[int]:
    rows = _rows(value)
    if not all(type(row) is int for row in rows):
        raise RequestError("not a list of node ids")
    return rows


def _pairs(value: Any) -> list[Pair]:
    pairs = [tuple(_ids(row)) for row in _rows(value)]
    if not all(len(pair) == 2 for pair in pairs):
        raise RequestError("a link is two node ids")
    return [(pair[0], pair[1]) for pair in pairs]


def _flag(rest: dict[str, Any]) -> bool:
    return rest.get("one_way", False) is True


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_MAX:
        raise RequestError(f"a delay or a rate is a number in 0..{NUMBER_MAX}")
    return float(value)


# --- the process ----------------------------------------------------------------------------------


class _Orders:
    """The Unix socket where one controller at a time gives orders."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._busy = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one controller; when it goes away, everything is mended."""
        if self._busy:
            await _answer(writer, {"error": "another trial uses this proxy"})
            writer.close()
            return
        self._busy = True
        try:
            while line := await reader.readline():
                await _answer(writer, self._obey(line))
        except (ConnectionError, ValueError):
            # Gone, or a line that is longer than any order.
            pass
        finally:
            self._busy = False
            self._proxy.mend()
            writer.close()

    def _obey(self, line: bytes) -> dict[str, Any]:
        try:
            order = json.loads(line)
            if not isinstance(order, dict):
                raise RequestError("not an order of the fault proxy")
            return self._proxy.obey(order)
        except (RequestError, ValueError, RecursionError) as error:
            return {"error": str(error)}


async def _answer(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    writer.write(json.dumps(document).encode() + b"\n")
    with suppress(ConnectionError):
        await writer.drain()


async def _serve(path: str, routes: Sequence[Detour]) -> None:
    proxy = Proxy(routes)
    umask = os.umask(0o177)
    try:
        orders = _Orders(proxy)
        server = await asyncio.start_unix_server(orders.serve, path, limit=ORDER_BYTES_MAX)
    except OSError as error:
        raise LaunchError(f"cannot listen at {path}: {error.strerror}") from None
    finally:
        os.umask(umask)
    try:
        while True:
            # That a daemon ended is seen by its connections; one without any can wait a little.
            proxy.follow()
            for _ in range(FOLLOWS_OF_SHUT):
                await asyncio.sleep(FOLLOW_S)
                proxy.follow(all_gates=False)
    finally:
        proxy.stop()
        server.close()


def run_proxy(path: str, routes: Sequence[Detour]) -> int:
    """Run the proxy until it is killed.

    Args:
        path: of its Unix socket.
        routes: one for each daemon.

    Returns:
        The exit code, when it cannot go on.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    faulthandler.register(signal.SIGUSR1)
    # It is the network of many processes: while it waits for a core, all of them seem silent.
    hurry()
    factory = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_serve(path, routes))
    except LaunchError as error:
        print(f"bmgd: {error}", flush=True)
    return 1
