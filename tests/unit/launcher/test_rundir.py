"""Whose run directory is believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bmgd.errors import ConfigError, NoDaemonError
from bmgd.launcher import rundir
from bmgd.launcher.rundir import default_run_dir, read_members

NODE = {"id": 0, "pid": 4711, "address": "127.0.0.1:7400", "control": "unix:/tmp/else.sock"}


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is in the place of ``/tmp/bmgd-UID``; not there yet."""
    path = tmp_path / "bmgd-default"
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(rundir, "_shared_default", lambda: str(path))
    return path


def put_cluster(path: Path) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    (path / "cluster.json").write_text(json.dumps({"nodes": [NODE]}))


def test_default_run_dir_of_this_user_is_read(default: Path) -> None:
    assert default_run_dir() == str(default)
    with pytest.raises(NoDaemonError):
        read_members(default_run_dir())
    put_cluster(default)
    assert [member.pid for member in read_members(default_run_dir())] == [4711]


def test_default_run_dir_of_another_user_is_not_believed(
    default: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_cluster(default)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(ConfigError, match="is not a directory of this user"):
        read_members(default_run_dir())


def test_default_run_dir_that_is_a_link_or_open_to_others_is_not_believed(
    default: Path, tmp_path: Path
) -> None:
    put_cluster(tmp_path / "elsewhere")
    default.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is not a directory of this user"):
        read_members(default_run_dir())
    default.unlink()
    put_cluster(default)
    default.chmod(0o777)
    with pytest.raises(ConfigError, match="others can write"):
        read_members(default_run_dir())


def test_run_dir_that_is_named_may_be_anybodys(
    default: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_cluster(tmp_path / "named")
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert len(read_members(str(tmp_path / "named"))) == 1
