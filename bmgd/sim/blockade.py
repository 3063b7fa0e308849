"""Who does not hear whom, and who hears late: cuts, partitions, slow links and slow nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bmgd.types import NodeId

Way = tuple[NodeId, NodeId]
"""From one id to another."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """What is added to each chunk's way, and how many bytes pass in a second (0: any)."""

    delay_ns: int
    bytes_per_second: int

    def delay_of(self, size: int) -> int:
        """How much longer a chunk of this size takes."""
        rate = self.bytes_per_second
        return self.delay_ns + (size * 1_000_000_000 // rate if rate else 0)


class Blockade:
    """The present state of all ways between hosts.

    Attributes:
        any_blocked, any_slow: whether some way is.
        revision: greater after each change.
    """

    def __init__(self) -> None:
        self._cuts: set[Way] = set()
        self._groups: list[tuple[dict[NodeId, int], bool, set[Way]]] = []
        self._slow_ways: dict[Way, Slowness] = {}
        self._slow_nodes: dict[NodeId, Slowness] = {}
        self.any_blocked = False
        self.any_slow = False
        self.revision = 0

    def _note(self) -> None:
        self.revision += 1
        self.any_blocked = bool(self._cuts or self._groups)
        self.any_slow = bool(self._slow_ways or self._slow_nodes)

    def cut(self, a: NodeId, b: NodeId, *, one_way: bool) -> None:
        """Let nothing pass from a to b, nor back unless `one_way`."""
        self._cuts.add((a, b))
        if not one_way:
            self._cuts.add((b, a))
        self._note()

    def part(self, groups: Sequence[Iterable[NodeId]], *, one_way: bool) -> None:
        """Let nothing pass between groups; `one_way`: but to the first one."""
        self._groups.append(
            (
                {node: number for number, group in enumerate(groups) for node in group},
                one_way,
                set(),
            )
        )
        self._note()

    def slow_way(self, a: NodeId, b: NodeId, slowness: Slowness) -> None:
        """Slow what passes between a and b."""
        self._slow_ways[a, b] = self._slow_ways[b, a] = slowness
        self._note()

    def slow_node(self, node: NodeId, slowness: Slowness) -> None:
        """Slow all that a node sends and receives."""
        self._slow_nodes[node] = slowness
        self._note()

    def mend(self, a: NodeId, b: NodeId) -> None:
        """Undo cuts and slowness between two, and partitions for them."""
        for way in ((a, b), (b, a)):
            self._cuts.discard(way)
            self._slow_ways.pop(way, None)
            for _, _, mended in self._groups:
                mended.add(way)
        self._note()

    def mend_all(self) -> None:
        """Undo everything."""
        self._cuts.clear()
        self._groups.clear()
        self._slow_ways.clear()
        self._slow_nodes.clear()
        self._note()

    def blocks(self, a: NodeId, b: NodeId) -> bool:
        """Whether nothing passes from a to b."""
        if not self.any_blocked:
            return False
        if (a, b) in self._cuts:
            return True
        for groups, one_way, mended in self._groups:
            mine, theirs = groups.get(a), groups.get(b)
            if mine is None or theirs is None or mine == theirs or (a, b) in mended:
                continue
            if not (one_way and theirs == 0):
                return True
        return False

    def delay_of(self, a: NodeId, b: NodeId, size: int) -> int:
        """How much longer a chunk takes from a to b."""
        slow = (self._slow_ways.get((a, b)), self._slow_nodes.get(a), self._slow_nodes.get(b))
        return sum(one.delay_of(size) for one in slow if one is not None)

    def touched(self) -> set[NodeId]:
        """The nodes for which some way is not as it should be; those in a group, all."""
        ways = [node for way in (*self._cuts, *self._slow_ways) for node in way]
        parted = [node for groups, _, _ in self._groups for node in groups]
        return {*ways, *parted, *self._slow_nodes}
