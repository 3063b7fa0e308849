"""The engine in C and the link layer in Python: whatever is done to both, both say the same."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from bmgd import _engine, _fastroute
from bmgd.linklayer import LinkEngine, LinkLayer, contract, outbox
from bmgd.linklayer.heartbeats import HEARTBEAT_KIND
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.codec import kind_of_message
from bmgd.wire.link_messages import Goodbye, Heartbeat
from tests.property.fuzz_engine import fuzz
from tests.unit.linklayer.engines import ENGINES, data, goodbye, hopped, notice, ping
from tests.unit.linklayer.engines import snapshot as engine_snapshot

SIZE = 16
STEPS = 400
LINKS_MIN = 3
SEEDS = 40
HUGE_BYTES = 60_000


def test_engines_have_the_same_numbers() -> None:
    names = [name for name in vars(_engine) if name.isupper()]
    assert len(names) > 20
    for name in names:
        if name == "GOODBYE_KIND":
            assert kind_of_message(Goodbye) == _engine.GOODBYE_KIND
        elif name == "HEARTBEAT_KIND":
            assert kind_of_message(Heartbeat) == HEARTBEAT_KIND == _engine.HEARTBEAT_KIND
        else:
            where = outbox if hasattr(outbox, name) else contract
            assert getattr(_engine, name) == getattr(where, name), name


KINDS = (contract.RAW, contract.CONTROL, contract.URGENT, contract.HIGH, contract.BULK)


class Both:
    """An engine of each kind, and a random number generator that drives both alike."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.engines: tuple[LinkEngine, LinkEngine] = (LinkLayer(), _engine.Engine())
        self.links: dict[int, int] = {}
        self.streams: dict[int, bytes] = {}
        self.last_link = 0
        self.generation = 0
        self.serial = 0
        self.told: list[bytes] = []
        # Few steps are slow readers' ones, or no bound would ever be met.
        self.is_slow = self.random.random() < 0.4
        self.bad_share = 0.0002

    def call(self, name: str, *args: Any) -> Any:
        """Call the same method of both; what it returned."""
        python, c = (getattr(engine, name)(*args) for engine in self.engines)
        assert c == python, (name, args)
        return c

    def compare(self) -> None:
        """Whatever can be asked is the same."""
        python, c = (list(_without_sizes(engine.poll())) for engine in self.engines)
        assert c == python
        for link, what, detail in c:
            if what in (contract.END, contract.MALFORMED, contract.GOODBYE, contract.CLOSED):
                self.links.pop(link, None)
            if what == contract.FRAME and isinstance(detail, bytes) and self.random.random() < 0.5:
                self.call("know", detail)
        assert self.call("flush") is False
        self.call("totals")

    # --- what is done to them -----------------------------------------------------------------

    def adopt(self) -> None:
        """A new link, perhaps to a peer that is not known yet."""
        self.last_link += self.random.randrange(1, 5)
        peer = self.random.randrange(1, SIZE)
        self.links[self.last_link] = peer
        self.streams[self.last_link] = b""
        self.call("adopt", -1, self.last_link, self.random.choice((peer, -1)))

    def adopt_missing(self) -> None:
        """New links for those that ended, known to a new snapshot."""
        while len(self.links) < LINKS_MIN:
            self.adopt()
            self.publish()

    def promote(self) -> None:
        """The peer is known now."""
        link = self.any_link()
        self.call("promote", link, self.links.get(link, 3))

    def publish(self) -> None:
        """A snapshot that may name links that are gone, and lack some that are up."""
        self.generation += 1
        links = {peer: link for link, peer in self.links.items() if self.random.random() < 0.9} | {
            self.random.randrange(1, SIZE): 10**12 + self.generation
        }
        outside = sorted(self.random.sample(range(1, SIZE), self.random.randrange(3)))
        snapshot = _fastroute.Snapshot(self.generation, 0, SIZE, outside, sorted(links.items()))
        self.call("publish", snapshot)

    def feed(self) -> None:
        """Some bytes of a stream of frames, cut anywhere."""
        link = self.any_link()
        stream = self.streams.get(link, b"")
        wanted = self.random.choice((1, 1, 200, 200, 3000, 60_000, 400_000))
        while len(stream) < wanted:
            stream += self.frame()
        cut = self.random.choice((len(stream), self.random.randrange(len(stream) + 1)))
        self.call("feed", link, stream[:cut])
        self.streams[link] = stream[cut:]

    def put(self) -> None:
        """Frames of this node."""
        kind = self.random.choice(KINDS)
        run = b"".join(self.frame(bad=False) for _ in range(self.random.randrange(1, 40)))
        self.call("put", self.any_link(), run, kind)

    def take(self) -> None:
        """Write a piece of any size, with a boundary of two frames in it or without."""
        limit = self.random.choice((1, 3, 50, 1000, 70_000, 1 << 40))
        if not self.is_slow or limit < 1000 or self.random.random() < 0.01:
            self.call("take", self.any_link(), limit)

    def shut(self) -> None:
        """Say goodbye."""
        self.call("shut", self.any_link(), goodbye("done"))

    def finish(self) -> None:
        """The other end closed, or there was an error."""
        self.call("finish", self.any_link(), self.random.choice((0, errno.ECONNRESET)))

    def close(self) -> None:
        """End a link at once."""
        link = self.any_link()
        self.call("close", link)
        self.links.pop(link, None)

    def ask(self) -> None:
        """What the shell asks now and then."""
        self.call("heard")
        self.call("waiting")
        self.call("backlog", self.any_link())

    # --- frames -------------------------------------------------------------------------------

    def any_link(self) -> int:
        """A link, mostly one that is up."""
        known = list(self.links) or [1]
        return self.random.choice(known) if self.random.random() < 0.95 else 10**6

    def frame(self, *, bad: bool = True) -> bytes:
        """A frame for anybody, rarely none at all."""
        self.serial += 1
        chance = self.random.random()
        if bad and chance < self.bad_share:
            return self.random.randbytes(self.random.randrange(4, 80))
        if bad and chance < 2 * self.bad_share:
            return goodbye(str(self.serial))
        if chance < 0.1:
            return ping(self.serial)
        if chance < 0.2:
            return self.notice()
        to, priority = self.random.randrange(SIZE + 2), self.random.choice((0, 1, 2, 2, 3))
        if self.links and self.random.random() < 0.8:
            to = next(iter(self.links.values()))
        text = "x" * self.random.choice((0, 5, 64, 700, HUGE_BYTES if chance > 0.9 else 20))
        return data(to, f"{self.serial}{text}", priority, source=self.random.randrange(SIZE))

    def notice(self) -> bytes:
        """A notice, often one that came before."""
        if not self.told or self.random.random() < 0.3:
            record = Record(Incarnation(self.serial), 0, Status.DEAD, "h:1")
            self.told.append(notice((NodeId(3), record)))
        return self.random.choice(self.told)


