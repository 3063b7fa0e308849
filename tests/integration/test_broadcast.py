"""Broadcasts on real processes: to every node, around one that was killed, and no reader stalls them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bmgd.client import Message
from bmgd.errors import DeadError, PartialError
from tests.integration.cluster import DEADLINE_S, launched, until, until_true

SIZE = 16
TOPIC = "news"


async def test_best_effort_broadcast_reaches_all_at_16_before_and_after_a_kill(
    tmp_path: Path,
) -> None:
    async with launched(SIZE, tmp_path) as cluster, AsyncExitStack() as stack:
        # Where both ends have dialled one link is closed, and with it what is on its way there.
        await cluster.at_rest()
        taken: dict[int, list[Message]] = {
            number: await stack.enter_async_context(cluster.reading(number, TOPIC))
            for number in range(SIZE)
        }
        source = await cluster.daemon(3)

        def all_have(payload: bytes, but: int | None = None) -> bool:
            return all(
                sum(each.payload == payload for each in messages) == 1
                for number, messages in taken.items()
                if number != but
            )

        await source.broadcast(b"before", topic=TOPIC, quality="best-effort")
        await until_true("everybody has it", lambda: all_have(b"before"))

        victim = 11
        await cluster.kill(victim)
        await cluster.at_rest()
        await source.broadcast(b"after", topic=TOPIC, quality="best-effort")
        await until_true("the others have it", lambda: all_have(b"after", but=victim), DEADLINE_S)
        assert all_have(b"before")
        counts = (await source.status())["to_many"]["best_effort"]
        assert (counts["sent"], counts["no_way"]) == (2, 0)


async def test_reliable_broadcasts_of_a_source_that_is_killed_reach_all_or_none(
    tmp_path: Path,
) -> None:
    async with launched(SIZE, tmp_path) as cluster, AsyncExitStack() as stack:
        source = 5
        others = [number for number in range(SIZE) if number != source]
        taken: dict[int, list[Message]] = {
            number: await stack.enter_async_context(cluster.reading(number, TOPIC))
            for number in others
        }
        daemon = await cluster.daemon(source)
        report = await daemon.broadcast(b"first", topic=TOPIC, timeout=DEADLINE_S)
        assert report.confirmed == frozenset(range(SIZE))

        sending = [
            asyncio.create_task(daemon.broadcast(b"%d" % number, topic=TOPIC))
            for number in range(200)
        ]
        await until_true("some have come", lambda: any(len(got) > 20 for got in taken.values()))
        await cluster.kill(source)
        await asyncio.gather(*sending, return_exceptions=True)
        await cluster.at_rest()

        async def all_have_the_same() -> list[str]:
            counts = {number: len(got) for number, got in taken.items()}
            return [] if len(set(counts.values())) == 1 else [f"broadcasts taken: {counts}"]

        await until("all have as many", all_have_the_same)
        payloads = [[each.payload for each in got] for got in taken.values()]
        assert payloads == [payloads[0]] * len(others)
        assert payloads[0] == [b"first", *(b"%d" % n for n in range(len(payloads[0]) - 1))]


async def test_long_broadcast_comes_whole_to_some_and_in_parts_to_others(tmp_path: Path) -> None:
    size, payload = 8, bytes(range(256)) * (3 << 12)
    async with launched(size, tmp_path) as cluster, AsyncExitStack() as stack:

        async def read(number: int) -> bytes:
            daemon = await cluster.daemon(number)
            most = len(payload) if number % 2 else 1 << 16
            async with daemon.subscribe(TOPIC, max_message=most) as messages:
                reading.append(number)
                message = await anext(messages)
                assert (message.broadcast, message.size) == (True, len(payload))
                if not message.is_long:
                    return message.payload
                return b"".join([part async for part in message.parts()])

        reading: list[int] = []
        tasks = [asyncio.create_task(read(number)) for number in range(size)]
        stack.callback(lambda: [task.cancel() for task in tasks])
        await until_true("all read", lambda: len(reading) == size)
        source = await cluster.daemon(2)
        report = await source.broadcast(payload, topic=TOPIC, timeout=DEADLINE_S)
        assert report.confirmed == frozenset(range(size))
        async with asyncio.timeout(DEADLINE_S):
            assert set(await asyncio.gather(*tasks)) == {payload}


async def test_reliable_multicast_shares_frames_and_names_whom_it_lost(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path) as cluster, AsyncExitStack() as stack:
        await cluster.at_rest()
        taken = {
            number: await stack.enter_async_context(cluster.reading(number, TOPIC))
            for number in range(SIZE)
        }
        source, victim = await cluster.daemon(3), 11
        report = await source.multicast([range(SIZE)], b"all", topic=TOPIC, timeout=DEADLINE_S)
        assert report.confirmed == frozenset(range(SIZE))
        counts = (await source.status())["to_many"]["multicast"]
        assert (counts["sent"], counts["lost"]) == (1, 0)
        assert counts["shared"] > 0
        await cluster.kill(victim)
        with pytest.raises(PartialError) as partial:
            await source.multicast([range(8, SIZE)], b"rest", topic=TOPIC, timeout=DEADLINE_S)
        assert partial.value.report.confirmed == frozenset(range(8, SIZE)) - {victim}
        assert isinstance(partial.value.report.failed[victim], DeadError)
        # Confirmed means held by the daemon; its program reads it a moment later.
        readers = range(8, SIZE)
        await until_true(
            "all read it", lambda: all(len(taken[i]) == 2 for i in readers if i != victim)
        )
        for number in set(range(SIZE)) - {victim}:
            payloads = [each.payload for each in taken[number]]
            assert payloads == ([b"all", b"rest"] if number >= 8 else [b"all"])
