"""Engines with descriptors: what they read, write, watch and close."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import sys
import termios
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from bmgd.linklayer import LinkEngine, LinkLayer
from bmgd.linklayer.contract import (
    BULK,
    CLOSED,
    CONTROL,
    END,
    FRAME,
    GOODBYE,
    PUT,
    RAW,
    RETURNED,
    Happening,
)
from bmgd.linklayer.outbox import BULK_TURN_BYTES
from tests.unit.linklayer.engines import (
    ENGINES,
    body,
    data,
    goodbye,
    hopped,
    ping,
    snapshot,
)

LEFT, RIGHT = 11, 12
ROUNDS = 2000
SMALL_BYTES = 8 * 1024

FRESH_BYTES = 16 * 1024
UNSENT_BYTES_MAX = 4 * 1024 * 1024
LONGER_THAN_A_LONG_BLOCK_S = 0.01
ENGINE_IN_C = pytest.mark.skipif("c" not in ENGINES, reason="the engine in C was not built")

WITH_SOCKETS = {name: make for name, make in ENGINES.items() if make is not LinkLayer}


class Pair:
    """An engine with two TCP links, and the sockets at their other ends."""

    def __init__(self, make: Callable[[], LinkEngine]) -> None:
        self.engine = make()
        self.kept: list[Happening] = []
        self.descriptors: dict[int, int] = {}
        self.left, self.right = self._connect(LEFT, 1), self._connect(RIGHT, 2)
        self.engine.publish(snapshot({1: LEFT, 2: RIGHT}))

    def _connect(self, link: int, peer: int) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            # Set before the handshake, or the window is what it was.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
            ours = socket.socket()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
            ours.connect(listener.getsockname())
            theirs, _ = listener.accept()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.descriptors[link] = ours.detach()
        self.engine.adopt(self.descriptors[link], link, peer)
        return theirs

    def is_ready(self) -> bool:
        """Whether the loop would wake for the engine."""
        return bool(select.select([self.engine.fileno()], [], [], 0)[0])

    def turn(self) -> list[Happening]:
        """What one turn of the loop does."""
        happened = self.engine.poll()
        while self.engine.flush():
            happened += self.engine.poll()
        return happened

    def until(self, count: int) -> list[Happening]:
        """What happens, until there are so many of it."""
        happened, self.kept = self.kept, []
        for _ in range(ROUNDS):
            if len(happened) >= count:
                return happened
            select.select([self.engine.fileno()], [], [], 0.01)
            happened += self.turn()
        raise TimeoutError(f"only {happened}")

    def read(self, theirs: socket.socket, count: int) -> bytes:
        """So many bytes that the engine wrote, while it has its turns."""
        got = b""
        for _ in range(ROUNDS):
            self.kept += self.turn()
            if select.select([theirs], [], [], 0.01)[0]:
                some = theirs.recv(count - len(got))
                got += some
                if not some or len(got) == count:
                    return got
        raise TimeoutError(f"{len(got)} of {count} bytes")


@pytest.fixture(params=sorted(WITH_SOCKETS))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """An engine and the other ends of its links."""
    pair = Pair(WITH_SOCKETS[request.param])
    yield pair
    for link in (LEFT, RIGHT):
        pair.engine.close(link)
    pair.left.close()
    pair.right.close()


def have_wait(pair: Pair, frames: bytes) -> None:
    """Have frames on the left link of which none is read yet."""
    with socket.socket(fileno=os.dup(pair.descriptors[LEFT])) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024 * 1024)
    pair.left.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = 0
    for _ in range(ROUNDS):
        with suppress(BlockingIOError):
            sent += pair.left.send(frames[sent:])
        if unread_bytes(pair.descriptors[LEFT]) == len(frames):
            return
        select.select([], [pair.left] if sent < len(frames) else [], [], 0.01)
    raise TimeoutError(f"{unread_bytes(pair.descriptors[LEFT])} of {len(frames)} bytes wait")


def reset(theirs: socket.socket) -> None:
    """Close with a reset."""
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()


def test_engine_relays_between_sockets(pair: Pair) -> None:
    pair.left.sendall(data(2, "x") + ping(1))
    assert pair.until(1) == [(LEFT, FRAME, body(ping(1)))]
    assert pair.read(pair.right, len(data(2, "x"))) == hopped(data(2, "x"))
    assert pair.engine.heard() == (LEFT,)


def test_engine_is_quiet_when_nothing_is_ready(pair: Pair) -> None:
    assert not pair.is_ready()
    pair.left.sendall(ping(1)[:5])
    assert select.select([pair.engine.fileno()], [], [], 5)[0]
    assert pair.turn() == []
    assert not pair.is_ready()


def test_engine_keeps_nothing_of_frames_that_were_written(pair: Pair) -> None:
    sizes = []
    tracemalloc.start()
    for _ in range(2):
        for number in range(20_000):
            assert pair.engine.put(RIGHT, ping(1), CONTROL) == PUT
            pair.engine.flush()
            if number % 64 == 63 and select.select([pair.right], [], [], 0)[0]:
                pair.right.recv(1 << 20)
        pair.read(pair.right, 1)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] - sizes[0] < 64 * 1024


def test_engine_reads_256_kib_of_a_link_in_a_round_at_most(pair: Pair) -> None:
    each = data(0, "x" * 30_000)
    frames, sent = 0, 0
    for _ in range(ROUNDS):
        while sent < 40 * len(each):
            try:
                sent += pair.left.send((each * 40)[sent:])
            except BlockingIOError:
                break
        before = pair.engine.totals()["received_bytes"]
        frames += len(pair.engine.poll())
        assert pair.engine.totals()["received_bytes"] - before <= 256 * 1024
        if frames == 40:
            return
    raise AssertionError(f"{frames} frames")


@ENGINE_IN_C
@pytest.mark.parametrize("pair", ["c"], indirect=True)
def test_engine_reads_256_kib_of_a_link_in_a_round_where_so_much_waits(
    pair: Pair,
) -> None:
    have_wait(pair, data(0, "x" * 30_000) * 9)
    before = pair.engine.totals()["received_bytes"]
    pair.engine.poll()
    assert pair.engine.totals()["received_bytes"] - before == 256 * 1024


def test_engine_writes_what_was_read_behind_the_hello_first(pair: Pair) -> None:
    pair.engine.put(LEFT, ping(1), CONTROL)
    pair.engine.put(LEFT, b"welcome", RAW)
    assert pair.read(pair.left, 7 + len(ping(1))) == b"welcome" + ping(1)
    pair.engine.feed(LEFT, ping(2)[:7])
    pair.left.sendall(ping(2)[7:])
    assert pair.until(1) == [(LEFT, FRAME, body(ping(2)))]


def test_engine_waits_for_a_socket_that_takes_no_more(pair: Pair) -> None:
    frames = [data(1, f"{number:05}" * 4000) for number in range(150)]
    for frame in frames:
        pair.engine.put(LEFT, frame, BULK)
    pair.turn()
    assert pair.engine.backlog(LEFT) > 0
    # Blocked: the engine waits for room, it does not spin.
    assert not pair.is_ready()
    pair.engine.put(LEFT, ping(1), CONTROL)
    got = pair.read(pair.left, sum(map(len, frames)) + len(ping(1)))
    at = got.index(ping(1))
    assert got[:at] + got[at + len(ping(1)) :] == b"".join(frames)
    assert at % len(frames[0]) == 0
    assert at < len(got) // 2


def test_engine_gives_bulk_its_turn_where_as_much_comes_as_waits(pair: Pair) -> None:
    control = [data(2, f"{number:04}" * 250, 0) for number in range(1000)]
    waiting, coming = data(2, "a" * 5000), data(2, "b" * 5000)
    have_wait(pair, coming)
    pair.engine.put(RIGHT, waiting, BULK)
    pair.engine.put(RIGHT, b"".join(control), CONTROL)
    got = pair.read(pair.right, len(b"".join((waiting, coming, *control))))
    first = -(-BULK_TURN_BYTES // len(control[0]))
    bulk = [waiting, hopped(coming)]
    assert got == b"".join([*control[:first], *bulk, *control[first:]])


@pytest.mark.parametrize("how", ["eof", "reset"])
def test_engine_ends_a_link_whose_peer_is_gone(pair: Pair, how: str) -> None:
    pair.left.sendall(ping(1))
    assert pair.until(1) == [(LEFT, FRAME, body(ping(1)))]
    pair.left.close() if how == "eof" else reset(pair.left)
    ((link, what, number),) = pair.until(1)
    assert (link, what) == (LEFT, END)
    assert number == (0 if how == "eof" else errno.ECONNRESET)
    assert not pair.is_ready()
    assert pair.turn() == []


def test_engine_reads_what_waits_before_an_error_of_writing_ends_the_link(pair: Pair) -> None:
    pair.left.sendall(ping(1) + goodbye())
    reset(pair.left)
    for _ in range(3):
        pair.engine.put(LEFT, data(1, "x"), BULK)
        pair.engine.flush()
    happened = pair.until(2)
    while happened[-1][1] not in (END, RETURNED):
        happened += pair.until(1)
    # A kernel may drop what a reset overtook, but nothing of it is half told.
    assert [what for _, what, _ in happened if what != RETURNED] in (
        [FRAME, GOODBYE],
        [END],
    )


def test_engine_returns_the_unsent_of_a_link_that_broke(pair: Pair) -> None:
    each = data(1, "x" * 60_000)
    for _ in range(50):
        pair.engine.put(LEFT, each, BULK)
    pair.turn()
    reset(pair.left)
    happened = pair.until(2)
    assert happened[0][:2] == (LEFT, END)
    assert {what for _, what, _ in happened[1:]} == {RETURNED}
    assert 0 < len(happened[1:]) <= 50


def test_engine_says_goodbye_and_is_closed_by_the_other_end(pair: Pair) -> None:
    bulk = data(1, "x" * 60_000) * 4
    pair.engine.put(LEFT, bulk, BULK)
    pair.engine.shut(LEFT, goodbye())
    assert pair.read(pair.left, len(bulk) + len(goodbye()) + 1) == bulk + goodbye()
    pair.left.sendall(ping(1))
    assert pair.until(1) == [(LEFT, FRAME, body(ping(1)))]
    pair.left.close()
    assert pair.until(1) == [(LEFT, CLOSED, None)]
    assert not pair.is_ready()


def test_engine_closes_when_both_ends_said_goodbye(pair: Pair) -> None:
    bulk = data(1, "x" * 60_000) * 50
    pair.engine.put(LEFT, bulk, BULK)
    pair.engine.shut(LEFT, goodbye())
    pair.turn()
    pair.left.sendall(goodbye())
    pair.left.shutdown(socket.SHUT_WR)
    assert pair.turn() == []
    # The end of the other side's bytes stays readable, and must not wake the loop for ever.
    pair.turn()
    assert not pair.is_ready()
    assert pair.read(pair.left, len(bulk) + len(goodbye())) == bulk + goodbye()
    assert pair.until(1) == [(LEFT, CLOSED, None)]
    assert pair.read(pair.left, 1) == b""


def test_engine_closes_a_socket_at_once_when_told(pair: Pair) -> None:
    pair.engine.put(LEFT, data(1, "x"), BULK)
    assert pair.engine.close(LEFT) == [body(data(1, "x"))]
    assert pair.read(pair.left, 1) == b""
    assert not pair.is_ready()


def test_engine_does_not_take_a_descriptor_that_cannot_be_watched(
    pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("plain") / "file"
    with path.open("wb") as file, pytest.raises(OSError, match=r".*"):
        pair.engine.adopt(file.fileno(), 99, 3)
    pair.engine.adopt(-1, 99, 3)
    pair.engine.close(99)


def test_engine_takes_fed_links_beside_sockets(pair: Pair) -> None:
    pair.engine.adopt(-1, 77, 4)
    pair.engine.publish(snapshot({1: LEFT, 4: 77}, 2))
    pair.left.sendall(data(4, "x"))
    for _ in range(ROUNDS):
        select.select([pair.engine.fileno()], [], [], 0.01)
        pair.turn()
        if pair.engine.waiting() == (77,):
            break
    assert pair.engine.take(77, 1 << 20) == hopped(data(4, "x"))
    pair.engine.feed(77, data(1, "back"))
    assert pair.read(pair.left, len(data(1, "back"))) == hopped(data(1, "back"))
    pair.engine.close(77)


# --- the engine in C only ---------------------------------------------------------------------------


@contextmanager
def linked(engine: LinkEngine, unsent_bytes: int = 0) -> Iterator[tuple[int, socket.socket]]:
    """A link: its descriptor, and the socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    if unsent_bytes:
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)
    ours.setblocking(False)
    descriptor = ours.detach()
    engine.adopt(descriptor, LEFT, 1)
    with theirs:
        yield descriptor, theirs
        engine.close(LEFT)


