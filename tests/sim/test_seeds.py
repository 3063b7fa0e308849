"""Fresh scenarios by seed: 8 in every run of the tests, 40 in the long one.

The first seed is that of the commit, so that other commits try others and a failure repeats;
`BMGD_SIM_SEED=FIRST` chooses another. What failed replays by its own number, as the message says.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bmgd.sim.campaign import Campaign, Row, read_rows, run_campaign

COUNTS = [
    pytest.param(8, id="8"),
    pytest.param(40, id="40", marks=pytest.mark.long),
]
SECONDS = 5.0
TWICE = 3


def first_seed() -> int:
    """What the environment says, else a number from the commit; 0 where there is neither."""
    told = os.environ.get("BMGD_SIM_SEED")
    if told:
        return int(told)
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(asked.stdout[:8], 16) if asked.returncode == 0 else 0


@pytest.fixture(scope="module", params=COUNTS)
def campaign(request: pytest.FixtureRequest) -> Campaign:
    first = first_seed()
    return Campaign(first, first + int(request.param) - 1, 2, 33, seconds=SECONDS)


@pytest.fixture(scope="module")
def rows(campaign: Campaign, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Row]:
    """The result of every seed, from two other processes."""
    path = tmp_path_factory.mktemp("seeds") / "seeds.jsonl"
    run_campaign(campaign, path, 2, lambda progress, row: None)
    return {row["seed"]: row for row in read_rows(path)}


def test_fresh_seeds_violate_nothing(campaign: Campaign, rows: dict[int, Row]) -> None:
    failed = [
        f"bmgd sim --seed {seed} --nodes {row['plan']['nodes']} --time {SECONDS}: {row['violations'][0]}"
        for seed, row in sorted(rows.items())
        if row["verdict"] != "pass"
    ]
    assert not failed, "\n".join(failed)
    assert sorted(rows) == list(range(campaign.first, campaign.last + 1))


def test_fresh_seeds_give_the_same_digest_in_another_process(
    campaign: Campaign, rows: dict[int, Row]
) -> None:
    for seed in range(campaign.first, campaign.first + TWICE):
        assert campaign.run_seed(seed).digest == rows[seed]["digest"]
