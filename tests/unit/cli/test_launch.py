"""What `bmgd launch` prints, where nothing takes it."""

from __future__ import annotations

import json
import os
import pty
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bmgd.cli import launch
from bmgd.launcher import launch as launcher


def launched(monkeypatch: pytest.MonkeyPatch, descriptor: int, *words: str) -> int:
    """What `bmgd launch` gives that prints there."""

    def run(*_: object, show: Any, flush: Any, **__: object) -> int:
        for daemon in range(2):
            show({"event": "ready", "id": daemon, "at": 0.0})
            assert not flush()
        return 7

    parser = ArgumentParser()
    launch.configure(parser)
    monkeypatch.setattr(launcher, "launch", run)
    with open(descriptor, "w", closefd=False) as printed:
        monkeypatch.setattr(sys, "stdout", printed)
        return launch.run(parser.parse_args(["-n", "2", *words]))


@pytest.fixture(params=["full", "gone"])
def takes_nothing(request: pytest.FixtureRequest) -> Iterator[int]:
    """A disk without room, or a terminal that is gone."""
    if request.param == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        ours, descriptor = pty.openpty()
        os.close(ours)
    yield descriptor
    os.close(descriptor)


def test_launch_goes_on_when_nothing_takes_its_output(
    monkeypatch: pytest.MonkeyPatch, takes_nothing: int
) -> None:
    assert launched(monkeypatch, takes_nothing) == 7


def test_launch_prints_each_event_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        assert launched(monkeypatch, out.fileno(), "--json") == 7
    events = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [(event["event"], event["id"]) for event in events] == [("ready", 0), ("ready", 1)]


def test_launch_ends_when_the_reader_of_its_output_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, descriptor = os.pipe()
    os.close(ours)
    try:
        with pytest.raises(BrokenPipeError):
            launched(monkeypatch, descriptor)
    finally:
        os.close(descriptor)
