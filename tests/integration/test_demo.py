"""The README's first command: it shows what happens, verifies it, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from bmgd.cli.demo import STEP_S
from tests.integration.ports import free_base_port
from tests.processes import runs

DEADLINE_S = 2 * STEP_S


def demo(*words: str, tmp: Path) -> subprocess.Popen[str]:
    """Start the demonstration."""
    return subprocess.Popen(
        [sys.executable, "-m", "bmgd", "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp)},
        start_new_session=True,
    )


def descendants(pid: int) -> list[psutil.Process]:
    """The processes that a process has started, and those that these have."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def test_demo_shows_everything_and_verifies_it(tmp_path: Path) -> None:
    process = demo("-n", "7", tmp=tmp_path)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    for part in (
        "node 6 joined",
        "42 messages confirmed and received",
        "killing node 2",
        "node 0 hears that node 2 is excluded",
        "all 6 others know",
        "all links are those of the healed graph",
        "30 messages confirmed and received",
        "summary",
        "everything was verified",
    ):
        assert part in out
    assert list(tmp_path.iterdir()) == []


def test_demo_as_json(tmp_path: Path) -> None:
    process = demo("-n", "3", "--json", tmp=tmp_path)
    out, _ = process.communicate(timeout=DEADLINE_S)
    summary = json.loads(out)
    assert process.returncode == 0
    assert summary["kill to the last survivor told, ms"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_demo_that_is_ended_leaves_no_process(tmp_path: Path, number: int) -> None:
    # With a page it goes on until it is told to end.
    process = demo("-n", "5", "--http", str(free_base_port(5)), tmp=tmp_path)
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if "all 5 joined" in line:
            break
    started = descendants(process.pid)
    if len(started) < 5:
        # Launcher, zygote, and three daemons at least. By now it may have killed its first victim, for
        # good, and one of the others, which are killed and started again one at a time.
        process.kill()
        pytest.fail(f"{started}\n{shown}\n{process.communicate()[1]}")
    # As a terminal does it on Ctrl-C, to the whole group; SIGKILL meets the one process only.
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert "Traceback" not in err
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []
    deadline_s = time.monotonic() + 30
    while any(map(runs, started)):
        assert time.monotonic() < deadline_s, "processes are left"
        time.sleep(0.01)


def test_demo_serves_the_page_and_goes_on_until_it_is_told_to_end(tmp_path: Path) -> None:
    port = free_base_port(5)
    process = demo("-n", "5", "--http", str(port), "--rounds", "1", tmp=tmp_path)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    for part in (
        f"the page: http://127.0.0.1:{port}/#token=",
        "killing node",
        "starting node",
        "everything was verified",
    ):
        assert part in out
    assert list(tmp_path.iterdir()) == []


def test_demo_with_the_page_ends_at_an_interrupt(tmp_path: Path) -> None:
    port = free_base_port(5)
    process = demo("-n", "5", "--http", str(port), tmp=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "starting node" in line:
            break
    assert (
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30).read() == b"ready\n"
    )
    # As a terminal does it: to the whole group.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    assert "everything was verified" in out
    assert list(tmp_path.iterdir()) == []
