"""Degree and number of links, and the papers' figures of merit made of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from bmgd.topology.measures.distances import Distances, Links


@dataclass(frozen=True, slots=True)
class Degrees:
    """The smallest and the largest number of neighbors, and the number of links."""

    least: int
    most: int
    links: int


def degrees(links: Links) -> Degrees:
    """The degrees and the number of links, counted. O(size). Source: ISPA07 §3.1."""
    found = [len(neighbors) for neighbors in links]
    return Degrees(min(found), max(found), sum(found) // 2)


def message_traffic_density(distances: Distances, links: Links) -> float:
    """ρ = average distance * nodes / links. Source: ISPA07 §3.4."""
    return distances.average * len(links) / degrees(links).links


def cost_factor(distances: Distances, links: Links) -> int:
    """ξ = diameter * degree; the largest degree where they differ. Source: ISPA07 §3.5."""
    return distances.diameter * degrees(links).most


def network_cost(distances: Distances, links: Links) -> int:
    """Diameter * links, for any topology. Source: ISPA07 §3.5."""
    return distances.diameter * degrees(links).links


def weighted_cost_ratio(
    size: int, degree: int, diameter: int, weight_of_degree: float = 0.5
) -> float:
    """CR_w = (w1 * degree + w2 * diameter) / log2(size), w2 = 1 - w1; 1 for every hypercube.

    Source: HDN §3.
    """
    weighted = weight_of_degree * degree + (1 - weight_of_degree) * diameter
    return weighted / log2(size)
