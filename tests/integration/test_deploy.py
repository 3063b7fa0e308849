"""What the files in deploy/ run, with a stand-in for bmgd that shows what it was told."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

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
    subprocess.run(["bash", "-n", str(ROOT / script)], timeout=DEADLINE_S, check=True)
