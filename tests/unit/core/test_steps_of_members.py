"""Members, joiners and what is written of them: single steps, where one answer goes over into another."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from bmgd.core.commands import (
    Evict,
)
from bmgd.core.context import RecordMoved
from bmgd.core.effects import Exit, Observed, Reply, Send
from bmgd.core.events import (
    AskFailed,
    DeadlineReached,
    DialFailed,
)
from bmgd.core.joining import growth
from bmgd.core.joining.joiner import Joiner
from bmgd.core.membership import membership
from bmgd.core.membership.allowance import ID_GAP_MAX, Allowance
from bmgd.core.membership.comparison import _Fetch
from bmgd.core.membership.contests import CONTEST_TIMER
from bmgd.core.membership.notices import NOTICES_TIMER
from bmgd.core.membership.retirement import LEFT_NS, RETIRE_TIMER
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.sim import Network
from bmgd.types import (
    NODE_ID_MAX,
    Evidence,
    Incarnation,
    NodeId,
    Record,
    Status,
)
from bmgd.wire.link_messages import BUCKETS, MemberFeatures, Notice
from tests.unit.core.clusters import S
from tests.unit.core.four_nodes import PEER, life_of


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


def test_verdict_heals_at_once_where_ways_are_too_long(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    healing, context = node.parts.healing, node.parts.context
    asked = []
    monkeypatch.setattr(type(healing), "_is_due", lambda self, *, by_hops: asked.append(by_hops))
    healing.on_verdict()
    assert asked == [True]
    assert not any(isinstance(e, Observed) and e.event == "healed" for e in context.effects)


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


def test_founder_that_was_evicted_ends_and_does_not_ask_for_another_id(node: Node) -> None:
    context = node.parts.context
    context.effects.clear()
    node.parts.lifecycle._on_left(context.own_record()._replace(status=Status.LEFT))
    assert [e.reason for e in context.effects if isinstance(e, Exit)] == [
        "this node was evicted from the cluster"
    ]


@pytest.mark.parametrize("others_wait", [True, False])
def test_peer_rests_after_its_last_page_only_where_another_waits(
    node: Node, others_wait: bool
) -> None:
    comparison, [link] = node.parts.comparison, node.parts.links.by_peer[PEER]
    comparison._fetch = _Fetch(link.id, 1, node.parts.context.now_ns, others_wait=others_wait)
    comparison._end(S)
    assert (link.id in comparison._rests_until_ns) == others_wait
