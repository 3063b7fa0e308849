"""What is wrong with which link right now, as a fault proxy keeps it.

A link is named by its two node ids. Cuts have a direction: ``(a, b)`` holds what a sends to b. A
partition is many cuts, so single links of it can be mended one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slowness:
    """How slow one direction of a link is.

    Args:
        delay_s: seconds by which every byte is late, >= 0.
        bytes_per_second: what passes at most; 0 for no limit.
    """

    delay_s: float
    bytes_per_second: float = 0.0


def unordered(pair: Pair) -> Pair:
    """The pair with the lower id first."""
    a, b = pair
    return (a, b) if a <= b else (b, a)


@dataclass(slots=True)
class Impairments:
    """The present faults of all links.

    Attributes:
        cuts: directed pairs; what the first sends to the second is held.
        slow_links: by unordered pair.
        slow_nodes: by id; every link of such a node is as slow.
    """

    cuts: set[Pair] = field(default_factory=set)
    slow_links: dict[Pair, Slowness] = field(default_factory=dict)
    slow_nodes: dict[int, Slowness] = field(default_factory=dict)

    def cut(self, links: Iterable[Pair], *, one_way: bool = False) -> None:
        """Hold what passes these links; with `one_way` only what the first id sends."""
        for a, b in links:
            self.cuts.add((a, b))
            if not one_way:
                self.cuts.add((b, a))

    def part(self, groups: Sequence[Sequence[int]], *, one_way: bool = False) -> None:
        """Cut every link between two groups; with `one_way` group 0 still hears the others."""
        for here, there in permutations(range(len(groups)), 2):
            if not (one_way and there == 0):
                self.cut(((a, b) for a in groups[here] for b in groups[there]), one_way=True)

    def slow(self, links: Iterable[Pair], nodes: Iterable[int], slowness: Slowness) -> None:
        """Make links, and all links of nodes, slow; a later word about one replaces the former."""
        for pair in links:
            self.slow_links[unordered(pair)] = slowness
        for node in nodes:
            self.slow_nodes[node] = slowness

    def mend(self, links: Iterable[Pair] | None = None) -> None:
        """Take back everything, or what is wrong with these links alone."""
        if links is None:
            self.cuts.clear()
            self.slow_links.clear()
            self.slow_nodes.clear()
            return
        for a, b in links:
            self.cuts -= {(a, b), (b, a)}
            self.slow_links.pop(unordered((a, b)), None)

    def holds(self, source: int, destination: int) -> bool:
        """Whether what the one sends to the other is held."""
        return (source, destination) in self.cuts

    def severs(self, a: int, b: int) -> bool:
        """Whether a new connection between the two cannot begin: TCP needs both directions."""
        return (a, b) in self.cuts or (b, a) in self.cuts

    def slowness(self, source: int, destination: int) -> Slowness | None:
        """How slow this direction is; the slowest word counts, None for as fast as it goes."""
        words = [
            word
            for word in (
                self.slow_links.get(unordered((source, destination))),
                self.slow_nodes.get(source),
                self.slow_nodes.get(destination),
            )
            if word is not None
        ]
        return max(words, key=lambda word: word.delay_s) if words else None
