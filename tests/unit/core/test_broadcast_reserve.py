"""Reliable broadcasts of more sources than nodes have room for, with bounds that are scaled down."""

from __future__ import annotations

import pytest

from bmgd.core.broadcast import copies as broadcast_copies
from bmgd.core.broadcast import reserve as broadcast_reserve
from bmgd.core.broadcast import watermarks as broadcast_watermarks
from bmgd.core.broadcast import window as broadcast_window
from bmgd.core.commands import BroadcastTo
from bmgd.sim import Network
from bmgd.types import NodeId
from tests.unit.core.clusters import S, settle

PAYLOAD = bytes(60_000)
COST = len(PAYLOAD) + broadcast_window.OVERHEAD_BYTES


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 sources a node keeps a broadcast of 8, and as a reserve of 4; each has a window for one."""
    for module in (broadcast_watermarks, broadcast_window):
        monkeypatch.setattr(module, "WINDOW_ALL_BYTES", 1 << 20)
    monkeypatch.setattr(broadcast_copies, "HELD_BYTES_MAX", 8 * COST)
    monkeypatch.setattr(broadcast_reserve, "RESERVE_BYTES", 4 * COST)
    monkeypatch.setattr(broadcast_reserve, "FIRST_MAX", 2)


def crowd(payloads: int) -> Network:
    """A cluster of 16 in which all broadcast at once."""
    network = Network(16, 3)
    settle(network)
    for _ in range(payloads):
        for number in range(16):
            broadcast(network, number)
    return network


def broadcast(network: Network, number: int) -> None:
    network.issue(number, BroadcastTo("news", PAYLOAD, True, 1000 * S))


def stable(network: Network, first: int = 0) -> list[int]:
    """How many broadcasts of each node from the first on are stable."""
    shown = [network.status(number)["to_many"]["reliable"] for number in range(first, 16)]
    assert max(row["copies_bytes"] for row in shown) <= 12 * COST
    return [row["stable"] for row in shown]


def test_sources_that_fill_all_nodes_get_on_one_after_the_other() -> None:
    network = crowd(1)
    network.run(1)
    assert not any(stable(network)), "each node has others"
    assert network.status(0)["to_many"]["reliable"]["refused"] > 0
    network.run(60)
    assert stable(network) == [1] * 16


def test_low_ids_that_go_on_broadcasting_do_not_keep_others_waiting() -> None:
    network = crowd(2)
    for _ in range(100):
        for number in range(4):
            broadcast(network, number)
        network.run(1)
        if min(stable(network)) >= 2:
            break
    assert min(stable(network)) >= 2


def test_source_that_ended_holds_up_none_that_is_stuck() -> None:
    network = crowd(1)
    network.run(1)
    network.kill(0)
    network.run(60)
    assert stable(network, first=1) == [1] * 15
    for number in range(1, 16):
        reserve = network.hosts[NodeId(number)].node.parts.to_many.retention.copies._reserve
        assert not reserve._since_ns, "nobody waits"


def test_source_that_has_just_got_on_lets_others_go_first() -> None:
    network = Network(4)
    settle(network)
    context = network.hosts[NodeId(3)].node.parts.context
    context.now_ns += 1000 * S
    reserve = broadcast_reserve.BroadcastReserve(context)
    low, high = ((NodeId(i), context.membership.incarnation(NodeId(i))) for i in (0, 1))
    for key in (low, high):
        reserve.on_kept(key)
    context.now_ns += 3 * S
    reserve.on_stable(low, has_copies=True)
    assert not reserve.admits(low, COST)
    assert reserve.admits(high, COST)
    context.now_ns += broadcast_reserve.AGAIN_NS
    assert reserve.admits(low, COST)
