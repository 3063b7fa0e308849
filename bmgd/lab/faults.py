"""Failed nodes and what is left: counted in C where it was built, else by the reference.

Also Wilson's interval, for shares that are found by sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Final

from bmgd.routing import BACKEND
from bmgd.topology import faults
from bmgd.topology.faults import FaultCounts, FaultOrders, sets_with_node_0

SETS_AT_ONCE: Final = 1 << 20
"""So many sets are examined in one call: half a second with distances, in C."""

Z_95: Final = 1.959963984540054
"""A normal variable is within so many deviations with a probability of 95 %."""


def fault_sets(n: int, failed: int, first: int, count: int, distances: bool) -> FaultCounts:
    """`bmgd.topology.faults.fault_sets`, faster where it can be."""
    if BACKEND == "python":
        return faults.fault_sets(n, failed, first, count, distances)
    from bmgd import _labroutes

    return FaultCounts(*_labroutes.fault_sets(n, failed, first, count, distances))


def fault_orders(n: int, samples: int, seed: int) -> FaultOrders:
    """`bmgd.topology.faults.fault_orders`, faster where it can be."""
    if BACKEND == "python":
        return faults.fault_orders(n, samples, seed)
    from bmgd import _labroutes

    return FaultOrders(*_labroutes.fault_orders(n, samples, seed))


def all_fault_sets(
    n: int, failed: int, distances: bool, tell: Callable[[int], None] = lambda done: None
) -> FaultCounts:
    """Examine every set of so many failed nodes, and scale by symmetry to all of them.

    Args:
        n: the size of the graph, 2..64.
        failed: how many nodes fail, 0..n.
        distances: also measure hops and diameters.
        tell: called now and then with how many sets have been examined, of `sets_with_node_0`.

    Returns:
        The counts over all C(n, failed) sets.
    """
    total = sets_with_node_0(n, failed)
    sums, most = [0] * 5, 0
    for first in range(0, total, SETS_AT_ONCE):
        counts = fault_sets(n, failed, first, min(SETS_AT_ONCE, total - first), distances)
        sums = [a + b for a, b in zip(sums, counts[:5], strict=True)]
        most = max(most, counts.most)
        tell(first + SETS_AT_ONCE)
    if failed:
        sums = [each * n // failed for each in sums]
    return FaultCounts(sums[0], sums[1], sums[2], sums[3], sums[4], most)


def wilson(found: int, samples: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's interval for a share that was found in a sample.

    Unlike the usual one it is right where the share is 0 or 1: no find in 1000 means at most 0.4 %.

    Args:
        found: how many of the sample have the property, 0..samples.
        samples: the sample's size, at least 1.
        z: how many deviations; the default covers the true share with a probability of 95 %.

    Returns:
        The ends of the interval, 0..1.
    """
    share = found / samples
    spread = 1 + z * z / samples
    middle = (share + z * z / (2 * samples)) / spread
    half = z / spread * sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples))
    low = 0.0 if found == 0 else max(0.0, middle - half)
    return low, 1.0 if found == samples else min(1.0, middle + half)
