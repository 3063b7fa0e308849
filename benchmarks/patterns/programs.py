"""The programs of some nodes, in one process: they read, and send what the plan says.

This file is run by itself, for nats-py by another interpreter, so it imports nothing of the benchmarks.
Its standard input has the plan in one line, and "go" in another when all have said that they are ready.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

CREDIT_BYTES = 1 << 20
TAKEN_MAX = 1000
FLUSH_S = 120.0
Plan = dict[str, Any]
"""`nodes`: the ids that are here; `addresses`, `sends` (a list of ids, in order) and `expects` (a number)
of each, by its id as a text; `topic`; `payload_bytes`."""
Part = Callable[[], Awaitable[None]]


async def _bmgd_program(plan: Plan, node: str, stack: AsyncExitStack) -> tuple[Part, Part]:
    import bmgd

    daemon = await stack.enter_async_context(bmgd.connect(plan["addresses"][node]))
    subscription = daemon.subscribe(plan["topic"], credit_bytes=CREDIT_BYTES)
    messages = await stack.enter_async_context(subscription)
    payload = bytes(plan["payload_bytes"])

    async def read() -> None:
        got = 0
        while got < plan["expects"][node]:
            got += len(await messages.take(TAKEN_MAX))

    async def send() -> None:
        async with AsyncExitStack() as streams:
            writers: dict[int, bmgd.Writer] = {}
            for to in plan["sends"][node]:
                if to not in writers:
                    stream = daemon.stream(to, plan["topic"])
                    writers[to] = await streams.enter_async_context(stream)
                await writers[to].write(payload)

    return read, send


async def _nats_program(plan: Plan, node: str, stack: AsyncExitStack) -> tuple[Part, Part]:
    import nats  # type: ignore[import-not-found]

    connection = await nats.connect(plan["addresses"][node])
    stack.push_async_callback(connection.close)
    limits = {"pending_msgs_limit": -1, "pending_bytes_limit": -1}
    subscription = await connection.subscribe(f"{plan['topic']}.{node}", **limits)
    await connection.flush()
    payload = bytes(plan["payload_bytes"])

    async def read() -> None:
        left = plan["expects"][node]
        if left:
            async for _ in subscription.messages:
                left -= 1
                if not left:
                    break

    async def send() -> None:
        for to in plan["sends"][node]:
            await connection.publish(f"{plan['topic']}.{to}", payload)
        await connection.flush(timeout=FLUSH_S)

    return read, send


async def run(system: str, plan: Plan) -> None:
    """Connect, wait for the word, send and read; tells when the first was sent and the last was read."""
    begin = _bmgd_program if system == "bmgd" else _nats_program
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        parts = [await begin(plan, str(node), stack) for node in plan["nodes"]]
        _tell(ready=True)
        assert await loop.run_in_executor(None, sys.stdin.readline) == "go\n"
        began_ns = time.monotonic_ns()
        sending = asyncio.gather(*(send() for _, send in parts))
        await asyncio.gather(*(read() for read, _ in parts))
        ended_ns = time.monotonic_ns()
        await sending
        _tell(began_ns=began_ns, ended_ns=ended_ns)
        # Connections are counted before they are closed.
        assert await loop.run_in_executor(None, sys.stdin.readline) == "end\n"


def _tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], json.loads(sys.stdin.readline())))
