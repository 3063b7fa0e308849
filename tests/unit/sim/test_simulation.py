"""A run as a whole: verdicts, what is told of it, and that a seed decides it in any process."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bmgd.chaos.faults import Kill
from bmgd.chaos.history import Acknowledged, Delivered, Sent, from_line
from bmgd.chaos.plan import Plan, Step, Workload
from bmgd.core.broadcast.announcements import BEHIND_BYTES, Announcements
from bmgd.core.membership.membership import Membership
from bmgd.core.neighbors.detector import Detector
from bmgd.core.node import Node
from bmgd.errors import PlanError, ProtocolError
from bmgd.sim import simulation, stepping
from bmgd.sim.checkers import inspect
from bmgd.sim.options import random_scenario
from bmgd.sim.readers import TOPIC
from bmgd.sim.simulation import Simulation
from bmgd.sim.workload import BATCH_MAX
from bmgd.types import NodeId


def test_simulation_of_a_death_passes_and_tells_what_it_cost() -> None:
    plan = Plan(8, 5.0, (Step(3.0, Kill((NodeId(2),))),), workload=Workload(50.0))
    outcome = Simulation(plan).run()
    row = outcome.to_row()
    assert row["verdict"] == "pass"
    assert row["violations"] == []
    assert outcome.rest_s is not None
    assert outcome.virtual_s > 5
    assert outcome.events > 100
    assert outcome.messages > 100
    assert json.dumps(row)


def test_simulation_delivers_what_programs_send() -> None:
    outcome = Simulation(Plan(8, 5.0, workload=Workload(50.0))).run()
    sent = {fact.payload_id for fact in outcome.history.of(Sent)}
    assert len(sent) > 100
    assert {fact.payload_id for fact in outcome.history.of(Acknowledged)} == sent
    delivered = [fact.payload_id for fact in outcome.history.of(Delivered)]
    assert sorted(delivered) == sorted(sent)


@pytest.mark.parametrize(("percent", "count"), [(0, 1), (100, 2)])
def test_simulation_has_one_or_two_readers_of_a_topic_at_each_node(
    percent: int, count: int
) -> None:
    simulated = {"second_reader_percent": percent, "absent_ms_max": 100, "streams_percent": 50}
    plan = Plan(4, 3.0, workload=Workload(50.0), simulated=simulated | {"long_percent": 30})
    simulation = Simulation(plan, [inspect])
    assert simulation.run().violations == ()
    topics = [host.node.parts.topics.table.topics for host in simulation.network.hosts.values()]
    assert {len(table[TOPIC].readers) for table in topics} <= set(range(count + 1))
    assert max(len(table[TOPIC].readers) for table in topics) == count


@pytest.mark.parametrize("percent", [0, 100])
@pytest.mark.parametrize("streams", [0, 100])
def test_simulation_sends_messages_at_one_moment_to_one_node_in_bursts(
    percent: int, streams: int
) -> None:
    simulated = {"bursts_percent": percent, "streams_percent": streams}
    outcome = Simulation(Plan(4, 3.0, workload=Workload(40.0), simulated=simulated)).run()
    assert outcome.violations == ()
    # Then all must be reachable, which is tried at one moment.
    sending = [fact for fact in outcome.history.of(Sent) if fact.at_ns < 3_000_000_000]
    if streams:
        # Of streams that are abandoned after one segment there are several at one moment too.
        moments = Counter(
            request for request, _ in {(each.request, each.at_ns) for each in sending}
        )
        sending = [each for each in sending if moments[each.request] > 1]
    sent = Counter((fact.at_ns, fact.node, fact.destination) for fact in sending)
    # One segment of a stream has up to eight of them too.
    assert (max(sent.values()) > BATCH_MAX) == (percent > 0 and streams > 0)
    assert (max(sent.values()) > 1) == (percent > 0 or streams > 0)


def test_simulation_that_never_comes_to_rest_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Detector, "declare_dead", lambda *args: None)
    plan = Plan(4, 5.0, (Step(3.0, Kill((NodeId(2),))),), workload=Workload(0.0))
    outcome = Simulation(plan).run()
    assert [violation.checker for violation in outcome.violations] == ["comes-to-rest"]
    assert "2 does not run" in outcome.violations[0].text


@pytest.mark.parametrize(
    ("was_whole", "rests"), [((True,), 1), ((False, False), 1), ((False, True, True), 2)]
)
def test_simulation_waits_for_rest_again_where_parts_have_found_each_other(
    was_whole: tuple[bool, ...], rests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first rest, and a while later: what was judged then would be in the midst of it."""
    told = iter((*was_whole, was_whole[-1]))
    monkeypatch.setattr(simulation, "is_whole", lambda network: next(told))
    waits, wait_ns = list[Simulation](), Simulation._quiet_ns

    def quiet_ns(self: Simulation) -> int:
        waits.append(self)
        return wait_ns(self)

    monkeypatch.setattr(Simulation, "_quiet_ns", quiet_ns)
    outcome = Simulation(Plan(nodes=4, seconds=0.5), [inspect]).run()
    assert outcome.passed
    assert len(waits) == rests


