"""Releases of bmgd to run in tests: built from sources, installed apart from each other.

Building takes a compiler, and setuptools from the package registry; what bmgd needs at run time is
taken from the environment that runs the tests.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RUN_TIME: Final = ("msgpack", "psutil", "uvloop")


def previous_commit() -> str:
    """The commit that stands for the release before this one."""
    return (ROOT / ".ci" / "previous").read_text(encoding="utf-8").strip()


def sources_of(commit: str, directory: Path) -> Path:
    """Unpack the sources of a commit into a directory of their own."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        # Pythons before 3.11.4 know no filters; it is our own archive.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(directory)
    return directory


def wheel_of(sources: Path, directory: Path) -> Path:
    """Build the wheel of sources; returns its path."""
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory)]
    subprocess.run([sys.executable, *words, str(sources)], check=True)
    (wheel,) = directory.glob("bmgd-*.whl")
    return wheel


def environment_with(wheel: Path, directory: Path) -> Path:
    """Install a wheel into a virtual environment of its own; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    words = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, *words], check=True)
    (site,) = (directory / "lib").glob("python3*/site-packages")
    for name in RUN_TIME:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations, f"{name} is not installed"
        (site / name).symlink_to(spec.submodule_search_locations[0])
    return python
