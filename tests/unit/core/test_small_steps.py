"""Single calls of parts of a core, at the values where one answer goes over into another."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from bmgd.core.broadcast import delivery, watermarks, window
from bmgd.core.broadcast.heard import Heard
from bmgd.core.broadcast.source import LOOK_AGAIN_NS, SEND_TIMER
from bmgd.core.broadcast.window import OVERHEAD_BYTES, OwnBroadcast
from bmgd.core.commands import (
    BroadcastTo,
    Evict,
    OpenAnswers,
    OpenStream,
    PutSegment,
    Subscribe,
)
from bmgd.core.context import RecordMoved, RoomFreed
from bmgd.core.effects import Exit, Observed, Refuse, Reply, Send, StreamEnded, StreamMoved, Welcome
from bmgd.core.events import (
    AskFailed,
    Backlog,
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Greeted,
)
from bmgd.core.forwarding import flood
from bmgd.core.joining import growth
from bmgd.core.joining.joiner import Joiner
from bmgd.core.membership import membership
from bmgd.core.membership.allowance import ID_GAP_MAX, Allowance
from bmgd.core.membership.comparison import _Fetch
from bmgd.core.membership.contests import CONTEST_TIMER
from bmgd.core.membership.notices import NOTICES_TIMER
from bmgd.core.membership.retirement import LEFT_NS, RETIRE_TIMER
from bmgd.core.neighbors.detector import LATE_NS
from bmgd.core.neighbors.dialling import JOIN_TIMER
from bmgd.core.neighbors.greeting import HELD_TIMER, _Held
from bmgd.core.neighbors.renewal import RENEW_TIMER
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.core.streams import inbound
from bmgd.core.streams.gathering import Gathering
from bmgd.core.streams.granting import IDLE_NS
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.streams.stream_out import Sending, StreamOut
from bmgd.core.topics.inboxes import inbox_of, topic_of
from bmgd.core.topics.topic_table import TopicQueue
from bmgd.errors import NewLifeError, ProtocolError, RequestError, UnreachableError
from bmgd.linklayer.outbox import BULK_BYTES_MAX
from bmgd.peers import PeerList
from bmgd.routing.branches import Branch
from bmgd.sim import Network
from bmgd.types import (
    NODE_ID_MAX,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    NodeState,
    Record,
    Status,
)
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.broadcast_messages import Broadcast, BroadcastPiece, Piece, ReliableBroadcast
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import BUCKETS, Heartbeat, MemberFeatures, Notice, Ping
from bmgd.wire.routes import Route, Search
from bmgd.wire.segments import cost_of
from bmgd.wire.stream_messages import SegmentAck
from tests.unit.core.clusters import S, reply_to, settle
from tests.unit.segments import segment

PEER = NodeId(1)


@pytest.fixture
def network() -> Network:
    """Four nodes at rest; the tests look at node 0."""
    found = Network(4)
    settle(found)
    found.run(2)
    return found


@pytest.fixture
def node(network: Network) -> Node:
    return network.hosts[NodeId(0)].node


def life_of(network: Network, node_id: int) -> Incarnation:
    return network.hosts[NodeId(node_id)].node.incarnation


# --- members --------------------------------------------------------------------------------------------


def test_allowance_has_no_bound_until_it_is_limited() -> None:
    allowance = Allowance()
    assert allowance.skips == allowance.retired == NODE_ID_MAX + 1


def test_features_of_the_same_life_are_not_of_a_former_one(network: Network, node: Node) -> None:
    compatibility, life = node.parts.context.compatibility, life_of(network, PEER)
    assert compatibility.learn(MemberFeatures(PEER, life, 0))
    assert not compatibility.knows_former(PEER, life)
    assert compatibility.knows_former(PEER, Incarnation(life + 1))


@pytest.mark.parametrize(
    ("record", "is_open"),
    [
        (Record(Incarnation(0), 0, Status.EXPECTED, "sim1:7400"), True),
        (Record(Incarnation(1 << 32), 0, Status.EXPECTED, "sim1:7400"), False),
        (Record(Incarnation(0), 1, Status.EXPECTED, "sim1:7400"), False),
        (Record(Incarnation(0), 0, Status.EXCLUDED, "sim1:7400"), False),
    ],
)
def test_life_is_looked_into_only_where_no_record_says_anything(
    node: Node, record: Record, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.parts.context.membership, "get", lambda node_id: record)
    node.parts.contests.on_contested(PEER)
    assert ((CONTEST_TIMER, PEER, 0) in node.parts.context.timers) == is_open


def test_records_that_were_gathered_are_told_when_their_time_has_come(node: Node) -> None:
    context, notices = node.parts.context, node.parts.notices
    assert notices.publish(PEER, Record(Incarnation(1 << 40), 0, Status.ALIVE, "a:1"))
    context.effects.clear()
    notices.on_timer((NOTICES_TIMER, 0, 0))
    assert any(isinstance(e, Send) and isinstance(e.message, Notice) for e in context.effects)


def test_node_that_hears_of_a_former_life_of_its_own_does_not_count_as_new(node: Node) -> None:
    assert not node.parts.context.followed
    node.parts.lifecycle.know_former_life(Incarnation(1))
    assert node.parts.context.followed


def test_observer_speaks_for_one_that_is_held_dead_and_whose_link_is_fresh(
    network: Network, node: Node
) -> None:
    context, life = node.parts.context, life_of(network, PEER)
    assert context.membership.join(PEER, Record(life, 0, Status.EXCLUDED, "sim1:7400"))
    [link] = node.parts.links.by_peer[PEER]
    link.heard_ns = context.now_ns
    context.effects.clear()
    node.parts.observer.on_ask(Ask(Route(NodeId(0), NodeId(2), life_of(network, 2)), PEER, life))
    answers = [e.message for e in context.effects if isinstance(e, Send)]
    assert [a.alive for a in answers if isinstance(a, Answer)] == [True]


def test_verdict_heals_at_once_where_ways_are_too_long(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    healing, context = node.parts.healing, node.parts.context
    asked = []
    monkeypatch.setattr(type(healing), "_is_due", lambda self, *, by_hops: asked.append(by_hops))
    healing.on_verdict()
    assert asked == [True]
    assert not any(isinstance(e, Observed) and e.event == "healed" for e in context.effects)


@pytest.mark.parametrize("is_watched", [True, False])
def test_wish_for_a_heartbeat_is_answered_where_none_goes_anyway(
    network: Network, node: Node, is_watched: bool
) -> None:
    [link] = node.parts.links.by_peer[PEER]
    link.watched_ns = int(is_watched)
    digest = node.parts.context.membership.digest
    wish = Heartbeat(link.echo + 1, 0, digest, answer=True)
    assert node.parts.detector.absorb(link, wish) == is_watched


class Lowest(Random):
    """Every lot is the lowest one."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize(("left", "drawn"), [([], [2, 3]), ([3], [3]), ([2, 3], [2, 3])])
