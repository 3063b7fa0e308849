"""Each fault of a plan does to a simulated cluster what the plan's documentation says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bmgd.chaos import faults
from bmgd.chaos.faults import read_fault
from bmgd.chaos.history import (
    DeclaredDead,
    Died,
    Disturbed,
    EvictAsked,
    Exited,
    JoinAsked,
    LinkLost,
    Mended,
    Resumed,
    Stopped,
)
from bmgd.chaos.plan import Plan, Workload
from bmgd.sim.disturbances import Disturber
from bmgd.sim.observing import Watcher
from bmgd.sim.rest import unrest
from bmgd.sim.simulation import Simulation
from bmgd.types import NodeId, counter_of

QUIET = Workload(messages_per_second=0.0)


class Scene:
    """A cluster at rest, and someone to disturb it."""

    def __init__(self, nodes: int = 6, **simulated: Any) -> None:
        plan = Plan(nodes, 0.0, workload=QUIET, simulated=simulated)
        self.simulation = Simulation(plan)
        self.network = self.simulation.network
        for number in range(nodes):
            self.network.boot(number)
        self.run(3.0)
        assert unrest(self.network) == ""
        note = self.simulation._note
        self.disturber = Disturber(self.network, Random(1), note)

    def run(self, seconds: float) -> None:
        self.network.run(seconds)

    def do(self, **step: Any) -> None:
        self.disturber.carry_out(read_fault(step))

    def facts(self, *kinds: type[Any]) -> list[Any]:
        return list(self.simulation._recorder.history.of(*kinds))


def test_kill_and_restart_make_a_new_life_above_the_kept_one() -> None:
    scene = Scene()
    before = scene.network.hosts[NodeId(2)].node.incarnation
    scene.do(fault="kill", nodes=[2])
    scene.run(1.0)
    assert "2 does not run" not in unrest(scene.network)
    assert [fact.node for fact in scene.facts(Died)] == [2]
    scene.do(fault="restart", nodes=[2])
    assert counter_of(scene.network.hosts[NodeId(2)].node.incarnation) == counter_of(before) + 1
    scene.run(10.0)
    assert unrest(scene.network) == ""


def test_restart_without_state_begins_at_the_first_counter() -> None:
    scene = Scene()
    for _ in range(2):
        scene.do(fault="kill", nodes=[2])
        scene.run(1.0)
        scene.do(fault="restart", nodes=[2], state="lost")
    assert counter_of(scene.network.hosts[NodeId(2)].node.incarnation) == 1
    scene.run(10.0)
    assert unrest(scene.network) == ""


def test_stopped_node_is_found_and_refutes_when_it_goes_on() -> None:
    scene = Scene()
    scene.do(fault="stop", nodes=[1])
    scene.run(4.0)
    assert {fact.about for fact in scene.facts(DeclaredDead)} == {1}
    scene.do(fault="continue", nodes=[1])
    scene.run(10.0)
    assert unrest(scene.network) == ""
    assert [type(fact) for fact in scene.facts(Stopped, Resumed)] == [Stopped, Resumed]


def test_leaving_node_exits_with_success() -> None:
    scene = Scene()
    scene.do(fault="leave", nodes=[4])
    scene.run(3.0)
    assert [(fact.node, fact.code) for fact in scene.facts(Exited)] == [(4, 0)]
    assert unrest(scene.network) == ""


def test_evicted_node_ends() -> None:
    scene = Scene()
    scene.do(fault="evict", nodes=[5], by=0)
    scene.run(3.0)
    assert [(fact.node, fact.by) for fact in scene.facts(EvictAsked)] == [(5, 0)]
    assert [fact.node for fact in scene.facts(Exited)] == [5]
    assert unrest(scene.network) == ""


def test_command_to_a_stopped_daemon_waits() -> None:
    scene = Scene()
    scene.do(fault="stop", nodes=[4])
    scene.do(fault="leave", nodes=[4])
    scene.run(0.5)
    assert scene.network.hosts[NodeId(4)].alive
    scene.do(fault="continue", nodes=[4])
    scene.run(3.0)
    assert not scene.network.hosts[NodeId(4)].alive


@pytest.mark.parametrize("after_effects", [0, 1, 3])
def test_crash_comes_after_so_many_effects(after_effects: int) -> None:
    scene = Scene()
    host = scene.network.hosts[NodeId(3)]
    scene.do(fault="crash", nodes=[3], after_effects=after_effects)
    assert host.alive
    scene.run(3.0)
    assert not host.alive
    assert host.crash_after == 0


def test_partition_splits_and_mending_joins() -> None:
    scene = Scene(nodes=8)
    scene.do(fault="partition", groups=[[0, 1, 2, 3], [4, 5, 6, 7]])
    scene.run(10.0)
    declared_dead = {(fact.node < 4, fact.about < 4) for fact in scene.facts(DeclaredDead)}
    assert declared_dead == {(True, False), (False, True)}
    scene.do(fault="mend")
    scene.run(30.0)
    assert unrest(scene.network) == ""


def test_cut_pair_is_no_death() -> None:
    scene = Scene(nodes=8)
    scene.do(fault="cut", links=[[0, 1]], one_way=True)
    scene.run(10.0)
    assert scene.facts(DeclaredDead) == []
    scene.do(fault="mend", links=[[0, 1]])
    scene.run(20.0)
    assert unrest(scene.network) == ""


def test_half_open_link_is_found_and_replaced() -> None:
    scene = Scene(nodes=8)
    scene.do(fault="half-open", links=[[0, 1]])
    scene.run(10.0)
    assert scene.facts(DeclaredDead) == []
    assert unrest(scene.network) == ""


def test_reset_breaks_links_and_they_come_back() -> None:
    scene = Scene(nodes=8)
    scene.do(fault="reset")
    scene.run(0.01)
    assert "reset" in {fact.evidence for fact in scene.facts(LinkLost)}
    scene.run(5.0)
    assert scene.facts(DeclaredDead) == []
    assert unrest(scene.network) == ""


def test_takeover_hides_a_death_from_refusals_until_mended() -> None:
    scene = Scene()
    scene.do(fault="kill", nodes=[2])
    scene.do(fault="takeover", nodes=[2])
    scene.run(0.5)
    assert scene.facts(DeclaredDead) == []
    scene.run(8.0)
    assert {fact.about for fact in scene.facts(DeclaredDead)} == {2}
    assert scene.network.hosts[NodeId(2)].squatter == "silent"
    scene.do(fault="mend")
    assert scene.network.hosts[NodeId(2)].squatter == ""


def test_slow_link_delays_what_passes() -> None:
    scene = Scene(nodes=2)
    scene.do(fault="slow", links=[[0, 1]], delay_ms=300)
    assert scene.network.blockade.delay_of(NodeId(0), NodeId(1), 10) == 300_000_000
    scene.do(fault="slow", nodes=[1], delay_ms=1, bytes_per_second=1000)
    assert scene.network.blockade.delay_of(NodeId(0), NodeId(1), 10) == 311_000_000


def test_clock_leaps_forward_and_never_back() -> None:
    scene = Scene(skewed=True, drift_ppm=200)
    host = scene.network.hosts[NodeId(0)]
    before = host.local_ns(scene.network.now_ns)
    scene.do(fault="clock", nodes=[0], step_ms=-5000)
    assert host.local_ns(scene.network.now_ns) == before
    scene.do(fault="clock", nodes=[0], step_ms=5000)
    assert host.local_ns(scene.network.now_ns) == before + 5_000_000_000
    scene.run(5.0)
    assert scene.facts(DeclaredDead) == []
    assert unrest(scene.network) == ""


def test_hogged_nodes_stutter_and_recover() -> None:
    scene = Scene()
    scene.do(fault="hog", count=2, seconds=2)
    scene.run(0.02)
    assert any(host.stopped for host in scene.network.hosts.values())
    scene.run(10.0)
    assert not any(host.stopped for host in scene.network.hosts.values())
    assert scene.facts(Stopped, DeclaredDead) == []
    assert unrest(scene.network) == ""


def test_end_mends_continues_and_crashes_who_was_to_crash() -> None:
    scene = Scene()
    scene.do(fault="stop", nodes=[1])
    scene.do(fault="cut", links=[[0, 2]])
    scene.do(fault="half-open", links=[[3, 4]])
    scene.do(fault="crash", nodes=[5], after_effects=10**6)
    scene.disturber.end()
    assert not scene.network.hosts[NodeId(1)].stopped
    assert not scene.network.hosts[NodeId(5)].alive
    assert scene.network.blockade.touched() == set()
    scene.run(20.0)
    assert unrest(scene.network) == ""
    assert scene.facts(Mended)


def test_joiners_get_the_next_ids_and_come_back() -> None:
    scene = Scene()
    scene.do(fault="join", count=2, through=3)
    scene.run(3.0)
    assert unrest(scene.network) == ""
    assert sorted(host.id for host in scene.network.hosts.values()) == list(range(8))
    assert [fact.through for fact in scene.facts(JoinAsked)] == [3, 3]
    scene.do(fault="kill", nodes=[6, 7])
    scene.run(1.0)
    former = scene.network.hosts[NodeId(6)].id
    scene.do(fault="restart", nodes=[6])
    scene.do(fault="restart", nodes=[7], state="lost")
    scene.run(10.0)
    assert unrest(scene.network) == ""
    assert scene.network.hosts[NodeId(6)].id == former
    assert scene.network.hosts[NodeId(7)].id == 8


def test_growth_on_both_sides_of_a_partition_is_merged() -> None:
    scene = Scene(nodes=8)
    scene.do(fault="partition", groups=[[0, 1, 2, 3], [4, 5, 6, 7]])
    scene.run(5.0)
    scene.do(fault="join", through=1)
    scene.do(fault="join", through=5)
    scene.run(5.0)
    scene.do(fault="mend")
    scene.run(40.0)
    assert unrest(scene.network) == ""
    assert len({host.id for host in scene.network.hosts.values()}) == 10


def test_disturber_carries_out_every_fault_that_a_plan_can_have() -> None:
    steps: dict[str, dict[str, Any]] = {
        "kill": {"nodes": [1]},
        "restart": {"nodes": [1]},
        "stop": {"nodes": [2]},
        "continue": {"nodes": [2]},
        "leave": {"nodes": [3]},
        "join": {},
        "evict": {"nodes": [4], "by": 0},
        "cut": {"links": [[0, 1]]},
        "partition": {"groups": [[0], [1]]},
        "mend": {},
        "slow": {"nodes": [0], "delay_ms": 1},
        "half-open": {"links": [[0, 1]]},
        "reset": {},
        "hog": {"count": 1, "seconds": 0.1},
        "takeover": {"nodes": [3]},
        "clock": {"nodes": [0], "step_ms": 1},
        "crash": {"nodes": [0]},
    }
    assert steps.keys() == faults.KINDS.keys()
    scene = Scene()
    for fault, keys in steps.items():
        scene.do(fault=fault, **keys)
        scene.run(0.1)
    assert len(scene.facts(Disturbed)) == len(steps)


def test_cut_of_a_joiner_that_got_another_id_than_its_number_is_a_cut_of_that_process() -> None:
    scene = Scene(4)
    told: dict[NodeId, bool] = {}
    scene.network.watchers.append(_Told(told))
    host = scene.network.join(1, place=7)
    scene.run(3.0)
    assert (host.id, host.where) == (4, 7)
    scene.do(fault="cut", links=[[7, 0]])
    assert scene.network.blockade.blocks(host.where, NodeId(0))
    assert told == {NodeId(7): True, NodeId(0): True}
    scene.do(fault="mend", links=[[7, 0]])
    assert not scene.network.blockade.blocks(host.where, NodeId(0))
    assert told == {NodeId(7): False, NodeId(0): False}


class _Told(Watcher):
    """Who is disturbed, as watchers are told."""

    def __init__(self, told: dict[NodeId, bool]) -> None:
        self._told = told

    def disturb(self, place: NodeId, *, over: bool = False) -> None:
        self._told[place] = not over
