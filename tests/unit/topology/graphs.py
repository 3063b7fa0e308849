"""Small instances of every topology, for the tests that hold for all of them."""

from __future__ import annotations

from typing import Final

from bmgd.topology import (
    BinomialGraph,
    CompleteGraph,
    CubeConnectedCycles,
    DualCube,
    HierarchicalCliques,
    HierarchicalDualNet,
    Hypercube,
    Hypertree,
    RecursiveDualNet,
    RegularTopology,
    Ring,
    SiblingTree,
    Topology,
    Torus,
    UndirectedChord,
)

REGULAR: Final[tuple[RegularTopology, ...]] = (
    *(BinomialGraph(size) for size in (1, 2, 3, 8, 12, 23)),
    *(Ring(size) for size in (1, 2, 3, 8)),
    *(CompleteGraph(size) for size in (1, 2, 6)),
    *(Torus(sides) for sides in ((1,), (5, 1), (2, 2), (4, 5), (2, 3, 5), (3, 3, 3), (2, 2, 2, 3))),
    *(Hypercube(dimension) for dimension in range(6)),
    *(CubeConnectedCycles(dimension) for dimension in range(1, 5)),
    *(DualCube(dimension) for dimension in range(1, 5)),
    RecursiveDualNet(Ring(3), 0),
    RecursiveDualNet(Ring(2), 2),
    RecursiveDualNet(CompleteGraph(4), 1),
    RecursiveDualNet(Torus((2, 3)), 1),
    HierarchicalDualNet((2, 3, 5), ()),
    HierarchicalDualNet((2, 3, 5), ((0, 1),)),
    HierarchicalDualNet((2, 2), ((0,), (0,))),
    HierarchicalDualNet((2, 2), ((0,), (0, 1))),
    HierarchicalDualNet((2, 3), ((1, 0), (1,))),
    HierarchicalDualNet((2, 3), ((0,), (1,))),
    HierarchicalDualNet((2,), ((), (0,))),
    HierarchicalDualNet((2, 2), ((0, 1), (0, 1), (1,))),
)

IRREGULAR: Final[tuple[Topology, ...]] = (
    UndirectedChord(4),
    UndirectedChord(6, (1, 4, 5, 20, 33, 34, 40, 60)),
    UndirectedChord(5, (7,)),
    *(HierarchicalCliques(4, height) for height in (1, 2, 3)),
    HierarchicalCliques(1, 4),
    HierarchicalCliques(2, 3),
    *(Hypertree(4, depth) for depth in range(4)),
    Hypertree(2, 4),
    Hypertree(3, 3),
    *(SiblingTree(4, size) for size in (1, 2, 3, 5, 6, 21, 50)),
    SiblingTree(2, 12),
)

ALL: Final[tuple[Topology, ...]] = (*REGULAR, *IRREGULAR)
