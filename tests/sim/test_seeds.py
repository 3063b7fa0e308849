"""Scenarios by seed: the same few in every run, or a hundred fresh ones from `BMGD_SIM_SEED` on.

Fresh seeds still find scenarios in which a checker and the core disagree (docs/simulator.md), so they do
not decide by themselves whether a change may land. What failed replays by its own number
(`bmgd sim --seed S --nodes N --time T`).
"""

from __future__ import annotations

import os

import pytest

from bmgd.sim.campaign import Campaign

FRESH = os.environ.get("BMGD_SIM_SEED")
CAMPAIGN = (
    Campaign(int(FRESH), int(FRESH) + 99, 2, 33, seconds=5.0)
    if FRESH
    else Campaign(0, 11, 2, 12, seconds=4.0)
)


@pytest.mark.parametrize("part", range(4))
def test_seeds_violate_nothing(part: int) -> None:
    failed = []
    for seed in range(CAMPAIGN.first + part, CAMPAIGN.last + 1, 4):
        outcome = CAMPAIGN.run_seed(seed)
        if not outcome.passed:
            words = f"bmgd sim --seed {seed} --nodes {outcome.plan.nodes} --time {CAMPAIGN.seconds}"
            failed.append(f"{words}\n    {outcome.violations[0]}")
    assert not failed, "\n".join(failed)


def test_seeds_give_the_same_digest_twice() -> None:
    for seed in range(CAMPAIGN.first, CAMPAIGN.first + 5):
        assert CAMPAIGN.run_seed(seed).digest == CAMPAIGN.run_seed(seed).digest