def test_simulation_tells_of_a_bug_in_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: dict[str, bool] = {}
    monkeypatch.setattr(Membership, "join", lambda *args: nothing["missing"])
    plan = Plan(4, 5.0, (Step(3.0, Kill((NodeId(2),))),))
    outcome = Simulation(plan).run()
    assert [violation.checker for violation in outcome.violations] == ["no-bug-is-met"]
    assert "missing" in outcome.violations[0].text


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("dictionary changed size during iteration"),
        AttributeError("no attribute"),
        ProtocolError("not a frame"),
        StopIteration(),
        struct.error("out of range"),
    ],
)
def test_simulation_tells_of_whatever_a_core_raises(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Node, "step", fail)
    outcome = Simulation(Plan(2, 1.0)).run()
    assert [violation.checker for violation in outcome.violations] == ["no-bug-is-met"]
    assert outcome.violations[0].text == repr(error)


def stalled(seed: int) -> Simulation:
    """Three nodes, much for all, and readers of which most take nothing while faults go on."""
    load = Workload(200.0, 20_000)
    plan = Plan(3, 5.0, workload=load, simulated={"stalled_percent": 60}, seed=seed)
    return Simulation(plan, [inspect])


def test_simulation_has_readers_that_are_behind_at_the_source_and_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind: set[bool] = set()
    is_behind = Announcements.is_behind

    def watched(self: Announcements, topic: str) -> bool:
        behind.add(is_behind(self, topic))
        return is_behind(self, topic)

    monkeypatch.setattr(Announcements, "is_behind", watched)
    outcome = stalled(1).run()
    assert outcome.violations == ()
    assert behind == {False, True}


def test_simulation_finds_who_waits_for_readers_that_take_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def waits(self: Announcements, topic: str) -> bool:
        readers = self._by_topic.get(topic, {}).values()
        return any(reader.queue_bytes > BEHIND_BYTES for reader in readers)

    monkeypatch.setattr(Announcements, "is_behind", waits)
    found = {violation.checker for violation in stalled(1).run().violations}
    assert found == {"slow-readers-stall-nobody"}


@pytest.mark.parametrize(
    ("settings", "simulated"),
    [
        ({"colour": 1}, {}),
        ({"timeout_ms": 1}, {}),
        ({"id": 1}, {}),
        ({"size": 4}, {}),
        ({}, {"delay_max_us": 1}),
        ({}, {"torn": "x"}),
    ],
)
def test_simulation_with_options_that_cannot_be_is_refused(
    settings: dict[str, int], simulated: dict[str, int]
) -> None:
    with pytest.raises(PlanError):
        Simulation(Plan(4, 1.0, settings=settings, simulated=simulated))


@pytest.mark.parametrize(
    ("seed", "seconds"), [(26, 4.0), pytest.param(21, 8.0, marks=pytest.mark.long)]
)
def test_simulation_is_the_same_from_its_plan_as_text(seed: int, seconds: float) -> None:
    plan = random_scenario(seed, 7, seconds)
    again = Plan.parse(plan.to_json())
    assert Simulation(again).run().digest == Simulation(plan).run().digest


def test_simulations_of_different_seeds_differ() -> None:
    digests = {Simulation(random_scenario(seed, 5, 3.0)).run().digest for seed in range(4)}
    assert len(digests) == 4


@pytest.mark.parametrize("seed", ["1", pytest.param("5", marks=pytest.mark.long)])
def test_simulation_has_the_same_digest_in_other_processes(seed: str, tmp_path: Path) -> None:
    """Whatever PYTHONHASHSEED is, and so whatever order sets and enums hash in."""
    rows, histories = [], []
    for hash_seed in ("1", "4242"):
        file = tmp_path / hash_seed
        words = ["sim", "--seed", seed, "--nodes", "9", "--time", "3", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "bmgd", *words, "--history", str(file)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        rows.append(json.loads(done.stdout))
        histories.append(file.read_text())
    assert rows[0]["digest"] == rows[1]["digest"]
    assert histories[0] == histories[1]
    assert len([from_line(line) for line in histories[0].splitlines()]) > 100


def test_core_whose_deadline_never_lies_ahead_is_a_bug_and_no_endless_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stepping, "WAKES_MAX", 2000)
    monkeypatch.setattr(Node, "deadline_ns", property(lambda _: 0))
    outcome = Simulation(Plan(3, 1.0, workload=Workload(0.0))).run()
    (violation,) = outcome.violations
    assert (violation.checker, "no time passes" in violation.text) == ("no-bug-is-met", True)
