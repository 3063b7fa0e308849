"""Coming before others for processor time ends with the trial, for the whole session of its process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from bmgd.trials.priority import _nice_of_session, hurrying
before = _nice_of_session()
try:
    with hurrying():
        raise KeyError
except KeyError:
    pass
assert _nice_of_session() == before, (before, _nice_of_session())
"""


def test_session_has_its_share_again_when_what_hurried_is_over() -> None:
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(
        command, start_new_session=True, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
