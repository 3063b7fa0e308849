"""Campaigns: every seed once, results on disk, and on again from there."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bmgd.errors import BmgdError, PlanError
from bmgd.sim.campaign import (
    SEEDS_PER_WORKER,
    Campaign,
    Progress,
    Row,
    read_rows,
    run_campaign,
    seeds_per_worker,
)
from bmgd.sim.options import random_scenario

SMALL = Campaign(3, 6, 2, 4, seconds=1.0)


def seeds(path: Path) -> list[int]:
    return sorted(row["seed"] for row in read_rows(path))


def silent(progress: Progress, row: Row | None) -> None:
    """No report."""


def test_campaign_runs_every_seed_once_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    progress = run_campaign(Campaign(3, 4, 2, 4, seconds=1.0), path, 1, silent)
    assert (progress.seeds, progress.failed, seeds(path)) == (2, 0, [3, 4])
    with path.open("a") as file:
        file.write('{"seed": 5, "verd')
    first = path.read_text().splitlines()[:2]
    reports: list[Row | None] = []
    progress = run_campaign(SMALL, path, 2, lambda _, row: reports.append(row))
    assert (progress.seeds, seeds(path)) == (4, [3, 4, 5, 6])
    assert path.read_text().splitlines()[:2] == first
    assert sorted(row["seed"] for row in reports if row is not None) == [5, 6]
    assert reports[0] is None


def test_campaign_seed_gives_the_same_row_alone_and_in_a_worker(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run_campaign(Campaign(3, 3, 2, 4, seconds=1.0), path, 1, silent)
    (row,) = read_rows(path)
    outcome = SMALL.run_seed(3)
    assert row["digest"] == outcome.digest
    assert 2 <= row["nodes"] <= 4


def test_campaign_ends_after_enough_hours(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    campaign = Campaign(0, 10**6, 2, 3, seconds=1.0, hours=20 / 3600)
    progress = run_campaign(campaign, path, 1, silent)
    assert progress.virtual_s >= 20
    assert progress.seeds < 10


def test_campaign_whose_worker_is_killed_says_so_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    campaign = Campaign(3, 40, 2, 4, seconds=1.0)

    def kill(progress: Progress, row: Row | None) -> None:
        if row is not None:
            for worker in multiprocessing.active_children():
                worker.kill()

    with pytest.raises(BmgdError, match="a worker of the campaign was killed"):
        run_campaign(campaign, path, 2, kill)
    assert 1 <= len(seeds(path)) < 38
    assert run_campaign(Campaign(3, 40, 2, 4, 1.0, 1e-9), path, 1, silent).seeds == len(seeds(path))


def test_campaign_that_is_interrupted_does_not_wait_for_its_seeds(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    stopped: list[psutil.Process] = []

    def interrupt(progress: Progress, row: Row | None) -> None:
        if row is None:
            return
        # They would never come to an end of their own.
        for worker in multiprocessing.active_children():
            process = psutil.Process(worker.pid)
            process.suspend()
            stopped.append(process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign(Campaign(3, 400, 2, 4, seconds=1.0), path, 2, interrupt)
    assert stopped
    assert not any(process.is_running() for process in stopped)


def test_campaign_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("hello\n" + json.dumps({"seed": 1}) + "\n")
    with pytest.raises(PlanError, match="line 1"):
        run_campaign(SMALL, path, 1, silent)


ROW = {"seed": 3, "nodes": 2, "seconds": 1.0, "virtual_s": 1.0, "verdict": "pass"}


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"[3]",
        b"null",
        *(json.dumps({**ROW, name: None}).encode() for name in ROW),
        *(json.dumps({key: ROW[key] for key in ROW if key != name}).encode() for name in ROW),
        json.dumps({**ROW, "seed": True}).encode(),
    ],
)
def test_campaign_line_that_is_no_result_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(PlanError, match="line 1: not a result of a campaign"):
        run_campaign(SMALL, path, 1, silent)
    assert path.read_bytes() == line + b"\n"


def test_campaign_does_not_read_what_is_no_file() -> None:
    progress = run_campaign(Campaign(3, 3, 2, 4, seconds=1.0), Path("/dev/null"), 1, silent)
    assert progress.seeds == 1


@pytest.mark.parametrize(
    "other",
    [
        Campaign(3, 3, 2, 4, seconds=2.0),
        Campaign(3, 3, 40, 50, seconds=1.0),
        Campaign(4, 6, 2, 4, seconds=1.0),
    ],
)
def test_campaign_file_of_another_campaign_is_refused(tmp_path: Path, other: Campaign) -> None:
    path = tmp_path / "out.jsonl"
    run_campaign(Campaign(3, 3, 2, 4, seconds=1.0), path, 1, silent)
    before = path.read_text()
    with pytest.raises(PlanError, match="line 1: of a campaign with other seeds, nodes or time"):
        run_campaign(other, path, 1, silent)
    assert path.read_text() == before


def test_campaign_whose_first_line_was_cut_off_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"seed":3,"verd')
    run_campaign(Campaign(3, 3, 2, 4, seconds=1.0), path, 1, silent)
    assert seeds(path) == [3]
    assert len(path.read_text().splitlines()) == 1


def test_campaign_does_not_write_whole_results_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    row = {"seed": 3, "nodes": SMALL.nodes_of(3), "seconds": 1.0, "verdict": "pass"}
    path.write_text(json.dumps(row | {"virtual_s": 1.0}) + "\n")
    before = path.stat()
    run_campaign(Campaign(3, 3, 2, 4, seconds=1.0), path, 1, silent)
    after = path.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    with path.open("a") as file:
        file.write('{"seed":4,"verd')
    run_campaign(Campaign(3, 3, 2, 4, seconds=1.0), path, 1, silent)
    # Made beside it and renamed: who is killed meanwhile loses nothing.
    assert path.stat().st_ino != before.st_ino
    assert seeds(path) == [3]


def test_campaign_goes_on_whose_plans_last_longer_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    # A plan with much traffic has more time.
    longer = Campaign(31, 31, 2, 4, seconds=1.0)
    assert random_scenario(31, longer.nodes_of(31), 1.0).seconds > 1.0
    for _ in range(2):
        run_campaign(longer, path, 1, silent)
        assert seeds(path) == [31]


def test_campaign_file_of_one_line_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("hello")
    with pytest.raises(PlanError, match="line 1"):
        run_campaign(SMALL, path, 1, silent)
    assert path.read_text() == "hello"


def test_campaign_that_is_killed_leaves_no_worker_behind(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bmgd", "sim", "--campaign", "1..8", "--nodes", "8..8"]
    words += ["--time", "100000", "--jobs", "2", "--out", str(tmp_path / "out.jsonl")]
    campaign = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 60
        while len(workers := _busy_children(campaign.pid)) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        campaign.kill()
        campaign.wait()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert alive == []


def _busy_children(pid: int) -> list[psutil.Process]:
    """The workers that have begun with a seed: they have had processor time for that."""
    children = psutil.Process(pid).children()
    return [child for child in children if sum(child.cpu_times()[:2]) > 1.5]


def test_worker_of_a_campaign_ends_after_many_short_seeds_or_few_long_ones() -> None:
    hours = Campaign(1, 500, 2, 3, seconds=3600.0)
    assert (seeds_per_worker(SMALL), seeds_per_worker(hours)) == (SEEDS_PER_WORKER, 3)