def unsent_bytes(descriptor: int) -> int:
    """How much may be written and not sent."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)


def unread_bytes(descriptor: int) -> int:
    """How much waits in the kernel to be read."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


@ENGINE_IN_C
def test_engine_lets_a_fast_link_have_more_unsent_and_a_slow_one_less_again() -> None:
    engine = ENGINES["c"]()
    with linked(engine, FRESH_BYTES) as (descriptor, theirs):
        # A fast reader: what was blocked can be written again at once.
        for _ in range(ROUNDS):
            engine.put(LEFT, data(1, "x" * 50_000) * 20, BULK)
            engine.flush()
            while engine.backlog(LEFT) and select.select([theirs], [], [], 0)[0]:
                theirs.recv(1 << 20)
                engine.poll()
            if unsent_bytes(descriptor) > FRESH_BYTES:
                break
        assert unsent_bytes(descriptor) > FRESH_BYTES
        # A slow one, until as little is allowed as in the beginning, and never less.
        for _ in range(ROUNDS):
            engine.put(LEFT, data(1, "x" * 50_000), BULK)
            engine.flush()
            engine.poll()
            if engine.backlog(LEFT) > 20 * 50_000:
                while engine.backlog(LEFT) and select.select([theirs], [], [], 0.1)[0]:
                    # Before each, or what was blocked is written again at once, as by a fast one.
                    time.sleep(LONGER_THAN_A_LONG_BLOCK_S)
                    theirs.recv(1 << 20)
                    engine.poll()
            if unsent_bytes(descriptor) == FRESH_BYTES:
                break
        assert unsent_bytes(descriptor) == FRESH_BYTES


