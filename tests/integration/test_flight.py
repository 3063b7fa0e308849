"""Real daemons under faults: their recordings replay to the last step, and make one timeline."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bmgd.flight.recording import read
from bmgd.flight.replay import replay
from tests.integration.cluster import (
    DEADLINE_S,
    LaunchedCluster,
    launched,
    linked_exactly,
    until,
)
from tests.integration.ports import free_base_port

SIZE = 16
PLAN = """{"version": 1, "nodes": 16, "seconds": 6, "steps": [
    {"at": 0.0, "fault": "kill", "nodes": [5, 11]},
    {"at": 1.0, "fault": "stop", "nodes": [8]},
    {"at": 1.5, "fault": "reset"},
    {"at": 3.5, "fault": "continue", "nodes": [8]},
    {"at": 4.0, "fault": "restart", "nodes": [5]},
    {"at": 4.5, "fault": "partition", "groups": [[0, 1, 2, 3], [6, 7, 8, 9, 10]]},
    {"at": 5.5, "fault": "leave", "nodes": [12]}
]}"""


async def recordings_of(cluster: LaunchedCluster, nodes: list[int]) -> list[str]:
    """Let these daemons write their recordings."""
    paths = []
    for node_id in nodes:
        _, output = await cluster.command(
            "record", "--run-dir", str(cluster.directory), "--id", str(node_id), "--json"
        )
        paths.append(str(json.loads(output)["path"]))
    return paths


async def replayed(cluster: LaunchedCluster, *words: str) -> Any:
    code, output = await cluster.command("replay", "--json", *words, within_s=240)
    assert code == 0, output[-2000:]
    return json.loads(output.splitlines()[-1])


@pytest.mark.long
async def test_flight_of_16_nodes_under_chaos_replays_to_the_last_step(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN)
    async with launched(SIZE, tmp_path, "--fault-proxy") as cluster:
        run_dir = str(cluster.directory)
        code, output = await cluster.command(
            "chaos", "--run-dir", run_dir, "--plan", str(plan), "--json", within_s=120
        )
        assert code == 0, output[-2000:]
        cluster.gone.update({11, 12})
        alive = [node for node in range(SIZE) if node not in (11, 12)]
        paths = await recordings_of(cluster, alive)
        found = await replayed(cluster, *paths)
        assert found["differs_at"] is None
        assert found["steps"] > 100 * len(alive)
        for row in found["recordings"]:
            assert (row["differs_at"], row["left_out"], row["whole"]) == (None, 0, True)
        text = await timeline_of(cluster, paths)
        assert "verdict" in text
        assert {f"node {node} " in text for node in alive} == {True}


async def timeline_of(cluster: LaunchedCluster, paths: list[str]) -> str:
    """One timeline of all, in the order of time."""
    code, text = await cluster.command("replay", "--timeline", *paths, within_s=240)
    assert code == 0
    stamps = [line.split()[0] for line in text.splitlines()]
    assert stamps == sorted(stamps)
    return text


async def test_flight_is_written_on_usr2_and_shows_any_step(tmp_path: Path) -> None:
    async with launched(4, tmp_path) as cluster:
        await linked_exactly(cluster, range(4))
        pid = (await cluster.status(2))["pid"]
        os.kill(pid, signal.SIGUSR2)

        def there() -> list[Path]:
            return list(cluster.directory.glob("flight-2-*-usr2.bmgdrec"))

        async def condition() -> list[str]:
            return [] if there() else ["no recording yet"]

        await until("a recording after USR2", condition)
        [path] = there()
        assert path.stat().st_mode & 0o077 == 0
        found = await replayed(cluster, str(path))
        assert found["differs_at"] is None
        last = found["steps"]
        shown = await replayed(cluster, "--step", str(last), str(path))
        assert (shown["step"], shown["same"], shown["status"]["id"]) == (last, True, 2)
        assert shown["status"]["alive"] == [0, 1, 2, 3]
        assert [row["id"] for row in shown["members"]] == [0, 1, 2, 3]


async def test_flight_files_are_bounded_in_number(tmp_path: Path) -> None:
    async with launched(2, tmp_path) as cluster:
        await linked_exactly(cluster, range(2))
        for _ in range(10):
            await recordings_of(cluster, [1])

        async def condition() -> list[str]:
            count = len(list(cluster.directory.glob("flight-1-*.bmgdrec")))
            return [] if count == 8 else [f"{count} files"]

        await until("8 files are kept", condition)


async def test_flight_can_be_switched_off(tmp_path: Path) -> None:
    async with launched(2, tmp_path, "--flight-bytes", "0") as cluster:
        await asyncio.sleep(0)
        code, text = await cluster.command(
            "record", "--run-dir", str(cluster.directory), "--id", "1", "--json"
        )
        assert code == 1
        assert "--flight-bytes 0" in text


BROKEN = """
import sys
import bmgd.core.node as module
from bmgd.errors import InvariantError
whole, count = module.Node.step, [0]
def step(self, now_ns, event):
    count[0] += 1
    if count[0] == 5:
        raise InvariantError("a planted bug")
    return whole(self, now_ns, event)
module.Node.step = step
from bmgd.cli import main
sys.exit(main(sys.argv[1:]))
"""


def written_in(directory: Path) -> list[Path]:
    return list(directory.glob("flight-0-*-bug.bmgdrec"))


async def test_flight_of_a_bug_is_written_and_names_its_step(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "there"
    peers = f"127.0.0.1:{free_base_port(1)}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BROKEN, "run", "--id", "0", "--size", "1", "--peers", peers),
        *("--flight-dir", str(directory)),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert process.returncode == 1
    assert b"a planted bug" in err
    [path] = written_in(directory)
    assert path.name.encode() in err
    recording = read(str(path))
    assert recording.whole
    assert recording.parts[-1].rows[-1].kinds == ("InvariantError",)
    outcome = replay(recording)
    # The core that replays it has no such bug.
    assert (outcome.steps, outcome.differs_at) == (5, 5)
