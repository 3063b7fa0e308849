"""Broadcasts on real processes: to every node, around one that was killed, and no reader stalls them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from bmgd.client import Message
from tests.integration.cluster import DEADLINE_S, launched, until_true

SIZE = 16
TOPIC = "news"


async def test_best_effort_broadcast_reaches_all_at_16_before_and_after_a_kill(
    tmp_path: Path,
) -> None:
    async with launched(SIZE, tmp_path) as cluster, AsyncExitStack() as stack:
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
