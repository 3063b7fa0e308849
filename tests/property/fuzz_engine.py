"""Drive an engine over real sockets: partial writes, slow readers, closes and goodbyes in the middle.

    python -m tests.property.fuzz_engine --rounds 300 --seed 1 [--engine c|python]

Socket pairs with small buffers stand for links; their other ends send pieces of streams and read pieces
of what comes. Each routed frame has a number of its own. Checked, whatever happens:

* what comes out of a link are whole frames one behind another, until the link ends;
* no number comes out twice: not at two links, not at a link and at the core;
* numbers of one source, destination and urgency come out in the order in which they went in;
* where every end was in order, each number came out, was returned, or is counted as dropped.

It is meant to run under the sanitizers (.ci/sanitize) too. A failure names the seed of its round.
"""

from __future__ import annotations

import argparse
import gc
import os
import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bmgd import _fastroute
from bmgd.linklayer import LinkEngine, contract
from tests.unit.linklayer.engines import ENGINES, data, goodbye, ping

SIZE = 8
STEPS = 150
NUMBER = struct.Struct(">Q")
ROUNDS_MAX = 20_000
PAYLOAD_AT = 4 + 3 + 32 + 3


@dataclass(slots=True, eq=False)
class Peer:
    """The other end of a link, and what is known of it.

    Attributes:
        to_send: what it has not yet written.
        came: what it has read and not yet split.
        is_closed: this end is closed, so nothing more comes out of it.
    """

    sock: socket.socket
    link: int
    node: int
    to_send: bytes = b""
    came: bytes = b""
    is_closed: bool = False
    said_goodbye: bool = False
    numbers: list[int] = field(default_factory=list)


