"""Streams and topics: single steps, where one answer goes over into another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bmgd.core.commands import (
    OpenAnswers,
    OpenStream,
    PutSegment,
    Subscribe,
)
from bmgd.core.context import RoomFreed
from bmgd.core.effects import Reply, StreamEnded, StreamMoved
from bmgd.core.events import (
    Backlog,
    CommandIssued,
)
from bmgd.core.node import Node
from bmgd.core.streams import inbound
from bmgd.core.streams.gathering import Gathering
from bmgd.core.streams.granting import IDLE_NS
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.streams.stream_out import NEVER_NS, Sending, StreamOut
from bmgd.core.topics.inboxes import inbox_of, topic_of
from bmgd.core.topics.taken import Offer
from bmgd.core.topics.topic_table import TopicQueue
from bmgd.errors import NewLifeError, ProtocolError, UnreachableError
from bmgd.linklayer.outbox import BULK_BYTES_MAX
from bmgd.sim import Network
from bmgd.types import (
    Incarnation,
    LinkId,
    NodeId,
    NodeState,
)
from bmgd.wire.routes import Route
from bmgd.wire.segments import cost_of
from bmgd.wire.stream_messages import SegmentAck
from tests.unit.core.clusters import S
from tests.unit.core.four_nodes import PEER, life_of
from tests.unit.segments import segment


def test_topic_of_a_number_is_no_inbox() -> None:
    assert inbox_of(topic_of(7)) == 7
    assert inbox_of("7") == 0
    assert inbox_of(topic_of(7) + "x") == 0


def test_topic_that_is_given_up_tells_whoever_waits_that_there_is_room(node: Node) -> None:
    table, entry = node.parts.topics.table, TopicQueue()
    table.topics["t"], entry.starved = entry, True
    table.drop("t", entry)
    assert RoomFreed("t") in node.parts.context.facts


@pytest.mark.parametrize("heard_before_ns", [0, IDLE_NS - 1, IDLE_NS])
def test_room_is_granted_to_streams_that_were_heard_of_late(
    network: Network, node: Node, heard_before_ns: int
) -> None:
    granting = node.parts.inbound.granting
    stream = StreamIn(PEER, life_of(network, PEER), 1, "t", 2)
    stream.heard_ns = node.parts.context.now_ns - heard_before_ns
    granting._starved["t"] = {stream.key: stream}
    assert (granting.on_room("t") == [stream]) == (heard_before_ns < IDLE_NS)


def test_segments_behind_a_gap_are_kept_up_to_their_bound(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbound, "KEPT_MAX", 2)
    stream = StreamIn(PEER, life_of(network, PEER), 1, "t", 2, credit=10**6)
    route = Route(NodeId(0), PEER, life_of(network, PEER))
    for number in (2, 3, 4):
        node.parts.inbound._keep(stream, segment(route, b"x", number=number), number)
    assert sorted(stream.kept) == [2, 3]


def test_answers_for_a_former_life_fail_with_its_node(network: Network, node: Node) -> None:
    command = OpenAnswers(PEER, Incarnation(1), 1, 1)
    effects = node.step(network.now_ns, CommandIssued(10**6, command))
    [error] = [e.error for e in effects if isinstance(e, Reply)]
    assert isinstance(error, NewLifeError)
    assert error.destination == PEER
    assert "a new life" in str(error)


def test_backlog_of_a_link_that_is_gone_holds_nothing(network: Network, node: Node) -> None:
    held = node.parts.outbound.sending.held
    node.step(network.now_ns, Backlog(LinkId(10**6), BULK_BYTES_MAX))
    assert held.links == frozenset()
    [link] = node.parts.links.by_peer[PEER]
    node.step(network.now_ns, Backlog(link.id, BULK_BYTES_MAX))
    assert held.links == {link.id}


def test_best_effort_is_dropped_by_who_leaves_and_by_nobody_else(
    network: Network, node: Node
) -> None:
    topics, route = node.parts.topics, Route(NodeId(0), PEER, life_of(network, PEER))
    sent = replace(segment(route, b"x"), topic="t")
    node.parts.inbound._on_best_effort(sent)
    assert topics.dropped == 0
    node.parts.context.state = NodeState.LEAVING
    node.parts.inbound._on_best_effort(sent)
    assert topics.dropped == 1


def test_room_lets_the_own_streams_of_a_topic_go_on(node: Node) -> None:
    node.parts.outbound.sending.on_room("t")
    assert "streams" in node.parts.work


def test_last_piece_of_a_long_message_counts_as_taken_while_its_reader_has_it(
    network: Network,
) -> None:
    network.issue(1, Subscribe("t", 10, 1 << 20, takes_long=True))
    request, host = network.issue(0, OpenStream(PEER, "t", 2)), network.hosts[NodeId(0)]
    network.issue_as(host, request, PutSegment(0, b"first", 10, first=True))
    network.issue_as(host, request, PutSegment(0, b"other", 10, last=True))
    network.run(0.1)
    [sources] = network.hosts[PEER].node.parts.inbound._sources.values()
    [stream] = sources.streams.values()
    assert (stream.next, stream.awaited) == (2, True)
    assert stream.taken == 2 * cost_of(b"other")


def _with_pieces(node: Node, destination: NodeId) -> StreamOut:
    """A stream in whose queue a whole long message has run out of time."""
    stream = StreamOut(10**6, 7, destination, "t", 2, False)
    for number, (first, last) in enumerate([(True, False), (False, True)], 1):
        stream.queue.append(
            Sending(number, 0, b"piece", 10, first, last, node.parts.context.now_ns)
        )
    node.parts.outbound.table.streams[stream.key] = stream
    return stream


def test_pieces_that_expire_are_told_in_their_order(node: Node) -> None:
    stream = StreamOut(10**6, 7, PEER, "t", 2, False)
    now_ns = node.parts.context.now_ns
    for number in (1, 2, 3):
        until_ns = now_ns + S * (number < 3)
        stream.queue.append(Sending(number, 0, b"piece", 15, number == 1, number == 3, until_ns))
    node.parts.outbound.table.streams[stream.key] = stream
    expired = node.parts.outbound.expiry._take_expired(stream)
    assert [sending.number for sending in expired] == [1, 2, 3]


def test_long_message_that_was_put_whole_and_expires_cuts_nothing_that_follows(node: Node) -> None:
    stream = _with_pieces(node, PEER)
    expired = node.parts.outbound.expiry._take_expired(stream)
    assert [sending.number for sending in expired] == [1, 2]
    assert not stream.cutting
    stream = _with_pieces(node, PEER)
    stream.unfinished = True
    node.parts.outbound.expiry._take_expired(stream)
    assert stream.cutting


@pytest.mark.parametrize("destination", [0, 1])
def test_own_streams_go_on_anew_though_nobody_has_answered(node: Node, destination: int) -> None:
    stream = StreamOut(10**6, 7, NodeId(destination), "t", 2, False)
    assert node.parts.outbound.expiry._may_go_on_anew(stream) == (destination == 0)


def test_what_is_left_over_names_questions_and_broadcasts(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining = node.parts.lifecycle.draining
    assert draining.describe() == {
        "drained": True,
        "unconfirmed": 0,
        "unread": 0,
        "left_over": [],
    }
    monkeypatch.setattr(type(draining.topics.inboxes), "underway", 3)
    monkeypatch.setattr(type(draining.to_many.source), "underway", 2)
    monkeypatch.setattr(type(draining.to_many.announcements), "being_read", lambda self: 1)
    assert draining.describe() == {
        "drained": False,
        "unconfirmed": 5,
        "unread": 1,
        "left_over": [
            {"kind": "unanswered", "messages": 3},
            {"kind": "unconfirmed broadcasts", "messages": 2},
            {"kind": "unread broadcasts", "messages": 1},
        ],
    }


def test_search_of_an_own_segment_that_found_nobody_is_a_hint(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    answers = node.parts.outbound.answers
    monkeypatch.setattr(
        type(answers), "on_unreachable", lambda self, hint: told.append(hint.target)
    )
    own = Route(PEER, NodeId(0), life_of(network, 0))
    node._receiving._on_no_way(segment(own, b"x"))
    node._receiving._on_no_way(segment(replace(own, source=NodeId(2)), b"x"))
    assert told == [PEER]


def test_answer_that_is_put_takes_acknowledgements_along(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    acknowledging = node.parts.inbound.acknowledging
    monkeypatch.setattr(
        type(acknowledging), "on_answer_put", lambda self, asker: told.append(asker)
    )
    request = network.issue(0, OpenStream(PEER, "t", 2))
    node.parts.requests._acknowledge_with(request)
    node.parts.requests._acknowledge_with(10**6)
    assert told == [PEER]


def test_stream_that_finds_room_again_begins_with_short_pauses(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = StreamOut(10**6, 7, PEER, "t", 2, False, id=1, tag=5, blocked=True, backoff=3)
    answers = node.parts.outbound.answers
    monkeypatch.setattr(type(answers._table), "find", lambda self, ack: stream)
    route = Route(NodeId(0), PEER, Incarnation(1), sequence=1 << 32 | 1)
    answers.on_ack(SegmentAck(route, 5, 1 << 20, False, ()))
    assert (stream.blocked, stream.backoff) == (False, 0)


def test_what_is_withdrawn_says_so(network: Network) -> None:
    network.stop(1)
    host, moved = network.hosts[NodeId(0)], list[StreamMoved]()
    request = network.issue(0, OpenStream(PEER, "t", 2))
    stream = host.node.parts.outbound.table.owned[request]
    stream.queue.append(Sending(1, 1, b"x", 0, False, False, host.node.parts.context.now_ns))
    for why in ("withdrawn", ""):
        host.node.parts.context.effects.clear()
        stream.queue.append(Sending(1, 1, b"x", 0, False, False, 0))
        host.node.parts.outbound.expiry.expire(stream, why)
        moved += [e for e in host.node.parts.context.effects if isinstance(e, StreamMoved)]
    details = [each.detail for each in moved if each.withdrawn]
    assert details == ["withdrawn", "no way was found in time"]


def test_destination_of_a_multicast_that_is_refused_was_not_sent_to() -> None:
    gathering = Gathering(4)
    gathering.settle(PEER, ProtocolError("tells nothing of it"))
    gathering.settle(NodeId(2), UnreachableError(2, "late", sent=True))
    gathering.settle(NodeId(3), UnreachableError(3, "no way"))
    gathering.settle(NodeId(4), None)
    report = gathering.report()
    assert report["confirmed"] == [4]
    assert [row["sent"] for row in report["failed"]] == [False, True, False]


def test_stream_that_waited_for_room_is_granted_more(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    granting = node.parts.inbound.granting
    granted = []
    monkeypatch.setattr(type(granting), "grant", lambda self, stream: granted.append(stream))
    stream = StreamIn(PEER, life_of(network, PEER), 1, "t", 2, full=True)
    granting._starved["t"] = {stream.key: stream}
    assert granting.on_room("t") == [stream]
    assert granted == [stream]


def test_long_message_counts_as_one_that_is_left_over(node: Node) -> None:
    stream = _with_pieces(node, PEER)
    stream.queue.append(Sending(3, 4, b"four", 0, False, False, 0))
    assert node.parts.outbound.left_over() == {(PEER, "t"): 5}


def test_stream_that_ends_tells_what_may_be_taken(network: Network, node: Node) -> None:
    sending = node.parts.outbound.sending
    for fulls in (0, 1):
        stream = StreamOut(10**6, 7, PEER, "t", 2, False, id=1)
        stream.underway[1] = Sending(
            1, 1, b"x", 0, False, False, 0, sequence=1, transmissions=1, fulls=fulls
        )
        node.parts.context.effects.clear()
        sending.end(stream, UnreachableError(1, "gone"))
        [ended] = [e for e in node.parts.context.effects if isinstance(e, StreamEnded)]
        assert isinstance(ended.error, UnreachableError)
        assert ended.error.sent == (not fulls)


def test_round_trip_is_the_first_sample_and_then_a_mean() -> None:
    stream = StreamOut(1, 7, PEER, "t", 2, False)
    sent = Sending(1, 1, b"x", 0, False, False, 0, sent_ns=0, transmissions=1)
    stream._measure(sent, 800)
    assert stream.srtt_ns == 800
    stream._measure(sent, 1600)
    assert stream.srtt_ns == 900
    stream._measure(replace(sent, transmissions=2), 10**6)
    assert stream.srtt_ns == 900


@pytest.mark.parametrize(
    ("offers", "left"),
    [
        ([Offer.TAKEN, Offer.FULL], 9),
        ([Offer.TAKEN, Offer.AWAITED], 9),
        ([Offer.TAKEN, Offer.TAKEN], 1),
    ],
)
def test_own_program_is_told_what_was_taken_though_what_follows_waits(
    network: Network, node: Node, offers: list[Offer], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages are in their topic; it was told so only when the next one had room, too."""
    request, sending = network.issue(0, OpenStream(NodeId(0), "t", 2)), node.parts.outbound.sending
    stream = node.parts.outbound.table.owned[request]
    stream.next_number = 3
    for number in (1, 2):
        stream.queue.append(Sending(number, 1, b"x", 0, False, False, NEVER_NS))
    coming = iter(offers)
    monkeypatch.setattr(type(sending), "_offer_here", lambda self, stream, each: next(coming))
    node.parts.context.effects.clear()
    assert sending._hand_over(stream, left) == (left == 1)
    moved = [e for e in node.parts.context.effects if isinstance(e, StreamMoved)]
    assert [each.next for each in moved] == [2]
