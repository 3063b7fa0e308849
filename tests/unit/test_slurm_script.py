"""deploy/slurm.sh with stand-ins for Slurm: its daemons use directories of their own user only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "scontrol": "echo node0",
    # What follows the options is the task.
    "srun": 'while [ "$1" != sh ]; do shift; done; SLURM_NODEID=0 exec "$@"',
    "bmgd": 'echo "$@" >"$RAN"',
}


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Where the stand-in of `bmgd` writes its arguments."""
    for name, text in COMMANDS.items():
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\n{text}\n")
        command.chmod(0o755)
    for directory in ("shared", "local"):
        (tmp_path / directory).mkdir()
    return tmp_path / "ran"


def run(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    given = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "RAN": str(tmp_path / "ran"),
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "node0",
        "SLURM_SUBMIT_DIR": str(tmp_path / "shared"),
        "LOCAL": str(tmp_path / "local"),
    }
    words = ["bash", str(ROOT / "deploy" / "slurm.sh")]
    return subprocess.run(words, env=given, timeout=60, capture_output=True, text=True, check=False)


def test_slurm_daemon_runs_in_a_directory_of_its_user(tmp_path: Path, ran: Path) -> None:
    for _ in range(2):
        # The second time the job was queued again: its lives are counted on.
        done = run(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"--state-dir {tmp_path}/local/bmgd-77" in ran.read_text()
        ran.unlink()
    for directory in ("shared", "local"):
        assert (tmp_path / directory / "bmgd-77").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("directory", ["shared", "local"])
@pytest.mark.parametrize("what", ["a link", "open to all", "another user's"])
def test_slurm_daemon_uses_no_directory_of_somebody_else(
    tmp_path: Path, ran: Path, directory: str, what: str
) -> None:
    theirs = tmp_path / directory / "bmgd-77"
    if what == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        theirs.symlink_to(tmp_path / "elsewhere")
    else:
        theirs.mkdir()
        theirs.chmod(0o777 if what == "open to all" else 0o700)
    if what == "another user's":
        if os.getuid():
            pytest.skip("only root can give a directory away")
        os.chown(theirs, 65_534, -1)
    done = run(tmp_path)
    assert done.returncode == 1
    assert f"{theirs} is not a directory of this user" in done.stderr
    assert not ran.exists()
    assert not list(theirs.iterdir())
