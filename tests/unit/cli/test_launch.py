"""What `bmgd launch` prints, where nothing takes it."""

from __future__ import annotations

import errno
import io
import os
import sys
from argparse import ArgumentParser
from typing import Any

import pytest

from bmgd.cli import launch
from bmgd.launcher import launch as launcher


class Full(io.StringIO):
    """A file on a disk without room."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_launch_goes_on_when_the_disk_of_its_output_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(*_: object, show: Any, flush: Any, **__: object) -> int:
        for daemon in range(2):
            show({"event": "ready", "id": daemon, "at": 0.0})
            flush()
        return 7

    parser = ArgumentParser()
    launch.configure(parser)
    monkeypatch.setattr(launcher, "launch", run)
    printed = Full()
    monkeypatch.setattr(sys, "stdout", printed)
    assert launch.run(parser.parse_args(["-n", "2"])) == 7
    # Each line once: what could not be written is not kept.
    assert len(printed.getvalue().splitlines()) == 2
