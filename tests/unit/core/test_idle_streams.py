"""A stream that was idle for longer than its last message had time is used again."""

from __future__ import annotations

import pytest

from bmgd.core.commands import CloseStream, OpenStream, PutSegment, SendTo, Subscribe
from bmgd.core.effects import Observed
from bmgd.core.streams.inbound import GONE_NS, LINES_MAX, _Source
from bmgd.sim import Network
from bmgd.types import Incarnation, NodeId
from bmgd.wire.segments import packed
from tests.unit.core.clusters import S, observed, settle
from tests.unit.segments import payloads_of

TIMEOUT_NS = S // 2


@pytest.fixture
def network() -> Network:
    network = Network(4)
    settle(network)
    network.issue(1, Subscribe("t", 100, 1 << 20))
    return network


def late(network: Network) -> list[Observed]:
    return observed(network, 0, "late")


def test_next_message_after_a_pause_does_not_make_its_node_late(network: Network) -> None:
    for _ in range(2):
        request = network.issue(0, SendTo(NodeId(1), "t", b"x", TIMEOUT_NS))
        network.run(2)
        assert network.hosts[NodeId(0)].replies[request].error is None
    assert late(network) == []


@pytest.mark.parametrize("closes", [False, True])
def test_stream_used_again_after_a_pause_does_not_make_its_node_late(
    network: Network, closes: bool
) -> None:
    host = network.hosts[NodeId(0)]
    stream = network.issue(0, OpenStream(NodeId(1), "t"))
    network.issue_as(host, stream, PutSegment(1, packed(b"x"), timeout_ns=TIMEOUT_NS))
    network.run(2)
    again = CloseStream(abandon=True) if closes else PutSegment(1, packed(b"x"), timeout_ns=10 * S)
    network.issue_as(host, stream, again)
    network.run(2)
    assert late(network) == []


def test_stopped_neighbor_is_found_in_time_while_streams_are_used_again(network: Network) -> None:
    network.stop(3)
    for _ in range(4):
        network.issue(0, SendTo(NodeId(1), "t", b"x", S // 10))
        network.run(0.6)
    assert late(network) == []
    assert all(observed(network, i, "vetoed") == [] for i in (0, 1, 2))
    assert network.hosts[NodeId(0)].node.parts.context.membership.is_gone(NodeId(3))


def test_stream_is_used_again_after_its_destination_has_forgotten_it(network: Network) -> None:
    """The source was stopped for longer than streams of the dead are remembered."""
    stream = network.issue(0, OpenStream(NodeId(1), "t"))
    host = network.hosts[NodeId(0)]
    network.issue_as(host, stream, PutSegment(1, packed(b"a"), timeout_ns=10 * S))
    network.run(1)
    network.stop(0)
    network.run(GONE_NS / S + 60)
    network.resume(0)
    settle(network)
    network.issue_as(host, stream, PutSegment(1, packed(b"b"), timeout_ns=10 * S))
    network.run(2)
    taken = [m for d in network.hosts[NodeId(1)].delivered for m in payloads_of(d)]
    assert taken == [b"a", b"b"]


def test_stream_to_a_former_life_is_gone_when_all_of_it_is_in_doubt(network: Network) -> None:
    source, former = network.hosts[NodeId(0)], network.hosts[NodeId(1)].node.incarnation
    network.issue(0, SendTo(NodeId(1), "t", b"taken", 10 * S))
    network.run(0.2)
    network.stop(1)
    network.issue(0, SendTo(NodeId(1), "t", b"in doubt", TIMEOUT_NS))
    later = Incarnation(former + (1 << 32))
    source.node.parts.context.membership.meet_life(NodeId(1), later)
    network.issue(0, SendTo(NodeId(1), "t", b"to the next life", 10 * S))
    table = source.node.parts.outbound.table
    assert len(table.streams) == 2
    network.run(0.7)
    assert list(table.streams.values()) == list(table.shared.values())


def test_source_knows_the_first_id_of_a_bounded_number_of_replaced_streams() -> None:
    source = _Source(Incarnation(1))
    assert source.line_of(1, 0) == 0
    assert [source.line_of(2, 1), source.line_of(3, 2), source.line_of(4, 3)] == [1, 1, 1]
    for number in range(10, 10 + 2 * LINES_MAX):
        source.line_of(number, 9)
    assert len(source.lines) == LINES_MAX
    # Of one that was forgotten, what is known is the stream itself.
    assert source.line_of(5, 4) == 4