def _without_sizes(happened: list[contract.Happening]) -> Iterator[contract.Happening]:
    """What happened; when WRITABLE comes, the layer may have taken more or fewer runs at once."""
    for link, what, detail in happened:
        if what == contract.WRITABLE:
            assert isinstance(detail, int)
            assert detail <= contract.BACKLOG_LOW_BYTES
        yield link, what, None if what == contract.WRITABLE else detail


@pytest.mark.parametrize("seed", range(SEEDS))
def test_engines_do_the_same_with_fed_links(seed: int) -> None:
    both = Both(seed)
    weights = {
        both.adopt: 4,
        both.promote: 2,
        both.publish: 6,
        both.feed: 40,
        both.put: 15,
        both.take: 25,
        both.shut: 0.5,
        both.finish: 0.5,
        both.close: 0.5,
        both.ask: 5,
    }
    for _ in range(STEPS):
        both.adopt_missing()
        action = both.random.choices(list(weights), list(weights.values()))[0]
        action()
        both.compare()
    for link in list(both.links):
        both.call("take", link, 1 << 40)
        both.call("close", link)
    both.compare()


def test_engines_met_every_bound_and_end() -> None:
    """The seeds above are worth little where nothing is dropped, returned or shut."""
    totals: dict[str, int] = {}
    for seed in range(5):
        both = Both(seed)
        both.is_slow, both.bad_share = True, 0.0
        both.adopt_missing()
        for _ in range(STEPS):
            both.random.choices((both.feed, both.put, both.take, both.publish), (20, 4, 2, 1))[0]()
            both.compare()
        for name, value in both.engines[1].totals().items():
            totals[name] = totals.get(name, 0) + value
    for name in ("relayed_frames", "absorbed_frames", "dropped_bulk_frames", "returned_frames"):
        assert totals[name] > 100, (name, totals)
    assert totals["dropped_urgent_frames"] > 100, totals


@pytest.mark.parametrize("name", ["c", "python"])
def test_engines_account_for_every_frame_over_sockets(name: str) -> None:
    for seed in range(1, 21):
        fuzz(seed, name)


def _small_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


@pytest.mark.parametrize("name", ["c", "python"])
@pytest.mark.parametrize("beyond", range(-3, 4))
def test_engines_find_the_frame_that_a_write_cut(name: str, beyond: int) -> None:
    """A frame ends just before, at or just behind what the socket takes, and control overtakes there."""
    ours, theirs = _small_pair()
    taken = ours.send(bytes(40_000))
    ours.close()
    theirs.close()
    ours, theirs = _small_pair()
    first = data(2, "x" * (taken + beyond - len(data(2))))
    rest = [data(2, f"{number:03}" * 100) for number in range(60)]
    engine = ENGINES[name]()
    engine.adopt(-1, 1, 1)
    engine.adopt(ours.detach(), 2, 2)
    engine.publish(engine_snapshot({1: 1, 2: 2}))
    engine.feed(1, first + b"".join(rest))
    engine.flush()
    engine.put(2, ping(1), contract.CONTROL)
    got, wanted = b"", len(first) + sum(map(len, rest)) + len(ping(1))
    for _ in range(10_000):
        engine.poll()
        engine.flush()
        with suppress(BlockingIOError):
            got += theirs.recv(1000)
        if len(got) == wanted:
            break
    at = got.index(ping(1))
    frames = [hopped(frame) for frame in (first, *rest)]
    assert got[:at] + got[at + len(ping(1)) :] == b"".join(frames)
    # Behind the frame that was cut, or before the next where none was.
    assert at == len(first) + (len(rest[0]) if beyond < 0 else 0)
    engine.close(1)
    engine.close(2)
    theirs.close()
