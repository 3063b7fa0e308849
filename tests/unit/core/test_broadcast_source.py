"""Reliable broadcasts at their source: what waits for room goes on, whoever is left."""

from __future__ import annotations

from bmgd.core.commands import BroadcastTo
from bmgd.sim import Network
from bmgd.types import NodeId
from tests.unit.core.clusters import S, settle

TOPIC = "news"


def broadcast(network: Network, source: int, payload: bytes, timeout_s: float = 60) -> int:
    return network.issue(source, BroadcastTo(TOPIC, payload, True, int(timeout_s * S)))


def test_source_left_alone_settles_all_that_waited_for_room() -> None:
    network = Network(2, 1)
    settle(network)
    network.stop(1)
    requests = [broadcast(network, 0, bytes(60_000)) for _ in range(900)]
    shown = network.status(0)["to_many"]["reliable"]
    assert shown["waiting"] > 500
    network.kill(1)
    network.run(5)
    shown = network.status(0)["to_many"]["reliable"]
    assert (shown["stable"], shown["waiting"]) == (900, 0)
    replies = network.hosts[NodeId(0)].replies
    last = replies[requests[-1]].result
    assert last == {"confirmed": [0], "failed": []}
