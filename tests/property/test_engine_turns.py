"""Turns of reading: no link with bytes waits behind those that always have more than is read at once."""

from __future__ import annotations

import socket
from random import Random

import pytest

from bmgd.linklayer import LinkEngine, LinkLayer
from bmgd.linklayer.contract import BULK, FRAME
from tests.unit.linklayer.engines import ENGINES, data, ping, snapshot

WITH_SOCKETS = {name: make for name, make in ENGINES.items() if make is not LinkLayer}
SEEDS = 10
LINKS = 30
POLLS = 60
# One poll of the engine in C reads at least eight; the first of one turn may be the last of the next.
POLLS_WAITED_MAX = 2 * (LINKS // 8 + 1)
# Each read of an engine has the end of one.
FRAME_OF_BULK = data(0, "x" * 30_000)
BULK_FRAMES = FRAME_OF_BULK * 20


class Crowd:
    """An engine with links of which some are always full, while others say something now and then."""

    def __init__(self, engine: LinkEngine, seed: int) -> None:
        self.random = Random(seed)
        self.engine = engine
        self.polls = 0
        self.waits_since: dict[int, int] = {}
        self._others: dict[int, socket.socket] = {}
        self._unsent: dict[int, bytes] = {}
        for link in range(1, LINKS + 1):
            ours, self._others[link] = socket.socketpair()
            ours.setblocking(False)
            self._others[link].setblocking(False)
            engine.adopt(ours.detach(), link, link)
        engine.publish(snapshot({link: link for link in self._others}, size=2 * LINKS))
        self.flooding = self.random.sample(sorted(self._others), self.random.randrange(LINKS))

    def feed(self) -> None:
        """What the other ends do between two polls."""
        for link in self.flooding:
            while self._send(link, self._unsent.pop(link, b"") or BULK_FRAMES):
                pass
        for link in sorted(self._others):
            if link not in self.flooding and self.random.random() < 0.2:
                self._send(link, ping(self.polls))

    def _send(self, link: int, frames: bytes) -> bool:
        """Send as much as the kernel takes; whether it took all."""
        try:
            sent = self._others[link].send(frames)
        except BlockingIOError:
            sent = 0
        if link in self.flooding:
            self._unsent[link] = frames[sent:]
        if sent:
            self.waits_since.setdefault(link, self.polls)
        return sent == len(frames)

    def poll(self) -> None:
        """One poll; who was read waits no more, or anew."""
        self.polls += 1
        for link in {link for link, what, _ in self.engine.poll() if what == FRAME}:
            del self.waits_since[link]
            if link in self.flooding:
                self.waits_since[link] = self.polls

    def fill(self, link: int) -> None:
        """Put more on a link than its socket takes."""
        while not self.engine.backlog(link):
            self.engine.put(link, BULK_FRAMES, BULK)
            self.engine.flush()

    def empty(self, link: int) -> None:
        """The other end takes what the kernel holds for it."""
        try:
            while self._others[link].recv(1 << 20):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """End it."""
        for link, sock in self._others.items():
            self.engine.close(link)
            sock.close()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", sorted(WITH_SOCKETS))
def test_engine_reads_every_link_in_its_turn(name: str, seed: int) -> None:
    crowd = Crowd(WITH_SOCKETS[name](), seed)
    longest = 0
    for _ in range(POLLS):
        crowd.feed()
        crowd.poll()
        longest = max([longest, *(crowd.polls - since for since in crowd.waits_since.values())])
    crowd.close()
    assert longest <= POLLS_WAITED_MAX


@pytest.mark.parametrize("name", sorted(WITH_SOCKETS))
def test_engine_writes_where_there_is_room_however_much_there_is_to_read(name: str) -> None:
    crowd = Crowd(WITH_SOCKETS[name](), 0)
    crowd.flooding = list(range(1, LINKS))
    crowd.fill(LINKS)
    for _ in range(POLLS_WAITED_MAX):
        crowd.feed()
        crowd.empty(LINKS)
        before = crowd.engine.backlog(LINKS)
        crowd.poll()
        assert crowd.engine.backlog(LINKS) < max(before, 1)
    crowd.close()