class Fuzz:
    """One round: an engine, peers, and what became of every number."""

    def __init__(self, seed: int, engine: LinkEngine) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.engine = engine
        self.peers: dict[int, Peer] = {}
        self.former: list[Peer] = []
        self.where: dict[int, str] = {}
        self.sent: dict[int, tuple[int, int, int]] = {}
        self.delivered: list[tuple[int, int]] = []
        self.unread = 0
        self.last_link = 0
        self.generation = 0
        # Half of the rounds have only orderly ends, and there nothing may be missing.
        self.is_orderly = seed % 2 == 0
        self.socket_bytes = self.random.choice((2048, 8192, 100_000))

    # --- links --------------------------------------------------------------------------------

    def open(self) -> None:
        """A new link."""
        taken = {peer.node for peer in self.peers.values()}
        free = [node for node in range(1, SIZE) if node not in taken]
        if not free:
            return
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.socket_bytes)
        for sock in (ours, theirs):
            sock.setblocking(False)
        self.last_link += 1
        peer = Peer(theirs, self.last_link, self.random.choice(free))
        self.peers[peer.link] = peer
        self.engine.adopt(ours.detach(), peer.link, peer.node)
        self.publish()

    def publish(self) -> None:
        """A snapshot of the links that are up, now and then one too few or too many."""
        self.generation += 1
        links = [(peer.node, peer.link) for peer in self.peers.values()]
        if links and self.random.random() < 0.1:
            links.pop(self.random.randrange(len(links)))
        snapshot: Any = _fastroute.Snapshot(self.generation, 0, SIZE, (), sorted(links))
        self.engine.publish(snapshot)

    def forget(self, link: int) -> None:
        """A link that is gone at the engine."""
        peer = self.peers.pop(link, None)
        if peer is not None:
            self.former.append(peer)

    # --- what peers do ------------------------------------------------------------------------

    def frame(self, source: int) -> bytes:
        """A routed frame with a number of its own."""
        number = len(self.sent) + 1
        to, priority = self.random.randrange(SIZE), self.random.choice((0, 1, 2, 2))
        self.sent[number] = (source, to, priority)
        size = self.random.choice((0, 10, 500, 5000, 50_000))
        text = NUMBER.pack(number).hex() + "x" * size
        return data(to, text, priority, source=source)

    def talk(self, peer: Peer) -> None:
        """Send some bytes."""
        if not peer.to_send and not peer.said_goodbye:
            for _ in range(self.random.randrange(1, 12)):
                peer.to_send += ping(1) if self.random.random() < 0.2 else self.frame(peer.node)
        self.write(peer, self.random.choice((1, 30, 1000, 200_000)))

    def write(self, peer: Peer, limit: int) -> None:
        """Send what waits, as far as the socket takes it."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            sent = peer.sock.send(peer.to_send[:limit]) if peer.to_send else 0
            peer.to_send = peer.to_send[sent:]

    def read(self, peer: Peer, limit: int) -> bool:
        """Read some bytes; whether there were any."""
        try:
            came = peer.sock.recv(limit)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return False
        peer.came += came
        while len(peer.came) >= 4:
            end = 4 + int.from_bytes(peer.came[:4], "big")
            assert 39 <= end <= 83972, self.seed
            if len(peer.came) < end:
                break
            self.arrived(peer, peer.came[4:end])
            peer.came = peer.came[end:]
        return bool(came)

    def arrived(self, peer: Peer, body: bytes) -> None:
        """A whole frame came out of a link."""
        assert body[1:3] == b"\xc4\x20", self.seed
        if body[3] >= 0x40:
            number = self.number_of(body)
            self.note(number, f"link {peer.link}")
            peer.numbers.append(number)

    def number_of(self, body: bytes) -> int:
        """The number of a routed frame."""
        at = PAYLOAD_AT - 4
        return int(body[at : at + 16], 16)

    def note(self, number: int, where: str) -> None:
        """A frame is somewhere, and nowhere else."""
        assert number in self.sent, self.seed
        assert number not in self.where, (self.seed, number, self.where[number], where)
        self.where[number] = where

    def hang_up(self, peer: Peer) -> None:
        """Close in the middle of anything, or end the writing side only."""
        if self.is_orderly:
            return
        if self.random.random() < 0.3:
            with suppress(OSError):
                peer.sock.shutdown(socket.SHUT_WR)
            peer.said_goodbye = True
            peer.to_send = b""
            return
        peer.sock.close()
        peer.is_closed = True
        self.former.append(self.peers.pop(peer.link))

    def say_goodbye(self, peer: Peer) -> None:
        """Everything, then the last frame."""
        if not peer.said_goodbye:
            peer.said_goodbye = True
            peer.to_send += goodbye("enough")

    # --- what the daemon does -----------------------------------------------------------------

    def put(self, peer: Peer) -> None:
        """Frames of this node."""
        kind = self.random.choice((contract.CONTROL, contract.URGENT, contract.HIGH, contract.BULK))
        priority = {contract.BULK: 2, contract.HIGH: 1}.get(kind, 0)
        run, numbers = b"", []
        for _ in range(self.random.randrange(1, 6)):
            number = len(self.sent) + 1
            self.sent[number] = (0, peer.node, priority if kind != contract.CONTROL else 9)
            run += data(peer.node, NUMBER.pack(number).hex(), priority)
            numbers.append(number)
        if self.engine.put(peer.link, run, kind) != contract.PUT:
            for number in numbers:
                self.note(number, "not put")

    def shut(self, peer: Peer) -> None:
        """Say goodbye from this side."""
        self.engine.shut(peer.link, goodbye("bye"))

    def close(self, peer: Peer) -> None:
        """End a link at once."""
        if self.is_orderly:
            return
        for body in self.engine.close(peer.link):
            self.note(self.number_of(body), "given back")
        self.forget(peer.link)

    def turn(self) -> None:
        """What one turn of the loop does."""
        again = True
        while again:
            for link, what, detail in self.engine.poll():
                self.on(link, what, detail)
            again = self.engine.flush()
        self.engine.heard()

    def on(self, link: int, what: int, detail: bytes | int | str | None) -> None:
        """Something happened."""
        assert 1 <= link <= self.last_link, self.seed
        if what in (contract.FRAME, contract.RETURNED):
            assert isinstance(detail, bytes)
            if detail[3] >= 0x40:
                self.note(self.number_of(detail), "core" if what == contract.FRAME else "returned")
        elif what in (contract.END, contract.GOODBYE, contract.CLOSED):
            self.forget(link)
        else:
            assert what in (contract.BACKLOGGED, contract.WRITABLE), (self.seed, what, detail)

    # --- a round ------------------------------------------------------------------------------

    def run(self) -> None:
        """Steps, then rest, then the checks."""
        actions = [self.talk, self.put, self.say_goodbye, self.shut, self.hang_up, self.close]
        weights = [30, 6, 0.4, 0.4, 0.4, 0.3]
        for _ in range(STEPS):
            if len(self.peers) < 3:
                self.open()
            peer = self.random.choice(list(self.peers.values()))
            chance = self.random.random()
            if chance < 0.3:
                self.read(peer, self.random.choice((1, 100, 5000, 100_000)))
            elif chance < 0.6:
                self.turn()
            elif chance < 0.65:
                self.publish()
            else:
                self.random.choices(actions, weights)[0](peer)
        self.rest()
        self.check()

    def rest(self) -> None:
        """Let everything come out: all peers send their rest, and read on."""
        for _ in range(ROUNDS_MAX):
            busy = False
            self.turn()
            for peer in (*self.peers.values(), *self.former):
                if not peer.is_closed:
                    if peer.link in self.peers:
                        self.write(peer, 1 << 20)
                    busy |= self.read(peer, 1 << 20)
            waits = any(peer.to_send for peer in self.peers.values())
            # A link may be left unread for half a millisecond, and says nothing meanwhile.
            if not (busy or waits or select.select([self.engine.fileno()], [], [], 0.005)[0]):
                return
            for peer in list(self.former):
                # An orderly end is seen by both: what the engine closed is closed here too.
                if not peer.is_closed and not self.is_orderly:
                    peer.sock.close()
                    peer.is_closed = True
            for peer in list(self.peers.values()):
                if peer.said_goodbye and not peer.to_send:
                    with suppress(OSError):
                        peer.sock.shutdown(socket.SHUT_WR)
        raise AssertionError(f"seed {self.seed}: no rest, {self.engine.totals()}")

    def check(self) -> None:
        """Order, and completeness where all ends were orderly."""
        for peer in (*self.peers.values(), *self.former):
            last: dict[tuple[int, int, int], int] = {}
            for number in peer.numbers:
                source = self.sent[number]
                assert number > last.get(source, 0), (self.seed, number)
                last[source] = number
            peer.sock.close()
        totals = self.engine.totals()
        dropped = totals["dropped_urgent_frames"] + totals["dropped_bulk_frames"]
        # What was put and dropped is noted already.
        dropped -= sum(1 for where in self.where.values() if where == "not put")
        if self.is_orderly:
            missing = set(self.sent) - set(self.where) - self.unsent()
            assert len(missing) <= max(0, dropped), (self.seed, len(missing), totals)

    def unsent(self) -> set[int]:
        """Numbers that never reached the engine: their link ended first, by a goodbye."""
        found = set()
        for peer in (*self.peers.values(), *self.former):
            if peer.to_send or peer.said_goodbye or peer.link not in self.peers:
                found |= {n for n, (source, _, _) in self.sent.items() if source == peer.node}
        return found


def fuzz(seed: int, name: str) -> None:
    """One round; nothing of it stays open."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    Fuzz(seed, ENGINES[name]()).run()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before, seed


def main() -> None:
    """Run as many rounds as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="how many engines to try")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first round")
    parser.add_argument("--engine", choices=("c", "python"), default="c")
    chosen = parser.parse_args()
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        fuzz(seed, chosen.engine)
    print(f"{chosen.rounds} rounds from seed {chosen.seed}: every frame accounted for")


if __name__ == "__main__":
    main()
