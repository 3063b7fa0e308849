"""The digest of a run: equal for equal seeds, in any process; else something is not deterministic."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final, get_args

from bmgd.core.effects import Effect
from bmgd.core.events import Event
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.sim.timeline import Timeline

_NUMBER_OF: Final = {kind: number for number, kind in enumerate(get_args(Event))}
_STEP: Final = struct.Struct(">QIBI")


class Trace(Watcher):
    """Hashes every step of every core and all bytes that arrive.

    Args:
        timeline: where the time is.

    Attributes:
        steps: how many events cores took.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.steps = 0
        self._timeline = timeline
        self._hash = hashlib.blake2b(digest_size=16)

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self.steps += 1
        now_ns = self._timeline.now_ns
        self._hash.update(_STEP.pack(now_ns, host.id, _NUMBER_OF[type(event)], len(effects)))

    def on_chunk(self, sender: Host, receiver: Host, data: bytes) -> None:
        """Bytes arrived."""
        self._hash.update(data)

    def add(self, text: str) -> None:
        """Something else that must be the same."""
        self._hash.update(text.encode())

    def digest(self) -> str:
        """32 hexadecimal digits over all until now."""
        return self._hash.hexdigest()
