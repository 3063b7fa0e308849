"""Four nodes at rest, for tests that take single steps of the first one."""

from __future__ import annotations

from bmgd.sim import Network
from bmgd.types import (
    Incarnation,
    NodeId,
)

PEER = NodeId(1)
"""The node that is looked at from node 0."""


def life_of(network: Network, node_id: int) -> Incarnation:
    return network.hosts[NodeId(node_id)].node.incarnation
