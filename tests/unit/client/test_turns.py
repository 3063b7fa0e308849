"""Who waits for room in a stream: called in order, and as many together as there is room for."""

from __future__ import annotations

import asyncio
import time

from bmgd.client.backlog import FULL_BYTES, PREFIX_BYTES
from bmgd.client.turns import Turns


async def begun(turns: Turns, sizes: list[int]) -> list[asyncio.Task[None]]:
    """Let messages of these sizes wait."""
    tasks = [asyncio.ensure_future(turns.wait(size)) for size in sizes]
    await asyncio.sleep(0)
    assert turns.count == len(sizes)
    return tasks


async def test_those_for_whom_there_is_room_are_called_and_hold_it_until_they_run() -> None:
    turns = Turns()
    tasks = await begun(turns, [100, 100, 100])
    for _ in range(2):
        # The second one has more than is left, as the last may; told again, nobody else is called.
        turns.call(100 + PREFIX_BYTES + 1, may_begin_long=True)
    await asyncio.gather(*tasks[:2])
    assert not tasks[2].done()
    assert turns.count == 1
    turns.call(1, may_begin_long=True)
    await tasks[2]
    assert turns.count == 0


async def test_long_message_is_called_alone_and_nobody_overtakes_it() -> None:
    turns = Turns()
    tasks = await begun(turns, [1, FULL_BYTES + 1, 1])
    turns.call(FULL_BYTES, may_begin_long=True)
    await tasks[0]
    turns.call(FULL_BYTES - 1, may_begin_long=True)
    turns.call(FULL_BYTES, may_begin_long=False)
    await asyncio.sleep(0)
    assert not tasks[1].done()
    turns.call(FULL_BYTES, may_begin_long=True)
    await tasks[1]
    assert not tasks[2].done()
    turns.call_all()
    await tasks[2]


async def test_thousands_who_are_called_and_give_up_together_cost_no_time() -> None:
    turns = Turns()
    tasks = await begun(turns, [1] * 20_000)

    async def give_up(task: asyncio.Task[None]) -> None:
        await asyncio.gather(task, return_exceptions=True)
        turns.call(FULL_BYTES, may_begin_long=True)

    turns.call(FULL_BYTES, may_begin_long=True)
    began_s = time.process_time()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*(give_up(task) for task in tasks))
    assert time.process_time() - began_s < 3
    assert turns.count == 0
