"""Simulated clusters whose cores have flight recorders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bmgd.core.effects import Effect
from bmgd.core.events import Event
from bmgd.flight.recorder import FlightRecorder
from bmgd.flight.recording import Head, Recording, frames, read
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.sim.timeline import Timeline
from bmgd.types import NodeId

LIMIT_BYTES = 64 * 2**20


class Flights(Watcher):
    """Gives each core of a network a recorder from its boot on.

    Args:
        timeline: of the network.
        limit_bytes: of each recorder.
    """

    def __init__(self, timeline: Timeline, limit_bytes: int = LIMIT_BYTES) -> None:
        self._timeline = timeline
        self._limit_bytes = limit_bytes
        self.all: list[tuple[NodeId, FlightRecorder]] = []
        self.noted = 0
        self._of: dict[int, FlightRecorder] = {}

    def boot(self, host: Host) -> None:
        now_ns = host.local_ns(self._timeline.now_ns)
        recorder = FlightRecorder(host.node, now_ns, self._limit_bytes, steps_per_s=10**9)
        self._of[id(host)] = recorder
        self.all.append((host.id, recorder))

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self.noted += 1
        now_ns = host.local_ns(self._timeline.now_ns)
        self._of[id(host)].note(now_ns, event, list(effects))


def written(recorder: FlightRecorder, path: Path, node_id: int = 0) -> Recording:
    """What is read from a file of it."""
    head = Head(node_id, "test", 1, 0, 0, "test")
    path.write_bytes(b"".join(frames(head, recorder.segments)))
    return read(str(path))
