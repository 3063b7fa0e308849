"""The flight recorder of a daemon: its files, and that its own failure is not its daemon's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bmgd.config import Config
from bmgd.core.events import DeadlineReached
from bmgd.errors import ConfigError, RequestError
from bmgd.flight.recorder import INTERVAL_NS
from bmgd.flight.recording import read
from bmgd.peers import PeerList
from bmgd.shell.daemon import Daemon
from bmgd.shell.flight import FILES_MAX, Flight, prepare_directory
from bmgd.sim import Network
from bmgd.types import NodeId


class Made:
    """A flight that records a simulated core, and what it told."""

    def __init__(self, directory: Path) -> None:
        self.told: list[str] = []
        self.begun: list[Any] = []
        network = Network(4)
        network.run(3.0)
        self.node = network.hosts[NodeId(1)].node
        self.config = Config(id=1, size=4, peers=PeerList(), flight_dir=str(directory))
        self.flight = Flight(self.config, self.begun.append, self._tell, self._tell)
        self.note = self.flight.begin(self.node, self.config, 0, None)

    def _tell(self, event: str, text: str) -> None:
        self.told.append(text)

    async def record(self) -> Path:
        """Let it write a file to its end."""
        path = Path(str(self.flight.record()["path"]))
        await self.begun.pop()
        return path


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def in_there(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def fail(*_: object, **__: object) -> Any:
    raise MemoryError("a lack of the recorder")


def test_flight_whose_recorder_fails_says_so_and_records_no_more(made: Made) -> None:
    made.flight.give_up(MemoryError())
    assert "MemoryError" in made.told[0]
    with pytest.raises(RequestError, match="recorder failed"):
        made.flight.record()
    made.flight.note_failure(1, DeadlineReached())
    assert made.flight.write_now("bug") == ""


def test_flight_tells_of_the_cores_failure_whatever_the_recorder_does(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.flight.recorder.FlightRecorder.note_failure", fail)
    made.flight.note_failure(1, DeadlineReached())
    assert "a lack of the recorder" in made.told[0]


async def test_flight_that_cannot_write_a_file_goes_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("bmgd.flight.recording._frame", fail)
        await made.record()
        assert made.flight.write_now("bug") == ""
    assert len(made.told) == 2
    assert read(str(await made.record())).whole


async def test_flight_whose_bmgd_was_replaced_on_the_disk_goes_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What writes a file is imported when one is asked for; None stands for what cannot be imported.
    monkeypatch.setitem(sys.modules, "bmgd.flight.recording", None)
    await made.record()
    assert in_there(tmp_path) == []
    assert made.flight.write_now("bug") == ""
    assert len(made.told) == 2


@pytest.mark.parametrize("error", [ImportError("replaced"), OSError(24, "no descriptor is free")])
def test_flight_whose_classes_cannot_be_loaded_goes_on_and_says_why(
    made: Made, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def lack() -> Any:
        raise error

    assert made.note is not None
    monkeypatch.setattr("bmgd.flight.catalog.names", lack)
    made.note(INTERVAL_NS + 1, DeadlineReached(), [])
    assert made.flight.write_now("bug") == ""
    assert str(error) in made.told[0]


async def test_flight_of_a_step_that_cannot_be_recorded_says_why_and_leaves_no_file(
    made: Made, tmp_path: Path
) -> None:
    assert made.note is not None
    unlisted: Any = object()
    made.note(1, unlisted, [])
    await made.record()
    assert "builtins.object" in made.told[0]
    assert in_there(tmp_path) == []
    assert made.flight.write_now("bug") == ""


def test_flight_without_a_recorder_where_none_can_be_made(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.shell.flight.FlightRecorder", fail)
    assert made.flight.begin(made.node, made.config, 0, None) is None


async def test_flight_keeps_the_file_that_it_wrote_when_the_clock_was_set_back(
    made: Made, tmp_path: Path
) -> None:
    for number in range(FILES_MAX):
        later = tmp_path / f"flight-1-20990101T000000Z-77-{number}-asked.bmgdrec"
        later.touch()
        os.utime(later, (4e9 + number, 4e9 + number))
    path = await made.record()
    left = in_there(tmp_path)
    assert path.name in left
    assert len(left) == FILES_MAX
    assert not any("-77-0-" in name for name in left), "the oldest of the others has gone"


async def test_flight_that_is_written_because_of_a_bug_keeps_as_many_files(
    made: Made, tmp_path: Path
) -> None:
    for _ in range(FILES_MAX + 3):
        assert made.flight.write_now("bug")
    assert len(in_there(tmp_path)) == FILES_MAX


async def test_flight_removes_what_daemons_left_unfinished_that_have_ended(
    made: Made, tmp_path: Path
) -> None:
    gone = 2**22 + 1
    names = [
        f"flight-1-20260101T000000Z-{pid}-9-asked.bmgdrec.part" for pid in (gone, os.getpid(), 1)
    ]
    others = f"flight-2-20260101T000000Z-{gone}-9-asked.bmgdrec.part"
    for name in (*names, others):
        (tmp_path / name).touch()
    path = await made.record()
    assert in_there(tmp_path) == sorted((path.name, names[2], others))


async def test_flight_that_ends_by_a_bug_leaves_the_file_that_is_being_written(
    made: Made, tmp_path: Path
) -> None:
    made.flight.record()
    assert made.flight.write_now("bug")
    await made.begun.pop()
    assert len(in_there(tmp_path)) == 2


# --- the directory --------------------------------------------------------------------------------


def config_with(directory: Path, **more: Any) -> Config:
    peers = PeerList.parse("127.0.0.1:7400", 1)
    return Config(id=0, size=1, peers=peers, flight_dir=str(directory), **more)


def test_flight_directory_is_made_for_its_owner_where_there_is_none(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    prepare_directory(config_with(directory, flight_bytes=0))
    assert not in_there(tmp_path), "nothing is recorded"
    for _ in range(2):
        prepare_directory(config_with(directory))
        assert directory.stat().st_mode & 0o777 == 0o700


def test_daemon_does_not_start_with_a_flight_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"flight directory {path}: "):
            Daemon(config_with(path))


def test_flight_directory_in_which_nothing_can_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="no recording can be written there"):
        prepare_directory(config_with(tmp_path))
