"""What carries a link's bytes under TLS: it keeps no more than a bound of what cannot be written."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from bmgd.shell.tls import READ_BYTES, TlsSession
from bmgd.shell.tls_carrier import TlsCarrier
from bmgd.types import LinkId


class Session:
    """A session that the other end asks for nothing but key updates; each is answered."""

    ended = False

    def __init__(self) -> None:
        self.outgoing = b""

    def receive(self, data: bytes) -> bytes:
        self.outgoing += bytes(27 * len(data))
        return b""

    def put(self, data: bytes) -> None:
        self.outgoing += data

    def take(self) -> bytes:
        taken, self.outgoing = self.outgoing, b""
        return taken


class FedLinks:
    """Keeps how a link ended; its outbox never empties."""

    def __init__(self) -> None:
        self.finished: list[int] = []

    def feed(self, link: LinkId, data: bytes) -> None:
        pass

    def finish(self, link: LinkId, errno: int) -> None:
        self.finished.append(errno)

    def take(self, link: LinkId, limit: int) -> bytes:
        return bytes(limit)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    mine, theirs = socket.socketpair()
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    mine.setblocking(False)
    yield mine, theirs
    theirs.close()


def ended_by(pair: tuple[socket.socket, socket.socket], reads: int) -> tuple[list[int], int]:
    """Let 100 key updates come with each read, and read nothing; how it ended, and what waits."""
    mine, theirs = pair
    links = FedLinks()

    async def carry() -> int:
        carrier = TlsCarrier(links, LinkId(1), mine, cast(TlsSession, Session()), b"")
        carrier.start()
        for _ in range(reads):
            theirs.send(bytes(100))
            if not carrier.read():
                break
        waiting = len(cast(Any, carrier)._unwritten)
        carrier.close()
        return waiting

    return links.finished, asyncio.run(carry())


def test_carrier_ends_a_link_that_asks_for_keys_and_reads_nothing(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    finished, waiting_bytes = ended_by(pair, 2000)
    assert finished == [errno.EPROTO]
    assert waiting_bytes < 3 * READ_BYTES


def test_carrier_answers_key_updates_behind_its_own_data(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    finished, waiting_bytes = ended_by(pair, 15)
    assert finished == []
    assert waiting_bytes > 15 * 2700
