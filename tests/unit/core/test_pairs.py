"""Two links of one pair: a choice between them is over when one is lost."""

from __future__ import annotations

from random import Random

from bmgd.core.effects import Close, Dial, Effect, Send
from bmgd.core.events import DeadlineReached, Greeted, LinkDown, LinkUp, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId
from bmgd.wire.link_messages import Ping, Pong
from tests.unit.core.clusters import S

SIZE = 5
ME, PEER = NodeId(4), NodeId(0)
PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32 | 5)
MINE, THEIRS, NEXT = LinkId(1), LinkId(2), LinkId(3)


def linked_node() -> Node:
    """A node that has dialled a lower id."""
    settings = Settings(ME, SIZE, PEERS, PEERS.address_of(ME))
    node = Node(settings, LIFE, Random(3), 0)
    now_ns, dial = 0, None
    while dial is None:
        now_ns = max(now_ns, node.deadline_ns or 0)
        effects = node.step(now_ns, DeadlineReached())
        dial = next((e for e in effects if isinstance(e, Dial) and e.peer == PEER), None)
    number, known = dial.dial_number, UNKNOWN_INCARNATION
    node.step(now_ns, LinkUp(MINE, PEER, LIFE, dial.address, known, number, ""))
    return node


def greeted(link: LinkId, dial_number: int, *, renews: bool = False) -> Greeted:
    address = PEERS.address_of(PEER)
    return Greeted(link, PEER, LIFE, address, LIFE, dial_number, "", renews=renews)


def pings(effects: list[Effect]) -> list[tuple[LinkId, int]]:
    sent = [e for e in effects if isinstance(e, Send)]
    return [(e.link, e.message.nonce) for e in sent if isinstance(e.message, Ping)]


def closed(effects: list[Effect]) -> list[LinkId]:
    return [effect.link for effect in effects if isinstance(effect, Close)]


def test_renewed_link_whose_pair_was_lost_gives_way_to_a_newer_dial() -> None:
    node = linked_node()
    ((link, nonce),) = pings(node.step(S, greeted(THEIRS, 7, renews=True)))
    assert link == THEIRS
    node.step(S, LinkDown(MINE, Evidence.RESET))
    assert closed(node.step(S, greeted(NEXT, 8))) == [THEIRS]
    # What it sent before it broke says nothing of the newer one.
    assert closed(node.step(S, Received(THEIRS, Pong(nonce)))) == []


def test_own_dial_answers_anew_when_another_link_is_there() -> None:
    node = linked_node()
    ((link, former),) = pings(node.step(S, greeted(THEIRS, 7)))
    assert link == MINE
    node.step(S, LinkDown(THEIRS, Evidence.RESET))
    ((link, nonce),) = pings(node.step(S, greeted(NEXT, 8)))
    assert link == MINE
    assert closed(node.step(S, Received(MINE, Pong(former)))) == []
    assert closed(node.step(S, Received(MINE, Pong(nonce)))) == [NEXT]
