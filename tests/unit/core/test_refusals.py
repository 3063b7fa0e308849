"""A destination without room: each copy is refused at most once, and what was refused is never taken."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.commands import Consumed, Subscribe
from bmgd.core.effects import Send
from bmgd.core.events import CommandIssued, DeadlineReached, Event, LinkUp, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.core.streams.inbound import ADVANCE_MAX
from bmgd.peers import PeerList
from bmgd.sim.checkers.inside import Inside
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Incarnation,
    LinkId,
    NodeId,
    incarnation_tag,
)
from bmgd.wire.routes import Route
from bmgd.wire.stream_messages import SegmentAck
from tests.unit.segments import segment

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)
ME, SOURCE = NodeId(0), NodeId(1)
ROUTE = Route(ME, SOURCE, LIFE, incarnation_tag(LIFE), 1, 9)
MS = 1_000_000


class Destination:
    """Node 0, whose topics hold so many messages, and what it answers to node 1."""

    def __init__(self, room: int = 1) -> None:
        settings = Settings(ME, 2, PEERS, PEERS.address_of(ME), queue_messages=room)
        self.node = Node(settings, LIFE, Random(0), 0)
        self.now_ns = 0
        self.step(DeadlineReached())
        address = PEERS.address_of(SOURCE)
        self.step(LinkUp(LinkId(1), SOURCE, LIFE, address, UNKNOWN_INCARNATION, 1))

    def step(self, *events: Event) -> list[tuple[int, bool]]:
        """Let this happen at once 10 ms later, and then every timer that is due in 10 ms more.

        Returns:
            Of each answer the number that is expected next, and *full*.
        """
        self.now_ns += 10 * MS
        effects = [effect for event in events for effect in self.node.step(self.now_ns, event)]
        for _ in range(10):
            self.now_ns += MS
            effects += self.node.step(self.now_ns, DeadlineReached())
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        acks = [message for message in sent if isinstance(message, SegmentAck)]
        return [(ack.route.sequence & 0xFFFF_FFFF, ack.full) for ack in acks]

    def comes(self, *numbers: int) -> list[tuple[int, bool]]:
        """Let segments come, one after the other."""
        return [answer for number in numbers for answer in self.step(came(number))]

    @property
    def kept(self) -> tuple[list[int], int]:
        """The numbers and the cost of what waits behind a gap."""
        stream = Inside(self.node).streams_in()[0]
        return sorted(stream.kept), stream.kept_cost


def came(number: int) -> Received:
    return Received(LinkId(1), segment(ROUTE, b"%d" % number, number=number))


@pytest.fixture
def destination() -> Destination:
    return Destination()


def test_each_copy_is_refused_once_and_what_comes_behind_it_is_not_answered(
    destination: Destination,
) -> None:
    assert destination.comes(1) == [(2, False)]
    assert destination.comes(2) == [(2, True)]
    assert destination.comes(3, 4, 5) == []
    assert destination.comes(2) == [(2, True)]


def test_what_came_before_a_refused_one_is_acknowledged_again_without_a_refusal(
    destination: Destination,
) -> None:
    destination.comes(1, 2)
    assert destination.comes(1) == [(2, False)]


def test_what_waited_behind_a_gap_and_was_refused_is_not_kept() -> None:
    destination = Destination(2)
    assert destination.comes(1, 3) == [(2, False), (2, False)]
    assert destination.kept[0] == [3]
    assert destination.comes(2) == [(3, True)]
    assert destination.kept == ([], 0)


def test_refused_one_is_asked_for_when_there_is_room_and_is_taken_once() -> None:
    destination = Destination(2)
    destination.comes(1, 3, 2)
    assert destination.step(CommandIssued(7, Subscribe("t", 10))) == [(3, False)]
    destination.step(CommandIssued(7, Consumed(2)))
    assert destination.comes(3) == [(4, False)]
    assert destination.kept == ([], 0)


def test_refusal_that_was_not_told_is_void_when_another_copy_is_taken(
    destination: Destination,
) -> None:
    destination.comes(1)
    reads = CommandIssued(7, Subscribe("t", 10))
    told = destination.step(came(2), came(2), reads, CommandIssued(7, Consumed(1)), came(2))
    assert told == [(2, True), (3, False)]


def test_copy_that_comes_while_what_was_kept_is_taken_in_turns_leaves_none_behind() -> None:
    destination = Destination(1000)
    destination.comes(1, *range(3, 101))
    destination.step(came(2), came(2 + ADVANCE_MAX + 1))
    assert destination.kept == ([], 0)
    assert destination.comes(101) == [(102, False)]
