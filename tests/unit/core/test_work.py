"""A step does a bounded amount of work; the rest follows in the next ones, after what is new."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from bmgd.core import node as node_module
from bmgd.core.commands import SendTo
from bmgd.core.context import Context
from bmgd.core.delivery import UNDERWAY_MAX, WINDOW
from bmgd.core.effects import Effect, Send
from bmgd.core.events import CommandIssued, DeadlineReached, LinkUp, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.core.work import PIECES_PER_STEP, WORK_TIMER, Work
from bmgd.peers import PeerList
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.messages import Data, Notice

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)
ME = NodeId(0)
S = 1_000_000_000


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
    """Node 0, linked to node 1, with as many messages underway as may be."""
    node = Node(Settings(ME, size, PEERS, PEERS.address_of(ME)), LIFE, Random(0), 0)
    node.step(0, DeadlineReached())
    address = PEERS.address_of(NodeId(1))
    node.step(1, LinkUp(LinkId(1), NodeId(1), LIFE, address, UNKNOWN_INCARNATION, 1))
    for number in range(UNDERWAY_MAX):
        destination = NodeId(40 + number // WINDOW)
        node.step(2, CommandIssued(number + 1, SendTo(destination, "t", b"x", 60 * S)))
    return node


def resent(effects: list[Effect]) -> list[tuple[int, int]]:
    return [
        (e.message.route.destination, e.message.route.sequence)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Data)
    ]


def test_sixteen_deaths_in_a_notice_resend_a_bounded_number_in_a_step() -> None:
    node = busy_node(64)
    dead = tuple(
        (NodeId(i), Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(i))))
        for i in range(10, 26)
    )
    now_ns = 3
    effects = node.step(now_ns, Received(LinkId(1), Notice(dead)))
    # All are known dead at once, and nothing has been sent again yet.
    assert resent(effects) == []
    assert node.deadline_ns == now_ns
    sent: list[tuple[int, int]] = []
    while node.deadline_ns is not None and node.deadline_ns <= now_ns:
        some = resent(node.step(now_ns, DeadlineReached()))
        assert len(some) <= PIECES_PER_STEP
        sent += some
    assert len(set(sent)) == UNDERWAY_MAX
    assert len(sent) <= 2 * UNDERWAY_MAX


def test_deadlines_that_are_due_together_are_reached_in_several_steps() -> None:
    node = busy_node(64)
    # Each message has a deadline of its own, and all of them are over.
    now_ns = S // 4
    steps, most = 0, 0
    while node.deadline_ns is not None and node.deadline_ns <= now_ns:
        most = max(most, len(resent(node.step(now_ns, DeadlineReached()))))
        steps += 1
    assert steps > UNDERWAY_MAX // node_module.DEADLINES_PER_STEP // 2
    assert 0 < most <= node_module.DEADLINES_PER_STEP
