"""What a recorder keeps is bounded, and the newest."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from bmgd.core.commands import SendTo
from bmgd.core.effects import Send
from bmgd.core.events import CommandIssued, DeadlineReached, Heard, Received
from bmgd.core.node import Node
from bmgd.flight.recorder import INTERVAL_NS, FlightRecorder
from bmgd.flight.replay import replay
from bmgd.flight.values import Omitted
from bmgd.sim import Network
from bmgd.types import LinkId, NodeId
from tests.unit.flight.flights import written
from tests.unit.wire.examples import MESSAGES

S = 1_000_000_000
HEARTBEAT = MESSAGES["heartbeat"]
NOTICE = next(message for message in MESSAGES.values() if getattr(message, "records", ()))


@pytest.fixture
def node() -> Node:
    network = Network(4)
    network.run(3.0)
    return network.hosts[NodeId(1)].node


@pytest.mark.parametrize("limit_bytes", [100_000, 1_000_000])
def test_recorder_keeps_to_its_bound_and_keeps_the_newest(node: Node, limit_bytes: int) -> None:
    recorder = FlightRecorder(node, 0, limit_bytes)
    for number in range(20_000):
        effects: list[object] = [Send(LinkId(1), HEARTBEAT)] * (number % 3)
        recorder.note(number, Received(LinkId(1), HEARTBEAT), effects)  # type: ignore[arg-type]
        assert recorder.held_bytes <= limit_bytes + 5_000
    last = recorder.segments[-1]
    assert last.steps[-1][0] == 19_999
    assert last.number + len(last.steps) - 1 == 20_000
    assert recorder.held_bytes > limit_bytes // 3, "and not much less than it may"


def test_recorder_counts_about_what_it_takes(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 4 * 2**20)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(10**9, 10**9 + 5_000):
            message = type(HEARTBEAT)(number, number, number)  # type: ignore[call-arg, arg-type]
            event = Received(LinkId(number), message)
            recorder.note(number, event, [Send(LinkId(number), message)])
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.4 * taken_bytes < recorder.held_bytes < 2 * taken_bytes


def test_recorder_counts_long_messages(node: Node) -> None:
    small, large = FlightRecorder(node, 0, 2**20), FlightRecorder(node, 0, 2**20)
    small.note(1, Received(LinkId(1), HEARTBEAT), [])
    large.note(1, Received(LinkId(1), NOTICE), [])
    assert large.held_bytes > small.held_bytes


def test_recorder_leaves_payloads_out_as_they_come(node: Node) -> None:
    command = SendTo(NodeId(2), "t", bytes(60_000), 10 * S)
    recorder = FlightRecorder(node, 0, 2**20)
    before = recorder.held_bytes
    recorder.note(1, CommandIssued(7, command), [])
    _, event, _ = recorder.segments[0].steps[0]
    assert isinstance(event, CommandIssued)
    payload = next(
        getattr(event.command, name) for name in ("payload", "body") if hasattr(event.command, name)
    )
    assert (type(payload), len(payload)) == (Omitted, 60_000)
    assert recorder.held_bytes - before < 2_000


def test_recorder_keeps_payloads_that_are_asked_for_and_counts_them(node: Node) -> None:
    command = SendTo(NodeId(2), "t", bytes(60_000), 10 * S)
    recorder = FlightRecorder(node, 0, 2**20, payloads=True)
    for number in range(100):
        recorder.note(number, CommandIssued(7, command), [])
        assert recorder.held_bytes <= 2**20 + 70_000
    assert 0 < recorder.step_count < 20


def test_recorder_begins_anew_after_its_interval(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 2**20)
    recorder.note(INTERVAL_NS, DeadlineReached(), [])
    assert len(recorder.segments) == 1
    recorder.note(INTERVAL_NS + 1, DeadlineReached(), [])
    assert len(recorder.segments) == 2
    assert recorder.segments[1].number == 3


def test_recorder_waits_with_a_state_while_work_is_under_way(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 2**20)
    node._work.begin("long", lambda: iter(range(10**9)))
    recorder.note(INTERVAL_NS + 1, DeadlineReached(), [])
    assert len(recorder.segments) == 1
    node._work.stop("long")
    recorder.note(INTERVAL_NS + 2, DeadlineReached(), [])
    assert len(recorder.segments) == 2


def test_recorder_of_a_state_that_cannot_be_written_keeps_the_newest_steps(
    node: Node, tmp_path: Path
) -> None:
    node._context.moved_ns[NodeId(3)] = object()  # type: ignore[assignment]
    recorder = FlightRecorder(node, 0, 100_000)
    for number in range(3_000):
        recorder.note(number, Heard((LinkId(1),)), [])
        assert recorder.held_bytes <= 105_000
    assert recorder.segments[-1].steps[-1][0] == 2_999
    outcome = replay(written(recorder, tmp_path / "r"))
    assert (outcome.steps, outcome.left_out) == (0, recorder.step_count)
