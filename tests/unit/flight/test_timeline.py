"""What a step of a recording looks like to a person."""

from __future__ import annotations

from bmgd.core.effects import ForwardingChanged
from bmgd.flight.timeline import brief
from bmgd.routing import Snapshot
from bmgd.sim import Network
from bmgd.types import NodeId


def test_timeline_names_a_snapshot_without_its_place_in_memory() -> None:
    network = Network(2)
    network.run(1)
    snapshot = network.hosts[NodeId(0)].node.parts.forwarding.snapshot
    assert isinstance(snapshot, Snapshot)
    assert brief(ForwardingChanged(snapshot)) == "snapshot=Snapshot"
