"""Other commits, to compare with: each is built once into an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
BUILD: Final = ROOT / "build" / "commits"


def python_of(commit: str) -> Path:
    """An interpreter with the bmgd of a commit, built from `git archive` unless that was done.

    Raises:
        CalledProcessError: git knows no such commit, or it cannot be built.
    """
    words = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
    found = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    directory = BUILD / found.stdout.strip()
    python = directory / "venv" / "bin" / "python"
    if (directory / "built").exists():
        return python
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "source").mkdir(parents=True)
    archive = subprocess.Popen(
        ["git", "archive", found.stdout.strip()], cwd=ROOT, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x"], cwd=directory / "source", stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        raise SystemExit(f"git cannot archive {commit}")
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", directory / "source"], check=True)
    (directory / "built").touch()
    return python