def test_lot_falls_on_those_that_have_left_only_where_there_are_some(
    node: Node, left: list[int], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    redialling, context = node.parts.redialling, node.parts.context
    monkeypatch.setattr(context, "random", Lowest(1))
    monkeypatch.setattr(context.membership, "gone", [2, 3])
    monkeypatch.setattr(node.parts.links, "by_peer", {})
    assert redialling._drawn({NodeId(i) for i in left}) == drawn


def test_lot_falls_on_the_dead_most_of_the_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lowest, "random", lambda self: 0.9)
    monkeypatch.setattr(node.parts.context, "random", Lowest(1))
    monkeypatch.setattr(node.parts.context.membership, "gone", [2, 3])
    monkeypatch.setattr(node.parts.links, "by_peer", {})
    assert node.parts.redialling._drawn({NodeId(3)}) == [2]


# --- broadcasts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "is_refused"), [(4, False), (3, True)])
def test_reliable_broadcast_reaches_an_id_space_up_to_its_bound(
    network: Network, monkeypatch: pytest.MonkeyPatch, most: int, is_refused: bool
) -> None:
    monkeypatch.setattr(window, "RELIABLE_ID_SPACE_MAX", most)
    reply = reply_to(network, 0, BroadcastTo("t", b"x", True, S))
    assert (reply.error is not None) == is_refused


