"""What one link costs, from the dial until both ends have it, with TLS and without.

Two transports in one process, on loopback: so the CPU time is that of both ends. Names are not resolved,
and no core decides: the acceptor welcomes each hello at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

from bmgd.config import Config
from bmgd.core.effects import Dial, Welcome
from bmgd.core.events import DialFailed, Event, Greeted, LinkUp
from bmgd.peers import PeerList
from bmgd.shell.addresses import bind_listener
from bmgd.shell.engine import Engine
from bmgd.shell.tls import TlsSide
from bmgd.shell.transport import Transport
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, LinkId, NodeId
from bmgd.wire.hello import Identity

LIMIT_S = 10
TIMEOUT_MS = 1500
WARM_UP = 10
PEERS = "127.0.0.1:{7400+id}"

Row = dict[str, Any]


class End:
    """One end: what came of its hellos and dials.

    Args:
        node_id: whose end it is.
        tls: its certificate, or None.
    """

    def __init__(self, node_id: int, tls: TlsSide | None) -> None:
        listener = bind_listener("127.0.0.1:0")
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.come = asyncio.Event()
        self.up: list[LinkUp] = []
        identity = Identity(
            "bmgd", 2, bytes(16), NodeId(node_id), self.address, has_tls=tls is not None
        )
        self.transport = Transport(
            identity,
            PEERS,
            listener,
            TIMEOUT_MS,
            self._take,
            asyncio.ensure_future,
            lambda event, text: None,
            Incarnation((1 << 32) + node_id),
            Engine(),
            tls,
        )
        self.transport.start()

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Greeted):
                # Not within the call that tells it.
                asyncio.get_running_loop().call_soon(self._welcome, event.link)
            elif isinstance(event, LinkUp):
                self.up.append(event)
                self.come.set()
            elif isinstance(event, DialFailed):
                raise RuntimeError(f"no link: {event}")

    def _welcome(self, link: LinkId) -> None:
        self.transport.hellos.welcome(Welcome(link, UNKNOWN_INCARNATION))
        self.transport.links.flush()

    async def dial(self, other: End, number: int) -> None:
        """One link to the other end, until this one has it."""
        self.come.clear()
        dial = Dial(NodeId(0), other.address, UNKNOWN_INCARNATION, number, LIMIT_S * 1_000_000_000)
        self.transport.dials.dial(dial)
        async with asyncio.timeout(LIMIT_S):
            await self.come.wait()
        self.transport.links.close(self.up.pop().link, "measured")
        self.transport.links.flush()


def side(flags: tuple[str, ...], node_id: int) -> TlsSide | None:
    """The certificate that the flags of `bmgd run` name; None without such flags."""
    if not flags:
        return None
    named = dict(zip(flags[::2], flags[1::2], strict=True))
    cert, key = (named[f"--tls-{name}"].format(id=node_id) for name in ("cert", "key"))
    config = Config(
        NodeId(node_id),
        2,
        PeerList.parse(PEERS, 2),
        tls_cert=cert,
        tls_key=key,
        tls_ca=named["--tls-ca"],
        tls_ids=named["--tls-ids"],
    )
    return TlsSide(config)


async def _linked(flags: tuple[str, ...], links: int) -> Row:
    acceptor, dialer = End(0, side(flags, 0)), End(1, side(flags, 1))
    for number in range(WARM_UP):
        await dialer.dial(acceptor, number)
    times, began_s = [], time.process_time()
    for number in range(links):
        dialled_s = time.perf_counter()
        await dialer.dial(acceptor, WARM_UP + number)
        times.append(time.perf_counter() - dialled_s)
    used_s = time.process_time() - began_s
    dialer.transport.stop()
    acceptor.transport.stop()
    return {
        "link_ms": round(median(times) * 1e3, 3),
        "cpu_ms": round(used_s / links * 1e3, 3),
    }


def link(flags: tuple[str, ...], links: int) -> Row:
    """Make links one after the other; the median time, and the mean CPU time of both ends."""
    return asyncio.run(_linked(flags, links))
