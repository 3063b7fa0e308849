"""A man in the middle of two real daemons: what comes of each thing that he does, without TLS and with.

Every connection between the two goes through him, in either direction. Once, he changes what the sender
of a program's messages writes. Without TLS the outcome is what the table says: he can alter what is read
and break the link, no more is promised. With TLS every case ends in a closed link, and nothing else: the
messages come once, unaltered and in order, over the next link, and nobody is held dead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.cluster import FoundedCluster, founded, until, until_true
from tests.integration.ports import free_base_port
from tests.integration.test_tls import certified

SENDER, READER = 1, 0
COUNT = 12
STRUCK = 4
PATIENT = "[timing]\ntimeout_ms = 5000\n"
"""Where nothing is to be found by silence: he is this process, and may not run for a second."""
MARK = b"a message of a program, number "

Change = Callable[[bytes, "Direction"], list[bytes]]


class Direction:
    """What flows one way through one connection."""

    def __init__(self, back: asyncio.StreamWriter) -> None:
        self.back = back
        self.held: bytes | None = None
        self.seen: list[bytes] = []


class Man:
    """Stands between everybody who dials a gate and the daemon behind it.

    Args:
        gates: (port outside, port inside) of each daemon, by id.
    """

    def __init__(self, gates: list[tuple[int, int]]) -> None:
        self._gates = gates
        self._change: Change | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.struck = 0

    @asynccontextmanager
    async def standing(self) -> AsyncIterator[Man]:
        servers = []
        for node_id, (outside, inside) in enumerate(self._gates):

            def on_dialled(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                inside: int = inside,
                node_id: int = node_id,
            ) -> None:
                task = asyncio.create_task(self._carry(reader, writer, inside, node_id))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            servers.append(await asyncio.start_server(on_dialled, "127.0.0.1", outside))
        try:
            yield self
        finally:
            for server in servers:
                server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def strike(self, change: Change) -> None:
        """Change what the sender writes next."""
        self._change = change

    async def _carry(
        self, near: asyncio.StreamReader, back: asyncio.StreamWriter, inside: int, node_id: int
    ) -> None:
        try:
            far, on = await asyncio.open_connection("127.0.0.1", inside)
        except OSError:
            back.close()
            return
        # The dialer of node READER's gate is the sender, and the other way round.
        from_dialer = node_id == READER
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._flow(near, on, back, is_senders=from_dialer))
                tasks.create_task(self._flow(far, back, on, is_senders=not from_dialer))
        except* OSError:
            pass
        finally:
            back.close()
            on.close()

    async def _flow(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        *,
        is_senders: bool,
    ) -> None:
        direction = Direction(back)
        while data := await reader.read(1 << 16):
            parts = [data]
            change = self._change if is_senders else None
            if change is not None and (MARK in data or data[:1] == b"\x17" or direction.held):
                parts = change(data, direction)
                if direction.held is None:
                    self._change = None
                    self.struck += 1
            direction.seen = [*direction.seen[-3:], data]
            for part in parts:
                writer.write(part)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


def alter(data: bytes, direction: Direction) -> list[bytes]:
    at = data.find(MARK)
    at = len(data) - 1 if at < 0 else at
    return [data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]]


def replay(data: bytes, direction: Direction) -> list[bytes]:
    return [data, data]


def replay_former(data: bytes, direction: Direction) -> list[bytes]:
    return [*direction.seen[-1:], data]


def reorder(data: bytes, direction: Direction) -> list[bytes]:
    if direction.held is None:
        direction.held = data
        return []
    held, direction.held = direction.held, None
    return [data, held]


def reflect(data: bytes, direction: Direction) -> list[bytes]:
    direction.back.write(data)
    return [data]


def leave_out(data: bytes, direction: Direction) -> list[bytes]:
    return []


def insert(data: bytes, direction: Direction) -> list[bytes]:
    return [b"\x00\x00\x00\x01\x00", data]


def cut_short(data: bytes, direction: Direction) -> list[bytes]:
    return [data[: len(data) // 2]]


OUTCOMES: dict[str, tuple[Change, bool | None, str]] = {
    # name: what he does, whether that loses a link without TLS (None: by the timeout, or by a verdict
    # that is refuted), what the reader then gets
    "alter": (alter, False, "altered"),
    "replay": (replay, False, "all"),
    "replay what came before": (replay_former, False, "all"),
    "reorder": (reorder, False, "all"),
    "reflect": (reflect, False, "all"),
    "leave out": (leave_out, False, "all"),
    "insert": (insert, True, "all"),
    "cut short": (cut_short, None, "all"),
}
"""What is promised without TLS is only that the daemons and their membership bear it."""


def downs(cluster: FoundedCluster) -> int:
    """Links that were lost; of two of one pair one is closed with a goodbye."""
    lost = r"link down peer \d+ incarnation \S+ \((?!goodbye)"
    return sum(len(re.findall(lost, cluster.log(i))) for i in (0, 1))


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("case", OUTCOMES)
async def test_man_in_the_middle(case: str, with_tls: bool, tmp_path: Path) -> None:
    change, closes, outcome = OUTCOMES[case]
    flags = certified(tmp_path, 2)[1] if with_tls else []
    port = free_base_port(8)
    gates = [(port + i, port + 4 + i) for i in (0, 1)]
    template = f"127.0.0.1:{{{port}+id}}"
    toml = "" if case == "cut short" else PATIENT
    async with (
        Man(gates).standing() as man,
        founded(2, tmp_path, *flags, peers=template, toml=toml) as cluster,
    ):
        for i in (0, 1):
            cluster.start(i, flags=["--listen", f"127.0.0.1:{gates[i][1]}"])
        await cluster.at_rest()
        sender = await cluster.daemon(SENDER)
        wanted = [MARK + b"%d" % number for number in range(COUNT)]
        async with cluster.reading(READER, "news") as taken:
            await cluster.status(READER)
            before = downs(cluster)
            for number, payload in enumerate(wanted):
                if number == STRUCK:
                    man.strike(change)
                if case == "reorder" and number == STRUCK:
                    # Both are underway at once.
                    continue
                if case == "reorder" and number == STRUCK + 1:
                    await asyncio.gather(
                        sender.send(READER, wanted[STRUCK], topic="news", timeout=20),
                        sender.send(READER, payload, topic="news", timeout=20),
                    )
                else:
                    await sender.send(READER, payload, topic="news", timeout=20)
            await until_true("he did it", lambda: man.struck == 1)
            if closes or with_tls:
                await until_true("a link is closed", lambda: downs(cluster) > before)
            await cluster.at_rest()
            await until_true("all came", lambda: len(taken) >= COUNT)
            got = [message.payload for message in taken]
        if outcome == "altered" and not with_tls:
            assert len(got) == COUNT
            assert [a for a, b in zip(got, wanted, strict=True) if a != b] == [
                bytes((MARK[0] ^ 1,)) + wanted[STRUCK][1:]
            ]
        else:
            assert got == wanted
        if closes is False and not with_tls:
            assert downs(cluster) == before

        async def unchanged() -> list[str]:
            seen = await cluster.statuses((0, 1))
            return [f"{i}: {s['dead']}" for i, s in seen.items() if s["alive"] != [0, 1]]

        await until("both hold each other alive", unchanged)
        logs = cluster.log(0) + cluster.log(1)
        # Without TLS the rest of a frame is waited for in vain: silence, which is refuted.
        assert "verdict" not in logs or (case == "cut short" and not with_tls)
        assert "a bug" not in logs
