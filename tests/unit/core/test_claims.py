"""A record that claims a greater life of an id: looked into, outlived, and at last given way to."""

from __future__ import annotations

import pytest

from bmgd.core.effects import Dial, Effect, Exit, Renewed
from bmgd.core.events import DialFailed, Greeted, Received
from bmgd.core.lifecycle import LIVES_MAX, life_above
from bmgd.sim import Network
from bmgd.types import (
    COUNTER_MAX,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
    counter_of,
    outranks,
)
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Notice
from tests.unit.core.clusters import S, observed, send, settle

VICTIM = NodeId(3)
LAST = Incarnation(2**64 - 1)


def settled(size: int = 8) -> Network:
    network = Network(size, seed=5)
    settle(network)
    return network


def claim_at(network: Network, node_id: int, record: Record, victim: NodeId = VICTIM) -> None:
    """Let a notice with a record of the victim arrive at a node, as a broken member would send it."""
    host = network.hosts[NodeId(node_id)]
    link = next(iter(host.ends))
    network._step(host, Received(LinkId(link), Notice(((victim, record),))))


def claimed(incarnation: int, address: str = "nowhere:7400", version: int = 0) -> Record:
    return Record(Incarnation(incarnation), version, Status.ALIVE, address)


@pytest.mark.parametrize("through", [0, 2, 3, 7])
@pytest.mark.parametrize("address", ["nowhere:7400", "sim3:7400", "sim5:7400", "sim9:7400"])
@pytest.mark.parametrize(
    "incarnation", [2**40, COUNTER_MAX << 32, (COUNTER_MAX - 1 << 32) | 5, 2**64 - 2, 2**64 - 1]
)
def test_claim_that_nobody_answers_for_is_outlived(
    incarnation: int, address: str, through: int
) -> None:
    network = settled()
    claim_at(network, through, claimed(incarnation, address))
    network.run(2)
    settle(network, limit_s=60)
    assert all(host.exit is None for host in network.hosts.values())
    life = network.status(VICTIM)["incarnation"]
    assert life > incarnation or life == LAST
    for node_id in (0, 7):
        assert send(network, node_id, VICTIM).error is None
        assert send(network, VICTIM, node_id).error is None


@pytest.mark.parametrize("times", [LIVES_MAX, LIVES_MAX + 1])
def test_claims_again_and_again_end_the_node_which_says_by_whom(times: int) -> None:
    network = settled()
    for number in range(times):
        life = network.status(VICTIM)["incarnation"]
        claim_at(network, 2, claimed(life + 2**40, f"evil{number}:1"))
        network.run(3)
        if number < LIVES_MAX:
            settle(network, limit_s=60)
    victim = network.hosts[VICTIM]
    if times <= LIVES_MAX:
        assert victim.exit is None
        return
    assert victim.exit is not None
    assert victim.exit.code == 1
    assert f"the id {VICTIM} is claimed again and again" in victim.exit.reason
    assert "told by node" in victim.exit.reason
    assert all(host.exit is None for i, host in network.hosts.items() if i != VICTIM)


def test_claims_are_forgotten_after_an_hour() -> None:
    network = settled(3)
    victim = NodeId(1)
    for _ in range(3):
        for _ in range(LIVES_MAX):
            life = network.status(victim)["incarnation"]
            claim_at(network, 2, claimed(life + 2**40), victim)
            network.run(2)
        assert network.hosts[victim].exit is None
        # An hour passes for the victim's page of claims.
        answered = network.hosts[victim].node.parts.lifecycle._begun_ns
        for index in range(len(answered)):
            answered[index] -= 3600 * S
    settle(network, limit_s=60)


def steps(network: Network, *events: object) -> list[Effect]:
    node, found = network.hosts[VICTIM].node, []
    for event in events:
        found += node.step(network.now_ns, event)  # type: ignore[arg-type]
    return found


def claim_event(network: Network, record: Record) -> Received:
    link = next(iter(network.hosts[VICTIM].ends))
    return Received(LinkId(link), Notice(((VICTIM, record),)))


def test_claim_is_dialled_where_the_record_says() -> None:
    network = settled()
    effects = steps(network, claim_event(network, claimed(2**50, "there:1")))
    (dial,) = [e for e in effects if isinstance(e, Dial)]
    assert (dial.peer, dial.address, dial.known) == (VICTIM, "there:1", 2**50)
    assert not [e for e in effects if isinstance(e, Exit | Renewed)]


