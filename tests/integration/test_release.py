"""The release: built by one command, and installed where there is nothing but Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import bmgd
from tests.integration.wheels import ROOT, sources_of

IN_SDIST = [
    ".ci/run",
    "CHANGELOG.md",
    "README.md",
    "bmgd/_engine.c",
    "bmgd/_forwarding.h",
    "bmgd/shell/page/page.js",
    "deploy/Dockerfile",
    "docker-compose.yml",
    "docs/operations.md",
    "docs/page.png",
    "tests/golden/wire.txt",
    "tests/integration/cluster.py",
]
DEMO = ["demo", "-n", "5"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel of the present commit."""
    directory = tmp_path_factory.mktemp("release")
    sources = sources_of("HEAD", directory / "sources")
    subprocess.run([str(sources / ".ci" / "release"), str(directory / "dist")], check=True)
    (sdist,) = (directory / "dist").glob("*.tar.gz")
    (wheel,) = (directory / "dist").glob("*.whl")
    return sdist, wheel


def run_in(environment: Path, *words: str) -> str:
    """Run a command of an environment, from elsewhere, and with nothing of this one."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BMGD", "PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        [str(environment / "bin" / words[0]), *words[1:]],
        env=kept,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def bare(directory: Path, package: Path, **variables: str) -> Path:
    """A new virtual environment with the package, and what pip brings along for it."""
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    subprocess.run(
        [str(directory / "bin" / "pip"), "install", "--quiet", str(package)],
        env={**os.environ, **variables},
        check=True,
    )
    return directory


def backend_of(environment: Path) -> str:
    ask = "import bmgd.routing; from bmgd.shell.engines import choose_engine;"
    return run_in(
        environment, "python", "-c", ask + "print(bmgd.routing.BACKEND, choose_engine()[0])"
    )


def test_version_is_said_in_one_place() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not re.search(r'^version = "', project, re.MULTILINE)
    assert bmgd.__version__ not in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_release_has_what_it_needs(release: tuple[Path, Path]) -> None:
    sdist, wheel = release
    assert sdist.name == f"bmgd-{bmgd.__version__}.tar.gz"
    assert wheel.name.startswith(f"bmgd-{bmgd.__version__}-cp")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert set(IN_SDIST) <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    in_wheel = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in in_wheel} == {"bmgd"}
    assert not [name for name in in_wheel if name.endswith((".c", ".h"))]


@pytest.mark.long
def test_wheel_runs_in_a_bare_environment(release: tuple[Path, Path], tmp_path: Path) -> None:
    environment = bare(tmp_path / "bare", release[1])
    assert run_in(environment, "bmgd", "--version") == f"bmgd {bmgd.__version__}\n"
    assert backend_of(environment) == "c c\n"
    assert "all 5 joined" in run_in(environment, "bmgd", *DEMO)


@pytest.mark.long
def test_sdist_installs_without_a_compiler(release: tuple[Path, Path], tmp_path: Path) -> None:
    environment = bare(tmp_path / "bare", release[0], CC="/bin/false")
    assert backend_of(environment) == "python python\n"
    assert "all 5 joined" in run_in(environment, "bmgd", *DEMO)
