"""Random deeds on the links of every engine, against a model that does the same the simplest way.

Each link is fed torn bytes, and emptied by takes of any size, while frames are put and relayed, and
links shut, finished and closed in any order. `WatchedEngine` compares what comes out: frames, order,
bounds, fates.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from bmgd.linklayer import LinkEngine
from bmgd.linklayer.contract import BULK, CONTROL, HIGH, RAW, URGENT
from bmgd.sim.linkmodel import WatchedEngine
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Heartbeat
from tests.unit.linklayer.engines import ENGINES, data, goodbye, notice, ping, snapshot

SEEDS = 40
DEEDS = 300
PEERS = (1, 2, 4, 6, 7)
_SIZES = (0, 1, 30, 500, 20_000, 60_000)


class Deeds:
    """What is done to one engine, by chance."""

    def __init__(self, engine: LinkEngine, seed: int) -> None:
        self.violations: list[str] = []
        self.random = Random(seed)
        self.engine = WatchedEngine(
            engine, lambda name, text: self.violations.append(f"{name}: {text}")
        )
        self.links: dict[int, int] = {}
        self.unfed: dict[int, bytes] = {}
        self._link_count = self._generation = 0
        # Some runs fill outboxes to their bounds, others take all the time.
        self._fills = seed % 4 == 0

    def do(self) -> None:
        """One deed, and what happened since."""
        deeds = (
            (self._adopt, 4),
            (self._feed, 40),
            (self._take, 4 if self._fills else 30),
            (self._put, 20),
            (self._publish, 6),
            (self._poll, 20),
            (self._know, 1),
            (self._shut, 1),
            (self._finish, 1),
            (self._close, 1),
            (self._hear, 1),
            (self._absorb, 3),
            (self._ask_absorbed, 5),
        )
        chosen = self.random.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])
        chosen[0]()

    def _some_link(self) -> int:
        """A link, at times one that is gone or never was."""
        known = list(self.links)
        return self.random.choice(known) if known and self.random.random() < 0.97 else 999_999

    def _adopt(self) -> None:
        free = [peer for peer in PEERS if peer not in self.links.values()]
        if free:
            self._link_count += 1
            peer = self.random.choice(free)
            self.links[self._link_count] = peer
            self.engine.adopt(-1, self._link_count, peer)

    def _publish(self) -> None:
        # A snapshot may name links that are gone, as one does that is a moment old.
        self._generation += 1
        rows = {peer: link for link, peer in self.links.items()}
        self.engine.publish(snapshot(rows, self._generation))

    def _frame(self) -> bytes:
        random = self.random
        text = "x" * random.choice(_SIZES[: 6 if self._fills else 4])
        made = random.randrange(10)
        if made < 7:
            return data(
                random.randrange(8), text, random.choice((0, 1, 1)), random.randrange(8, 20)
            )
        if random.random() < 0.3:
            digest = random.choice((5, 5, 6))
            return encode(Heartbeat(random.randrange(1, 999), random.randrange(1 << 40), digest))
        if made < 8:
            record = Record(Incarnation(1 << 32), 0, Status.DEAD, f"h:{random.randrange(1, 9)}")
            return notice((NodeId(3), record))
        return goodbye() if random.random() < 0.02 else ping(random.randrange(1 << 40))

    def _feed(self) -> None:
        link = self._some_link()
        waiting = self.unfed.get(link, b"") + b"".join(
            self._frame() for _ in range(self.random.randrange(6))
        )
        if self.random.random() < 0.004:
            waiting += b"\0\0\0\1no frame"
        at = self.random.randrange(len(waiting) + 1)
        self.unfed[link] = waiting[at:]
        self.engine.feed(link, waiting[:at])

    def _put(self) -> None:
        random, link = self.random, self._some_link()
        kind = random.choice((CONTROL, URGENT, HIGH, BULK, BULK, RAW))
        if kind == RAW:
            self.engine.put(link, random.randbytes(random.randrange(1, 50)), RAW)
            return
        count = random.choice((1, 40) if self._fills else (1, 1, 3, 40))
        text = "y" * random.choice(_SIZES[-2:] if self._fills else _SIZES)
        priority = {URGENT: 0, HIGH: 1}.get(kind, 2)
        frames = [ping(7) if kind == CONTROL else data(1, text, priority) for _ in range(count)]
        self.engine.put(link, b"".join(frames), kind)

    def _take(self) -> None:
        limit = self.random.choice((1, 7, 100, 5_000, *([] if self._fills else [70_000, 1 << 30])))
        self.engine.take(self._some_link(), limit)

    def _poll(self) -> None:
        self.engine.poll()

    def _know(self) -> None:
        record = Record(Incarnation(1 << 32), 0, Status.DEAD, f"h:{self.random.randrange(1, 9)}")
        self.engine.know(notice((NodeId(3), record))[4:])

    def _shut(self) -> None:
        self.engine.shut(self._some_link(), goodbye("done"))

    def _finish(self) -> None:
        link = self._some_link()
        self.engine.finish(link, self.random.choice((0, errno.ECONNRESET)))
        self._forget(link)

    def _close(self) -> None:
        link = self._some_link()
        self.engine.close(link)
        self._forget(link)

    def _forget(self, link: int) -> None:
        self.links.pop(link, None)
        self.unfed.pop(link, None)

    def _hear(self) -> None:
        self.engine.heard()

    def _absorb(self) -> None:
        links = [self._some_link() for _ in range(self.random.randrange(4))]
        self.engine.absorb_heartbeats(self.random.choice((5, 6)).to_bytes(16, "big"), links)

    def _ask_absorbed(self) -> None:
        self.engine.absorbed_heartbeats()

    def end(self) -> None:
        """Take everything that waits; the counters must say so."""
        for link in list(self.links):
            self.engine.take(link, 1 << 30)
        self.engine.poll()
        for link in list(self.links):
            if self.engine.backlog(link):
                self.violations.append(f"link {link} keeps {self.engine.backlog(link)} bytes")
        if self.engine.totals()["backlog_bytes"]:
            self.violations.append("bytes wait on links that are gone")


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", sorted(ENGINES))
def test_engine_does_what_the_model_does(name: str, seed: int) -> None:
    deeds = Deeds(ENGINES[name](), seed)
    for _ in range(DEEDS):
        deeds.do()
        assert not deeds.violations
    deeds.end()
    assert not deeds.violations
