"""Recordings of cores under every fault there is replay to the last step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bmgd.core.effects import Observed
from bmgd.core.events import DeadlineReached, Received
from bmgd.errors import BmgdError, InvariantError, ProtocolError
from bmgd.flight.recording import MAGIC, read
from bmgd.flight.replay import at_step, node_of, replay, state_of
from bmgd.flight.timeline import timeline
from bmgd.flight.values import packed
from bmgd.sim import Network
from bmgd.sim.narrowing import narrowed
from bmgd.sim.options import random_scenario
from bmgd.sim.simulation import Simulation
from bmgd.types import NodeId
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.packing import compress, decompress, unpack
from tests.unit.core.clusters import send
from tests.unit.flight.flights import Flights, written


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, pytest.param(5, marks=pytest.mark.long)])
def test_replay_of_16_nodes_under_chaos_does_not_differ(seed: int, tmp_path: Path) -> None:
    plan = random_scenario(seed, 16, 6.0)
    # Those that refuse become wide within a run: a replay does not know when.
    plan = replace(plan, simulated={**plan.simulated, "refusing_percent": 0})
    simulation = Simulation(plan)
    flights = Flights(simulation.network.timeline)
    simulation.network.watchers.append(flights)
    simulation.run()
    steps = 0
    for number, (node_id, recorder) in enumerate(flights.all):
        # A core that ran with narrow bounds is the same one only with them.
        with narrowed(simulation.plan.seed, simulation.network.conditions.narrow_percent):
            outcome = replay(written(recorder, tmp_path / str(number), node_id))
        assert (outcome.differs_at, outcome.left_out) == (None, 0), f"node {node_id}"
        steps += outcome.steps
    assert steps == flights.noted > 1_000


@pytest.fixture
def flown(tmp_path: Path) -> tuple[Network, Flights]:
    """A cluster of 8 of which node 5 was killed, everybody recorded."""
    return recorded(8, killed=5, seconds=3.0)


def recorded(size: int, killed: int, seconds: float) -> tuple[Network, Flights]:
    """A cluster that runs so long before one is killed, and so long after that."""
    network = Network(size, start=False)
    flights = Flights(network.timeline)
    network.watchers.append(flights)
    for node_id in range(size):
        network.boot(node_id)
    network.run(seconds)
    network.kill(killed)
    network.run(seconds)
    return network, flights


def test_replay_says_at_which_step_it_differs(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    recording = written(flown[1].all[0][1], tmp_path / "r")
    rows = recording.parts[0].rows
    place = next(i for i, row in enumerate(rows) if "Welcome" in row.kinds)
    # What entered was another thing than what is written.
    rows[place] = replace(rows[place], event=DeadlineReached())
    outcome = replay(recording)
    assert outcome.differs_at == rows[place].number
    rows[place] = replace(rows[place], digest=b"otherwise")
    assert replay(recording).differs_at == rows[place].number


def test_replay_ends_in_the_state_of_the_living_core(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    network, flights = flown
    for node_id, recorder in flights.all:
        if node_id == 5:
            continue
        recording = written(recorder, tmp_path / str(node_id))
        number = recording.parts[-1].rows[-1].number
        _, node = at_step(recording, number)
        assert state_of(node) == network.hosts[NodeId(node_id)].node.show()


def test_replay_shows_any_step_with_its_effects(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    recording = written(flown[1].all[4][1], tmp_path / "r")
    verdicts = [row.number for row in recording.parts[0].rows if "RecordChanged" in row.kinds]
    before, after = at_step(recording, verdicts[0] - 1)[1], at_step(recording, verdicts[0])
    assert 5 in state_of(before)["status"]["alive"]
    assert 5 in state_of(after[1])["status"]["dead"]
    assert any(isinstance(effect, Observed) for effect in after[0].effects) or after[0].effects
    with pytest.raises(ProtocolError, match="has no step 100000000; it has 1 to"):
        at_step(recording, 100_000_000)


def test_replay_begins_at_each_part_of_its_own(tmp_path: Path) -> None:
    network = Network(16, start=False)
    flights = Flights(network.timeline, 200_000)
    network.watchers.append(flights)
    for node_id in range(16):
        network.boot(node_id)
    network.run(60.0)
    for node_id, recorder in flights.all:
        recording = written(recorder, tmp_path / str(node_id))
        assert len(recording.parts) > 1
        assert recording.parts[0].number > 1, "the oldest steps are gone"
        outcome = replay(recording)
        assert (outcome.differs_at, outcome.steps) == (None, recorder.step_count)


def test_replay_needs_no_payload(tmp_path: Path) -> None:
    network = Network(8, start=False)
    flights = Flights(network.timeline)
    network.watchers.append(flights)
    for node_id in range(8):
        network.boot(node_id)
    network.run(2.0)
    secret = b"the payload that nobody else may read"
    send(network, 0, 6, secret)
    network.run(1.0)
    files = []
    for node_id, recorder in flights.all:
        path = tmp_path / str(node_id)
        assert replay(written(recorder, path)).differs_at is None
        files.append(path)
    plain = b"".join(unpacked(path) for path in files)
    assert b"the payload" not in plain
    assert b"core.events.Received" in plain, "what was looked through is what is in the files"


def unpacked(path: Path) -> bytes:
    """All frames of a file without their compression."""
    return b"".join(frames_of(path))


def frames_of(path: Path) -> Iterator[bytes]:
    """Each frame of a file without its compression."""
    data = path.read_bytes()[len(MAGIC) :]
    while data:
        length = int.from_bytes(data[:4], "big")
        yield decompress(data[4 : 4 + length])
        data = data[4 + length :]


def test_replay_of_a_core_that_failed_fails_at_the_same_step(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    network, flights = flown
    recorder = flights.all[2][1]
    node = network.hosts[NodeId(2)].node
    now_ns = network.now_ns - 10**9
    with pytest.raises(InvariantError):
        node.step(now_ns, DeadlineReached())
    recorder.note_failure(now_ns, DeadlineReached())
    recording = written(recorder, tmp_path / "r")
    outcome = replay(recording)
    assert (outcome.differs_at, outcome.steps) == (None, recorder.step_count)
    last, _ = at_step(recording, recording.parts[-1].rows[-1].number)
    assert last.error is not None


def test_replay_leaves_out_what_follows_a_damaged_frame(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    path = tmp_path / "r"
    whole = written(flown[1].all[0][1], path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    damaged = read(str(path))
    assert not damaged.whole
    rows = [row for part in damaged.parts for row in part.rows]
    assert rows == [row for part in whole.parts for row in part.rows][: len(rows)]
    assert replay(damaged).differs_at is None


def test_recording_with_something_unknown_is_named(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    path = tmp_path / "r"
    written(flown[1].all[0][1], path)
    strange = compress(packed({"kind": "strange"}))
    path.write_bytes(path.read_bytes() + len(strange).to_bytes(4, "big") + strange)
    with pytest.raises(ProtocolError, match=rf"^{path}: "):
        read(str(path))


def damaged(path: Path, place: Random) -> bytes:
    """A recording in which some values of its core or of its events are others."""
    frames = [unpack(frame) for frame in frames_of(path)]
    document = place.choice([each for each in frames if each["kind"] in ("state", "steps")])
    is_state = document["kind"] == "state"
    values = unpack(document["state"]) if is_state else document["rows"]
    lists = [values]
    for each in lists:
        lists.extend(item for item in each if isinstance(item, list) and item)
    for _ in range(place.randint(1, 3)):
        some = place.choice(lists)
        some[place.randrange(len(some))] = place.choice(OTHERS)
    document["state" if is_state else "rows"] = packed(values) if is_state else values
    bodies = [compress(packed(frame)) for frame in frames]
    return MAGIC + b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


OTHERS = (
    *(None, True, 0, -1, 2**40, 1.5, "", "x", b"", b"abc"),
    *(["l"], ["d"], ["t"], ["?"], ["r", 3], ["c", 0], ["s", 1]),
)


def test_replay_of_values_that_no_core_has_ends_with_an_error_of_bmgd(tmp_path: Path) -> None:
    _, flights = recorded(4, killed=3, seconds=1.0)
    path = tmp_path / "r"
    written(flights.all[0][1], path)
    replayed = refused = 0
    for seed in range(300):
        other = tmp_path / "other"
        other.write_bytes(damaged(path, Random(seed)))
        try:
            recording = read(str(other))
            assert list(timeline([recording], everything=True))
            assert state_of(at_step(recording, 1)[1])
            replayed += 1
        except BmgdError:
            refused += 1
    assert replayed > 30
    assert refused > 150


def test_replay_of_a_core_without_a_part_differs_at_the_step_that_needs_it(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    recording = written(flown[1].all[0][1], tmp_path / "r")
    part = recording.parts[0]
    assert part.state is not None
    state = unpack(part.state)
    fields = next(fields for name, fields in part.table if name == "core.node.Node")
    state[2 + fields.index("_receiving")] = 7
    part.state = packed(state)
    # Heartbeats do not reach that part.
    first = next(
        row.number
        for row in part.rows
        if isinstance(row.event, Received) and not isinstance(row.event.message, Heartbeat)
    )
    assert replay(recording).differs_at == first
    replayed, _ = at_step(recording, first)
    assert "AttributeError" in str(replayed.error)


def test_replay_node_of_a_part_without_a_state_says_why(
    flown: tuple[Network, Flights], tmp_path: Path
) -> None:
    recording = written(flown[1].all[0][1], tmp_path / "r")
    recording.parts[0].state = None
    recording.parts[0].why = "too large"
    with pytest.raises(ProtocolError, match="too large"):
        node_of(recording.parts[0])
    assert replay(recording).left_out == len(recording.parts[0].rows)
