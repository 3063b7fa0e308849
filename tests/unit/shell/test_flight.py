"""The flight recorder of a daemon: its files, and that its own failure is not its daemon's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bmgd.config import Config
from bmgd.core.events import DeadlineReached
from bmgd.errors import RequestError
from bmgd.flight.recording import read
from bmgd.peers import PeerList
from bmgd.shell.flight import Flight
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


def fail(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a fault of the recorder")


def test_flight_whose_recorder_fails_says_so_and_records_no_more(made: Made) -> None:
    made.flight.give_up(ZeroDivisionError())
    assert "ZeroDivisionError" in made.told[0]
    with pytest.raises(RequestError, match="recorder failed"):
        made.flight.record()
    made.flight.note_failure(1, DeadlineReached())
    assert made.flight.write_now("bug") == ""


def test_flight_tells_of_the_cores_failure_whatever_the_recorder_does(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.flight.recorder.FlightRecorder.note_failure", fail)
    made.flight.note_failure(1, DeadlineReached())
    assert "a fault of the recorder" in made.told[0]


async def test_flight_that_cannot_write_a_file_goes_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("bmgd.flight.recording._frame", fail)
        await made.record()
        assert made.flight.write_now("bug") == ""
    assert len(made.told) == 2
    assert read(str(await made.record())).whole


def test_flight_without_a_recorder_where_none_can_be_made(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.shell.flight.FlightRecorder", fail)
    assert made.flight.begin(made.node, made.config, 0, None) is None
