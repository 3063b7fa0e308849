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
    """A file that takes nothing: on a disk without room, or of a terminal that is gone."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, os.strerror(self._number))


def launched(monkeypatch: pytest.MonkeyPatch, printed: Full) -> int:
    """What `bmgd launch` gives that prints to this file."""

    def run(*_: object, show: Any, flush: Any, **__: object) -> int:
        for daemon in range(2):
            show({"event": "ready", "id": daemon, "at": 0.0})
            flush()
        return 7

    parser = ArgumentParser()
    launch.configure(parser)
    monkeypatch.setattr(launcher, "launch", run)
    monkeypatch.setattr(sys, "stdout", printed)
    return launch.run(parser.parse_args(["-n", "2"]))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_launch_goes_on_when_nothing_takes_its_output(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    printed = Full(number)
    assert launched(monkeypatch, printed) == 7
    # Each line once: what could not be written is not kept.
    assert len(printed.getvalue().splitlines()) == 2


def test_launch_ends_when_the_reader_of_its_output_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BrokenPipeError):
        launched(monkeypatch, Full(errno.EPIPE))
