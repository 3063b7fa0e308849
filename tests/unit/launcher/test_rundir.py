"""The directories of a local cluster, and what is left of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bmgd.config import CONTROL_PATH_BYTES_MAX
from bmgd.launcher.rundir import RunDir


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