def test_copy_that_a_search_brought_is_kept_without_the_search(
    network: Network, node: Node
) -> None:
    life = life_of(network, PEER)
    search = Search(b"\1", (PEER,))
    route = Route(NodeId(0), PEER, life, sequence=1, search=search)
    message = ReliableBroadcast(route, "t", b"x", 0, (), 4, 0, (), 0)
    heard = Heard(PEER, life)
    copies = node.parts.to_many.retention.copies
    assert copies.keep(heard, message)
    assert heard.copies[1].route.search is None
    assert heard.key in copies._reserve._since_ns


def test_life_that_is_shared_no_more_forgets_what_neighbors_were_told() -> None:
    heard = Heard(PEER, Incarnation(1))
    heard.told[PEER] = heard.said[PEER] = (1, 2)
    heard.said_ns[PEER] = heard.pulled[PEER] = heard.unanswered[PEER] = 1
    heard.told_stable, heard.told_top, heard.gap_ns = 1, 2, 3
    heard.asked = PEER
    heard.forget_neighbors()
    tables = (heard.told, heard.said, heard.said_ns, heard.pulled, heard.unanswered)
    assert not any(tables)
    assert heard.asked is None
    assert (heard.told_stable, heard.told_top, heard.gap_ns) == (0, 0, 0)


def test_reserve_forgets_who_was_refused_when_all_of_it_is_stable(
    network: Network, node: Node
) -> None:
    reserve, key = node.parts.to_many.retention.copies._reserve, (PEER, life_of(network, PEER))
    reserve.on_refused(key)
    assert key in reserve._refused_ns
    reserve.on_stable(key, has_copies=False)
    assert key not in reserve._refused_ns
    reserve.on_refused(key)
    reserve.on_kept(key)
    assert key not in reserve._refused_ns


def test_programs_of_a_life_that_was_inherited_are_asked_for(network: Network, node: Node) -> None:
    retention, life = node.parts.to_many.retention, life_of(network, PEER)
    retention.lives.pop((PEER, life), None)
    retention._inherited[PEER, life] = 3
    heard = retention.hear(PEER, life)
    assert heard is not None
    assert (heard.watermark, heard.given) == (3, True)
    assert PEER in node.parts.to_many.programs._wanted


