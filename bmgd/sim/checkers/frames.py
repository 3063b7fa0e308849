"""Frames are what docs/wire-protocol.md says, by a reader that shares nothing with the codec."""

from __future__ import annotations

from typing import ClassVar, Final

from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.witness.frames import differences
from bmgd.wire.messages import Message

FIRST: Final = 8
EVERY: Final = 100
"""Of the messages of one class the first ones are looked at, and then every so many'th."""
_LENGTH_BYTES: Final = 4


class FramesMeanWhatTheySay(Checker):
    """A frame is, to the last byte, the message that a core ordered, and is read as what it says."""

    name: ClassVar[str] = "frames-mean-what-they-say"
    events: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._written: dict[type, int] = {}
        self._read: dict[type, int] = {}
        scene.network.wires.watch_frames(self.on_written, self.on_read)

    def on_written(self, message: Message, frame: bytes) -> None:
        """A host has made a frame of a message."""
        kind = type(message)
        count = self._written[kind] = self._written.get(kind, 0) + 1
        if count > FIRST and count % EVERY:
            return
        body = frame[_LENGTH_BYTES:]
        if int.from_bytes(frame[:_LENGTH_BYTES], "big") != len(body):
            self.violate(None, f"{kind.__name__}: a length of {frame[:_LENGTH_BYTES].hex()}")
            return
        self._look(message, body, "written")

    def on_read(self, body: bytes, message: Message) -> None:
        """A host has read a frame."""
        kind = type(message)
        count = self._read[kind] = self._read.get(kind, 0) + 1
        if count <= FIRST or not count % EVERY:
            self._look(message, body, "read")

    def _look(self, message: Message, body: bytes, done: str) -> None:
        text = differences(message, body, is_own=True)
        if text:
            self.violate(None, f"{done}: {text}")
