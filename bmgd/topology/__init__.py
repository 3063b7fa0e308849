"""Pure graphs: no ids, no links, no time. A rank here is a number within 0..n-1."""

from bmgd.topology.binomial import BinomialGraph
from bmgd.topology.diameter import diameter_bound
from bmgd.topology.distance import SIZE_MAX

__all__ = ["SIZE_MAX", "BinomialGraph", "diameter_bound"]
