"""Growth: joiners, the contacts that they ask, and who gives out ids."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.commands import BroadcastTo, OpenInbox, OpenQuestions, SendTo, Subscribe
from bmgd.core.effects import Announce, AskContact, Exit, Grant, Joined, Refuse
from bmgd.core.events import AskFailed, DeadlineReached, Granted, JoinAsked, LinkDown, Received
from bmgd.core.joining import growth
from bmgd.core.joining.growth import JOINS_OPEN_MAX
from bmgd.core.joining.joiner import Joiner
from bmgd.core.settings import Settings
from bmgd.errors import UnreachableError
from bmgd.peers import PeerList
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.topology import BinomialGraph
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, NodeState, Record, Status, counter_of
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Held, Notice, Watermarks
from tests.unit.core.clusters import Refusals, S, linked, observed, reply_to, send, survivors
from tests.unit.segments import payloads_of


def unrest(network: Network) -> str:
    """Why the survivors do not agree that they, and nobody else, are the cluster; "" when they do."""
    alive = survivors(network)
    for node_id in alive:
        if node_id < 0:
            return f"{node_id} has no id"
        status = network.status(node_id)
        if status["state"] != "ready":
            return f"node {node_id} is {status['state']}"
        if status["alive"] != alive:
            return f"node {node_id} holds alive {status['alive']}, not {alive}"
        rank = alive.index(node_id)
        wanted = sorted(alive[other] for other in BinomialGraph(len(alive)).neighbors(rank))
        if linked(network, node_id) != wanted:
            return f"node {node_id} is linked to {linked(network, node_id)}, not {wanted}"
    digests = {network.status(node_id)["digest"] for node_id in alive}
    return "" if len(digests) == 1 else f"digests differ: {sorted(digests)}"


def settle(network: Network, limit_s: float = 30.0) -> float:
    """Run until the survivors are at rest; returns the virtual seconds."""
    began_ns = network.now_ns
    while reason := unrest(network):
        if network.now_ns - began_ns > limit_s * S:
            raise AssertionError(f"not at rest after {limit_s} virtual seconds: {reason}")
        network.run(0.01)
    return (network.now_ns - began_ns) / S


# --- through the whole cluster --------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("through", [0, -1])
def test_joiner_is_given_the_next_id_through_any_contact(size: int, through: int) -> None:
    network = Network(size)
    settle(network)
    joiner = network.join(range(size)[through])
    assert settle(network, limit_s=2) < 1
    assert joiner.id == size
    assert send(network, size, 0, b"hello").error is None
    assert send(network, 0, size, b"hello").error is None


def test_joiners_one_after_another_grow_one_founder_to_sixteen() -> None:
    network = Network(1)
    settle(network)
    for number in range(1, 16):
        network.join(number - 1)
        settle(network)
    assert survivors(network) == list(range(16))


@pytest.mark.parametrize("through", [(0,), (7,), tuple(range(16))])
def test_many_joiners_at_once_are_linked_exactly_within_ten_seconds(
    through: tuple[int, ...],
) -> None:
    network = Network(16)
    settle(network)
    for number in range(64):
        network.join(through[number % len(through)])
    assert settle(network, limit_s=10) < 10
    assert survivors(network) == list(range(80))


def test_joiners_at_once_are_told_in_few_notices() -> None:
    network = Network(16)
    settle(network)
    for _ in range(64):
        network.join(5)
    settle(network)
    assigned = [
        network.now_ns,
        *(at for at, o in network.hosts[NodeId(0)].observed if o.event == "assigned"),
    ]
    assert len(set(assigned[1:])) <= 3


def test_joiners_of_a_cluster_with_dead_and_left_ids_know_of_them() -> None:
    network = Network(8)
    settle(network)
    network.kill(0)
    network.kill(3)
    network.run(2)
    joiner = network.join(5)
    settle(network)
    assert joiner.id == 8
    assert network.status(8)["dead"] == [0, 3]


def test_cluster_whose_founders_are_all_gone_grows_on() -> None:
    network = Network(3)
    settle(network)
    for _ in range(3):
        network.join(0)
    settle(network)
    for founder in range(3):
        network.kill(founder)
        settle(network)
    joiner = network.join(4)
    settle(network)
    assert joiner.id == 6
    assert survivors(network) == [3, 4, 5, 6]


@pytest.mark.parametrize("pause_s", [0.0, 0.0002, 0.0005, 0.005, 0.0105, 0.011, 0.02])
def test_assigner_that_dies_meanwhile_is_replaced(pause_s: float) -> None:
    network = Network(8)
    settle(network)
    joiners = [network.join(5) for _ in range(3)]
    network.run(pause_s)
    network.kill(0)
    settle(network)
    ids = sorted(joiner.id for joiner in joiners)
    assert len(set(ids)) == 3
    assert survivors(network) == [*range(1, 8), *ids]


def test_stopped_assigner_is_found_out_and_replaced() -> None:
    network = Network(8)
    settle(network)
    network.stop(0)
    joiner = network.join(5)
    network.run(8)
    network.kill(0)
    settle(network)
    assert joiner.id == 8


@pytest.mark.parametrize("pause_s", [0.0, 0.0003, 0.005, 0.02])
def test_contact_that_dies_meanwhile_is_replaced_by_the_next(pause_s: float) -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5, 6)
    network.run(pause_s)
    network.kill(5)
    settle(network)
    assert joiner.id >= 8


def test_restarted_assigner_that_knows_nothing_gives_no_id_twice() -> None:
    network = Network(4)
    settle(network)
    for _ in range(4):
        network.join(1)
    settle(network)
    network.kill(0)
    network.run(1)
    network.boot(0)
    joiners = [network.join(contact) for contact in (0, 1, 2)]
    settle(network)
    assert sorted(joiner.id for joiner in joiners) == [8, 9, 10]
    assert not any(observed(network, i, "displaced") for i in survivors(network))


def test_joiner_that_never_comes_is_found_dead() -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    network.run_until(lambda: any(o.event == "assigned" for _, o in host(network, 0).observed))
    joiner.alive = False
    network.wires.end_all(joiner, abruptly=True)
    del network.hosts[joiner.id]
    network.run(10)
    settle(network)
    assert network.status(0)["dead"] == [8]
    assert network.join(5).id < 0
    settle(network)
    assert survivors(network) == [*range(8), 9]


def test_joiner_that_finds_itself_held_dead_refutes_at_once() -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    network.run_until(lambda: any(o.event == "assigned" for _, o in host(network, 0).observed))
    network.cut(5, joiner.where)
    network.run_until(lambda: 8 in network.status(5)["dead"])
    network.mend()
    network.run_until(lambda: joiner.joiner is None)
    assert joiner.id == 8
    network.run_until(lambda: joiner.node.state is not NodeState.STARTING)
    record = joiner.node.parts.context.membership.get(joiner.id)
    assert record == joiner.node.parts.context.own_record()
    settle(network)
    assert survivors(network) == list(range(9))


def host(network: Network, node_id: int) -> Host:
    """The host of an id."""
    return network.hosts[NodeId(node_id)]


# --- an id given twice --------------------------------------------------------------------


def ids(network: Network) -> list[int]:
    """The ids of the running hosts; -k for one that has none."""
    return sorted(h.id for h in network.hosts.values() if h.alive)


def views(network: Network) -> dict[int, list[int]]:
    """What each running host holds to be alive, by its own id."""
    running = [h for h in network.hosts.values() if h.alive and h.joiner is None]
    return {h.id: network.status(h.where)["alive"] for h in running}


@pytest.mark.parametrize("seed", range(8))
def test_growth_on_both_sides_of_a_partition_merges(seed: int) -> None:
    network = Network(8, seed)
    settle(network)
    sides = [[0, 1, 2, 3, 100, 101], [4, 5, 6, 7, 200, 201, 202]]
    for one in sides[0]:
        for other in sides[1]:
            network.cut(one, other)
    network.run(6)
    joiners = [network.join(1, place=place) for place in (100, 101)]
    joiners += [network.join(6, place=place) for place in (200, 201, 202)]
    network.run(6)
    assert [sorted(h.id for h in joiners[:2]), sorted(h.id for h in joiners[2:])] == [
        [8, 9],
        [8, 9, 10],
    ]
    network.mend()
    began_ns = network.now_ns
    while views(network) != dict.fromkeys(ids(network), ids(network)):
        network.run(0.1)
        assert network.now_ns - began_ns < 10 * S, views(network)
    assert len(set(ids(network))) == 13
    displaced = [h for h in joiners for _, o in h.observed if o.event == "displaced"]
    assert len(displaced) == 2


@pytest.mark.parametrize("winner", [0, 1])
def test_joiner_whose_id_another_life_has_takes_a_new_one(winner: int) -> None:
    """What the other side of a healed partition tells of the same id, as one notice."""
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    settle(network)
    life = network.status(8)["incarnation"]
    rival = Record(Incarnation(life + 1 if winner else life - 1), 0, Status.ALIVE, "rival:7400")
    notice = Received(LinkId(10**6), Notice(((NodeId(8), rival),)))
    network._step(host(network, 3), notice)
    network.run(15)
    assert joiner.id == (9 if winner else 8)
    assert network.status(joiner.id)["state"] == "ready"
    assert network.status(0)["alive"] == sorted({*range(8), joiner.id})
    assert send(network, 2, joiner.id).error is None


def test_displaced_joiner_keeps_its_readers_and_what_waits_for_them() -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    settle(network)
    network.issue(8, Subscribe("read", 8))
    assert send(network, 1, 8, b"unread").error is None
    network.stop(6)
    request = network.issue(8, SendTo(NodeId(6), "t", b"never confirmed", 60 * S))
    rival = Record(Incarnation(2**40), 0, Status.ALIVE, "rival:7400")
    network._step(host(network, 8), Received(LinkId(10**6), Notice(((NodeId(8), rival),))))
    assert isinstance(joiner.replies[request].error, UnreachableError)
    network.resume(6)
    network.run(10)
    assert joiner.id == 9
    network.issue(9, Subscribe("t", 8))
    assert [p for d in joiner.delivered for p in payloads_of(d)] == [b"unread"]
    network.issue(3, SendTo(NodeId(9), "read", b"again", S))
    network.run(1)
    assert [p for d in joiner.delivered for p in payloads_of(d)] == [b"unread", b"again"]


def test_displaced_joiner_is_not_told_that_it_missed_what_it_sent_under_its_former_id() -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    settle(network)
    network.issue(8, Subscribe("read", 8))
    life = joiner.node.incarnation
    network.issue(8, BroadcastTo("read", b"own", True, 10 * S))
    network.run(1)
    rival = Record(Incarnation(2**40), 0, Status.ALIVE, "rival:7400")
    network._step(host(network, 8), Received(LinkId(10**6), Notice(((NodeId(8), rival),))))
    network.run(10)
    assert joiner.id == 9
    # Who was held dead is told of all that went on without it.
    said = Record(joiner.node.incarnation, 0, Status.EXCLUDED, "")
    network._step(joiner, Received(LinkId(10**6), Notice(((NodeId(9), said),))))
    (link, *_) = joiner.node.parts.links.table
    held = Held(NodeId(8), life, 1, 1, 1)
    network._step(joiner, Received(link, Watermarks((held,), asks=False)))
    network.run(2)
    shown = [i.payload if isinstance(i, Announce) else i.first for i in joiner.announced]
    assert shown == [b"own"]


def test_displaced_joiner_gives_the_numbers_of_its_questions_to_no_others() -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    settle(network)
    inbox = reply_to(network, 8, OpenInbox(1)).result["inbox"]
    ask = OpenQuestions(NodeId(1), "rpc", 2, inbox)
    before = reply_to(network, 8, ask).result["first"]
    rival = Record(Incarnation(2**40), 0, Status.ALIVE, "rival:7400")
    network._step(host(network, 8), Received(LinkId(10**6), Notice(((NodeId(8), rival),))))
    network.run(10)
    assert joiner.id == 9
    # Answers that wait in the inbox are told apart by nothing but their number.
    assert reply_to(network, 9, ask).result["first"] > before


def test_displaced_joiner_that_holds_all_others_dead_still_knows_whom_to_ask() -> None:
    network = Network(3)
    settle(network)
    joiner = network.join(1)
    settle(network)
    for number in range(3):
        network.kill(number)
    settle(network)
    assert network.status(3)["alive"] == [3]
    rival = Record(Incarnation(2**40), 0, Status.ALIVE, "rival:7400")
    network._step(host(network, 3), Received(LinkId(10**6), Notice(((NodeId(3), rival),))))
    for number in range(3):
        network.boot(number, counter=2)
    network.run(10)
    assert network.status(joiner.id)["state"] == "ready"


@pytest.mark.parametrize("status", [Status.ALIVE, Status.EXCLUDED])
def test_claim_to_the_highest_incarnation_costs_a_joiner_its_id_and_a_founder_nothing(
    status: Status,
) -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    settle(network)
    for victim in (8, 3):
        claim = Record(Incarnation(2**64 - 1), 0, status, "garbled:7400")
        notice = Received(LinkId(10**6), Notice(((NodeId(victim), claim),)))
        network._step(host(network, 6), notice)
    network.run(10)
    assert joiner.id == 9
    assert host(network, 3).exit is None
    assert network.status(3)["incarnation"] == 2**64 - 1
    assert send(network, 1, 3).error is None
    assert send(network, 1, 9).error is None
    for node_id in survivors(network):
        assert network.status(node_id)["state"] == "ready"


# --- coming back ----------------------------------------------------------------------------------


def kept(network: Network, node_id: int) -> Granted:
    """What the state directory of a joiner keeps."""
    return Granted(NodeId(node_id), network.size, PeerList(template="sim{id}:7400"))


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 3.0])
@pytest.mark.parametrize("counter", [1, 2])
def test_restarted_joiner_comes_back_as_the_same_id(pause_s: float, counter: int) -> None:
    network = Network(5)
    settle(network)
    network.join(1)
    settle(network)
    former = network.status(5)["incarnation"]
    network.kill(5)
    network.run(pause_s)
    again = network.join(1, kept=kept(network, 5), counter=counter)
    network.run_until(lambda: again.id >= 0)
    settle(network)
    assert again.id == 5
    assert counter_of(network.status(5)["incarnation"]) == counter_of(former) + 1


def test_restarted_joiner_without_a_live_contact_finds_the_founders() -> None:
    network = Network(5)
    settle(network)
    network.join(1)
    settle(network)
    network.kill(1)
    network.kill(5)
    settle(network)
    again = network.join(1, kept=kept(network, 5), counter=2)
    settle(network)
    assert again.id == 5


def test_cluster_that_is_started_anew_takes_its_joiners_back() -> None:
    """Founders keep no list of joiners: these bring their ids with them."""
    network = Network(4, start=False)
    for founder in range(4):
        network.boot(founder, counter=2)
    settle(network)
    for number in (6, 4, 5):
        network.join(2, kept=kept(network, number), counter=2)
    settle(network)
    assert survivors(network) == list(range(7))


# --- one contact ----------------------------------------------------------------------------------


def test_contact_bounds_its_open_joiners() -> None:
    network = Network(8)
    settle(network)
    network.stop(0)
    node = host(network, 5).node
    refused = 0
    for number in range(JOINS_OPEN_MAX + 3):
        asked = JoinAsked(LinkId(10**6 + number), None, Incarnation(2**32 + number), "new:1")
        refused += any(isinstance(e, Refuse) for e in node.step(network.now_ns, asked))
    assert refused == 3


def test_joiners_that_are_given_no_id_never_make_their_contact_a_flood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growth, "JOINED_MAX", 0)
    network = Network(8)
    settle(network)
    contact = host(network, 1)
    life = 2**32
    for _ in range(6):
        for _ in range(JOINS_OPEN_MAX):
            life += 1
            asked = JoinAsked(LinkId(10**6 + life), None, Incarnation(life), "new:1")
            network._step(contact, asked)
        network.run(3)
    assert host(network, 0).node.counts.plain["flooded_messages"] == 0


def test_contact_forgets_a_joiner_that_hangs_up_and_refuses_one_that_waited_too_long() -> None:
    network = Network(8, timeout_ns=10 * S)
    settle(network)
    network.stop(0)
    node = host(network, 5).node
    for number in (1, 2):
        asked = JoinAsked(LinkId(10**6 + number), None, Incarnation(2**32 + number), "new:1")
        node.step(network.now_ns, asked)
    node.step(network.now_ns, LinkDown(LinkId(10**6 + 1), Evidence.EOF))
    refusals = Refusals()
    network.watchers.append(refusals)
    network.wake_soon(host(network, 5))
    network.run(3)
    assert [(r.link, r.refusal) for r in refusals.seen] == [(10**6 + 2, Refusal.BUSY)]
    assert not node.parts.growth._open


def test_repeated_request_is_granted_the_same_id() -> None:
    network = Network(1)
    settle(network)
    node = host(network, 0).node
    granted: list[Grant] = []
    for number in (1, 2):
        now_ns = network.now_ns + number * S
        node.step(now_ns, JoinAsked(LinkId(10**6 + number), None, Incarnation(2**32 + 7), "new:1"))
        effects = node.step(now_ns + S // 50, DeadlineReached())
        granted += [e for e in effects if isinstance(e, Grant)]
    assert [grant.id for grant in granted] == [1, 1]


# --- the joiner alone -----------------------------------------------------------------------------


def joiner_of(*contacts: str, claimed: int | None = None, kept: Granted | None = None) -> Joiner:
    """A joiner at time 0 with a start deadline of 15 s."""
    settings = Settings(NodeId(0), 1, PeerList(), "me:1", takes_new_id=True)
    own = None if claimed is None else NodeId(claimed)
    return Joiner(settings, contacts, own, kept, Incarnation(2**32 + 1), Random(1), 0)


def test_joiner_asks_its_contacts_in_turn_with_growing_pauses() -> None:
    joiner, now_ns = joiner_of("a:1", "b:1"), 0
    asked, pauses = [], []
    for _ in range(8):
        assert joiner.deadline_ns is not None
        pauses.append(joiner.deadline_ns - now_ns)
        now_ns = joiner.deadline_ns
        (ask,) = joiner.step(now_ns, DeadlineReached())
        assert isinstance(ask, AskContact)
        assert (ask.claimed, ask.incarnation) == (None, 2**32 + 1)
        asked.append(ask.address)
        joiner.step(now_ns, AskFailed(Evidence.REFUSED))
    assert asked == ["a:1", "b:1"] * 4
    assert max(pauses[1:3]) < min(pauses[6:])


def test_joiner_gives_up_after_the_start_deadline() -> None:
    joiner = joiner_of("a:1")
    joiner.step(0, DeadlineReached())
    assert not any(isinstance(e, Exit) for e in joiner.step(S, AskFailed(Evidence.NO_ANSWER)))
    joiner.step(2 * S, DeadlineReached())
    (_, end) = joiner.step(16 * S, AskFailed(Evidence.NO_ANSWER))
    assert isinstance(end, Exit)
    assert (end.code, "a:1: no answer" in end.reason) == (1, True)


def test_joiner_with_a_wrong_secret_ends_at_once() -> None:
    joiner = joiner_of("a:1", "b:1")
    joiner.step(0, DeadlineReached())
    (_, end) = joiner.step(0, AskFailed(Evidence.REJECTED, Refusal.WRONG_SECRET))
    assert isinstance(end, Exit)
    assert "wrong secret" in end.reason


def test_joiner_begins_above_the_life_that_its_contact_knows() -> None:
    joiner = joiner_of("a:1", claimed=9)
    joiner.step(0, DeadlineReached())
    known = Record(Incarnation(5 << 32 | 3), 2, Status.EXCLUDED, "me:1")
    granted = Granted(NodeId(9), 4, PeerList(template="h{id}:1"), ((NodeId(9), known),))
    (joined,) = joiner.step(1, granted)
    assert isinstance(joined, Joined)
    assert counter_of(joined.incarnation) == 6
    assert (joined.settings.id, joined.settings.founding_size) == (9, 4)


def test_joiner_that_kept_its_id_does_without_contacts_once_each_has_failed() -> None:
    kept_id = Granted(NodeId(9), 4, PeerList(template="h{id}:1"))
    joiner = joiner_of("a:1", "b:1", claimed=9, kept=kept_id)
    joiner.step(0, DeadlineReached())
    assert not any(isinstance(e, Joined) for e in joiner.step(0, AskFailed(Evidence.REFUSED)))
    joiner.step(S, DeadlineReached())
    joined = joiner.step(S, AskFailed(Evidence.REFUSED))[-1]
    assert isinstance(joined, Joined)
    assert joined.settings.id == 9
