"""What a recorder keeps is bounded, and the newest."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bmgd.core.commands import SendTo
from bmgd.core.effects import ForwardingChanged, Send
from bmgd.core.events import CommandIssued, DeadlineReached, Heard, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.flight.recorder import INTERVAL_NS, FlightRecorder
from bmgd.flight.replay import Outcome, replay
from bmgd.flight.values import Omitted, SnapshotNumber
from bmgd.flight.writer import Writer
from bmgd.peers import PeerList
from bmgd.routing import Snapshot
from bmgd.routing.branches import Branch
from bmgd.sim import Network
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.broadcast_messages import Skip
from bmgd.wire.link_messages import Held, MemberFeatures, RecordPage
from bmgd.wire.messages import Message
from bmgd.wire.routes import Search
from bmgd.wire.stream_messages import Entry, Segment
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


def test_recorder_writes_a_core_that_can_be_made_again_when_it_is_asked(tmp_path: Path) -> None:
    def make() -> Node:
        settings = Settings(NodeId(1), 4, PeerList("127.0.0.1:{7400+id}"), "127.0.0.1:7401")
        return Node(settings, Incarnation(1 << 32), Random(7), 0)

    nodes = make(), make()
    recorders = FlightRecorder(nodes[0], 0, 2**20), FlightRecorder(nodes[1], 0, 2**20, make=make)
    assert [recorder.segments[0].state is None for recorder in recorders] == [False, True]
    for node, recorder in zip(nodes, recorders, strict=True):
        for number in range(1, 20):
            now_ns = number * S // 10
            recorder.note(now_ns, DeadlineReached(), node.step(now_ns, DeadlineReached()))
    written(recorders[0], tmp_path / "at once")
    recording = written(recorders[1], tmp_path / "when asked")
    assert (tmp_path / "at once").read_bytes() == (tmp_path / "when asked").read_bytes()
    assert replay(recording) == Outcome(19, None, 0)


@pytest.mark.parametrize("limit_bytes", [100_000, 1_000_000])
def test_recorder_keeps_to_its_bound_and_keeps_the_newest(node: Node, limit_bytes: int) -> None:
    recorder = FlightRecorder(node, 0, limit_bytes, steps_per_s=10**9)
    for number in range(20_000):
        effects: list[object] = [Send(LinkId(1), HEARTBEAT)] * (number % 3)
        recorder.note(number, Received(LinkId(1), HEARTBEAT), effects)  # type: ignore[arg-type]
        assert recorder.held_bytes <= limit_bytes + 5_000
    last = recorder.segments[-1]
    assert last.steps[-1][0] == 19_999
    assert last.number + len(last.steps) - 1 == 20_000
    assert recorder.held_bytes > limit_bytes // 3, "and not much less than it may"


def test_recorder_counts_about_what_it_takes(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 4 * 2**20, steps_per_s=10**9)
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
    small, large = (
        FlightRecorder(node, 0, 2**20, steps_per_s=10**9),
        FlightRecorder(node, 0, 2**20, steps_per_s=10**9),
    )
    small.note(1, Received(LinkId(1), HEARTBEAT), [])
    large.note(1, Received(LinkId(1), NOTICE), [])
    assert large.held_bytes > small.held_bytes


@pytest.mark.parametrize("is_sent", [True, False])
def test_recorder_counts_pages_of_records(node: Node, is_sent: bool) -> None:
    recorder = FlightRecorder(node, 0, 32 * 2**20, steps_per_s=10**9)
    before_bytes = recorder.held_bytes
    record = Record(Incarnation(1 << 32), 0, Status.LEFT, "h:1")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, 200):
            ids = range(number * 1_000, number * 1_000 + 256)
            runs = tuple((NodeId(i), NodeId(i + 300)) for i in ids)
            page = RecordPage(tuple((NodeId(i), record) for i in ids), runs)
            if is_sent:
                recorder.note(number, DeadlineReached(), [Send(LinkId(1), page)] * 3)
            else:
                recorder.note(number, Received(LinkId(1), page), [])
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 * taken_bytes < recorder.held_bytes - before_bytes < 2 * taken_bytes


def test_recorder_keeps_the_number_of_a_snapshot_and_not_the_snapshot(node: Node) -> None:
    snapshot = Snapshot(7, 1, 9_000, tuple(range(2, 8_000, 2)), ((2, 1),))
    recorder = FlightRecorder(node, 0, 2**20)
    recorder.note(1, DeadlineReached(), [ForwardingChanged(snapshot)])
    (effect,) = recorder.segments[-1].steps[-1][2]
    assert isinstance(effect, ForwardingChanged)
    held: object = effect.snapshot
    assert type(held) is SnapshotNumber
    kept, plain = (Writer().write(e) for e in (effect, ForwardingChanged(snapshot)))
    assert kept == plain, "so a replay has the same digest"


def test_recorder_leaves_payloads_out_as_they_come(node: Node) -> None:
    command = SendTo(NodeId(2), "t", bytes(60_000), 10 * S)
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=10**9)
    before = recorder.held_bytes
    recorder.note(1, CommandIssued(7, command), [])
    _, event, _ = recorder.segments[0].steps[0]
    assert isinstance(event, CommandIssued)
    payload = next(
        getattr(event.command, name) for name in ("payload", "body") if hasattr(event.command, name)
    )
    assert (type(payload), len(payload)) == (Omitted, 60_000)
    assert recorder.held_bytes - before < 2_000


@pytest.mark.parametrize("name", ["segment", "shared segment", "broadcast"])
def test_recorder_gives_back_what_it_left_out_as_an_object_of_its_class(
    node: Node, name: str
) -> None:
    message: Any = next(m for key, m in MESSAGES.items() if key.startswith(name))
    field = "body" if hasattr(message, "body") else "payload"
    long = replace(message, **{field: bytes(65_000)})
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=10**9)
    recorder.note(1, Received(LinkId(1), long), [Send(LinkId(1), long)])
    ((now_ns, event, effects),) = recorder.segments[-1].steps
    light = replace(long, **{field: Omitted(65_000)})
    wanted = (Received(LinkId(1), light), Send(LinkId(1), light))
    assert now_ns == 1
    for found, expected in zip((event, *effects), wanted, strict=True):
        assert type(found) is type(expected)
        assert Writer().write(found) == Writer().write(expected)


def test_recorder_keeps_payloads_that_are_asked_for_and_counts_them(node: Node) -> None:
    command = SendTo(NodeId(2), "t", bytes(60_000), 10 * S)
    recorder = FlightRecorder(node, 0, 2**20, payloads=True, steps_per_s=10**9)
    for number in range(100):
        recorder.note(number, CommandIssued(7, command), [])
        assert recorder.held_bytes <= 2**20 + 70_000
    assert 0 < recorder.step_count < 20


def test_recorder_leaves_out_what_waited_for_its_window(node: Node) -> None:
    """An acknowledgement lets segments go that came long before: they are not kept for the recording."""
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=10**9)
    segment = MESSAGES["segment"]
    assert isinstance(segment, Segment)
    long = replace(segment, body=bytes(65_000))
    recorder.note(1, Received(LinkId(1), HEARTBEAT), [Send(LinkId(1), long)])
    (effect,) = recorder.segments[-1].steps[-1][2]
    assert isinstance(effect, Send)
    assert isinstance(effect.message, Segment)
    assert isinstance(effect.message.body, Omitted)


def test_recorder_begins_anew_after_its_interval(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=10**9)
    recorder.note(INTERVAL_NS, DeadlineReached(), [])
    assert len(recorder.segments) == 1
    recorder.note(INTERVAL_NS + 1, DeadlineReached(), [])
    assert len(recorder.segments) == 2
    assert recorder.segments[1].number == 3


def test_recorder_waits_with_a_state_while_work_is_under_way(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=10**9)
    node.parts.work.begin("long", lambda: iter(range(10**9)))
    recorder.note(INTERVAL_NS + 1, DeadlineReached(), [])
    assert len(recorder.segments) == 1
    node.parts.work.stop("long")
    recorder.note(INTERVAL_NS + 2, DeadlineReached(), [])
    assert len(recorder.segments) == 2


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [object(), "\udcff", nested(3_000)], ids=["class", "text", "deep"]
)
def test_recorder_of_a_state_that_cannot_be_written_keeps_the_newest_steps(
    node: Node, tmp_path: Path, value: Any
) -> None:
    node.parts.context.moved_ns[NodeId(3)] = value
    recorder = FlightRecorder(node, 0, 100_000, steps_per_s=10**9)
    for number in range(3_000):
        recorder.note(number, Heard((LinkId(1),)), [])
        assert recorder.held_bytes <= 105_000
    assert recorder.segments[-1].steps[-1][0] == 2_999
    outcome = replay(written(recorder, tmp_path / "r"))
    assert (outcome.steps, outcome.left_out) == (0, recorder.step_count)


def test_recorder_drops_a_state_that_alone_is_too_much_and_keeps_the_steps(node: Node) -> None:
    size = len(FlightRecorder(node, 0, 2**20).segments[0].state or b"")
    recorder = FlightRecorder(node, 0, size, steps_per_s=10**9)
    assert recorder.segments[0].state is None
    recorder.note(1, DeadlineReached(), [])
    recorder.note(INTERVAL_NS + 1, DeadlineReached(), [])
    recorder.note(INTERVAL_NS + 2, DeadlineReached(), [])
    assert recorder.step_count == 3, "what was kept before does not go for a state that is dropped"
    assert "too large" in recorder.segments[-1].why
    assert recorder.held_bytes <= size


def test_recorder_drops_a_state_that_grew_too_large_before_any_step(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 2**20)
    (segment,) = recorder.segments
    segment.state = bytes(2**20)
    recorder._halve()
    assert segment.held_bytes == 0


def test_recorder_keeps_so_many_steps_of_a_second_and_no_more(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=100)
    for number in range(1_000):
        recorder.note(number * S // 500, Heard((LinkId(1),)), [])
    first, second = recorder.segments
    assert (first.number, len(first.steps)) == (1, 100)
    assert (second.number, len(second.steps)) == (502, 100), "the 501st ended the gap"
    assert second.state is not None


def test_recorder_has_no_gap_while_steps_come_slowly(node: Node) -> None:
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=100)
    for number in range(1, 1_000):
        recorder.note(number * S // 99, Heard((LinkId(1),)), [])
    assert recorder.step_count == 999


def test_recorder_replays_the_steps_around_a_gap(tmp_path: Path) -> None:
    network = Network(8)
    network.run(3.0)
    node = network.hosts[NodeId(1)].node
    recorder = FlightRecorder(node, network.now_ns, 2**20, steps_per_s=20)
    now_ns = network.now_ns
    for number in range(200):
        now_ns += S // 50
        event = DeadlineReached() if number % 2 else Heard(tuple(node.parts.links.table))
        recorder.note(now_ns, event, node.step(now_ns, event))
    outcome = replay(written(recorder, tmp_path / "r"))
    assert (outcome.differs_at, outcome.left_out) == (None, 0)
    assert outcome.steps == recorder.step_count < 200
    assert len(recorder.segments) > 2


def test_recorder_keeps_a_failure_in_a_gap(node: Node, tmp_path: Path) -> None:
    recorder = FlightRecorder(node, 0, 2**20, steps_per_s=10)
    for number in range(50):
        recorder.note(number, Heard((LinkId(1),)), [])
    recorder.note_failure(60, DeadlineReached())
    recording = written(recorder, tmp_path / "r")
    last = recording.parts[-1]
    assert (last.number, last.why) == (51, "the steps before it came too fast")
    assert last.rows[0].kinds == ("InvariantError",)


def wide(message: Message) -> Message:
    """A message with a search, or with what its frame may decode to in very little."""
    ids = tuple(NodeId(10**9 + number) for number in range(500))
    many: dict[str, Any] = {
        "branches": tuple(Branch(each, 1 << 131_071) for each in ids[:20]),
        "exceptions": 1 << 131_071,
        "skips": tuple(Skip(each, each + 10**10, each + 10**11, False) for each in ids[:16]),
        "passed": tuple(10**9 + number for number in range(2000)),
        "starts": bytes(bytearray(50_000)),
        "entries": tuple(Entry(each, each + 1, each << 32, each + 2, each + 3) for each in ids),
        "gaps": tuple((each, each + 1) for each in ids[:32]),
        "held": tuple(Held(each, Incarnation(each << 9), each, each + 1, each + 2) for each in ids),
        "members": tuple(MemberFeatures(each, Incarnation(each << 9), each + 1) for each in ids),
        "digests": tuple(2**127 + number for number in range(64)),
    }
    found: dict[str, Any] = {name: v for name, v in many.items() if hasattr(message, name)}
    if hasattr(message, "route") and not found:
        stack = tuple(NodeId(10**9 + number) for number in range(4000))
        found["route"] = replace(message.route, search=Search(b"", stack))
    return replace(message, **found)


@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize("kind", sorted({type(m).__name__ for m in MESSAGES.values()}))
def test_recorder_counts_what_messages_hold_beside_payloads(kind: str, is_sent: bool) -> None:
    message = next(m for m in MESSAGES.values() if type(m).__name__ == kind)
    settings = Settings(NodeId(1), 4, PeerList("127.0.0.1:{7400+id}"), "127.0.0.1:7401")
    node = Node(settings, Incarnation(1 << 32), Random(7), 0)
    recorder = FlightRecorder(node, 0, 32 * 2**20, steps_per_s=10**9)
    before_bytes = recorder.held_bytes
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, 11):
            held = wide(message)
            if is_sent:
                recorder.note(number, DeadlineReached(), [Send(LinkId(1), held)] * 3)
            else:
                recorder.note(number, Received(LinkId(1), held), [])
            del held
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 2 * (recorder.held_bytes - before_bytes) + 20_000
