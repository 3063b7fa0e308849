"""Requests between programs of real daemons: answered, or ended at once with the reason."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bmgd.client import Daemon, Messages, connect
from bmgd.errors import (
    DeadError,
    FailedAnswerError,
    NewLifeError,
    NoReaderError,
    ReaderLostError,
    RequestError,
    UnreachableError,
)
from tests.integration.cluster import (
    DEADLINE_S,
    Flavour,
    LaunchedCluster,
    in_all_flavours,
    launched,
    until,
)
from tests.processes import started

TOPIC = "rpc"
FAR = 3
"""Of six nodes, two hops from node 0."""
AT_ONCE_S = 9.0
"""Well below any timeout that is given here, and below those of the client's own."""
LONG_S = 60.0


async def echo(messages: Messages) -> None:
    async for message in messages:
        await message.reply_soon(b"re: " + message.payload)


@asynccontextmanager
async def serving(daemon: Daemon, topic: str = TOPIC) -> AsyncIterator[None]:
    async with daemon.subscribe(topic) as messages:
        task = asyncio.create_task(echo(messages))
        try:
            yield
        finally:
            task.cancel()


async def at_rest(cluster: LaunchedCluster, *ids: int) -> None:
    """Nothing is underway or waits."""

    async def condition() -> list[str]:
        statuses = [await cluster.status(node_id) for node_id in ids]
        return [str(s["id"]) for s in statuses if s["underway"] or s["waiting"] or s["requests"]]

    await until("nothing is underway", condition)


@in_all_flavours
async def test_request_over_a_relay_and_to_oneself(flavour: Flavour, tmp_path: Path) -> None:
    async with launched(6, tmp_path, flavour=flavour) as cluster:
        await cluster.at_rest()
        asker, answerer = await cluster.daemon(0), await cluster.daemon(FAR)
        assert len((await asker.trace(FAR)).path) == 3
        async with serving(answerer), serving(asker, "own"):
            assert await asker.readers(TOPIC) == [FAR]
            assert await asker.request(FAR, b"q", topic=TOPIC, timeout=DEADLINE_S) == b"re: q"
            assert await asker.request(0, b"", topic="own", timeout=DEADLINE_S) == b"re: "
        assert await asker.readers(TOPIC) == []
        await at_rest(cluster, 0, FAR)


async def test_request_to_a_topic_without_a_reader_ends_at_once(tmp_path: Path) -> None:
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        asker = await cluster.daemon(0)
        for destination in (0, 1, FAR):
            for question in (b"q", bytes(200_000)):
                began = time.monotonic()
                with pytest.raises(NoReaderError) as caught:
                    await asker.request(destination, question, topic=TOPIC, timeout=LONG_S)
                assert time.monotonic() - began < AT_ONCE_S
                assert not caught.value.sent
                assert caught.value.destination == destination
        await at_rest(cluster, 0, FAR)


