"""Scenarios by chance: every option of a daemon that its core reads is on in a fair share of them."""

from __future__ import annotations

from dataclasses import fields

from benchmarks.seeds.page import shares
from bmgd.chaos.faults import Fault
from bmgd.profiles import Timing
from bmgd.sim.options import HAPPENINGS_MAX, random_scenario

SEEDS = 400
FAIR = 0.05
OF_THE_CORE = {
    *(field.name for field in fields(Timing)),
    *("healing", "reconstruction", "quorum", "on_declared_dead", "profile"),
}


def test_options_of_a_daemon_are_on_in_a_fair_share_of_the_seeds() -> None:
    found = shares(SEEDS)
    rare = {name for name in OF_THE_CORE if found.get(f"setting {name}", 0.0) < FAIR}
    assert rare == set()


def test_scenario_of_an_hour_has_no_more_looks_and_lies_than_a_short_one_may_have() -> None:
    hour_s = 3600.0
    seeds = [random_scenario(seed, 3, hour_s).simulated for seed in range(100)]
    for option in ("looks_per_s", "unusable_per_s", "malformed_per_s"):
        chosen = [int(simulated[option]) for simulated in seeds if option in simulated]
        assert chosen
        assert max(chosen) * hour_s <= HAPPENINGS_MAX


def test_faults_of_every_kind_occur_in_a_fair_share_of_the_seeds() -> None:
    found = shares(SEEDS)
    kinds = {kind.__name__.lower() for kind in Fault.__args__}
    assert {kind for kind in kinds if found.get(f"fault {kind}", 0.0) < FAIR} == set()