def test_claim_that_a_living_one_answers_for_is_given_way_to() -> None:
    network = settled()
    steps(network, claim_event(network, claimed(2**50, "there:1")))
    answer = DialFailed(VICTIM, Evidence.REJECTED, Refusal.DUPLICATE, Incarnation(2**50))
    (exit_,) = [e for e in steps(network, answer) if isinstance(e, Exit)]
    assert exit_.reason == "another life has the id 3: it answers at there:1"


@pytest.mark.parametrize(
    "failed",
    [
        DialFailed(VICTIM, Evidence.REFUSED),
        DialFailed(VICTIM, Evidence.NO_ANSWER),
        DialFailed(VICTIM, Evidence.REJECTED, Refusal.WRONG_ID),
        DialFailed(VICTIM, Evidence.REJECTED, Refusal.OWN_ADDRESS),
        DialFailed(VICTIM, Evidence.REJECTED, Refusal.DUPLICATE, Incarnation(7)),
        DialFailed(VICTIM, Evidence.PROTOCOL_ERROR),
    ],
)
def test_claim_without_that_life_makes_a_new_one(failed: DialFailed) -> None:
    network = settled()
    steps(network, claim_event(network, claimed(2**50)))
    (renewed,) = [e for e in steps(network, failed) if isinstance(e, Renewed)]
    assert counter_of(renewed.incarnation) == 2**18 + 1


def test_claim_that_is_raised_meanwhile_is_looked_into_too() -> None:
    network = settled()
    steps(network, claim_event(network, claimed(2**50, "one:1")))
    assert not [
        e
        for e in steps(network, claim_event(network, claimed(2**51, "two:1")))
        if isinstance(e, Dial) and e.peer == VICTIM
    ]
    effects = steps(network, DialFailed(VICTIM, Evidence.REFUSED))
    (dial,) = [e for e in effects if isinstance(e, Dial) and e.peer == VICTIM]
    assert dial.address == "two:1"
    effects = steps(network, DialFailed(VICTIM, Evidence.REFUSED))
    (renewed,) = [e for e in effects if isinstance(e, Renewed)]
    assert renewed.incarnation > 2**51


@pytest.mark.parametrize("claims", [1, 2])
@pytest.mark.parametrize("later", ["dead", "known"])
def test_claim_below_the_life_that_began_meanwhile_begins_no_other(later: str, claims: int) -> None:
    """Neither one that was dialled, nor one that came while another was."""
    network = settled()
    for number in range(claims):
        steps(network, claim_event(network, claimed(2**50 + number, f"there{number}:1")))
    above = Incarnation(2**51)
    event: object = claim_event(network, Record(above, 0, Status.EXCLUDED, "there:1"))
    if later == "known":
        life = network.hosts[NodeId(7)].node.incarnation
        event = Greeted(LinkId(99), NodeId(7), life, "sim7:7400", above, 9)
    (renewed,) = [e for e in steps(network, event) if isinstance(e, Renewed)]
    assert renewed.incarnation > above
    effects = steps(network, DialFailed(VICTIM, Evidence.NO_ANSWER))
    assert not [e for e in effects if isinstance(e, Renewed | Exit)]
    assert not [e for e in effects if isinstance(e, Dial) and e.peer == VICTIM]
    assert network.hosts[VICTIM].node.incarnation == renewed.incarnation
    # And a later claim is looked into as ever.
    effects = steps(network, claim_event(network, claimed(2**52, "there:1")))
    assert [e.address for e in effects if isinstance(e, Dial) and e.peer == VICTIM] == ["there:1"]


def test_claim_is_shown() -> None:
    network = settled()
    claim_at(network, VICTIM, claimed(2**50, "there:1"))
    (shown,) = observed(network, VICTIM, "claimed")
    assert shown.detail == "at there:1"


def test_lives_above_every_other_but_the_last() -> None:
    from random import Random

    random = Random(4)
    life = Incarnation(5)
    for _ in range(10):
        above = life_above(life, random)
        assert above is not None
        assert counter_of(above) == counter_of(life) + 1
        life = above
    life = Incarnation(COUNTER_MAX << 32)
    for count in range(100):
        above = life_above(life, random)
        if above is None:
            assert life == LAST
            assert count > 16
            break
        assert above > life
        assert outranks(above, life)
        assert not outranks(life, above)
        life = above
    assert life_above(LAST, random) is None
