"""The closed formulas of the HDN paper: size, degree, diameter, routing, broadcast."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from bmgd.topology.hierarchical_dual_net import HierarchicalDualNet


def size_formula(net: HierarchicalDualNet) -> int:
    """(2 * |B|)**(2**k) / (2 * product of s_i), as theorem 1 has it.

    It is wrong from two levels on: with N_i = 2 * N_(i-1)**2 / s_i, which HDN
    §3 derives, and which table 1 follows, s_i counts 2**(k-i) times.
    """
    k = net.levels
    super_nodes = prod(prod(net.base[ring] for ring in level) for level in net.super_nodes)
    doubled = (2 * prod(net.base)) ** (2**k)
    return int(doubled // (2 * super_nodes))


def degree_formula(net: HierarchicalDualNet) -> int:
    """d_0 + k, where the paper counts two links for a ring of two."""
    return 2 * len(net.base) + net.levels


def hops_bound(net: HierarchicalDualNet) -> int:
    """Theorem 2's bound of a path of Algorithm 1, which theorem 1 has for the diameter.

    With D for the diameter of the base network and of super-nodes, and j from 0 to k-1:
    2**k * D(B) - sum of 2**j * D(SN of level k-j) + 2**(k+1) - 2.
    """
    return _unfolded(net, lambda ring: ring // 2)


def steps_bound(net: HierarchicalDualNet) -> int:
    """Theorem 3's bound of the steps of a broadcast: the same with the steps T in place of D.

    A ring of n nodes takes half of n, rounded up, and a product of rings the sum of theirs. (HDN §5
    prints their product, by mistake.)
    """
    return _unfolded(net, lambda ring: (ring + 1) // 2)


def _unfolded(net: HierarchicalDualNet, of_ring: Callable[[int], int]) -> int:
    k = net.levels
    in_base = sum(map(of_ring, net.base))
    in_super_nodes = [sum(of_ring(net.base[ring]) for ring in level) for level in net.super_nodes]
    saved = sum((1 << j) * in_super_nodes[k - 1 - j] for j in range(k))
    return (1 << k) * in_base - saved + (2 << k) - 2
