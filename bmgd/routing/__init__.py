"""Next hops: from a destination's id to the link that a message goes out on."""

from bmgd.routing.backend import (
    BACKEND,
    Snapshot,
    first_hop,
    first_hops,
    hop_count,
    id_of,
    link_changes,
    neighbor_ids,
    rank_of,
)

__all__ = [
    "BACKEND",
    "Snapshot",
    "first_hop",
    "first_hops",
    "hop_count",
    "id_of",
    "link_changes",
    "neighbor_ids",
    "rank_of",
]
