"""A step does a bounded amount of work; the rest follows in the next ones, after what is new."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from bmgd.core.commands import OpenStream, PutSegment
from bmgd.core.context import Context
from bmgd.core.deadlines import DEADLINES_PER_STEP
from bmgd.core.effects import Effect, Send, StreamEnded
from bmgd.core.events import CommandIssued, DeadlineReached, LinkDown, LinkUp, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.core.streams.answers import REROUTE_NS
from bmgd.core.streams.outbound import STREAMS_MAX
from bmgd.core.work import PIECES_PER_STEP, WORK_TIMER, Work
from bmgd.peers import PeerList
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
)
from bmgd.wire.batch import pack_messages
from bmgd.wire.link_messages import Notice
from bmgd.wire.stream_messages import Segment

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)
ME = NodeId(0)
S = 1_000_000_000
BODY = pack_messages([b"x"])


def context() -> Context:
    return Context(Settings(ME, 4, PEERS, PEERS.address_of(ME)), LIFE, Random(0))


def run_steps(work: Work, context: Context) -> int:
    """Reach the work's deadline until nothing is left; returns how often."""
    steps = 0
    work.settle()
    while (key := context.timers.pop_due(context.now_ns)) is not None:
        work.on_timer(key)
        work.settle()
        steps += 1
    return steps


def test_work_is_done_in_pieces_of_a_step() -> None:
    shared, done = context(), list[int]()
    work = Work(shared)

    def pieces() -> Iterator[None]:
        for number in range(3 * PIECES_PER_STEP):
            done.append(number)
            yield

    work.begin("a", pieces)
    assert not done
    assert run_steps(work, shared) == 4
    assert done == list(range(3 * PIECES_PER_STEP))
    assert "a" not in work
    assert (WORK_TIMER, 0, 0) not in shared.timers


def test_work_asked_for_again_is_done_once_more_however_often() -> None:
    shared, done = context(), list[str]()
    work = Work(shared)

    def pieces(name: str) -> Iterator[None]:
        done.append(f"{name} begins")
        yield
        done.append(f"{name} ends")

    for number in range(16):
        work.begin("a", lambda number=number: pieces(str(number)))  # type: ignore[misc]
    run_steps(work, shared)
    assert done == ["0 begins", "0 ends", "15 begins", "15 ends"]


def test_work_takes_turns() -> None:
    shared, done = context(), list[str]()
    work = Work(shared)

    def pieces(name: str) -> Iterator[None]:
        for _ in range(3):
            done.append(name)
            yield

    work.begin("a", lambda: pieces("a"))
    work.begin("b", lambda: pieces("b"))
    run_steps(work, shared)
    assert "".join(done) == "ababab"


def test_work_that_was_stopped_is_not_done() -> None:
    shared = context()
    work = Work(shared)
    work.begin("a", lambda: iter([1, 2]))
    work.begin("a", lambda: iter([1, 2]))
    work.stop("a")
    assert run_steps(work, shared) == 0


def busy_node(size: int) -> Node:
    """Node 0, linked to node 1, with a message underway on each of many streams."""
    node = Node(Settings(ME, size, PEERS, PEERS.address_of(ME)), LIFE, Random(0), 0)
    node.step(0, DeadlineReached())
    address = PEERS.address_of(NodeId(1))
    node.step(1, LinkUp(LinkId(1), NodeId(1), LIFE, address, UNKNOWN_INCARNATION, 1))
    for number in range(STREAMS_MAX):
        node.step(2, CommandIssued(number + 1, OpenStream(NodeId(40 + number % 8), "t")))
        node.step(2, CommandIssued(number + 1, PutSegment(1, BODY)))
    return node


def resent(effects: list[Effect]) -> list[tuple[int, int]]:
    return [
        (e.message.route.destination, e.message.route.sequence)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Segment)
    ]


def test_sixteen_deaths_in_a_notice_send_nothing_again_in_that_step() -> None:
    node = busy_node(64)
    dead = tuple(
        (NodeId(i), Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(i))))
        for i in range(10, 26)
    )
    now_ns = 3
    effects = node.step(now_ns, Received(LinkId(1), Notice(dead)))
    assert resent(effects) == []
    while node.deadline_ns is not None and node.deadline_ns <= now_ns:
        # They leave by the link that they left by before.
        assert resent(node.step(now_ns, DeadlineReached())) == []


def test_streams_whose_next_hop_died_ask_again_soon_each_its_lowest_and_not_all_at_once() -> None:
    node = busy_node(64)
    address = PEERS.address_of(NodeId(63))
    node.step(3, LinkUp(LinkId(2), NodeId(63), LIFE, address, UNKNOWN_INCARNATION, 1))
    node.step(4, LinkDown(LinkId(1), Evidence.EOF))
    sent: list[tuple[int, int]] = []
    steps = 0
    while node.deadline_ns is not None and node.deadline_ns <= 4 + REROUTE_NS:
        some = resent(node.step(max(4, node.deadline_ns), DeadlineReached()))
        assert len(some) <= DEADLINES_PER_STEP
        sent += some
        steps += 1
    assert len(sent) == len(set(sent)) == STREAMS_MAX
    assert steps > 64


def test_deadlines_that_are_due_together_are_reached_in_several_steps() -> None:
    node = busy_node(64)
    # Each stream has a deadline of its own, and all of them are over.
    now_ns = S // 2
    steps, most = 0, 0
    while node.deadline_ns is not None and node.deadline_ns <= now_ns:
        most = max(most, len(resent(node.step(now_ns, DeadlineReached()))))
        steps += 1
    assert steps >= STREAMS_MAX // DEADLINES_PER_STEP
    assert 0 < most <= DEADLINES_PER_STEP


def resent_late(*, puts: bool) -> list[tuple[int, int]]:
    """In which order overdue streams send again, while more is put into the first, or is not."""
    node, order, number = busy_node(64), list[tuple[int, int]](), 2
    while node.deadline_ns is not None and node.deadline_ns <= S // 2:
        if puts:
            node.step(S // 2, CommandIssued(1, PutSegment(number, BODY)))
            number += 1
        order += resent(node.step(S // 2, DeadlineReached()))
    return order


def test_overdue_stream_keeps_its_turn_while_more_is_put_into_it() -> None:
    assert resent_late(puts=True) == resent_late(puts=False)


def test_death_of_a_destination_ends_its_streams_a_bounded_number_in_a_step() -> None:
    node = busy_node(64)
    record = Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(40)))
    effects = node.step(3, Received(LinkId(1), Notice(((NodeId(40), record),))))
    ended = 0
    while node.deadline_ns is not None and node.deadline_ns <= 3:
        ended += sum(isinstance(e, StreamEnded) for e in effects)
        effects = node.step(3, DeadlineReached())
        assert sum(isinstance(e, StreamEnded) for e in effects) <= PIECES_PER_STEP
    ended += sum(isinstance(e, StreamEnded) for e in effects)
    assert ended == STREAMS_MAX // 8