async def test_request_and_answer_of_any_size(tmp_path: Path) -> None:
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        asker, answerer = await cluster.daemon(0), await cluster.daemon(FAR)
        async with answerer.subscribe(TOPIC) as messages:

            async def mirror() -> None:
                async for message in messages:
                    await message.reply(message.payload[::-1], timeout=DEADLINE_S)

            task = asyncio.create_task(mirror())
            for size in (0, 1, 65_526, 65_527, 65_528, 65_536, 65_537, 3_000_000):
                question = bytes(range(251)) * (size // 251 + 1)
                question = question[:size]
                answer = await asker.request(FAR, question, topic=TOPIC, timeout=DEADLINE_S)
                assert answer == question[::-1]
            with pytest.raises(RequestError, match="of max_answer"):
                await asker.request(FAR, bytes(100), topic=TOPIC, max_answer=99)
            with pytest.raises(RequestError, match="of max_answer"):
                await asker.request(FAR, bytes(100_000), topic=TOPIC, max_answer=99_999)
            task.cancel()
        await at_rest(cluster, 0, FAR)


async def test_request_is_read_in_parts_and_answered(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        asker, answerer = await cluster.daemon(0), await cluster.daemon(2)
        async with answerer.subscribe(TOPIC, max_message=1) as messages:
            question = bytes(range(256)) * 1000
            asking = asyncio.ensure_future(asker.request(2, question, topic=TOPIC))
            message = await anext(messages)
            assert message.is_long
            assert b"".join([part async for part in message.parts()]) == question
            await message.reply(b"read")
            assert await asking == b"read"
            await asker.send(2, b"no question", topic=TOPIC)
            plain = await anext(messages)
            assert not plain.is_request
            with pytest.raises(RequestError, match="no request"):
                await plain.reply(b"?")


async def test_request_two_hundred_at_a_time_taken_in_batches(tmp_path: Path) -> None:
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        asker, answerer = await cluster.daemon(0), await cluster.daemon(FAR)
        async with answerer.subscribe(TOPIC) as messages:

            async def serve() -> None:
                while batch := await messages.take(1000):
                    for message in reversed(batch):
                        await message.reply_soon(b"re: " + message.payload)

            task = asyncio.create_task(serve())
            for _ in range(5):
                questions = [b"%d" % number for number in range(200)]
                answers = await asyncio.gather(
                    *(asker.request(FAR, q, topic=TOPIC, timeout=DEADLINE_S) for q in questions)
                )
                assert answers == [b"re: " + q for q in questions]
            # One stream there for all of them, and the inbox; one stream back.
            assert len(asker._asking._streams) == 1
            assert len(messages._replies._streams) == 1
            task.cancel()
        await at_rest(cluster, 0, FAR)


async def until_no_request(cluster: LaunchedCluster, node_id: int) -> None:
    async def condition() -> list[str]:
        underway = (await cluster.status(node_id))["requests"]
        return [f"{underway} requests"] if underway else []

    await until("its requests are over", condition)


async def program(text: str, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, *words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


RESPONDER = """
import asyncio, sys, bmgd

async def main():
    async with bmgd.connect(sys.argv[1]) as daemon, daemon.subscribe("rpc") as messages:
        print("ready", flush=True)
        async for message in messages:
            print("asked", flush=True)

asyncio.run(main())
"""
ASKER = """
import asyncio, sys, bmgd

async def main():
    async with bmgd.connect(sys.argv[1]) as daemon:
        await daemon.request(int(sys.argv[2]), b"q", topic="rpc", timeout=60)

asyncio.run(main())
"""


async def test_request_ends_at_once_when_the_program_that_has_it_is_killed(tmp_path: Path) -> None:
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        asker = await cluster.daemon(0)
        process = await program(RESPONDER, cluster.control(FAR))
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"ready\n"
            asking = [
                asyncio.ensure_future(asker.request(FAR, b"q", topic=TOPIC, timeout=LONG_S))
                for _ in range(3)
            ]
            for _ in asking:
                assert await process.stdout.readline() == b"asked\n"
        finally:
            process.kill()
            await process.wait()
        began = time.monotonic()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert time.monotonic() - began < AT_ONCE_S
        assert [type(outcome) for outcome in outcomes] == [ReaderLostError] * 3
        assert all(outcome.sent for outcome in outcomes if isinstance(outcome, ReaderLostError))
        await at_rest(cluster, 0, FAR)


async def test_request_ends_when_the_node_that_has_it_dies(tmp_path: Path) -> None:
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        asker, answerer = await cluster.daemon(0), await cluster.daemon(FAR)
        async with answerer.subscribe(TOPIC) as messages:
            asking = asyncio.ensure_future(asker.request(FAR, b"q", topic=TOPIC, timeout=LONG_S))
            await anext(messages)
            began = time.monotonic()
            await cluster.kill(FAR)
            with pytest.raises((DeadError, NewLifeError)) as caught:
                await asking
            assert time.monotonic() - began < AT_ONCE_S
            assert caught.value.sent
        await at_rest(cluster, 0)


async def test_reply_to_an_asker_that_is_killed_is_refused(tmp_path: Path) -> None:
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        answerer = await cluster.daemon(FAR)
        async with answerer.subscribe(TOPIC) as messages:
            process = await program(ASKER, cluster.control(0), str(FAR))
            try:
                async with asyncio.timeout(DEADLINE_S):
                    message = await anext(messages)
            finally:
                process.kill()
                await process.wait()
            # The connection's end is noticed a moment later: until then an answer is taken.
            began = time.monotonic()
            await until_no_request(cluster, 0)
            with pytest.raises(NoReaderError, match="the program that asked is gone") as caught:
                await message.reply(b"a", timeout=LONG_S)
            assert time.monotonic() - began < AT_ONCE_S
            assert not caught.value.sent
        await at_rest(cluster, 0, FAR)


async def test_reply_is_given_once_and_while_its_subscription_lives(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        asker, answerer = await cluster.daemon(0), await cluster.daemon(2)
        async with answerer.subscribe(TOPIC) as messages:
            asking = asyncio.ensure_future(asker.request(2, b"q", topic=TOPIC))
            message = await anext(messages)
            assert message.is_request
            await message.reply(b"a")
            assert await asking == b"a"
            with pytest.raises(RequestError, match="answered already"):
                await message.reply(b"b")
            asking = asyncio.ensure_future(asker.request(2, b"q", topic=TOPIC))
            await (await anext(messages)).refuse("no such thing: ä")
            with pytest.raises(FailedAnswerError, match="no such thing: ä") as failed:
                await asking
            assert failed.value.sent
            asking = asyncio.ensure_future(asker.request(2, b"q", topic=TOPIC))
            late = await anext(messages)
        with pytest.raises(ReaderLostError):
            await asking
        with pytest.raises(RequestError, match="subscription is over"):
            await late.reply(b"a")
        await at_rest(cluster, 0, 2)


async def test_request_that_is_cancelled_or_late_gives_everything_back(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        asker, answerer = await cluster.daemon(0), await cluster.daemon(2)
        async with answerer.subscribe(TOPIC) as messages:
            asking = asyncio.ensure_future(asker.request(2, b"q", topic=TOPIC, timeout=LONG_S))
            cancelled = await anext(messages)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            with pytest.raises(UnreachableError, match="no answer before the deadline") as caught:
                await asker.request(2, b"r", topic=TOPIC, timeout=1.0)
            assert caught.value.sent
            late = await anext(messages)
            await at_rest(cluster, 0)
            # Nobody waits, and nobody minds.
            await cancelled.reply(b"a")
            await late.reply(bytes(100_000))
            asking = asyncio.ensure_future(asker.request(2, b"s", topic=TOPIC))
            await (await anext(messages)).reply(b"c")
            assert await asking == b"c"
            assert not asker._asking.inbox.asked
        await at_rest(cluster, 0, 2)


async def test_request_does_not_outlive_its_connection(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        answerer = await cluster.daemon(2)
        async with answerer.subscribe(TOPIC) as messages:
            async with connect(cluster.control(0)) as asker:
                asking = asyncio.ensure_future(asker.request(2, b"q", topic=TOPIC, timeout=LONG_S))
                message = await anext(messages)
                assert (await cluster.status(0))["requests"] == 1
            with pytest.raises(Exception, match="closed"):
                await asking
            await until_no_request(cluster, 0)
            with pytest.raises(NoReaderError):
                await message.reply(b"a")
        await at_rest(cluster, 0, 2)


async def test_request_by_commands(tmp_path: Path) -> None:
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        there = ("--topic", TOPIC, "--control", cluster.control(0))

        async def ask(question: str, *options: str) -> tuple[int, str]:
            return await cluster.command("request", str(FAR), question, *there, *options)

        code, output = await ask("hello", "--timeout", "60")
        assert (code, "nobody reads" in output) == (1, True)
        async with started(
            *(sys.executable, "-m", "bmgd", "recv", "--control", cluster.control(FAR)),
            *(
                "--topic",
                TOPIC,
                "--count",
                "4",
                "--reply",
                "if grep -q bad; then exit 3; fi; echo ok",
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        ) as answering:
            daemon = await cluster.daemon(0)

            async def condition() -> list[str]:
                return [] if await daemon.readers(TOPIC) == [FAR] else ["nobody reads"]

            await until("recv is there", condition)
            assert await ask("hello") == (0, "ok\n\n")
            code, output = await ask("hello", "--json")
            assert (code, json.loads(output)["answer"]) == (0, "ok\n")
            code, output = await ask("bad")
            assert code == 1
            assert "ended with 3" in output
            # What asks nothing is fed to the command too.
            await daemon.send(FAR, b"good", topic=TOPIC)
            async with asyncio.timeout(DEADLINE_S):
                out, err = await answering.communicate()
        assert (answering.returncode, out) == (0, b"ok\n")
        assert b"ended with 3" in err
        async with (await cluster.daemon(FAR)).subscribe(TOPIC):
            code, output = await ask("hello", "--timeout", "0.3")
        assert code == 4
