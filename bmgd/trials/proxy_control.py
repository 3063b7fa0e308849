"""The side of the fault proxy's controller: orders over its Unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from bmgd.errors import NoDaemonError, RequestError, SilentDaemonError
from bmgd.trials.impairments import Pair

ANSWER_S: Final = 30.0


class ProxyControl:
    """One controller's connection; `controlling` makes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def cut(self, links: Sequence[Pair], *, one_way: bool = False) -> None:
        """Hold what passes links; with `one_way` only what the first id of each sends."""
        await self.order(order="cut", links=list(links), one_way=one_way)

    async def part(self, groups: Sequence[Sequence[int]], *, one_way: bool = False) -> None:
        """Cut everything between groups; with `one_way` group 0 still hears the others."""
        rows = [list(group) for group in groups]
        await self.order(order="part", groups=rows, one_way=one_way)

    async def slow(
        self,
        links: Sequence[Pair],
        nodes: Sequence[int],
        delay_ms: float,
        bytes_per_second: float = 0,
    ) -> None:
        """Delay every byte on links, and on all links of nodes."""
        rate = {"delay_ms": delay_ms, "bytes_per_second": bytes_per_second}
        await self.order(order="slow", links=list(links), nodes=list(nodes), **rate)

    async def half_open(self, links: Sequence[Pair]) -> None:
        """Let the connections of links die without telling an end."""
        await self.order(order="half-open", links=list(links))

    async def reset(self, links: Sequence[Pair] | None = None) -> None:
        """Break the connections of links, or all, at once."""
        await self.order(order="reset", links=None if links is None else list(links))

    async def mend(self, links: Sequence[Pair] | None = None) -> None:
        """Take back what is wrong with links, or with everything."""
        await self.order(order="mend", links=None if links is None else list(links))

    async def order(self, **order: Any) -> dict[str, Any]:
        """Give an order and wait until it is carried out.

        Raises:
            RequestError: the proxy cannot do it.
            NoDaemonError: the proxy is gone.
            SilentDaemonError: no answer within `ANSWER_S`.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                self._writer.write(json.dumps(order, separators=(",", ":")).encode() + b"\n")
                await self._writer.drain()
                line = await self._reader.readline()
        except TimeoutError:
            raise SilentDaemonError(
                f"the fault proxy has not answered for {ANSWER_S:g} s"
            ) from None
        except OSError as error:
            raise NoDaemonError(f"the fault proxy is gone: {error}") from None
        if not line:
            raise NoDaemonError("the fault proxy is gone")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RequestError(f"the fault proxy: {answer['error']}")
        return answer


@asynccontextmanager
async def controlling(path: str) -> AsyncIterator[ProxyControl]:
    """Control the proxy at a path; when the block ends, it mends everything.

    Raises:
        NoDaemonError: no proxy is there.
        RequestError: another controls it.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise NoDaemonError(f"no fault proxy at {path}: {error.strerror}") from None
    try:
        control = ProxyControl(reader, writer)
        await control.order(order="show")
        yield control
        await control.mend()
    finally:
        writer.close()
