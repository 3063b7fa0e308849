"""Trials on real daemons: they pass, they undo what they did, and a lie does not."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bmgd.chaos.checkers import check
from bmgd.chaos.history import Acknowledged, Believed, Delivered, History, from_line
from bmgd.chaos.plan import Plan
from bmgd.launcher.rundir import read_members
from tests.integration.cluster import DEADLINE_S, LaunchedCluster, launched, until, until_true
from tests.processes import runs

SIZE = 9
EVERYTHING = """{"version": 1, "nodes": 9, "seconds": 21, "seed": 1, "steps": [
    {"at": 0.5, "fault": "kill", "nodes": [3]},
    {"at": 2.0, "fault": "takeover", "nodes": [3]},
    {"at": 3.0, "fault": "restart", "nodes": [3]},
    {"at": 4.0, "fault": "stop", "nodes": [5]},
    {"at": 8.5, "fault": "continue", "nodes": [5]},
    {"at": 9.0, "fault": "leave", "nodes": [7]},
    {"at": 9.5, "fault": "reset"},
    {"at": 10.0, "fault": "half-open", "links": [[0, 1]]},
    {"at": 10.0, "fault": "slow", "nodes": [6], "delay_ms": 50, "bytes_per_second": 100000},
    {"at": 10.5, "fault": "restart", "nodes": [7]},
    {"at": 11.0, "fault": "cut", "links": [[1, 2]]},
    {"at": 11.0, "fault": "hog", "count": 1, "seconds": 2},
    {"at": 13.0, "fault": "mend"},
    {"at": 13.5, "fault": "join", "count": 2},
    {"at": 15.5, "fault": "evict", "nodes": [8], "by": 0},
    {"at": 17.0, "fault": "partition", "groups": [[4], [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]]}
]}"""
"""Who is killed or stopped comes back late enough for all others to have found it before, on a busy
machine too."""


async def chaos(cluster: LaunchedCluster, *words: str) -> tuple[int, dict[str, Any]]:
    """Run `bmgd chaos --json`; its exit code and document."""
    run_dir = str(cluster.directory)
    code, output = await cluster.command(
        "chaos", "--run-dir", run_dir, "--json", *words, within_s=4 * DEADLINE_S
    )
    return code, json.loads(output.splitlines()[-1])


async def test_chaos_carries_a_plan_out_and_passes(tmp_path: Path) -> None:
    plan, facts = tmp_path / "plan.json", tmp_path / "facts"
    plan.write_text(EVERYTHING)
    async with launched(SIZE, tmp_path, "--fault-proxy") as cluster:
        code, found = await chaos(cluster, "--plan", str(plan), "--history", str(facts))
        assert (code, found["verdict"], found["violations"]) == (0, "pass", [])
        assert (found["false_deaths"], found["alone"], found["links_exact"]) == (0, 0, True)
        assert set(found["faults"]) == {
            *("kill", "takeover", "restart", "stop", "continue", "leave", "reset"),
            *("half-open", "slow", "cut", "hog", "mend", "partition", "join", "evict"),
        }
        for kind in ("kill", "stop", "leave", "cut off"):
            rows = found["detection_ms"][kind]["all"]
            assert (rows["count"], rows["not_found"]) == (1, 0), kind
        sent = found["deliveries"]
        assert sent["sent"] > 100
        told = sent["acknowledged"] + sum(sent["failed"].values())
        assert told + sent["sender_ended"] == sent["sent"]
        [down] = found["down"]
        assert down["id"] == 8
        assert down["restart"].startswith("bmgd restart 8 --run-dir ")
        assert sent["duplicates"] == 0
        assert Plan.parse(json.dumps(found["plan"])) == Plan.parse(EVERYTHING)
        alive = [node for node in range(SIZE + 2) if node != 8]
        for node in (0, 9, 10):
            assert (await cluster.status(node))["alive"] == alive
        _expect_the_ended(cluster)
        _fires_on_lies(facts)


def _fires_on_lies(facts: Path) -> None:
    """The real history passes; doctored in one place each, a checker fires."""
    history = [from_line(line) for line in facts.read_text().splitlines()]
    assert check(History(history)) == []
    taken = next(f for f in history if isinstance(f, Delivered))
    done = next(f for f in history if isinstance(f, Acknowledged))
    record = next(f for f in reversed(history) if isinstance(f, Believed))
    lies = {
        "delivered at most once": [*history, taken],
        "acknowledged only if delivered": [
            f for f in history if not (isinstance(f, Delivered) and f.payload_id == done.payload_id)
        ],
        "records only grow": [*history, replace(record, version=-1)],
    }
    for name, doctored in lies.items():
        lie = History(doctored)
        assert name in {violation.checker for violation in check(lie)}


@pytest.mark.long
async def test_chaos_random_plan_by_seed(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--fault-proxy") as cluster:
        code, found = await chaos(cluster, "--random", "--seed", "7", "--for", "6")
        assert (code, found["verdict"], found["seed"]) == (0, "pass", 7), found["violations"]
        assert sum(found["faults"].values()) > 0
        _expect_the_ended(cluster)


def _expect_the_ended(cluster: LaunchedCluster) -> None:
    """What a trial has ended stays ended, and the launcher knows it."""
    members = read_members(str(cluster.directory))
    cluster.gone.update(member.id for member in members if member.pid is None)


async def test_chaos_refuses_before_it_harms(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    kill = '{"at": 0, "fault": "kill", "nodes": [3]}'
    cut = '{"at": 1, "fault": "cut", "links": [[0, 1]]}'
    text = '{{"version": 1, "nodes": {}, "seconds": 5, "steps": [{}, {}]}}'
    plan.write_text(text.format(4, kill, cut))
    async with launched(4, tmp_path) as cluster:
        run_dir = str(cluster.directory)
        words = ("chaos", "--run-dir", run_dir, "--plan", str(plan))
        code, output = await cluster.command(*words)
        assert code == 2
        assert "step 2" in output
        assert "--fault-proxy" in output
        plan.write_text(text.format(5, kill, kill.replace("3", "2")))
        code, output = await cluster.command(*words)
        assert code == 2
        assert "for 5 nodes" in output
        cluster.stop(1)
        plan.write_text(text.format(4, kill, kill.replace("3", "2")))
        code, output = await cluster.command(*words)
        assert code == 1
        assert "stopped" in output
        cluster.go_on(1)
        await cluster.at_rest()


async def test_chaos_interrupted_undoes_everything(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("""{"version": 1, "nodes": 9, "seconds": 60, "steps": [
        {"at": 0.1, "fault": "stop", "nodes": [5]},
        {"at": 0.1, "fault": "partition", "groups": [[0, 1, 2], [3, 4, 6, 7, 8]]},
        {"at": 0.1, "fault": "hog", "count": 1, "seconds": 50}
    ]}""")
    async with launched(SIZE, tmp_path, "--fault-proxy") as cluster:
        words = ["-m", "bmgd", "chaos", "--run-dir", str(cluster.directory), "--plan", str(plan)]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # It hurries, and all of its session with it.
            start_new_session=True,
        )
        trial = psutil.Process(process.pid)
        victim = psutil.Process(cluster.pid(5))
        await until_true("it is stopped", lambda: victim.status() == psutil.STATUS_STOPPED)
        await until_true("it hogs", lambda: bool(trial.children()))
        hogs = trial.children()

        async def parted() -> list[str]:
            status = await cluster.status(0)
            return [] if 3 in status["dead"] else [f"node 0 sees {status['dead']} dead"]

        await until("parted", parted)
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        assert process.returncode == 130
        assert b"everything was undone" in errors
        assert _ended(hogs)
        await cluster.at_rest()


async def test_chaos_killed_leaves_no_link_cut_and_no_hog(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("""{"version": 1, "nodes": 9, "seconds": 60, "steps": [
        {"at": 0.1, "fault": "partition", "groups": [[0, 1, 2], [3, 4, 5, 6, 7, 8]]},
        {"at": 0.1, "fault": "hog", "count": 1, "seconds": 50}
    ]}""")
    async with launched(SIZE, tmp_path, "--fault-proxy") as cluster:
        words = ["-m", "bmgd", "chaos", "--run-dir", str(cluster.directory), "--plan", str(plan)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=-3, start_new_session=True
        )
        trial = psutil.Process(process.pid)
        await until_true("it hogs", lambda: bool(trial.children()))
        hogs = trial.children()

        async def parted() -> list[str]:
            status = await cluster.status(0)
            return [] if 3 in status["dead"] else [f"node 0 sees {status['dead']} dead"]

        await until("parted", parted)
        process.kill()
        await process.wait()
        await until_true("the hog ends", lambda: _ended(hogs))
        await cluster.at_rest()


def _ended(processes: Collection[psutil.Process]) -> bool:
    return not any(map(runs, processes))
