"""Messages between programs: taken once, refused with a reason, and never lost in silence."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bmgd.client import Message
from bmgd.client.connecting import open_connection
from bmgd.config import control_path
from bmgd.errors import (
    BmgdError,
    ControlError,
    DeadError,
    DeliveryError,
    NoReaderError,
    QueueFullError,
    ReaderLostError,
    RequestError,
)
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from tests.integration.cluster import (
    DEADLINE_S,
    Flavour,
    LaunchedCluster,
    Pair,
    in_all_flavours,
    launched,
    ordered_pairs,
    until,
    until_true,
)

TOPIC = "stream"
BEFORE, AFTER = 5, 10
"""Messages of each pair that are confirmed before a kill, and sent at least after it."""


# --- a stream between all pairs while one dies ----------------------------------------------------


@dataclass
class _Outcomes:
    """What became of the messages of one pair, by number."""

    confirmed: set[int] = field(default_factory=set)
    failed: dict[int, BmgdError] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.confirmed) + len(self.failed)


class _Stream:
    """Sends from every node to every other, one after the other in each pair, until told to end.

    Attributes:
        outcomes: by pair.
        taken: what each node's reader got.
    """

    def __init__(self, cluster: LaunchedCluster) -> None:
        self.cluster = cluster
        self.outcomes = {pair: _Outcomes() for pair in ordered_pairs(cluster.alive)}
        self.taken: dict[int, list[Message]] = {}
        self._ending = False

    async def run(self, stack: AsyncExitStack) -> asyncio.Task[None]:
        """Begin; the task ends after `end`."""
        for node_id in self.cluster.alive:
            reading = self.cluster.reading(node_id, TOPIC)
            self.taken[node_id] = await stack.enter_async_context(reading)
        return asyncio.create_task(self._send_all())

    def end(self) -> None:
        """Let every pair finish the message that is underway."""
        self._ending = True

    async def _send_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for a, b in self.outcomes:
                tasks.create_task(self._send(a, b))

    async def _send(self, a: int, b: int) -> None:
        outcomes, number = self.outcomes[a, b], 0
        daemon = await self.cluster.daemon(a)
        while not self._ending:
            try:
                payload = f"{a} {b} {number}".encode()
                await daemon.send(b, payload, topic=TOPIC, timeout=DEADLINE_S)
                outcomes.confirmed.add(number)
            except BmgdError as error:
                outcomes.failed[number] = error
                if isinstance(error, ControlError):
                    return
                # A refusal comes at once: do not spin on it.
                await asyncio.sleep(0.01)
            number += 1

    async def until_each_has(self, count: int, pairs: list[Pair]) -> None:
        """Wait until so many messages of each pair have an outcome."""
        await until_true(
            f"{count} outcomes of each pair",
            lambda: all(self.outcomes[pair].count >= count for pair in pairs),
        )

    def _came(self, a: int, b: int) -> Counter[bytes]:
        return Counter(message.payload for message in self.taken[b] if message.source == a)

    async def until_read(self, dead: set[int]) -> None:
        """Wait until as much of the living has been read by the living as was confirmed."""
        pairs = [pair for pair in self.outcomes if dead.isdisjoint(pair)]
        await until_true(
            "what is confirmed is read",
            lambda: all(
                self._came(*pair).total() >= len(self.outcomes[pair].confirmed) for pair in pairs
            ),
        )

    def check(self, dead: set[int]) -> None:
        """Assert what must be true of every message."""
        for (a, b), outcomes in self.outcomes.items():
            if a in dead:
                continue
            if b in dead:
                wrong = [e for e in outcomes.failed.values() if not isinstance(e, DeliveryError)]
                assert not wrong, f"{a} to dead {b}: {wrong[0]!r}"
                assert outcomes.failed, f"no send from {a} to dead {b} failed"
                continue
            assert not outcomes.failed, f"{a} to {b}: {outcomes.failed}"
            assert self._came(a, b) == {f"{a} {b} {n}".encode(): 1 for n in outcomes.confirmed}
        for node_id, taken in self.taken.items():
            twice = [p for p, n in Counter(m.payload for m in taken).items() if n > 1]
            assert not twice, f"node {node_id} got {twice} more than once"


@in_all_flavours
async def test_delivery_goes_on_while_a_node_dies(flavour: Flavour, tmp_path: Path) -> None:
    async with launched(9, tmp_path, flavour=flavour) as cluster:
        await _stream_while_dying(cluster, {4})


@pytest.mark.parametrize("victims", [{3, 4}, {1, 6, 11}], ids=["adjacent", "spread"])
async def test_delivery_goes_on_while_several_nodes_die(victims: set[int], tmp_path: Path) -> None:
    async with launched(12, tmp_path) as cluster:
        await _stream_while_dying(cluster, victims)


async def test_delivery_goes_on_around_the_dead_without_healing(tmp_path: Path) -> None:
    async with launched(12, tmp_path, "--healing", "off") as cluster:
        await _stream_while_dying(cluster, {3, 4, 8})


async def _stream_while_dying(cluster: LaunchedCluster, victims: set[int]) -> None:
    await cluster.at_rest()
    async with AsyncExitStack() as stack:
        stream = _Stream(cluster)
        task = await stream.run(stack)
        await stream.until_each_has(BEFORE, list(stream.outcomes))
        await cluster.kill(*victims)
        counts = {pair: outcomes.count for pair, outcomes in stream.outcomes.items()}
        from_living = [pair for pair in counts if pair[0] not in victims]
        await stream.until_each_has(max(counts.values()) + AFTER, from_living)
        stream.end()
        async with asyncio.timeout(DEADLINE_S):
            await task
        await stream.until_read(victims)
        # Whatever was delivered before these answers has arrived here too.
        await cluster.statuses()
        stream.check(victims)


async def test_delivery_to_a_node_that_restarts_is_to_one_life(tmp_path: Path) -> None:
    async with launched(5, tmp_path) as cluster:
        await cluster.at_rest()
        daemon = await cluster.daemon(1)
        await daemon.send(3, b"for the first life")
        await cluster.kill(3)
        await cluster.restart(3)
        await cluster.at_rest()
        await daemon.send(3, b"for the second life")
        async with (await cluster.daemon(3)).subscribe() as messages, asyncio.timeout(DEADLINE_S):
            assert (await anext(messages)).payload == b"for the second life"
        assert (await cluster.status(3))["waiting"] == 0


# --- what is refused ------------------------------------------------------------------------------


async def test_delivery_to_a_full_queue_is_an_error(tmp_path: Path) -> None:
    async with launched(3, tmp_path, toml="queue_messages = 4\n") as cluster:
        await cluster.at_rest()
        daemon = await cluster.daemon(0)
        for destination in (0, 2):
            for number in range(4):
                await daemon.send(destination, b"%d" % number, topic="few")
            with pytest.raises(QueueFullError) as caught:
                await daemon.send(destination, b"one too many", topic="few", timeout=1.0)
            assert caught.value.destination == destination
            assert not caught.value.sent
            await daemon.send(destination, b"another topic", topic="other")
            assert await _read(cluster, destination, "few", 4) == [b"0", b"1", b"2", b"3"]
            await daemon.send(destination, b"room again", topic="few")
            assert await _read(cluster, destination, "few", 1) == [b"room again"]


async def _read(cluster: LaunchedCluster, node_id: int, topic: str, count: int) -> list[bytes]:
    """Take so many messages, in the order in which they come."""
    daemon = await cluster.daemon(node_id)
    async with daemon.subscribe(topic) as messages, asyncio.timeout(DEADLINE_S):
        return [(await anext(messages)).payload for _ in range(count)]


@pytest.mark.parametrize("destination", [0, 1, 5], ids=["self", "neighbor", "two hops away"])
async def test_delivery_of_the_largest_payload(destination: int, tmp_path: Path) -> None:
    payload = bytes(range(256)) * (PAYLOAD_BYTES_MAX // 256)
    assert len(payload) == 65_536
    async with launched(12, tmp_path) as cluster:
        await cluster.at_rest()
        daemon = await cluster.daemon(0)
        path = (await daemon.trace(destination)).path
        assert len(path) == {0: 1, 1: 2, 5: 3}[destination]
        await daemon.send(destination, payload, topic="large")
        assert await _read(cluster, destination, "large", 1) == [payload]


async def test_delivery_of_more_than_fits_needs_a_reader(tmp_path: Path) -> None:
    payload = bytes(PAYLOAD_BYTES_MAX + 1)
    async with launched(2, tmp_path) as cluster:
        await cluster.at_rest()
        # In pieces it needs somebody who reads them.
        with pytest.raises(NoReaderError) as caught:
            await (await cluster.daemon(0)).send(1, payload)
        assert not caught.value.sent
        # The verb of programs that know nothing of segments takes no more.
        connection = await open_connection(control_path(cluster.control(0)))
        params = {"destination": 1, "topic": "large", "payload": payload, "timeout": 5.0}
        with pytest.raises(RequestError, match="at most 65536 bytes"):
            await connection.ask("send", params)
        connection.close()
        await cluster.exchange()


@pytest.mark.parametrize("destination", [0, 1, 5], ids=["self", "neighbor", "two hops away"])
async def test_delivery_of_a_long_message_and_of_short_ones_beside_it(
    destination: int, tmp_path: Path
) -> None:
    payload = bytes(range(256)) * 4096 * 3 + b"end"
    async with launched(12, tmp_path) as cluster:
        await cluster.at_rest()
        daemon = await cluster.daemon(0)
        reader = await cluster.daemon(destination)
        async with (
            reader.subscribe("large", max_message=2**20) as parts,
            reader.subscribe("whole") as whole,
            asyncio.timeout(DEADLINE_S),
        ):
            sending = asyncio.ensure_future(daemon.send(destination, payload, topic="large"))
            message = await anext(parts)
            assert message.is_long
            assert message.size == len(payload)
            # Others overtake it, and it is not confirmed before it is read.
            await daemon.send(destination, b"short", topic="large")
            assert not sending.done()
            assert b"".join([part async for part in message.parts()]) == payload
            assert (await anext(parts)).payload == b"short"
            await sending
            sending = asyncio.ensure_future(daemon.send(destination, payload, topic="whole"))
            assert (await anext(whole)).payload == payload
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(whole)
            await sending


async def test_delivery_by_a_stream_is_in_order_and_taken_many_at_a_time(tmp_path: Path) -> None:
    count = 20_000
    async with launched(6, tmp_path) as cluster:
        await cluster.at_rest()
        daemon, reader = await cluster.daemon(0), await cluster.daemon(3)

        async def write() -> None:
            async with daemon.stream(3, "jobs", priority="bulk") as stream:
                for number in range(count):
                    await stream.write(b"%d" % number)
                await stream.flush()

        async with reader.subscribe("jobs") as messages, asyncio.timeout(DEADLINE_S):
            writing = asyncio.ensure_future(write())
            taken: list[int] = []
            while len(taken) < count:
                batch = await messages.take(1000)
                assert 1 <= len(batch) <= 1000
                taken += [int(message.payload) for message in batch]
            await writing
        assert taken == list(range(count))

        async def at_rest() -> list[str]:
            underway = (await cluster.status(0))["underway"]
            return [f"{underway} underway"] if underway else []

        # The end of the stream is confirmed a moment after its last message.
        await until("nothing is underway", at_rest)


async def test_delivery_tells_the_sender_of_a_long_message_that_its_reader_is_gone(
    tmp_path: Path,
) -> None:
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        daemon, reader = await cluster.daemon(0), await cluster.daemon(2)
        async with reader.subscribe("large", max_message=1) as messages:
            sending = asyncio.ensure_future(daemon.send(2, bytes(3_000_000), topic="large"))
            async with asyncio.timeout(DEADLINE_S):
                assert (await anext(messages)).is_long
        with pytest.raises(ReaderLostError) as caught:
            await sending
        assert caught.value.sent


async def test_delivery_to_oneself(tmp_path: Path) -> None:
    async with launched(2, tmp_path) as cluster:
        await (await cluster.daemon(1)).send(1, b"note", topic="diary")
        async with cluster.reading(1, "diary") as taken:
            await until_true("read", lambda: bool(taken))
        assert [(m.source, m.topic, m.payload) for m in taken] == [(1, "diary", b"note")]


@pytest.mark.parametrize("healing", ["every-death", "off"])
async def test_delivery_to_a_dead_node_is_an_error(healing: str, tmp_path: Path) -> None:
    async with launched(5, tmp_path, "--healing", healing) as cluster:
        await cluster.at_rest()
        daemon = await cluster.daemon(0)
        await cluster.kill(3)
        with pytest.raises(DeadError) as caught:
            await daemon.send(3, b"too late", timeout=DEADLINE_S)
        assert caught.value.destination == 3
        await cluster.at_rest(layout=range(5) if healing == "off" else None)
        with pytest.raises(DeadError):
            await daemon.send(3, b"known to be dead")


async def test_delivery_to_an_id_that_nobody_has_is_an_error(tmp_path: Path) -> None:
    async with launched(2, tmp_path) as cluster:
        for destination in (2, 2**31 - 1):
            with pytest.raises(RequestError, match=f"no node has the id {destination}"):
                await (await cluster.daemon(0)).send(destination, b"nobody")


# --- readers --------------------------------------------------------------------------------------


async def test_delivery_shares_a_topic_between_its_readers(tmp_path: Path) -> None:
    count = 60
    async with launched(3, tmp_path) as cluster, AsyncExitStack() as stack:
        await cluster.at_rest()
        readers = [await stack.enter_async_context(cluster.reading(2, "jobs")) for _ in range(3)]
        daemon = await cluster.daemon(0)
        for number in range(count):
            await daemon.send(2, b"%d" % number, topic="jobs")
        await until_true("all read", lambda: sum(map(len, readers)) >= count)
        came = sorted(int(message.payload) for taken in readers for message in taken)
        assert came == list(range(count))
        assert all(readers), "one reader got nothing"


async def test_delivery_loses_nothing_when_a_reader_leaves_without_taking(tmp_path: Path) -> None:
    count = 20
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        daemon = await cluster.daemon(2)
        async with daemon.subscribe("jobs", credit=8) as messages:
            await _send_numbers(cluster, count)
            async with asyncio.timeout(DEADLINE_S):
                assert (await anext(messages)).payload == b"0"
        want = [b"%d" % number for number in range(1, count)]
        assert await _read(cluster, 2, "jobs", count - 1) == want
        assert (await cluster.status(2))["waiting"] == 0


async def test_delivery_loses_nothing_when_a_reader_is_cut_off(tmp_path: Path) -> None:
    count = 20
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        connection = await open_connection(control_path(cluster.control(2)))
        await connection.ask("subscribe", {"topic": "jobs", "credit": 8})
        await _send_numbers(cluster, count)
        connection.close()
        await until("all wait again", lambda: _waiting_differs(cluster, 2, count))
        assert await _read(cluster, 2, "jobs", count) == [b"%d" % n for n in range(count)]


async def _waiting_differs(cluster: LaunchedCluster, node_id: int, count: int) -> list[str]:
    waiting = (await cluster.status(node_id))["waiting"]
    return [] if waiting == count else [f"{waiting} messages wait, not {count}"]


async def _send_numbers(cluster: LaunchedCluster, count: int) -> None:
    daemon = await cluster.daemon(0)
    for number in range(count):
        await daemon.send(2, b"%d" % number, topic="jobs")


async def test_delivery_waits_for_a_reader_that_comes_later(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        await _send_numbers(cluster, 3)
        status = await cluster.status(2)
        assert status["waiting"] == 3
        (row,) = status["topics"]
        assert (row["topic"], row["waiting"], row["readers"]) == ("jobs", 3, 0)
        assert await _read(cluster, 2, "jobs", 3) == [b"0", b"1", b"2"]
        assert (await cluster.status(2))["waiting"] == 0
