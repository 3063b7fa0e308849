"""How often a daemon looks for garbage while its flight recorder keeps what its core did."""

from __future__ import annotations

import subprocess
import sys

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
