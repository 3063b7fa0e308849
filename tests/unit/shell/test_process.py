"""A daemon's process: how often it looks for garbage, and the descriptors that it needs."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bmgd.shell.process import DESCRIPTORS_MIN

_NOTED = """
import gc
from random import Random
from bmgd.core.effects import Send
from bmgd.core.events import Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.flight.recorder import FlightRecorder
from bmgd.peers import PeerList
from bmgd.shell.process import look_for_garbage_rarely
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.link_messages import Ping, Pong

if {rarely}:
    look_for_garbage_rarely()
settings = Settings(NodeId(0), 8, PeerList(template="host{{id}}:1"), "host0:1")
node = Node(settings, Incarnation(1 << 32), Random(1), 0)
recorder = FlightRecorder(node, 0, 8 << 20, steps_per_s=10**9)
gc.collect()
before = [row["collections"] for row in gc.get_stats()]
for number in range(30_000):
    event = Received(LinkId(1), Ping(number))
    recorder.note(number * 100_000, event, [Send(LinkId(1), Pong(number))])
print(sum(row["collections"] for row in gc.get_stats()) - sum(before))
"""


def collections(*, rarely: bool) -> int:
    """How often Python looked for garbage while 30,000 steps were noted."""
    script = _NOTED.format(rarely=rarely)
    words = [sys.executable, "-c", script]
    return int(subprocess.run(words, capture_output=True, check=True, text=True).stdout)


def test_recorder_makes_python_look_for_garbage_rarely() -> None:
    assert 20 * collections(rarely=True) < collections(rarely=False)


@pytest.mark.parametrize(
    "words",
    [
        [
            "run",
            "--id",
            "0",
            "--size",
            "1",
            "--peers",
            "127.0.0.1:7999",
            "--control",
            "unix:d.sock",
        ],
        ["launch", "-n", "2", "--run-dir", "."],
    ],
    ids=["run", "launch"],
)
@pytest.mark.parametrize("limit", [12, DESCRIPTORS_MIN - 1])
def test_process_that_may_have_too_few_descriptors_ends_with_a_line(
    tmp_path: Path, words: list[str], limit: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bmgd", *words],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert ended.returncode != 0
    (line,) = ended.stderr.splitlines()
    assert f"may have {limit} descriptors, and needs {DESCRIPTORS_MIN} or more" in line
