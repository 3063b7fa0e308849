"""Daemons of two releases in one cluster: who learns of whom, and what is withheld meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from bmgd.core.commands import ProbeTo
from bmgd.core.effects import Close, Send
from bmgd.core.events import DeadlineReached, LinkUp
from bmgd.core.membership.compatibility import Compatibility
from bmgd.core.membership.membership import Membership
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.errors import UnreachableError
from bmgd.peers import PeerList
from bmgd.sim import Network
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.ask_messages import Probe
from bmgd.wire.features import NEEDS, SPOKEN, Feature, Need, Scope, names_of
from bmgd.wire.link_messages import MemberFeatures, OlderMembers
from tests.unit.core.clusters import S, observed, reply_to, settle

OLD = 0
LIFE = Incarnation(1 << 32 | 7)
LATER = Incarnation(2 << 32 | 7)


def mixed(size: int, old: Iterable[int], seed: int = 1) -> Network:
    """A cluster at rest of which these nodes are of an older release."""
    network = Network(size, seed, start=False)
    older = set(old)
    for node_id in range(size):
        network.boot(node_id, features=OLD if node_id in older else SPOKEN)
    settle(network)
    return network


def common(network: Network) -> list[int]:
    """The features that each living node uses."""
    return [
        host.node.parts.context.compatibility.common
        for _, host in sorted(network.hosts.items())
        if host.alive
    ]


def test_one_release_tells_nobody_of_features() -> None:
    network = Network(16)
    settle(network)
    assert common(network) == [SPOKEN] * 16
    sent = sum(host.node.counts.sent[OlderMembers] for host in network.hosts.values())
    assert sent == 0
    assert network.status(0)["older"] == []
    assert network.status(0)["features"] == names_of(SPOKEN)


@pytest.mark.parametrize("old", [[5], [0, 1], [3, 7, 11]])
def test_everybody_learns_which_members_are_older(old: list[int]) -> None:
    network = mixed(16, old)
    assert common(network) == [OLD] * 16
    for node_id in set(range(16)) - set(old):
        assert network.status(node_id)["older"] == old
        assert network.status(node_id)["features"] == []
    assert observed(network, (old[-1] + 1) % 16, "older member")


def test_older_one_that_was_only_met_is_older_no_more_when_its_next_life_is_linked() -> None:
    peers = PeerList.parse("host{id}:7400", 10)
    node = Node(Settings(NodeId(9), 10, peers, peers.address_of(NodeId(9))), LIFE, Random(0), 0)
    node.step(0, DeadlineReached())

    def link(number: int, peer: NodeId, life: Incarnation, features: int) -> list[OlderMembers]:
        address, known = peers.address_of(peer), UNKNOWN_INCARNATION
        up = LinkUp(LinkId(number), peer, life, address, known, 1, features=features)
        effects = node.step(number, up)
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        return [message for message in sent if isinstance(message, OlderMembers)]

    link(1, NodeId(1), LIFE, SPOKEN)
    assert link(2, NodeId(8), LIFE, OLD) == [OlderMembers((MemberFeatures(NodeId(8), LIFE, OLD),))]
    assert node.parts.context.compatibility.common == OLD
    told = link(3, NodeId(8), LATER, SPOKEN)
    assert MemberFeatures(NodeId(8), LATER, SPOKEN) in [m for page in told for m in page.members]
    assert node.parts.context.compatibility.common == SPOKEN
    assert node.parts.context.compatibility.older() == []


def test_a_few_new_ones_among_old_ones_know_of_some() -> None:
    network = mixed(33, set(range(33)) - {0, 11, 21})
    assert common(network) == [OLD] * 33


def test_older_daemons_are_told_nothing_of_features() -> None:
    network = mixed(16, [3, 7])
    for node_id in (3, 7):
        assert network.hosts[NodeId(node_id)].node.counts.received[OlderMembers] == 0


def test_features_begin_when_the_last_older_one_was_replaced() -> None:
    network = mixed(9, range(9))
    for node_id in range(9):
        assert set(common(network)) == {OLD}
        network.kill(node_id)
        settle(network, [node_id])
        network.boot(node_id, counter=2)
        settle(network)
    assert common(network) == [SPOKEN] * 9
    assert network.status(4)["older"] == []


def test_a_dead_older_one_holds_up_nothing() -> None:
    network = mixed(9, [4])
    network.kill(4)
    settle(network, [4])
    assert common(network) == [SPOKEN] * 8


def test_going_back_to_the_older_release_ends_the_features() -> None:
    network = mixed(9, [])
    network.kill(4)
    settle(network, [4])
    network.boot(4, counter=2, features=OLD)
    settle(network)
    assert common(network) == [OLD] * 9


def test_a_joiner_learns_of_older_members() -> None:
    network = mixed(9, [4])
    host = network.join(0)
    network.run_until(lambda: host.id == 9 and network.status(9)["state"] == "ready", 10)
    assert host.node.parts.context.compatibility.common == OLD


def test_a_link_that_is_closed_at_once_is_told_nothing() -> None:
    network = mixed(9, [4])
    link = LinkId(10**6)
    up = LinkUp(link, NodeId(1), Incarnation(1), "sim1:7400", UNKNOWN_INCARNATION, 1)
    effects = network.hosts[NodeId(0)].node.step(network.now_ns, up)
    assert [e for e in effects if isinstance(e, Close) and e.link == link]
    assert not [e for e in effects if isinstance(e, Send) and e.link == link]


@pytest.mark.parametrize("scope", Scope)
def test_what_somebody_does_not_know_is_not_sent(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NEEDS, Probe, Need(Feature.OLDER_MEMBERS, scope))
    network = mixed(9, [4])
    received = network.hosts[NodeId(4)].node.counts.received
    reply = reply_to(network, 5, ProbeTo(NodeId(4), record=False, timeout_ns=S))
    assert isinstance(reply.error, UnreachableError)
    assert received[Probe] == 0
    assert network.hosts[NodeId(5)].node.counts.plain["withheld_messages"] > 0
    # A neighbor that knows it gets it, if only that one must.
    reply = reply_to(network, 0, ProbeTo(NodeId(1), record=False, timeout_ns=S))
    assert (reply.error is None) == (scope is Scope.NEIGHBOR)


# --- what is kept ---------------------------------------------------------------------------------


def nine() -> tuple[Compatibility, Membership]:
    membership = Membership(9, PeerList(template="host{id}:1"))
    return Compatibility(SPOKEN, membership), membership


def believe(
    compatibility: Compatibility, membership: Membership, life: Incarnation, status: Status
) -> None:
    record = Record(life, 0, status, "host4:1")
    membership.join(NodeId(4), record)
    compatibility.on_record(NodeId(4), record)


def test_compatibility_a_later_life_ends_what_is_known() -> None:
    compatibility, membership = nine()
    assert compatibility.learn(MemberFeatures(NodeId(4), LIFE, 0))
    believe(compatibility, membership, LATER, Status.ALIVE)
    assert (compatibility.common, compatibility.known()) == (SPOKEN, ())
    assert not compatibility.learn(MemberFeatures(NodeId(4), LIFE, 0))


def test_compatibility_a_death_may_be_refuted_and_having_left_may_not() -> None:
    compatibility, membership = nine()
    compatibility.learn(MemberFeatures(NodeId(4), LIFE, 0))
    believe(compatibility, membership, LIFE, Status.EXCLUDED)
    assert (compatibility.common, len(compatibility.known())) == (SPOKEN, 1)
    refuted = Record(LIFE, 1, Status.ALIVE, "host4:1")
    membership.join(NodeId(4), refuted)
    compatibility.on_record(NodeId(4), refuted)
    assert compatibility.common == OLD
    left = Record(LIFE, 2, Status.LEFT, "host4:1")
    membership.join(NodeId(4), left)
    compatibility.on_record(NodeId(4), left)
    assert compatibility.known() == ()


def test_compatibility_news_are_told_once() -> None:
    compatibility, _ = nine()
    assert compatibility.learn(MemberFeatures(NodeId(4), LIFE, 0))
    assert not compatibility.learn(MemberFeatures(NodeId(4), LIFE, 0))
    assert compatibility.learn(MemberFeatures(NodeId(4), LATER, SPOKEN))
    assert compatibility.common == SPOKEN


def test_compatibility_keeps_nothing_of_ids_that_no_record_could_be_believed_for() -> None:
    compatibility, _ = nine()
    assert not compatibility.learn(MemberFeatures(NodeId(10**6), LIFE, 0))
    assert compatibility.common == SPOKEN
