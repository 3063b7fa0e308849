"""Fresh seeds: each commit tries scenarios that nobody has seen before, and names the ones that fail.

The seeds follow from the commit, so that what fails fails again for whoever looks into it, or from
`BMGD_SIM_SEED` where it is set; outside a git checkout they begin at 0. What failed replays by its own
number (`bmgd sim --seed S --nodes N`) in any commit.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bmgd.sim.campaign import Campaign


def _seed_of_commit() -> int:
    command = ("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return int(commit.stdout[:12], 16)


SEEDS = 100
FIRST = int(os.environ.get("BMGD_SIM_SEED") or _seed_of_commit())
CAMPAIGN = Campaign(FIRST, FIRST + SEEDS - 1, 2, 33, seconds=5.0)


@pytest.mark.parametrize("part", range(10))
def test_fresh_seeds_violate_nothing(part: int) -> None:
    failed = []
    for seed in range(FIRST + part, FIRST + SEEDS, 10):
        outcome = CAMPAIGN.run_seed(seed)
        if not outcome.passed:
            words = f"bmgd sim --seed {seed} --nodes {outcome.plan.nodes} --time 5"
            failed.append(f"{words}\n    {outcome.violations[0]}")
    assert not failed, "\n".join(failed)


def test_seeds_give_the_same_digest_twice() -> None:
    for seed in range(FIRST, FIRST + 5):
        assert CAMPAIGN.run_seed(seed).digest == CAMPAIGN.run_seed(seed).digest
