"""Degree and number of links, and the papers' figures of merit made of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from bmgd.topology.measures.distances import Distances
from bmgd.topology.protocol import Topology


@dataclass(frozen=True, slots=True)
class Degrees:
    """The number of nodes, the smallest and the largest number of neighbors, the number of links."""

    size: int
    least: int
    most: int
    links: int


def degrees(graph: Topology) -> Degrees:
    """The degrees and the number of links, counted; at one node where all are alike.

    O(size), or one call of `neighbors` in a symmetric graph. Source: ISPA07 §3.1.
    """
    if graph.symmetric:
        degree = len(graph.neighbors(0))
        return Degrees(graph.size, degree, degree, graph.size * degree // 2)
    found = [len(graph.neighbors(node)) for node in range(graph.size)]
    return Degrees(graph.size, min(found), max(found), sum(found) // 2)


def message_traffic_density(distances: Distances, degrees: Degrees) -> float:
    """ρ = average distance * nodes / links. Source: ISPA07 §3.4."""
    return distances.average * degrees.size / degrees.links


def cost_factor(distances: Distances, degrees: Degrees) -> int:
    """ξ = diameter * degree; the largest degree where they differ. Source: ISPA07 §3.5."""
    return distances.diameter * degrees.most


def network_cost(distances: Distances, degrees: Degrees) -> int:
    """Diameter * links, for any topology. Source: ISPA07 §3.5."""
    return distances.diameter * degrees.links


def weighted_cost_ratio(
    size: int, degree: int, diameter: int, weight_of_degree: float = 0.5
) -> float:
    """CR_w = (w1 * degree + w2 * diameter) / log2(size), w2 = 1 - w1; 1 for every hypercube.

    Source: HDN §3.
    """
    weighted = weight_of_degree * degree + (1 - weight_of_degree) * diameter
    return weighted / log2(size)
