"""Pure graphs: no ids, no links, no time. A rank here is a number within 0..n-1."""

from bmgd.topology.binomial import BinomialGraph
from bmgd.topology.distance import SIZE_MAX, diameter_bound

__all__ = ["SIZE_MAX", "BinomialGraph", "diameter_bound"]
