"""Leaving: nothing that was accepted is lost, and the rest is told to whoever asked for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bmgd.core.commands import (
    CloseStream,
    Consumed,
    Leave,
    OpenStream,
    PutSegment,
    SendTo,
    Subscribe,
)
from bmgd.core.effects import Effect, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Event
from bmgd.errors import LeavingError, UnreachableError
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import NodeId, counter_of
from bmgd.wire.segments import packed
from tests.unit.core.clusters import S, observed, reply_to, send, settle
from tests.unit.segments import payloads_of


def left_after(network: Network, node_id: int, limit_s: float = 10.0) -> float:
    """Let a node leave; virtual seconds until it has."""
    host = network.hosts[NodeId(node_id)]
    network.issue(node_id, Leave())
    took = network.run_until(lambda: host.exit is not None, limit_s)
    assert host.exit is not None
    assert host.exit.code == 0
    return took


def test_idle_node_leaves_at_once() -> None:
    network = Network(8)
    settle(network)
    assert left_after(network, 5) < 0.05


def test_leaving_node_does_not_wait_until_the_end_of_a_stream_is_confirmed() -> None:
    network = Network(8, timeout_ns=60 * S)
    settle(network)
    stream = network.issue(5, OpenStream(NodeId(2), "t"))
    host = network.hosts[NodeId(5)]
    network.issue_as(host, stream, PutSegment(1, packed(b"confirmed")))
    network.run(1)
    network.stop(2)
    network.issue_as(host, stream, CloseStream())
    assert left_after(network, 5) < 0.05


def test_leaving_node_waits_until_what_it_sent_is_confirmed() -> None:
    """Nothing gets through for two seconds; the cut is mended before the time to leave is over."""
    network = Network(5)
    settle(network)
    for peer in range(4):
        network.cut(4, peer, one_way=True)
    requests = [network.issue(4, SendTo(NodeId(i), "t", b"x", 30 * S)) for i in range(4)]
    host = network.hosts[NodeId(4)]
    network.issue(4, Leave())
    network.run(1)
    assert host.exit is None
    network.mend()
    network.run(3)
    assert host.exit is not None
    assert [host.replies[request].error for request in requests] == [None] * 4


def test_leaving_node_tells_its_programs_what_it_could_not_confirm() -> None:
    network = Network(5, timeout_ns=60 * S)
    settle(network)
    network.stop(2)
    request = network.issue(4, SendTo(NodeId(2), "t", b"x", 30 * S))
    took = left_after(network, 4)
    assert 4.9 < took < 5.2
    error = network.hosts[NodeId(4)].replies[request].error
    assert isinstance(error, UnreachableError)
    assert "left" in str(error)


def test_leaving_node_waits_for_its_readers_within_its_time() -> None:
    network = Network(5)
    settle(network)
    reader = network.issue(4, Subscribe("t", 1))
    for _ in range(3):
        assert send(network, 1, 4).error is None
    host = network.hosts[NodeId(4)]
    network.issue(4, Leave())
    for _ in range(3):
        network.run(0.5)
        assert host.exit is None
        network._step(host, CommandIssued(reader, Consumed(1)))
    network.run(0.1)
    assert host.exit is not None
    assert len(host.delivered) == 3
    assert not observed(network, 4, "left unread")


def test_reader_that_consumes_nothing_holds_no_node_for_ever() -> None:
    network = Network(5)
    settle(network)
    network.issue(4, Subscribe("t", 1))
    assert send(network, 1, 4).error is None
    assert 4.9 < left_after(network, 4) < 5.2
    (seen,) = observed(network, 4, "left unread")
    assert seen.detail.startswith("1 message")


def test_messages_without_a_reader_are_not_waited_for_and_said() -> None:
    network = Network(5)
    settle(network)
    assert send(network, 1, 4).error is None
    assert left_after(network, 4) < 0.1
    assert len(observed(network, 4, "left unread")) == 1


def test_leaving_node_takes_nothing_new_and_says_so() -> None:
    network = Network(5)
    settle(network)
    network.issue(4, Subscribe("t", 1))
    assert send(network, 1, 4).error is None
    network.issue(4, Leave())
    network.run(0.01)
    error = send(network, 1, 4).error
    assert isinstance(error, LeavingError)
    assert error.sent is False
    own = reply_to(network, 4, SendTo(NodeId(1), "t", b"x", S)).error
    assert isinstance(own, LeavingError)
    assert own.sent is False
    assert len(network.hosts[NodeId(4)].delivered) == 1


def test_two_that_leave_and_send_to_each_other_do_not_wait_for_each_other() -> None:
    network = Network(2)
    settle(network)
    requests = [network.issue(i, SendTo(NodeId(1 - i), "t", b"x", 30 * S)) for i in (0, 1)]
    for node_id in (0, 1):
        network.issue(node_id, Leave())
    network.run(0.5)
    for node_id in (0, 1):
        host = network.hosts[NodeId(node_id)]
        assert host.exit is not None
        assert requests[node_id] in host.replies


@pytest.mark.parametrize("seed", range(4))
def test_what_a_leaving_node_relays_arrives_once(seed: int) -> None:
    network = Network(16, seed)
    settle(network)
    sent = []
    for round_ in range(40):
        source = [1, 2, 3, 7, 9][round_ % 5]
        destination = (source + 5) % 16 if (source + 5) % 16 != 4 else 11
        payload = f"{round_}".encode()
        request = network.issue(source, SendTo(NodeId(destination), "t", payload, 20 * S))
        sent.append((source, request, payload))
        if round_ == 20:
            network.issue(4, Leave())
        network.run(0.0003)
    network.run(10)
    for source, request, _ in sent:
        reply = network.hosts[NodeId(source)].replies[request]
        assert reply.error is None
    for node_id in range(16):
        if node_id != 4:
            network.issue(node_id, Subscribe("t", 4096))
    taken = [
        payload
        for host in network.hosts.values()
        for deliver in host.delivered
        for payload in payloads_of(deliver)
    ]
    assert sorted(taken) == sorted(payload for _, _, payload in sent)


@pytest.mark.parametrize("size", [2, 3, 9])
def test_rolling_restart_of_all_loses_no_message(size: int) -> None:
    network = Network(size)
    settle(network)
    for victim in range(size):
        others = [i for i in range(size) if i != victim]
        requests = [
            (i, network.issue(i, SendTo(NodeId(j), "t", b"x", 20 * S)))
            for i in range(size)
            for j in others
            if i != j
        ]
        left_after(network, victim)
        network.run(0.3)
        for source, request in requests:
            assert network.hosts[NodeId(source)].replies[request].error is None
        network.boot(victim, counter=2)
        settle(network)
    assert [counter_of(network.status(i)["incarnation"]) for i in range(size)] == [2] * size


def test_leave_is_answered_when_the_others_are_told() -> None:
    """Whoever asked for it may kill the process behind the answer: it has nothing left to say."""
    network = Network(5, timeout_ns=60 * S)
    settle(network)
    network.stop(2)
    network.issue(4, SendTo(NodeId(2), "t", b"x", 30 * S))
    host = network.hosts[NodeId(4)]
    requests = [network.issue(4, Leave()), network.issue(4, Leave())]
    network.run(1)
    assert not [request for request in requests if request in host.replies]
    network.run_until(lambda: all(request in host.replies for request in requests), 10)
    assert [host.replies[request].error for request in requests] == [None, None]
    network.run(0.1)
    assert observed(network, 3, "verdict") == []
    assert network.status(3)["left"] == [4]


def test_leave_is_answered_with_what_is_left_over() -> None:
    network = Network(5, timeout_ns=60 * S)
    settle(network)
    network.issue(4, Subscribe("read", 1))
    for topic in ("read", "unread", "unread"):
        command = SendTo(NodeId(4), topic, b"x", S)
        assert reply_to(network, 1, command).error is None
    network.stop(2)
    network.issue(4, SendTo(NodeId(2), "t", b"x", 30 * S))
    host = network.hosts[NodeId(4)]
    request = network.issue(4, Leave(2 * S))
    assert network.run_until(lambda: host.exit is not None, 10) > 1.9
    assert host.replies[request].result == {
        "drained": False,
        "unconfirmed": 1,
        "unread": 3,
        "left_over": [
            {"kind": "unconfirmed", "destination": 2, "topic": "t", "messages": 1},
            {"kind": "unread", "topic": "read", "messages": 1},
            {"kind": "unread", "topic": "unread", "messages": 2},
        ],
    }


def test_drained_node_says_that_nothing_is_left_over() -> None:
    network = Network(5)
    settle(network)
    request = network.issue(4, Leave(30 * S))
    host = network.hosts[NodeId(4)]
    network.run_until(lambda: host.exit is not None, 1)
    assert host.replies[request].result == {
        "drained": True,
        "unconfirmed": 0,
        "unread": 0,
        "left_over": [],
    }


def test_of_two_leaves_the_shorter_time_counts() -> None:
    network = Network(5)
    settle(network)
    network.issue(4, Subscribe("t", 1))
    assert send(network, 1, 4).error is None
    network.issue(4, Leave(60 * S))
    network.run(1)
    network.issue(4, Leave(90 * S))
    assert 4.9 < left_after(network, 4) < 5.2  # the configured time


def test_what_is_put_into_a_stream_of_a_leaving_node_is_refused_and_the_rest_is_confirmed() -> None:
    network = Network(5)
    settle(network)
    host = network.hosts[NodeId(4)]
    stream = network.issue(4, OpenStream(NodeId(1), "t"))
    for peer in range(4):
        network.cut(4, peer, one_way=True)
    network.issue_as(host, stream, PutSegment(1, packed(b"before")))
    network.issue(4, Leave(5 * S))
    moved: list[StreamMoved | StreamEnded] = []
    network.watchers.append(_Streams(moved))
    network.issue_as(host, stream, PutSegment(1, packed(b"after")))
    network.mend()
    network.run(3)
    assert host.exit is not None
    first = moved[0]
    assert isinstance(first, StreamMoved)
    assert (first.next, first.withdrawn, first.error) == (1, (2,), "LeavingError")
    assert [m.next for m in moved if isinstance(m, StreamMoved)][-1] == 3
    network.issue(1, Subscribe("t", 10))
    delivered = network.hosts[NodeId(1)].delivered
    assert [p for deliver in delivered for p in payloads_of(deliver)] == [b"before"]


def test_the_rest_of_a_long_message_is_sent_by_a_leaving_node() -> None:
    network = Network(5)
    settle(network)
    network.issue(1, Subscribe("t", 10, 1 << 20, takes_long=True))
    host, there = network.hosts[NodeId(4)], network.hosts[NodeId(1)]
    stream = network.issue(4, OpenStream(NodeId(1), "t"))
    network.issue_as(host, stream, PutSegment(0, b"first", 15, first=True))
    network.issue(4, Leave(5 * S))
    network.run(0.2)
    assert host.exit is None
    network.issue_as(host, stream, PutSegment(0, b" rest more", 15, last=True))
    reader = there.delivered[0].request
    network.run(0.2)
    assert host.exit is None
    network.issue_as(there, reader, Consumed(2, there.delivered[0].long))
    network.run(1)
    assert host.exit is not None
    assert b"".join(deliver.body for deliver in there.delivered) == b"first rest more"


class _Streams(Watcher):
    def __init__(self, seen: list[StreamMoved | StreamEnded]) -> None:
        self._seen = seen

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self._seen += [e for e in effects if isinstance(e, StreamMoved | StreamEnded)]
