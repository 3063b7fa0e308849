"""Small histories for tests: four nodes that live, and whatever is added to them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bmgd.chaos.faults import Fault, write_fault
from bmgd.chaos.history import Began, Believed, Disturbed, Fact, History, Showed
from bmgd.types import Incarnation, NodeId, Status

S = 1_000_000_000
NODES = 4


def life(node: int, count: int = 1) -> Incarnation:
    """The incarnation that a node has in its life of this number."""
    return Incarnation(count << 32 | node)


def history(*facts: Fact, nodes: int = NODES) -> History:
    """Nodes that began at 0, and these facts in the order of time."""
    began = [Began(0, NodeId(node), life(node)) for node in range(nodes)]
    found = History([*began, *facts])
    found.sort()
    return found


def disturbed(at_ns: int, fault: Fault) -> Disturbed:
    """A step of a plan."""
    return Disturbed(at_ns, json.dumps(write_fault(fault)))


def believed(at_ns: int, node: int, about: int, status: Status = Status.EXCLUDED) -> Believed:
    """What a node believes of another's first life."""
    return Believed(at_ns, NodeId(node), NodeId(about), life(about), 0, status, "", 1)


def showed(at_ns: int, node: int, alive: Iterable[int], links: Iterable[int]) -> Showed:
    """What a node shows that is ready and wants the links that it has."""
    ids, peers = tuple(map(NodeId, alive)), tuple(map(NodeId, links))
    return Showed(at_ns, NodeId(node), "ready", ids, len(ids), peers, peers, "0")