@ENGINE_IN_C
def test_engine_leaves_alone_what_a_socket_may_have_unsent_above_its_own_bound() -> None:
    engine = ENGINES["c"]()
    with linked(engine, 2 * UNSENT_BYTES_MAX) as (descriptor, theirs):
        for _ in range(ROUNDS):
            engine.put(LEFT, data(1, "x" * 50_000) * 20, BULK)
            engine.flush()
            if engine.backlog(LEFT):
                break
        # Blocked now; it is written again when there is room.
        backlog_bytes = engine.backlog(LEFT)
        while engine.backlog(LEFT) >= backlog_bytes:
            assert select.select([theirs], [], [], 10)[0]
            theirs.recv(1 << 20)
            engine.poll()
        assert unsent_bytes(descriptor) == 2 * UNSENT_BYTES_MAX


@ENGINE_IN_C
@pytest.mark.parametrize("pair", ["c"], indirect=True)
def test_engine_reads_a_link_less_that_gives_only_what_must_wait_but_goes_on(
    pair: Pair,
) -> None:
    frame = data(2, "x" * 30_000)
    pair.left.setblocking(True)
    pair.left.settimeout(10)
    sending = threading.Thread(target=pair.left.sendall, args=(frame * 400,))
    sending.start()
    deferred = False
    totals = pair.engine.totals()
    # Nobody reads at the right: all is taken still, and what has no room is dropped.
    while totals["received_bytes"] < 400 * len(frame):
        assert select.select([pair.engine.fileno()], [], [], 10)[0]
        pair.turn()
        totals = pair.engine.totals()
        deferred |= unread_bytes(pair.descriptors[LEFT]) > 0 and not pair.is_ready()
    sending.join(10)
    assert deferred
    assert totals["dropped_bulk_frames"] > 0
    assert totals["relayed_frames"] + totals["dropped_bulk_frames"] == 400


