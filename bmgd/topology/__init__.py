"""Pure graphs: no ids, no links, no time. A rank here is a number within 0..n-1.

The daemon needs the binomial graph only. The others, which the laboratory compares it with, are
imported when first named (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bmgd.topology.binomial import BinomialGraph
from bmgd.topology.diameter import diameter_bound
from bmgd.topology.distance import SIZE_MAX

if TYPE_CHECKING:
    from bmgd.topology.chord import UndirectedChord
    from bmgd.topology.complete import CompleteGraph
    from bmgd.topology.cube_connected_cycles import CubeConnectedCycles
    from bmgd.topology.dual_cube import DualCube
    from bmgd.topology.hierarchical_cliques import HierarchicalCliques
    from bmgd.topology.hierarchical_dual_net import HierarchicalDualNet
    from bmgd.topology.hypercube import Hypercube
    from bmgd.topology.hypertree import Hypertree
    from bmgd.topology.protocol import RegularTopology, Topology
    from bmgd.topology.recursive_dual_net import RecursiveDualNet
    from bmgd.topology.ring import Ring
    from bmgd.topology.sibling_tree import SiblingTree
    from bmgd.topology.torus import Torus

__all__ = [
    "SIZE_MAX",
    "BinomialGraph",
    "CompleteGraph",
    "CubeConnectedCycles",
    "DualCube",
    "HierarchicalCliques",
    "HierarchicalDualNet",
    "Hypercube",
    "Hypertree",
    "RecursiveDualNet",
    "RegularTopology",
    "Ring",
    "SiblingTree",
    "Topology",
    "Torus",
    "UndirectedChord",
    "diameter_bound",
]

_MODULES: Final = {
    "CompleteGraph": "complete",
    "CubeConnectedCycles": "cube_connected_cycles",
    "DualCube": "dual_cube",
    "HierarchicalCliques": "hierarchical_cliques",
    "HierarchicalDualNet": "hierarchical_dual_net",
    "Hypercube": "hypercube",
    "Hypertree": "hypertree",
    "RecursiveDualNet": "recursive_dual_net",
    "RegularTopology": "protocol",
    "Ring": "ring",
    "SiblingTree": "sibling_tree",
    "Topology": "protocol",
    "Torus": "torus",
    "UndirectedChord": "chord",
}


if not TYPE_CHECKING:  # or the type checker would take any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
