"""The progress line: it comes by itself, and takes the process down when nobody is left to read it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from itertools import count
from types import SimpleNamespace

import pytest

from bmgd.lab.progress import ProgressLine

DEADLINE_S = 30.0

ORPHAN = """
import os, time
from bmgd.lab.progress import ProgressLine
if os.fork() == 0:
    with ProgressLine("orphan"):
        print(os.getpid(), flush=True)
        time.sleep(3600)
else:
    input()
    os._exit(0)
"""


def test_progress_line_comes_after_a_second_with_the_newest_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    # However late it runs, a second has passed between two looks at the clock.
    seconds = count(0.0)
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("bmgd.lab.progress.time", clock)
    deadline_s = time.monotonic() + DEADLINE_S
    with ProgressLine("sample") as line:
        line.tell(" 10 %  early")
        line.tell(" 50 %  N = 9")
        while not shown.getvalue().endswith("\n"):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    assert shown.getvalue() == "sample: 1 s   50 %  N = 9\n"


def test_progress_line_comes_though_its_thread_wakes_up_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    looks = iter([0.0, 1.6, 2.6, 5.6, 6.6, 9.4, 11.7])
    monkeypatch.setattr("bmgd.lab.progress.time", SimpleNamespace(monotonic=lambda: next(looks)))
    line = ProgressLine("sample")
    ends = iter([False] * 6 + [True])
    monkeypatch.setattr(line, "_ended", SimpleNamespace(wait=lambda _: next(ends)))
    line._print()
    assert shown.getvalue() == "sample: 2 s\nsample: 6 s\nsample: 12 s\n"


def test_progress_line_of_a_short_run_does_not_come(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressLine("sample") as line:
        line.tell("100 %")
    assert capfd.readouterr().err == ""


def test_progress_line_ends_a_process_whose_parent_has_died() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    orphan = int(parent.stdout.readline())
    os.kill(orphan, 0)
    parent.stdin.write("go\n")
    parent.stdin.flush()
    # The orphan holds the other end of the pipe: its end is the pipe's.
    assert parent.stdout.read() == ""
    assert parent.wait(DEADLINE_S) == 0