@ENGINE_IN_C
@pytest.mark.parametrize("pair", ["c"], indirect=True)
def test_engine_ends_its_writing_once_where_a_goodbye_is_written_before_it_is_due(
    pair: Pair,
) -> None:
    while not pair.engine.backlog(LEFT):
        pair.engine.put(LEFT, data(1, "x" * 20_000), BULK)
        pair.engine.flush()
    with socket.socket(fileno=os.dup(pair.descriptors[LEFT])) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
    # More than one poll reads, and an end behind it: with ours the connection is over.
    have_wait(pair, data(0, "x" * 30_000) * 9)
    pair.left.shutdown(socket.SHUT_WR)
    unread = pair.engine.totals()["sent_bytes"]
    while unread:
        assert select.select([pair.left], [], [], 10)[0]
        unread -= len(pair.left.recv(unread))
    pair.engine.shut(LEFT, goodbye())
    assert [what for _, what, _ in pair.engine.poll()] == [FRAME] * 8
    assert pair.engine.backlog(LEFT) == 0
    # Ended a second time it would count as broken, which poll tells.
    assert pair.engine.flush() is False
    assert [what for _, what, _ in pair.until(2)] == [FRAME, CLOSED]


@ENGINE_IN_C
@pytest.mark.parametrize("call", ["poll", "flush"])
def test_engine_refuses_a_second_thread_while_it_works(call: str) -> None:
    """It gives up the GIL meanwhile, and its tables are nobody else's then."""
    engine = ENGINES["c"]()
    refused, is_over = [], threading.Event()

    def disturb() -> None:
        while not is_over.is_set():
            try:
                engine.backlog(LEFT)
            except RuntimeError as error:
                refused.append(str(error))

    with linked(engine) as (_, theirs):
        theirs.setblocking(False)
        other = threading.Thread(target=disturb)
        other.start()
        # So much that it takes the kernel a while.
        frames = data(1, "x" * 50_000) * 60
        deadline_s = time.monotonic() + 60
        while not refused and time.monotonic() < deadline_s:
            try:
                engine.put(LEFT, frames, BULK)
                engine.flush() if call == "flush" else engine.poll()
                while theirs.recv(4 << 20):
                    pass
            except (BlockingIOError, RuntimeError):
                continue
        is_over.set()
        other.join(10)
    assert set(refused) == {"the engine is in use by another thread"}
