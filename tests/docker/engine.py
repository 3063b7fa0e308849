"""The Docker engine as tests use it: commands, the image under test, and no trace left behind."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND_TIMEOUT_S = 300.0
SOURCES = ("bmgd", "deploy", "pyproject.toml", "README.md", "LICENSE", ".dockerignore")
"""What the image is built from; a copy, because others may edit and build in the checkout."""

_MADE_LAYER = re.compile(r"^ ---> ([0-9a-f]{12})$", re.MULTILINE)


def run(
    *command: str | Path,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end.

    Raises:
        AssertionError: it failed and `check` is set; what it wrote is part of the message.
    """
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        capture_output=True,
        timeout=COMMAND_TIMEOUT_S,
        env=os.environ | environment if environment else None,
        check=False,
    )
    if check and done.returncode != 0:
        shown = " ".join(str(word) for word in command)
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise AssertionError(f"exit code {done.returncode} from: {shown}\n{output}")
    return done


def output_of(*command: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """What a command wrote on stdout, without white space around it."""
    return run(*command, environment=environment).stdout.decode().strip()


def need_engine() -> None:
    """Skip the test where no Docker engine answers, and only there."""
    if shutil.which("docker") is None:
        pytest.skip("no Docker engine answers: the command docker is not installed")
    asked = run("docker", "info", check=False)
    if asked.returncode != 0:
        lines = asked.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        pytest.skip(f"no Docker engine answers: {lines[-1]}")


def compose_command() -> list[str]:
    """`docker compose` where the plugin is installed, else `docker-compose`."""
    if run("docker", "compose", "version", check=False).returncode == 0:
        return ["docker", "compose"]
    assert shutil.which("docker-compose"), (
        "neither `docker compose` nor docker-compose is installed"
    )
    return ["docker-compose"]


@contextmanager
def built_image(work: Path) -> Iterator[str]:
    """Build the image from this checkout, without an image registry; remove it at the end."""
    base = output_of(ROOT / ".ci" / "docker-base")
    context = work / "context"
    context.mkdir()
    for name in SOURCES:
        _copy(ROOT / name, context / name)
    _make_wheels(context, _python_for(base))
    image = f"bmgd-test:{os.getpid()}-{secrets.token_hex(4)}"
    before = set(output_of("docker", "images", "--all", "--quiet").split())
    log = ""
    try:
        log = output_of(
            "docker", "build", "--file", context / "deploy" / "Dockerfile",
            "--build-arg", f"BASE={base}", "--tag", image, context,
        )  # fmt: skip
        yield image
    finally:
        run("docker", "rmi", image, check=False)
        # The classic builder leaves the layers of the first stage behind; newest first, since each
        # holds its parent. Those that others use too are refused.
        for layer in reversed(_MADE_LAYER.findall(log)):
            if layer not in before:
                run("docker", "rmi", layer, check=False)


def _copy(source: Path, target: Path) -> None:
    unwanted = shutil.ignore_patterns("*.so", "__pycache__", "wheels", "secret")
    if source.is_dir():
        shutil.copytree(source, target, ignore=unwanted)
    else:
        shutil.copy(source, target)


def _python_for(base: str) -> str:
    """An interpreter on this machine whose wheels fit the image's."""
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = output_of("docker", "run", "--rm", base, "python3", "-c", show)
    for python in (sys.executable, f"python{version}", "python3"):
        if shutil.which(python) is None:
            continue
        if output_of(python, "-c", show) != version:
            continue
        if run(python, "-m", "pip", "--version", check=False).returncode == 0:
            return python
    raise AssertionError(
        f"{base} has Python {version}; its wheels need a Python {version} with pip on this machine,"
        " or another release of Debian as base: SUITE=... (see .ci/docker-base)"
    )


def _make_wheels(context: Path, python: str) -> None:
    wheels = context / "deploy" / "wheels"
    run(python, "-m", "pip", "wheel", "--quiet", "--wheel-dir", wheels, context)
    shutil.rmtree(context / "build", ignore_errors=True)


def logs_of(container: str) -> Sequence[str]:
    """The lines that a container wrote, each behind the engine's time stamp (UTC)."""
    done = run("docker", "logs", "--timestamps", container)
    return (done.stdout + done.stderr).decode(errors="replace").splitlines()
