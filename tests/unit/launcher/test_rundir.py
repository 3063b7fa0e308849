"""The directories of a local cluster, and what is left of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from bmgd.config import CONTROL_PATH_BYTES_MAX
from bmgd.errors import ConfigError
from bmgd.launcher.rundir import RunDir, find_member


@pytest.mark.parametrize("recordings", [(), ("flight-1-asked.bmgdrec",)])
def test_directory_of_sockets_goes_unless_a_recording_is_in_it(
    tmp_path: Path, recordings: tuple[str, ...]
) -> None:
    place = RunDir.at(str(tmp_path / ("x" * CONTROL_PATH_BYTES_MAX)))
    assert place.sockets != place.path
    lock = place.prepare()
    try:
        # Where they have no other place, daemons write recordings beside their sockets.
        for name in ("node-1.sock", *recordings):
            Path(place.sockets, name).touch()
        place.clear()
        place.remove_sockets_dir()
        left = tuple(os.listdir(place.sockets)) if os.path.isdir(place.sockets) else ()
        assert left == recordings
    finally:
        os.close(lock)
        for name in recordings:
            Path(place.sockets, name).unlink()
        place.remove_sockets_dir()


@pytest.mark.parametrize("name", ["run", "x" * CONTROL_PATH_BYTES_MAX])
def test_directory_that_somebody_has_removed_is_no_error_at_the_end(
    tmp_path: Path, name: str
) -> None:
    place = RunDir.at(str(tmp_path / name))
    lock = place.prepare()
    try:
        for directory in {place.path, place.sockets}:
            shutil.rmtree(directory)
        place.clear()
        place.remove_sockets_dir()
    finally:
        os.close(lock)


@pytest.mark.parametrize("content", ['{"nodes":[]}', "[" * 100_000])
def test_cluster_file_without_daemons_or_of_too_deep_json_is_not_that_of_a_launcher(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=f"{path} is not the file of a launcher"):
        find_member(str(tmp_path), 0)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"control": "tcp:7400"}, "not a control address of the form unix:PATH: 'tcp:7400'"),
        ({"control": ""}, "not a control address of the form unix:PATH: ''"),
        ({"control": None}, "not a control address of the form unix:PATH: None"),
        ({"control": "unix:/" + "x" * 200}, "the control path has more than 107 bytes"),
        ({"pid": "1"}, "not a process id: '1'"),
        ({"pid": True}, "not a process id: True"),
        ({"pid": -1}, "not a process id: -1"),
        ({"id": "0"}, "not a node id: '0'"),
        ({"id": float("inf")}, "not a node id: inf"),
    ],
)
def test_cluster_file_with_a_wrong_value_is_named_by_the_error(
    tmp_path: Path, wrong: dict[str, object], reason: str
) -> None:
    right = {"id": 0, "pid": None, "address": "127.0.0.1:7400", "control": "unix:/run/0.sock"}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"nodes": [right]}))
    assert find_member(str(tmp_path), 0).control == "unix:/run/0.sock"
    path.write_text(json.dumps({"nodes": [{**right, **wrong}]}))
    with pytest.raises(ConfigError) as refused:
        find_member(str(tmp_path), 0)
    assert str(refused.value).startswith(f"{path} is not the file of a launcher: {reason}")
