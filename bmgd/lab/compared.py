"""The topologies that ISPA07 compares with the binomial graph, at the sizes where each exists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bmgd.topology import (
    BinomialGraph,
    CompleteGraph,
    HierarchicalCliques,
    Hypercube,
    Hypertree,
    Ring,
    SiblingTree,
    Topology,
    Torus,
    UndirectedChord,
)

BINOMIAL: Final = "binomial graph"
CHORD_ONE_WAY: Final = "Chord, one way"

NOTE: Final = (
    "The paper prints curves and no numbers, and took the other topologies from their papers' "
    "theorems. Here each is built and searched; the formulas stand beside. HiC(4,h) and the 4-ary "
    "Hypertree are named there, not defined: see their docstrings in bmgd.topology for the reading. "
    "Undirected Chord on a full circle *is* the binomial graph, so its curve in the paper must be "
    "that of the fingers in one direction only, which is the line 'Chord, one way'."
)


def compared(quick: bool) -> Iterator[tuple[str, Topology]]:
    """Every topology but the binomial graph, by family, sizes ascending."""
    sides = range(4, 33, 4) if quick else range(4, 65)
    yield from (("2D torus", Torus((side, side))) for side in sides)
    dimensions = range(4, 11 if quick else 13)
    yield from (("hypercube", Hypercube(dimension)) for dimension in dimensions)
    yield from (("Chord, undirected", UndirectedChord(bits)) for bits in dimensions)
    heights = range(2, 5 if quick else 7)
    yield from (("HiC(4,h)", HierarchicalCliques(4, height)) for height in heights)
    yield from (("4-ary Hypertree", Hypertree(4, depth)) for depth in heights)
    yield from (
        ("4-ary sibling tree", SiblingTree(4, Hypertree(4, depth).size)) for depth in heights
    )


def extremes(quick: bool) -> Iterator[tuple[str, Topology]]:
    """The two ends of cost: the ring and the complete graph."""
    sizes = [1 << k for k in range(4, 9 if quick else 11)]
    yield from (("ring", Ring(size)) for size in sizes)
    yield from (("complete graph", CompleteGraph(size)) for size in sizes)


def binomials(quick: bool) -> Iterator[tuple[str, BinomialGraph]]:
    """The binomial graphs of all sizes at which another exists, and of some between, ascending."""
    sizes = {graph.size for _, graph in compared(quick)}
    sizes |= set(range(16, 1025 if quick else 4097, 64 if quick else 16))
    yield from ((BINOMIAL, BinomialGraph(size)) for size in sorted(sizes))


def one_way_fingers(bits: int) -> list[tuple[int, ...]]:
    """The fingers of every node of a full Chord circle, in one direction."""
    circle = 1 << bits
    return [tuple((node + (1 << i)) % circle for i in range(bits)) for node in range(circle)]
