"""`bmgd record` waits for the file that its daemon writes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bmgd.cli import record
from bmgd.errors import SilentDaemonError
from bmgd.shell import flight

DEADLINE_S = 30.0


def test_record_and_its_daemon_have_the_same_name_for_a_file_that_is_not_whole() -> None:
    assert record.PART == flight.PART


def test_record_waits_until_the_file_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, part = tmp_path / "a.bmgdrec", tmp_path / ("a.bmgdrec" + record.PART)
    part.touch()
    has_looked = threading.Event()
    monkeypatch.setattr("time.sleep", lambda _: has_looked.set())
    waiting = threading.Thread(target=record.wait_for, args=(str(path), DEADLINE_S))
    waiting.start()
    assert has_looked.wait(DEADLINE_S)
    assert waiting.is_alive()
    part.rename(path)
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()


def test_record_fails_when_nobody_writes_the_file(tmp_path: Path) -> None:
    with pytest.raises(SilentDaemonError, match="was not written: the daemon's log says why"):
        record.wait_for(str(tmp_path / "a.bmgdrec"), DEADLINE_S)


def test_record_fails_when_the_file_is_not_whole_in_time(tmp_path: Path) -> None:
    (tmp_path / ("a.bmgdrec" + record.PART)).touch()
    with pytest.raises(SilentDaemonError, match=r"not there after 0\.1 s"):
        record.wait_for(str(tmp_path / "a.bmgdrec"), 0.1)