def test_broadcast_goes_again_to_single_nodes_only_where_few_lack_it(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = node.parts.to_many.source
    network.stop(1)
    network.issue(0, BroadcastTo("t", b"x", True, 9 * S))
    [sent] = source.window.unstable
    sent.times = 1
    assert source._ways_to(sent, 0b1010) == [Branch(NodeId(1), 0b10), Branch(NodeId(3), 0b1000)]
    monkeypatch.setattr("bmgd.core.broadcast.source.SINGLY_MAX", 1)
    assert source._ways_to(sent, 0b1010) == [Branch(NodeId(0), 0b1010)]


# --- streams and topics ---------------------------------------------------------------------------------


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


def test_node_that_leaves_takes_no_broadcast_and_passes_it_on(network: Network, node: Node) -> None:
    context, broadcasting = node.parts.context, node.parts.to_many.broadcasting
    context.state = NodeState.LEAVING
    context.effects.clear()
    [link] = node.parts.links.by_peer[NodeId(2)]
    route = Route(NodeId(0), PEER, life_of(network, PEER), sequence=1, hop_budget=9)
    branches = (Branch(NodeId(0), 1), Branch(NodeId(2), 1 << 2))
    broadcasting.on_message(Broadcast(route, "t", b"x", 0, branches))
    assert PEER not in broadcasting._seen
    assert [e.link for e in context.effects if isinstance(e, Send)] == [link.id]


def test_topics_of_pieces_are_noted_up_to_their_bound(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PIECE_TOPICS_MAX", 1)
    life, given = life_of(network, PEER), node.parts.to_many.retention.delivery
    heard = Heard(PEER, life)
    for number, topic in enumerate("tu", 1):
        route = Route(NodeId(0), PEER, life, sequence=number)
        piece = Piece(1, 0, 10)
        given._give(heard, BroadcastPiece(route, topic, b"x", 0, (), 4, 0, (), 0, piece))
    assert list(heard.pieces_of) == ["t"]


# --- joining, leaving and lives -------------------------------------------------------------------------


def test_node_begins_with_an_allowance(node: Node) -> None:
    assert node.parts.context.membership.allowance.skips == ID_GAP_MAX


def test_wishes_of_joiners_are_kept_up_to_their_bound(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "JOINS_OPEN_MAX", 1)
    for number in (1, 2):
        node.parts.growth._wish(Incarnation(number), growth._Wish("a:1", 4, NodeId(0)))
    assert list(node.parts.growth._wishes) == [1]


def test_features_of_a_life_are_forgotten_with_the_record_of_the_next(
    network: Network, node: Node
) -> None:
    compatibility, life = node.parts.context.compatibility, life_of(network, PEER)
    assert compatibility.learn(MemberFeatures(PEER, life, 0))
    after = Record(Incarnation(life + 1), 0, Status.ALIVE, "sim1:7400")
    node.parts.older.on_record_moved(RecordMoved(PEER, None, after, None))
    assert compatibility.known() == ()


def test_who_left_is_forgotten_in_time_where_nobody_may_be_written_down(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = network.hosts[PEER].node.parts
    retirement, now_ns = parts.retirement, parts.context.now_ns
    monkeypatch.setattr(type(retirement), "_retire", lambda self, node_id: self._left.pop(node_id))
    retirement._left.update({NodeId(10): now_ns - LEFT_NS, NodeId(11): now_ns - LEFT_NS + S})
    retirement.on_timer((RETIRE_TIMER, 0, 0))
    assert list(retirement._left) == [11]
    assert parts.context.timers.due_ns((RETIRE_TIMER, 0, 0)) == now_ns + S


@pytest.mark.parametrize("heard_ns", [0, 1])
def test_newcomer_is_let_in_unless_the_known_life_was_heard_meanwhile(
    network: Network, node: Node, heard_ns: int
) -> None:
    context, greeting = node.parts.context, node.parts.greeting
    [link] = node.parts.links.by_peer[PEER]
    link.heard_ns = context.now_ns - 1 + heard_ns
    later = Incarnation(life_of(network, PEER) + (1 << 32))
    greeted = Greeted(LinkId(10**6), PEER, later, "sim1:7400", Incarnation(0), 1)
    greeting._held[PEER] = _Held(greeted, 5, context.now_ns - 1)
    context.effects.clear()
    greeting.on_held_timer((HELD_TIMER, PEER, 0))
    refusals = [e.refusal for e in context.effects if isinstance(e, Refuse)]
    assert refusals == ([Refusal.BUSY] if heard_ns else [])
    assert any(isinstance(e, Welcome) for e in context.effects) == (not heard_ns)


def test_eviction_is_over_when_a_dial_finds_nobody(network: Network, node: Node) -> None:
    network.stop(1)
    request = network.issue(0, Evict(PEER, 9 * S))
    node.parts.eviction._underway[PEER].told = True
    effects = node.step(network.now_ns, DialFailed(PEER, Evidence.REFUSED))
    [reply] = [e for e in effects if isinstance(e, Reply)]
    assert (reply.request, reply.result["ended"]) == (request, True)


def test_joiner_names_the_contact_that_failed() -> None:
    settings = Settings(NodeId(0), 1, PeerList(), "me:1", takes_new_id=True)
    contacts = ("a:1", "b:1", "c:1")
    joiner, now_ns = Joiner(settings, contacts, None, None, Incarnation(2**32), Random(1), 0), 0
    named = []
    for _ in range(4):
        assert joiner.deadline_ns is not None
        now_ns = joiner.deadline_ns
        joiner.step(now_ns, DeadlineReached())
        failed = joiner.step(now_ns, AskFailed(Evidence.REFUSED))
        named += [e.detail.split(": ")[0] for e in failed if isinstance(e, Observed)]
    assert named == ["a:1", "b:1", "c:1", "a:1"]


# --- what waits -----------------------------------------------------------------------------------------


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


def test_neighbor_that_sent_something_may_be_asked_again(network: Network, node: Node) -> None:
    heard = Heard(PEER, life_of(network, PEER))
    heard.asked, heard.asked_at, heard.watermark = NodeId(2), (0, 0), 1
    heard.pulled[NodeId(2)] = 3
    node.parts.to_many.orphans._pull(heard)
    assert heard.pulled == {}


def test_broadcasts_wait_for_room_up_to_their_bound(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = node.parts.to_many.source.window
    own.waiting_bytes = 6
    command = BroadcastTo("t", b"four", True, S)
    monkeypatch.setattr(window, "WAITING_BYTES_MAX", 10)
    assert own.refusal(command) is None
    monkeypatch.setattr(window, "WAITING_BYTES_MAX", 9)
    assert isinstance(own.refusal(command), RequestError)


def test_peer_that_is_waited_for_is_not_waited_for_anew(network: Network, node: Node) -> None:
    dialling, timers = node.parts.dialling, node.parts.context.timers
    key, at_ns = (JOIN_TIMER, PEER, 0), network.now_ns + 10 * S
    node.parts.links.by_peer.pop(PEER)
    timers.set(key, at_ns)
    dialling.reconcile()
    assert timers.due_ns(key) == at_ns


def test_pages_have_every_run_of_retired_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "RECORDS_PER_NOTICE_MAX", 2)
    known = membership.Membership(4, PeerList(template="h{id}:1"))
    runs = [(10, 11), (20, 21), (30, 31), (40, 41), (50, 51)]
    for first, last in runs:
        known.retire_run(NodeId(first), NodeId(last))
    found: list[tuple[int, int]] = []
    after: NodeId | None = NodeId(0)
    while after is not None:
        page = known.page(after, 2**BUCKETS - 1)
        assert len(page.retired) <= 2
        found += page.retired
        after = page.following
    assert found == runs


def test_nobody_to_renew_needs_no_pause(node: Node) -> None:
    renewal, timers = node.parts.renewal, node.parts.context.timers
    renewal._pause()
    assert (RENEW_TIMER, 0, 0) not in timers
    renewal._waiting[PEER] = None
    renewal._pause()
    assert (RENEW_TIMER, 0, 0) in timers


def test_life_that_was_met_before_and_is_linked_again_makes_no_record(node: Node) -> None:
    [link] = node.parts.links.by_peer[PEER]
    node.parts.meeting.on_link_opened(link)
    assert PEER not in node.parts.context.membership.exceptions()


def test_neighbors_of_who_is_dead_no_more_are_counted_no_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    healing, known = node.parts.healing, node.parts.context.membership
    monkeypatch.setattr(known, "dead", [2, 3])
    healing._count()
    assert +healing._dead_neighbors == Counter(
        [*known.neighbors(NodeId(2)), *known.neighbors(NodeId(3))]
    )
    monkeypatch.setattr(known, "dead", [3])
    healing._count()
    assert +healing._dead_neighbors == Counter(known.neighbors(NodeId(3)))
    known.layout_revision += 1
    healing._count()
    assert +healing._dead_neighbors == Counter(known.neighbors(NodeId(3)))


def test_ids_may_become_known_again_as_time_goes_on(network: Network, node: Node) -> None:
    allowance = node.parts.context.membership.allowance
    node.step(network.now_ns, DeadlineReached())
    allowance.skips, allowance._at_ns = 0, network.now_ns
    node.step(network.now_ns + S, DeadlineReached())
    assert allowance.skips == 1000


@pytest.mark.parametrize("known", [(5, 6), (1, 2)])
def test_skips_side_by_side_are_one(node: Node, known: tuple[int, int]) -> None:
    heard, told = Heard(PEER, Incarnation(1)), node.parts.to_many.retention.delivery
    told.add_skip(heard, *known, missed=True)
    told.add_skip(heard, 3, 4, missed=True)
    assert [skip[:2] for skip in heard.skips] == [(min(3, known[0]), max(4, known[1]))]
    told.add_skip(heard, 8, 9, missed=True)
    assert len(heard.skips) == 2


@pytest.mark.parametrize(("sequence", "is_kept"), [(1, True), (2, False)])
def test_next_copy_of_a_life_is_kept_where_the_reserve_admits_it(
    network: Network, node: Node, sequence: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, life = node.parts.to_many.retention.copies, life_of(network, PEER)
    monkeypatch.setattr("bmgd.core.broadcast.copies.HELD_BYTES_MAX", 0)
    monkeypatch.setattr(type(copies._reserve), "admits", lambda self, key, over_bytes: True)
    route = Route(NodeId(0), PEER, life, sequence=sequence)
    message = ReliableBroadcast(route, "t", b"x", 0, (), 4, 0, (), 0)
    assert copies.keep(Heard(PEER, life), message) == is_kept


def test_life_of_a_source_that_is_gone_makes_room_for_another(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention, known = node.parts.to_many.retention, node.parts.context.membership
    monkeypatch.setattr("bmgd.core.broadcast.retention.LIVES_MAX", 1)
    assert retention.hear(PEER, life_of(network, PEER)) is not None
    for _ in range(2):
        assert retention.hear(NodeId(2), life_of(network, 2)) is None
    retention._full_until_ns = 0
    assert known.join(PEER, Record(life_of(network, PEER), 0, Status.EXCLUDED, "sim1:7400"))
    assert retention.hear(NodeId(2), life_of(network, 2)) is not None
    assert [source for source, _ in retention.lives] == [2]


@pytest.mark.parametrize("late_ns", [LATE_NS // 16, LATE_NS // 16 + 1])
def test_node_waits_longer_for_others_when_it_is_late_enough(
    network: Network, node: Node, late_ns: int
) -> None:
    due_ns = node.deadline_ns
    assert due_ns is not None
    node.parts.detector.stretch_ns = 0
    node.step(due_ns + late_ns, DeadlineReached())
    assert (node.parts.detector.stretch_ns > 0) == (late_ns > LATE_NS // 16)


def test_source_of_pieces_looks_again_while_its_own_readers_are_behind(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, timers = node.parts.to_many.source, node.parts.context.timers
    monkeypatch.setattr(type(source._announcements), "is_behind", lambda self, topic: True)
    waiting = BroadcastTo("t", b"x", True, S, Piece(1, 0, 10))
    source.window.waiting.append(OwnBroadcast(waiting, 7, node.parts.context.now_ns + S))
    assert source._must_wait()
    assert timers.due_ns((SEND_TIMER, 0, 0)) == node.parts.context.now_ns + LOOK_AGAIN_NS


def test_sender_that_is_known_takes_no_place_from_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood, "SENDERS_MAX", 2)
    limits, links = node.parts.flood, node.parts.links
    limits._empty_ns.clear()
    for number in (1, 2, 1):
        [link] = links.by_peer[NodeId(number)]
        assert limits.admits(link, Ping(1))
    assert [peer for peer, *_ in limits._empty_ns] == [1, 2]


def test_idle_senders_make_room_for_another(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood, "SENDERS_MAX", 1)
    limits, links = node.parts.flood, node.parts.links
    limits._empty_ns.clear()
    for number in (1, 2):
        [link] = links.by_peer[NodeId(number)]
        assert limits.admits(link, Ping(1))
        node.parts.context.now_ns += S
    assert [peer for peer, *_ in limits._empty_ns] == [2]
    limits._empty_ns.update({(NodeId(i), NodeId(i), flood.Rate.CLUSTER): 1 for i in range(8)})
    limits._forget_idle()
    assert limits._empty_ns == {}


@pytest.mark.parametrize(("size", "is_told"), [(249, False), (250, True)])
def test_broadcasts_are_acknowledged_by_the_quarter_of_a_window(
    network: Network, node: Node, size: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "WINDOW_ALL_BYTES", 1)
    monkeypatch.setattr(watermarks, "WINDOW_MIN_BYTES", 4 * (250 + OVERHEAD_BYTES))
    heard = Heard(PEER, life_of(network, PEER))
    node.parts.to_many.retention.watermarks.acknowledge_soon(heard, size)
    assert (heard.unacknowledged_bytes == 0) == is_told


def test_founder_that_was_evicted_ends_and_does_not_ask_for_another_id(node: Node) -> None:
    context = node.parts.context
    context.effects.clear()
    node.parts.lifecycle._on_left(context.own_record()._replace(status=Status.LEFT))
    assert [e.reason for e in context.effects if isinstance(e, Exit)] == [
        "this node was evicted from the cluster"
    ]


def test_pair_is_settled_when_the_third_link_of_it_is_lost(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, settled = node.parts.links, list[NodeId]()
    monkeypatch.setattr(type(links), "_settle_pair", lambda self, peer: settled.append(peer))
    [link] = links.by_peer[PEER]
    for number in (1, 2):
        other = replace(link, id=LinkId(10**6 + number))
        links.table[other.id] = other
        links.by_peer[PEER].append(other)
    links.lose(LinkId(10**6 + 1), Evidence.EOF)
    assert settled == [PEER]
    links.lose(LinkId(10**6 + 2), Evidence.EOF)
    assert settled == [PEER]


def test_links_of_the_former_layout_may_stay_beside_those_of_guests(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.core.links.GUESTS_MAX", 0)
    links = node.parts.links
    wanted = [peer for peer in links.by_peer if peer != PEER]
    links.release_unwanted(wanted, [PEER], settled=False)
    assert PEER in links.by_peer
    links.release_unwanted(wanted, wanted, settled=False)
    assert PEER not in links.by_peer


@pytest.mark.parametrize("others_wait", [True, False])
def test_peer_rests_after_its_last_page_only_where_another_waits(
    node: Node, others_wait: bool
) -> None:
    comparison, [link] = node.parts.comparison, node.parts.links.by_peer[PEER]
    comparison._fetch = _Fetch(link.id, 1, node.parts.context.now_ns, others_wait=others_wait)
    comparison._end(S)
    assert (link.id in comparison._rests_until_ns) == others_wait


def test_hello_whose_link_is_lost_is_held_no_more(network: Network, node: Node) -> None:
    greeting = node.parts.greeting
    for number in (1, 2):
        greeted = Greeted(LinkId(number), NodeId(number), Incarnation(1), "a:1", Incarnation(0), 1)
        greeting._held[NodeId(number)] = _Held(greeted, 5, network.now_ns)
    greeting.on_hello_lost(LinkId(2))
    assert list(greeting._held) == [1]


def test_own_record_is_told_over_a_link_that_opens(node: Node) -> None:
    context, [link] = node.parts.context, node.parts.links.by_peer[PEER]
    record = context.own_record()._replace(version=1)
    assert context.membership.join(context.id, record)
    context.effects.clear()
    node.parts.meeting.on_link_opened(link)
    told = [e.message for e in context.effects if isinstance(e, Send) and e.link == link.id]
    assert any(isinstance(m, Notice) and m.records[0][0] == context.id for m in told)


def test_link_that_the_peer_dialled_renews_none_of_the_own(node: Node) -> None:
    renewal, [link] = node.parts.renewal, node.parts.links.by_peer[PEER]
    renewal._dialled = PEER
    renewal.on_link_opened(replace(link, dialled_by=PEER))
    assert renewal._dialled == PEER
    renewal.on_link_opened(replace(link, dialled_by=NodeId(0)))
    assert renewal._dialled is None


@pytest.mark.parametrize("beyond_ns", [0, 1])
def test_id_is_given_up_when_another_has_it_beyond_the_time_of_detection(
    node: Node, beyond_ns: int
) -> None:
    context = node.parts.context
    patience_ns = context.settings.timeout_ns + context.settings.ask_ns
    own_id = node.parts.dialling.own_id
    own_id._duplicate_since_ns = context.now_ns - patience_ns - beyond_ns
    assert own_id._give_way_in_time(PEER) == bool(beyond_ns)


# --- streams again --------------------------------------------------------------------------------------


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
