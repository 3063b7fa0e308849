"""Arbitrary values: ids, lives, numbers, routes, from small pools.

So they often fit what the node knows: ids in and around the cluster, lives that exist, numbers that were
used, the ends of each range.
"""

from __future__ import annotations

from collections import deque
from random import Random

from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE, id_set, ids_between
from bmgd.types import NODE_ID_MAX, Incarnation, NodeId, Record, Status, incarnation_tag
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX, RECORDS_PER_NOTICE_MAX
from bmgd.wire.broadcast_messages import Skip
from bmgd.wire.features import SPOKEN
from bmgd.wire.routes import Route, Search, Visited

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
TOPICS = ("jobs", "logs", "a", "é" * 120)
MS = 1_000_000
KEPT = 256
"""Messages and numbers that are remembered, to be used again."""


class Values:
    """Invents the values that messages and commands have.

    Args:
        random: decides everything.
        own: the node's id.
        founding_size: of its cluster.

    Attributes:
        lives: some that exist.
        numbers: some that were used.
    """

    def __init__(self, random: Random, own: NodeId, founding_size: int) -> None:
        self.random = random
        self.own = own
        self.founding_size = founding_size
        self.lives: deque[int] = deque((1 << 32, (1 << 32) + 1), KEPT)
        self.numbers: deque[int] = deque((1, 2), KEPT)

    def chance(self, share: float) -> bool:
        """True in this share of the calls."""
        return self.random.random() < share

    def id(self) -> NodeId:
        """An id: mostly in the cluster, or just above; rarely any."""
        chosen = self.random.randrange(20)
        if chosen < 12:
            return NodeId(self.random.randrange(self.founding_size))
        if chosen < 15:
            return self.own
        if chosen < 18:
            return NodeId(self.founding_size + self.random.randrange(12))
        if chosen == 18:
            return NodeId(self.random.choice((4095, 4096, 32_767, 32_768, ID_SET_SPACE - 1)))
        return NodeId(
            self.random.choice((NODE_ID_MAX, NODE_ID_MAX - 1, self.random.getrandbits(31)))
        )

    def other(self) -> NodeId:
        """An id that is not the node's own."""
        while (found := self.id()) == self.own:
            pass
        return found

    def life(self) -> Incarnation:
        """A life: mostly one that was met."""
        if self.chance(0.9):
            return Incarnation(self.random.choice(self.lives))
        return Incarnation(
            self.random.choice(
                (0, 1, 1 << 32, U64_MAX, U64_MAX - 1, U32_MAX << 32, self.random.getrandbits(64))
            )
        )

    def number(self, low: int = 0, high: int = U64_MAX) -> int:
        """A number in a range: small, met before, next to one, or an end of the range."""
        chosen = self.random.randrange(10)
        if chosen < 4:
            found = self.random.randrange(12)
        elif chosen < 8:
            found = self.random.choice(self.numbers) + self.random.randrange(-1, 3)
        elif chosen == 8:
            found = self.random.choice((low, high, high - 1, U32_MAX, 1 << 32, 4096, 1 << 20))
        else:
            found = self.random.getrandbits(self.random.choice((8, 16, 32, 48, 64)))
        return min(max(found, low), high)

    def digest(self) -> int:
        """128 random bits."""
        return self.random.getrandbits(128)

    def stream_number(self) -> int:
        """A route's sequence as segments have it."""
        if self.chance(0.5):
            return self.number()
        return self.number(0, U32_MAX) << 32 | self.number(0, U32_MAX)

    def tag(self) -> int:
        """The tag of a life, or any."""
        return incarnation_tag(self.life()) if self.chance(0.8) else self.number(0, U32_MAX)

    def topic(self) -> str:
        """One of a few topics."""
        return self.random.choice(TOPICS)

    def payload(self) -> bytes:
        """Mostly short; sometimes the longest."""
        size = self.random.choice((0, 1, 5, 40, 40, 900))
        return bytes(PAYLOAD_BYTES_MAX if self.chance(0.01) else size)

    def ids(self, most: int = 6) -> tuple[NodeId, ...]:
        """Some ids, in any order."""
        return tuple(self.id() for _ in range(self.random.randrange(most)))

    def id_set(self) -> int:
        """A set of ids below `ID_SET_SPACE`."""
        chosen = self.random.randrange(4)
        if chosen == 0:
            return ids_between(0, self.founding_size)
        if chosen == 1:
            first = self.random.randrange(self.founding_size)
            return ids_between(first, first + self.random.choice((1, 2, 40, 5000)))
        return id_set(each for each in self.ids() if each < ID_SET_SPACE)

    def branches(self) -> tuple[Branch, ...]:
        """Some branches of a broadcast."""
        return tuple(
            Branch(self.id(), self.id_set()) for _ in range(self.random.choice((0, 1, 1, 2, 3, 9)))
        )

    def runs(self) -> tuple[tuple[NodeId, NodeId], ...]:
        """Ascending runs of ids, none touching another."""
        ends = sorted({2 * each for each in self.ids(8) if each < NODE_ID_MAX // 2})
        return tuple((NodeId(a), NodeId(b)) for a, b in zip(ends[::2], ends[1::2], strict=False))

    def record(self) -> Record:
        """What somebody could claim of an id."""
        return Record(
            self.life(),
            self.number(0, U32_MAX) if self.chance(0.3) else self.random.randrange(3),
            self.random.choice(tuple(Status)),
            self.address(),
        )

    def records(self) -> tuple[tuple[NodeId, Record], ...]:
        """Records of some ids, in order."""
        most = 300 if self.chance(0.01) else 5
        known = {each: self.record() for each in self.ids(most)}
        return tuple(sorted(known.items())[:RECORDS_PER_NOTICE_MAX])

    def address(self) -> str:
        """An address as peers tell it: any text of at most 255 bytes."""
        return self.random.choice(
            (
                "127.0.0.1:7401",
                "127.0.0.1:7402",
                "10.0.0.9:1",
                "[::1]:7400",
                "",
                "nonsense",
                "x" * 255,
            )
        )

    def skips(self) -> tuple[Skip, ...]:
        """Ranges that nodes skip."""
        found = []
        for _ in range(self.random.choice((0, 0, 1, 2, 16))):
            first = self.number(1)
            found.append(Skip(self.id(), first, self.number(first), self.chance(0.5)))
        return tuple(found)

    def search(self) -> Search:
        """The state of a search in careful mode."""
        visited: Visited = (
            bytes(self.random.getrandbits(8) for _ in range(self.random.choice((0, 1, 2, 9, 400))))
            if self.chance(0.6)
            else self.runs()
        )
        return Search(visited, self.ids(9), self.random.choice((0, 1, 2, 3, 4, 255)))

    def route(self) -> Route:
        """A route: mostly to this node, from a life that it may know."""
        return Route(
            destination=self.own if self.chance(0.8) else self.id(),
            source=self.id(),
            source_incarnation=self.life(),
            destination_tag=self.tag() if self.chance(0.8) else 0,
            sequence=self.stream_number(),
            hop_budget=self.random.choice((0, 1, 9, 255)),
            priority=self.random.choice((0, 1, 2, 3, 255)),
            record=self.chance(0.1),
            search=self.search() if self.chance(0.1) else None,
        )

    def features(self) -> int:
        """What somebody says that it can do."""
        return self.random.choice((0, SPOKEN, U32_MAX, self.random.getrandbits(32)))
