"""Tables that a member could fill: each has a bound, and something defined happens there."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random

import pytest

from bmgd.core.commands import BroadcastTo, FindReaders
from bmgd.core.effects import Effect, Reply, Send, Welcome
from bmgd.core.events import (
    CommandIssued,
    DeadlineReached,
    Event,
    Greeted,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.forwarding.branching import Branched
from bmgd.core.links import GUESTS_MAX
from bmgd.core.membership import allowance, membership
from bmgd.core.neighbors.observer import ASKS_OPEN_MAX
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.core.streams import inbound
from bmgd.errors import RequestError
from bmgd.peers import PeerList
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE, ids_between
from bmgd.types import (
    NODE_ID_MAX,
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
    incarnation_tag,
)
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from bmgd.wire.broadcast_messages import (
    Broadcast,
    Multicast,
    ReliableBroadcast,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.link_messages import Notice, Ping, RecordPage
from bmgd.wire.routes import Route
from bmgd.wire.stream_messages import SegmentAck
from tests.unit.segments import segment

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)
ME = NodeId(0)


def node_of(size: int) -> Node:
    """Node 0, linked to node 1."""
    node = Node(Settings(ME, size, PEERS, PEERS.address_of(ME)), LIFE, Random(0), 0)
    node.step(0, DeadlineReached())
    address = PEERS.address_of(NodeId(1))
    node.step(1, LinkUp(LinkId(1), NodeId(1), LIFE, address, UNKNOWN_INCARNATION, 1))
    return node


def route(source: int, sequence: int = 1) -> Route:
    return Route(ME, NodeId(source), LIFE, incarnation_tag(LIFE), sequence, 9)


def answers(
    node: Node, source: int, stream: int = 1, floor: int = 1, replaces: int = 0
) -> list[bool]:
    """Let the first message of a stream come; whether it was taken, for each answer."""
    came = segment(route(source), b"x", stream=stream, floor=floor, replaces=replaces)
    effects = node.step(2, Received(LinkId(1), came))
    told = [e.message for e in effects if isinstance(e, Send)]
    return [not answer.full for answer in told if isinstance(answer, SegmentAck)]


def is_answered(node: Node, source: int) -> bool:
    return answers(node, source) == [True]


def test_streams_of_all_sources_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "STREAMS_MAX", 6)
    node = node_of(64)
    assert all(answers(node, source, s) == [True] for source in (2, 3) for s in (1, 2, 3))
    # A full table refuses what is new, and forgets nothing of what it has.
    assert answers(node, 2, 4) == [False]
    assert answers(node, 4) == [False]
    assert answers(node, 3, 3) == []
    assert answers(node, 2, 4, floor=3) == [True]
    assert answers(node, 4) == [True]
    assert answers(node, 5) == [False]


def test_stream_and_the_unknown_one_that_it_replaces_need_room_for_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbound, "STREAMS_MAX", 3)
    node = node_of(64)
    assert answers(node, 2) == [True]
    assert answers(node, 3) == [True]
    assert answers(node, 4, 2, replaces=1) == [False]
    # One that is known is there already.
    assert answers(node, 3, 2, replaces=1) == [True]
    assert answers(node, 3, 3, floor=3) == [True]
    assert answers(node, 2, 3, floor=3, replaces=2) == [True]


def test_streams_beyond_the_span_of_the_lowest_open_one_are_not_answered() -> None:
    node = node_of(64)
    assert answers(node, 2, inbound.SPAN, floor=1) == [True]
    assert answers(node, 2, inbound.SPAN + 1, floor=1) == []
    assert answers(node, 2, inbound.SPAN + 1, floor=2) == [True]
    assert answers(node, 2, 1, floor=1) == []


def test_source_that_left_makes_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "SOURCES_MAX", 2)
    node = node_of(64)
    assert is_answered(node, 2)
    assert is_answered(node, 3)
    assert not is_answered(node, 4)
    # Who is only held dead may refute that, and go on.
    dead = Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(2)))
    node.step(2, Received(LinkId(1), Notice(((NodeId(2), dead),))))
    assert not is_answered(node, 4)
    left = Record(LIFE, 0, Status.LEFT, PEERS.address_of(NodeId(3)))
    node.step(2, Received(LinkId(1), Notice(((NodeId(3), left),))))
    assert is_answered(node, 4)
    assert not is_answered(node, 3)


def test_lives_met_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LIVES_MAX", 3)
    known = membership.Membership(100, PEERS)
    for number in range(10):
        known.meet_life(NodeId(number), LIFE)
    assert [i for i in range(10) if known.incarnation(NodeId(i))] == [0, 1, 2]
    later = Incarnation(2 << 32)
    known.meet_life(NodeId(1), later)
    assert known.incarnation(NodeId(1)) == later


def _guest(node: Node, number: int, now_ns: int) -> list[Effect]:
    peer, link = NodeId(number), LinkId(1000 + number)
    hello = Greeted(link, peer, LIFE, PEERS.address_of(peer), UNKNOWN_INCARNATION, 1)
    return node.step(now_ns, hello)


def test_guests_that_come_and_go_leave_no_page() -> None:
    node = node_of(4096)
    pages = len(node.parts.dialling.peerings)
    timers = len(node.parts.context.timers)
    for number in range(1000, 1200):
        assert any(isinstance(e, Welcome) for e in _guest(node, number, 5))
        node.step(5, LinkDown(LinkId(1000 + number), Evidence.GOODBYE))
    assert len(node.parts.dialling.peerings) == pages
    assert len(node.parts.context.timers) <= timers + 1


def test_guests_that_stay_are_bounded() -> None:
    node = node_of(4096)
    for number in range(1000, 1200):
        _guest(node, number, 5)
    assert len(node.parts.links.table) <= 1 + GUESTS_MAX + len(node.parts.dialling.wanted)


def test_asks_that_an_observer_has_open_are_bounded() -> None:
    node = node_of(64)
    pings, now_ns = 0, 1
    while now_ns < 700_000_000:
        now_ns = max(now_ns, node.deadline_ns or 0)
        node.step(now_ns, DeadlineReached())
    for number in range(3 * ASKS_OPEN_MAX):
        asker = NodeId(2 + number % 60)
        asked = Ask(Route(ME, asker, LIFE, 0, number, 9), NodeId(1), LIFE)
        effects = node.step(now_ns, Received(LinkId(999), asked))
        pings += sum(isinstance(e, Send) and isinstance(e.message, Ping) for e in effects)
    assert pings == ASKS_OPEN_MAX
    answered, until_ns = 0, now_ns + 300_000_000
    while now_ns < until_ns:
        now_ns = max(now_ns, node.deadline_ns or 0)
        effects = node.step(now_ns, DeadlineReached())
        answered += sum(isinstance(e, Send) and isinstance(e.message, Answer) for e in effects)
    assert answered == ASKS_OPEN_MAX


def test_members_cannot_be_invented_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "JOINED_MAX", 5)
    known = membership.Membership(10, PEERS)
    joined = [i for i in range(30) if known.join(NodeId(i), Record(LIFE, 0, Status.ALIVE, "a:1"))]
    assert joined == list(range(20))
    assert known.id_space == 20


# --- ids that others make known -------------------------------------------------------------------------


def test_ids_that_records_skip_have_a_rate() -> None:
    known = membership.Membership(10, PEERS)
    known.allowance.limit(0)
    alive = Record(LIFE, 0, Status.ALIVE, "a:1")

    def leap() -> bool:
        """An id far above is claimed, and the ones below are said to be retired: no gap is left."""
        space = known.id_space
        return known.join(NodeId(space + 999), alive) and bool(
            known.retire_run(NodeId(space), NodeId(space + 998))[1]
        )

    assert [leap() for _ in range(6)] == [True] * 4 + [False] * 2
    known.allowance.limit(800_000_000)
    assert not leap()
    known.allowance.limit(1_000_000_000)
    assert [leap() for _ in range(2)] == [True, False]
    known.allowance.limit(10**12)
    assert sum(leap() for _ in range(9)) == allowance.ID_GAP_MAX // 999
    assert known.join(NodeId(known.id_space), alive), "an id that skips none always may be"


def test_runs_of_retired_ids_have_a_rate() -> None:
    known = membership.Membership(10, PEERS)
    known.allowance.limit(0)
    most = allowance.RETIRED_AT_ONCE
    assert known.retire_run(NodeId(10), NodeId(NODE_ID_MAX)) == ([], 9 + most)
    assert known.retire_run(NodeId(10 + most), NodeId(NODE_ID_MAX)) == ([], None)
    second = 1_000_000_000
    known.allowance.limit(second)
    assert not known.join(
        NodeId(known.id_space + allowance.ID_GAP_MAX), Record(LIFE, 0, Status.ALIVE, "")
    )
    run = NodeId(known.id_space), NodeId(known.id_space + allowance.RETIRED_PER_S - 1)
    assert known.retire_run(*run) == ([], run[1])
    known.allowance.limit(2 * second)
    assert known.retire_run(NodeId(known.id_space), NodeId(NODE_ID_MAX))[1] is None
    known.allowance.limit(18 * second)
    assert known.retire_run(NodeId(known.id_space), NodeId(NODE_ID_MAX))[1] == known.id_space - 1


def test_time_of_less_than_a_millisecond_is_not_lost() -> None:
    known = membership.Membership(10, PEERS)
    known.allowance.limit(0)
    alive = Record(LIFE, 0, Status.ALIVE, "a:1")
    assert known.join(NodeId(10 + allowance.ID_GAP_MAX - 1), alive)
    known.retire_run(NodeId(10), NodeId(8 + allowance.ID_GAP_MAX))
    for at_ns in range(0, 1_000_000_001, 900_000):
        known.allowance.limit(at_ns)
    assert known.join(NodeId(known.id_space + allowance.SKIPPED_PER_S - 2), alive)


def test_retired_ids_up_to_the_last_hold_nobody_up() -> None:
    node = node_of(4)
    page = RecordPage((), ((NodeId(4), NodeId(NODE_ID_MAX)),))
    node.step(2, Received(LinkId(1), page))
    branch = Branch(ME, 0b1111)
    came = Broadcast(route(1), "t", b"x", 1, (branch,))
    node.step(3, Received(LinkId(1), came))
    effects = node.step(4, CommandIssued(7, BroadcastTo("t", b"x", True, 10**9)))
    errors = [e.error for e in effects if isinstance(e, Reply)]
    assert "id space" in str(errors[0])


def test_waiting_broadcast_is_answered_where_no_frame_can_name_all_nodes_any_more() -> None:
    node = node_of(4)
    large = bytes(PAYLOAD_BYTES_MAX)
    replies: list[Reply] = []
    frames: list[ReliableBroadcast] = []

    def step(now_ns: int, event: Event) -> None:
        for effect in node.step(now_ns, event):
            if isinstance(effect, Reply):
                replies.append(effect)
            elif isinstance(effect, Send) and isinstance(effect.message, ReliableBroadcast):
                frames.append(effect.message)

    numbers = range(100, 400)
    for number in numbers:
        step(2, CommandIssued(number, BroadcastTo("t", large, True, 10**12)))
    assert not replies
    last = max(frame.route.sequence for frame in frames)
    step(3, Received(LinkId(1), RecordPage((), ((NodeId(4), NodeId(2**17)),))))
    for other in (1, 2, 3):
        step(4, Received(LinkId(1), Watermark(route(other), last, 0, False)))
    answered = {reply.request: reply.error for reply in replies}
    assert answered.keys() == set(numbers)
    assert answered[numbers[0]] is None
    assert isinstance(answered[numbers[-1]], RequestError)
    assert all(frame.id_space <= ID_SET_SPACE for frame in frames)


@pytest.mark.parametrize("tree", [0, 1])
def test_cover_costs_what_the_layout_holds_and_each_id_is_covered_once(tree: int) -> None:
    node = node_of(4)
    everything = ids_between(0, ID_SET_SPACE)
    branches = tuple(Branch(NodeId(head), everything) for head in (0, 1, 2, NODE_ID_MAX) * 250)
    came: list[Branched] = [
        Broadcast(route(2), "t", b"x", tree, branches),
        Multicast(route(2, 2), "t", b"x", branches),
        ReliableBroadcast(route(2), "t", b"x", tree, branches, 4, 0, (), 0),
        Stable(route(2), tree, branches, 1),
    ]
    for message in came:
        effects = node.step(2, Received(LinkId(1), message))
        sent = [e.message for e in effects if isinstance(e, Send)]
        copies = [m for m in sent if isinstance(m, type(message))]
        assert 1 <= len(copies) <= 3
        covers = [branch.cover for copy in copies for branch in copy.branches]
        assert sum(cover.bit_count() for cover in covers) <= ID_SET_SPACE
    assert node.parts.to_many.broadcasting.branching.lost > 0


def test_source_without_a_broadcast_tells_nobody_to_skip_none() -> None:
    node = node_of(4)
    asked = Watermark(replace(route(1), source_incarnation=Incarnation(2**64 - 1)), 0, 8, True)
    effects = node.step(2, Received(LinkId(1), asked))
    told = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Skipped)]
    assert all(skip.first <= skip.last for skipped in told for skip in skipped.skips)
    asked = replace(asked, route=replace(asked.route, source=NodeId(2)))
    node.step(
        3, Received(LinkId(1), replace(asked, route=replace(asked.route, source_incarnation=LIFE)))
    )
    effects = node.step(4, Received(LinkId(1), asked))
    told = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Skipped)]
    assert all(skip.first <= skip.last for skipped in told for skip in skipped.skips)


def test_readers_are_not_looked_for_among_ids_without_end() -> None:
    node = node_of(2**31)
    effects = node.step(2, CommandIssued(7, FindReaders("t", 10**9)))
    (reply,) = (e for e in effects if isinstance(e, Reply))
    assert isinstance(reply.error, RequestError)


def test_ways_to_ids_however_high_cost_no_set_of_them() -> None:
    node = node_of(2**31)
    branching = node.parts.to_many.broadcasting.branching
    tracemalloc.start()
    try:
        branching.ways([NodeId(number) for number in (1, 2, NODE_ID_MAX - 1, NODE_ID_MAX)])
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2**20
