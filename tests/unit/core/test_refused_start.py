"""When a daemon that has no link yet ends for what neighbors, or strangers in their place, refuse."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.effects import AskContact, Dial, Effect, Exit, Observed
from bmgd.core.events import AskFailed, DeadlineReached, DialFailed, Event, LinkUp
from bmgd.core.joining.joiner import Joiner
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId, NodeState
from bmgd.wire.hello import Refusal

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)
S = 1_000_000_000
START_NS = 15 * S


def refusal(peer: NodeId, *, proven: bool) -> DialFailed:
    return DialFailed(
        peer, Evidence.REJECTED, Refusal.WRONG_CERTIFICATE, UNKNOWN_INCARNATION, proven
    )


class Founder:
    """Node 3 of 4, whose every dial comes to something at once.

    Attributes:
        doubtful: peers in whose place somebody refuses without a proof; others say `refused`.
        proven: peers that refuse with one.
    """

    def __init__(self, doubtful: set[int], proven: set[int]) -> None:
        self.doubtful, self.proven = doubtful, proven
        self.now_ns = 0
        settings = Settings(NodeId(3), 4, PEERS, PEERS.address_of(NodeId(3)))
        self.node = Node(settings, LIFE, Random(0), 0)
        self.effects: list[Effect] = []
        self.ended_ns: int | None = None

    def run(self, until_ns: int) -> None:
        while self.ended_ns is None and self.now_ns <= until_ns:
            self.step(DeadlineReached())
            self.now_ns = max(self.now_ns + 1, self.node.deadline_ns or 0)

    def step(self, event: Event) -> None:
        for effect in self.node.step(self.now_ns, event):
            self.effects.append(effect)
            if isinstance(effect, Exit):
                self.ended_ns = self.now_ns
            elif isinstance(effect, Dial):
                self.step(self.answer(effect.peer))

    def answer(self, peer: NodeId) -> DialFailed:
        if peer in self.doubtful or peer in self.proven:
            return refusal(peer, proven=peer in self.proven)
        return DialFailed(peer, Evidence.REFUSED)


def test_founder_that_all_refuse_with_a_proof_ends_at_once() -> None:
    founder = Founder(set(), {0, 1, 2})
    founder.run(START_NS)
    assert founder.ended_ns is not None
    assert founder.ended_ns < 2 * S


@pytest.mark.parametrize("proven", [set[int](), {1}, {1, 2}])
def test_founder_that_strangers_refuse_ends_when_its_start_is_over(proven: set[int]) -> None:
    founder = Founder({0, 1, 2} - proven, proven)
    founder.run(2 * START_NS)
    assert founder.ended_ns == START_NS
    ends = [effect.reason for effect in founder.effects if isinstance(effect, Exit)]
    assert ends == ["every neighbor refuses this node: wrong certificate"]
    first = next(e for e in founder.effects if isinstance(e, Observed) and e.event == "rejected")
    assert first.detail == "wrong certificate", "which is shown as soon as it is known"


def test_founder_that_a_stranger_refused_goes_on_when_he_is_gone() -> None:
    founder = Founder({0, 1, 2}, set())
    founder.run(5 * S)
    founder.doubtful.clear()
    founder.run(START_NS + S)
    assert founder.ended_ns is None
    assert founder.node.parts.context.state is NodeState.READY


def test_founder_that_a_stranger_refused_links_with_the_true_neighbor() -> None:
    founder = Founder({0, 1, 2}, set())
    founder.run(5 * S)
    peer = NodeId(2)
    address = PEERS.address_of(peer)
    founder.step(LinkUp(LinkId(9), peer, LIFE, address, UNKNOWN_INCARNATION, 1))
    founder.run(2 * START_NS)
    assert founder.ended_ns is None


def ends_of_joiner(*, proven: bool) -> list[tuple[int, str]]:
    """Let every contact refuse a joiner; when and why it ends."""
    settings = Settings(NodeId(0), 4, PEERS, "me:1")
    joiner = Joiner(settings, ("a:1", "b:1"), None, None, LIFE, Random(0), 0)
    now_ns = 0
    while True:
        asked = joiner.step(now_ns, DeadlineReached())
        assert [type(effect) for effect in asked] == [AskContact]
        refused = AskFailed(Evidence.REJECTED, Refusal.WRONG_TLS, proven)
        effects = joiner.step(now_ns, refused)
        found = [(now_ns, effect.reason) for effect in effects if isinstance(effect, Exit)]
        if found:
            return found
        assert joiner.deadline_ns is not None
        now_ns = joiner.deadline_ns


def test_joiner_that_strangers_refuse_asks_until_its_start_is_over() -> None:
    ((at_ns, why),) = ends_of_joiner(proven=False)
    assert START_NS <= at_ns < START_NS + 2 * S
    assert "wrong tls" in why


def test_joiner_that_a_contact_refuses_with_a_proof_ends_at_once() -> None:
    assert ends_of_joiner(proven=True)[0][0] == 0
