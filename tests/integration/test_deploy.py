"""What the files in deploy/ run, with a stand-in for bmgd that shows what it was told."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.integration.cluster import launched, linked_exactly, until
from tests.integration.ports import free_base_port
from tests.processes import end

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which bmgd prints its words, and which of its variables are set."""
    script = tmp_path / "bmgd"
    script.write_text('#!/bin/sh\necho "$*"\nenv | sed -n "s/^BMGD_/BMGD_/p" | sort\n')
    script.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def pod(name: str, path: str) -> list[str]:
    """What the container of a pod runs."""
    text = (ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
    found = re.search(r"command:\n +- /bin/sh\n +- -c\n +- \|\n((?: {14}.*\n)+)", text)
    assert found is not None
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", textwrap.dedent(found[1])],
        env={"PATH": path, "POD_NAME": name, "BMGD_SIZE": "8", "BMGD_PEERS": "bmgd-{id}.bmgd:7400"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("ordinal", [0, 7])
def test_deploy_kubernetes_founders_have_their_ordinal_as_id(ordinal: int, path: str) -> None:
    words, *variables = pod(f"bmgd-{ordinal}", path)
    assert words == f"run --id {ordinal}"
    assert variables == ["BMGD_PEERS=bmgd-{id}.bmgd:7400", "BMGD_SIZE=8"]


@pytest.mark.parametrize("ordinal", [8, 11])
def test_deploy_kubernetes_scale_up_joins_under_the_ordinal(ordinal: int, path: str) -> None:
    words, *variables = pod(f"bmgd-{ordinal}", path)
    assert words.split() == [
        *("run", "--id", str(ordinal), "--advertise", f"bmgd-{ordinal}.bmgd:7400"),
        *("--join", "bmgd-0.bmgd:7400,bmgd-1.bmgd:7400,bmgd-2.bmgd:7400"),
    ]
    assert variables == []


@pytest.mark.parametrize("script", ["deploy/slurm.sh", "tests/slurm/run"])
def test_deploy_scripts_are_read_by_bash(script: str) -> None:
    words = ["bash", "-n", str(ROOT / script)]
    read = subprocess.run(words, timeout=DEADLINE_S, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")


async def test_deploy_kubernetes_scale_up_in_any_order_gives_each_its_ordinal(
    tmp_path: Path,
) -> None:
    """What the manifest rests on: a joiner may claim an id that nobody had."""
    async with launched(3, tmp_path, "--without-secret") as cluster:
        await linked_exactly(cluster, range(3))
        base = free_base_port(8)
        members = ",".join(f"127.0.0.1:{cluster.base_port + i}" for i in range(3))
        joiners = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bmgd", "run", "--id", str(ordinal), "--join", members),
                *("--listen", f"127.0.0.1:{base + ordinal}", "--log-level", "error"),
            )
            for ordinal in (5, 3, 4)
        ]
        try:

            async def condition() -> list[str]:
                alive = (await cluster.status(0))["alive"]
                return [] if alive == [0, 1, 2, 3, 4, 5] else [f"alive are {alive}"]

            await until("the joiners are members under their ordinals", condition)
            # Scale-down: the highest ordinal gets SIGTERM.
            joiners[0].terminate()

            async def left() -> list[str]:
                status = await cluster.status(0)
                return [] if (status["left"], status["dead"]) == ([5], []) else [str(status)]

            await until("the highest has left", left)
            assert await joiners[0].wait() == 0
        finally:
            for joiner in joiners:
                await end(joiner)
