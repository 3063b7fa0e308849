"""Lives of an id: restarts, duplicates, former incarnations."""

from __future__ import annotations

import pytest

from bmgd.core.commands import Leave, ShowMembers
from bmgd.core.effects import Close, Dial, Observed, RecordChanged, Refuse, Send, Welcome
from bmgd.core.events import (
    DeadlineReached,
    DialFailed,
    Granted,
    Greeted,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.node import Node
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.network import PEERS
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
    counter_of,
    incarnation_tag,
)
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Notice
from bmgd.wire.routes import Route
from bmgd.wire.stream_messages import ResetReason, SegmentAck, StreamReset
from tests.unit.core.clusters import Refusals, observed, reply_to, send, settle
from tests.unit.segments import segment


@pytest.mark.parametrize("pause_s", [0.0, 0.0001, 0.0003, 0.001, 0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("counter", [1, 2])
@pytest.mark.parametrize("victim", [0, 5, 15])
def test_restart_is_a_higher_life(pause_s: float, counter: int, victim: int) -> None:
    network = Network(16, seed=3)
    settle(network)
    former = network.status(victim)["incarnation"]
    network.kill(victim)
    network.run(pause_s)
    network.boot(victim, counter)
    settle(network)
    assert network.status(victim)["incarnation"] > former
    assert send(network, (victim + 3) % 16, victim).error is None
    assert send(network, victim, (victim + 3) % 16).error is None


def test_every_node_restarts_in_turn() -> None:
    network = Network(9)
    settle(network)
    for victim in range(9):
        network.kill(victim)
        network.run(0.05)
        network.boot(victim)
        settle(network)
    counters = [counter_of(network.status(i)["incarnation"]) for i in range(9)]
    assert min(counters) >= 2


def test_former_life_is_told_what_is_known_of_it() -> None:
    network = Network(8)
    settle(network)
    network.kill(3)
    settle(network, [3])
    network.boot(3, counter=1)
    settle(network)
    assert counter_of(network.status(3)["incarnation"]) == 2


def test_duplicate_of_a_living_id_is_refused() -> None:
    network = Network(8)
    settle(network)
    host = network.hosts[NodeId(4)]
    living = network.status(3)["incarnation"]
    newcomer = Greeted(
        LinkId(10**6), NodeId(3), living + 2**32, "sim3:7400", UNKNOWN_INCARNATION, 1
    )
    effects = host.node.step(network.now_ns, newcomer)
    for effect in effects:
        network._carry_out(host, effect)
    refusals = Refusals()
    network.watchers.append(refusals)
    network.run(1)
    assert [r.refusal for r in refusals.seen if r.link == 10**6] == [Refusal.DUPLICATE]
    settle(network)


def test_leaving_node_is_left_not_dead() -> None:
    network = Network(8)
    settle(network)
    network.issue(3, Leave())
    network.run(1)
    leaver = network.hosts[NodeId(3)]
    assert leaver.exit is not None
    assert leaver.exit.code == 0
    for node_id in (0, 1, 2, 4, 5, 6, 7):
        status = network.status(node_id)
        assert status["left"] == [3]
        assert status["dead"] == []
        assert [link["id"] for link in status["links"]] == status["neighbors"]


def test_dial_of_a_former_life_says_nothing_of_the_present_one() -> None:
    """A dial to a cut-off, dead id is still under way when its new life is known: no suspicion."""
    network = Network(3)
    settle(network)
    network.kill(2)
    settle(network, [2])
    network.cut(0, 2)
    node = network.hosts[NodeId(0)].node
    node.parts.dialling.dial(NodeId(2))
    network.boot(2, counter=5)
    network.run(0.9)
    assert network.status(0)["alive"] == [0, 1, 2]
    incarnation = network.status(2)["incarnation"]
    effects = node.step(network.now_ns, DialFailed(NodeId(2), Evidence.NO_ANSWER))
    assert not [e for e in effects if isinstance(e, Observed) and e.incarnation == incarnation]
    network.mend()
    settle(network)


def test_a_former_life_that_left_does_not_evict_the_one_that_followed() -> None:
    network = Network(4)
    settle(network)
    host, life = network.hosts[NodeId(0)], network.status(3)["incarnation"]
    left = Record(Incarnation(life - 1), 0, Status.LEFT, "sim3:7400")
    effects = host.node.step(network.now_ns, Received(LinkId(10**6), Notice(((NodeId(3), left),))))
    assert [e.record for e in effects if isinstance(e, RecordChanged)] == [left]
    newcomer = Greeted(LinkId(10**6), NodeId(3), life, "sim3:7400", UNKNOWN_INCARNATION, 9)
    effects = host.node.step(network.now_ns, newcomer)
    assert not [e for e in effects if isinstance(e, Refuse)]
    assert [e.record.incarnation for e in effects if isinstance(e, RecordChanged)] == [life]


@pytest.mark.parametrize("status", [Status.ALIVE, Status.DEAD, Status.EXCLUDED])
def test_what_is_said_of_this_life_at_another_address_is_refuted(status: Status) -> None:
    network = Network(4)
    settle(network)
    life = network.status(3)["incarnation"]
    slander = Notice(((NodeId(3), Record(life, 5, status, "z:1")),))
    network._step(network.hosts[NodeId(3)], Received(LinkId(10**6), slander))
    network._step(network.hosts[NodeId(0)], Received(LinkId(10**6), slander))
    network.run(5)
    settle(network)
    for node_id in range(4):
        member = reply_to(network, node_id, ShowMembers()).result["members"][3]
        assert (member["address"], member["status"]) == ("sim3:7400", "alive")


def moved_newcomer(network: Network) -> tuple[Node, Greeted]:
    """Node 0 of a settled cluster, and a hello of node 3's next life from another address.

    Node 0 knows node 3's life from a message, and has no link to it.
    """
    settle(network)
    assert send(network, 3, 0).error is None
    life = network.status(3)["incarnation"]
    newcomer = Greeted(LinkId(10**6), NodeId(3), life + 2**32, "moved:7400", UNKNOWN_INCARNATION, 1)
    return network.hosts[NodeId(0)].node, newcomer


@pytest.mark.parametrize(
    ("evidence", "refusal", "answer"),
    [
        (Evidence.REFUSED, None, Welcome),
        (Evidence.NO_ANSWER, None, Welcome),
        (Evidence.REJECTED, Refusal.WRONG_ID, Welcome),
        (Evidence.REJECTED, Refusal.BUSY, Refuse),
        (Evidence.REJECTED, Refusal.RENEWED, Refuse),
        (Evidence.REJECTED, Refusal.DUPLICATE, Refuse),
    ],
)
def test_newcomer_from_elsewhere_waits_for_the_recorded_address(
    evidence: Evidence, refusal: Refusal | None, answer: type
) -> None:
    network = Network(16)
    node, newcomer = moved_newcomer(network)
    effects = node.step(network.now_ns, newcomer)
    assert [e.address for e in effects if isinstance(e, Dial)] == ["sim3:7400"]
    assert not [e for e in effects if isinstance(e, Welcome | Refuse)]
    effects = node.step(network.now_ns, DialFailed(NodeId(3), evidence, refusal))
    assert [type(e) for e in effects if isinstance(e, Welcome | Refuse)] == [answer]


def test_a_failed_dial_does_not_answer_for_the_link_that_is_probed() -> None:
    network = Network(8)
    settle(network)
    node, life = network.hosts[NodeId(4)].node, network.status(3)["incarnation"]
    newcomer = Greeted(LinkId(10**6), NodeId(3), life + 2**32, "sim3:7400", UNKNOWN_INCARNATION, 1)
    node.step(network.now_ns, newcomer)
    effects = node.step(network.now_ns, DialFailed(NodeId(3), Evidence.EOF))
    assert not [e for e in effects if isinstance(e, Welcome | Refuse)]


@pytest.mark.parametrize("counter", [1, 2])
def test_every_life_answers_what_is_for_no_life_with_its_own_tag(counter: int) -> None:
    network = Network(4, start=False)
    for node_id in range(4):
        network.boot(node_id, counter)
    settle(network)
    life = network.status(1)["incarnation"]
    data = segment(Route(NodeId(0), NodeId(1), life, hop_budget=9), b"x")
    node = network.hosts[NodeId(0)].node
    effects = node.step(network.now_ns, Received(LinkId(10**6), data))
    answers = [
        e.message
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, SegmentAck | StreamReset)
    ]
    (reset,) = answers
    assert isinstance(reset, StreamReset)
    assert (reset.reason, reset.tag) == (
        ResetReason.FOREIGN_TAG,
        incarnation_tag(node.incarnation),
    )


@pytest.mark.parametrize("victim", [0, 8, 15])
def test_restart_that_everybody_calls_stale_begins_one_new_life(victim: int) -> None:
    network = Network(16)
    settle(network)
    network.kill(victim)
    settle(network, [victim])
    network.boot(victim, counter=1)
    settle(network)
    assert len(observed(network, victim, "new life")) == 1
    for other in range(16):
        if other != victim:
            alive = [r for r in network.hosts[NodeId(other)].records if r.id == victim]
            assert len(alive) == 2


def test_a_link_to_a_former_life_proves_nothing_of_the_next_and_it_is_dialled_again() -> None:
    network = Network(8)
    settle(network)
    node, now_ns = network.hosts[NodeId(5)].node, network.now_ns
    link = node.parts.links.by_peer[NodeId(4)][0]
    life = Incarnation(link.incarnation + 2**32)
    node.step(now_ns, LinkDown(link.id, Evidence.EOF))
    news = Notice(((NodeId(4), Record(life, 0, Status.ALIVE, "sim4:7400")),))
    node.step(now_ns, Received(LinkId(10**6), news))
    node.step(now_ns, DialFailed(NodeId(4), Evidence.REFUSED))
    effects = node.step(now_ns + 10_000_000, DeadlineReached())
    assert [e.known for e in effects if isinstance(e, Dial)] == [life]
    effects = node.step(now_ns + 10_000_000, DialFailed(NodeId(4), Evidence.REFUSED))
    assert [e.event for e in effects if isinstance(e, Observed)] == ["suspected"]
    effects = node.step(now_ns + 90_000_000, DeadlineReached())
    assert [e.peer for e in effects if isinstance(e, Dial)] == [4]


def test_link_of_the_own_former_life_shows_that_its_other_end_lived_and_proves_nothing() -> None:
    network = Network(8)
    settle(network)
    node, now_ns = network.hosts[NodeId(5)].node, network.now_ns
    link = node.parts.links.by_peer[NodeId(4)][0]
    effects = node.step(now_ns, LinkDown(link.id, Evidence.EOF))
    (dial,) = [e for e in effects if isinstance(e, Dial)]
    above = Incarnation(node.incarnation + 2**32)
    node.step(now_ns, Greeted(LinkId(10**6), NodeId(6), Incarnation(9 << 32), "sim6:1", above, 1))
    assert node.incarnation > above
    up = LinkUp(
        LinkId(10**6 + 1), NodeId(4), link.incarnation, "sim4:7400", above, dial.dial_number
    )
    assert any(isinstance(effect, Close) for effect in node.step(now_ns, up))
    effects = node.step(now_ns + 10_000_000, DeadlineReached())
    assert [e.peer for e in effects if isinstance(e, Dial)] == [4]
    effects = node.step(now_ns + 10_000_000, DialFailed(NodeId(4), Evidence.REFUSED))
    assert [e.event for e in effects if isinstance(e, Observed)] == ["suspected"]


def test_link_of_the_own_former_life_takes_the_place_of_no_other() -> None:
    """The peer's process that answered it had a higher life than the one that is linked since."""
    network = Network(8)
    settle(network)
    host = network.hosts[NodeId(5)]
    above = Incarnation(host.node.incarnation + 2**32)
    met = Greeted(LinkId(10**6), NodeId(6), Incarnation(9 << 32), "sim6:1", above, 1)
    network._step(host, met)
    settle(network)
    assert host.node.incarnation > above
    (link,) = host.node.parts.links.by_peer[NodeId(4)]
    higher = Incarnation(link.incarnation + 2**32)
    late = LinkUp(LinkId(10**6 + 1), NodeId(4), higher, "sim4:7400", above, dial_number=1)
    effects = host.node.step(host.local_ns(network.now_ns), late)
    assert [effect.link for effect in effects if isinstance(effect, Close)] == [late.link]
    assert host.node.parts.links.by_peer[NodeId(4)] == [link]


@pytest.mark.parametrize("size", [2, 3, 5, 16, 64])
def test_restarted_lowest_id_does_not_wait_to_be_dialled(size: int) -> None:
    """All its neighbors are higher, hold it dead, and would leave the dial to nobody."""
    network = Network(size)
    settle(network)
    network.kill(0)
    settle(network, [0])
    network.boot(0)
    assert settle(network, limit_s=1) < 0.5


def moved(
    network: Network, node_id: int, through: int, place: int | None = None, counter: int = 1
) -> Host:
    """Start a new life of a founder's id at another address."""
    kept = Granted(NodeId(node_id), network.size, PEERS)
    return network.join(through, kept=kept, place=place, counter=counter)


@pytest.mark.parametrize("counter", [1, 2])
@pytest.mark.parametrize("pause_s", [0.0, 0.5, 5.0])
def test_dead_node_is_replaced_at_another_address_at_once(pause_s: float, counter: int) -> None:
    network = Network(5)
    settle(network)
    network.kill(3)
    network.run(pause_s)
    replacement = moved(network, 3, 1, counter=counter)
    network.run_until(lambda: replacement.id == 3, limit_s=1)
    settle(network, limit_s=3)
    for node_id in range(5):
        member = reply_to(network, node_id, ShowMembers()).result["members"][3]
        assert (member["status"], member["address"]) == ("alive", "joiner1:7400")
    assert send(network, 0, 3).error is None


@pytest.mark.parametrize("counter", [1, 2])
def test_replacement_of_a_living_node_harms_nobody(counter: int) -> None:
    """It ends, or, a joiner that came by its id from its state directory, takes a new one."""
    network = Network(5)
    settle(network)
    living, life = network.hosts[NodeId(3)], network.status(3)["incarnation"]
    impostor = moved(network, 3, 1, place=100, counter=counter)
    network.run(10)
    if counter == 1:
        assert impostor.exit is not None
        assert "another living daemon" in impostor.exit.reason
    else:
        assert impostor.id == 5
        assert observed(network, 100, "displaced")
    assert network.hosts[NodeId(3)] is living
    assert network.status(3)["incarnation"] == life
    for node_id in range(5):
        assert network.status(node_id)["alive"] == list(range(4 + counter))
        assert not observed(network, node_id, "verdict")
    assert send(network, 0, 3).error is None


def test_moved_node_left_alone_finds_those_who_left_and_came_back() -> None:
    """They know only its old address, and it holds them to have left for good."""
    network = Network(3)
    settle(network)
    network.kill(2)
    network.run(1)
    replacement = moved(network, 2, 0)
    network.run_until(lambda: replacement.id == 2)
    settle(network)
    network.issue(0, Leave())
    network.issue(1, Leave())
    network.run(2)
    assert network.status(2)["left"] == [0, 1]
    network.boot(0)
    network.boot(1)
    settle(network, limit_s=30)
