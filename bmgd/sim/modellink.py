"""One link as an engine must treat it, kept the simplest way: whole frames in lists.

Bytes that are taken from a link must be the next ones of: what was put raw, the frame that was begun,
control, high, bulk, the goodbye. Of eight bytes one is bulk's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from bmgd import frameheader as header
from bmgd.linklayer import contract
from bmgd.linklayer.outbox import BULK_SHARE, BULK_TURN_BYTES
from bmgd.sim.framebytes import kind_of

LOSE_NOTHING: Final = "links-lose-nothing"
OVERTAKE: Final = "urgent-overtakes-bulk"

Broken = tuple[str, str]
"""The name of a rule that does not hold, and what was done."""


@dataclass(slots=True, eq=False)
class FrameQueue:
    """Whole frames, with their length prefixes."""

    frames: deque[bytes] = field(default_factory=deque)
    size_bytes: int = 0

    def put(self, frames: list[bytes]) -> None:
        self.frames.extend(frames)
        self.size_bytes += sum(map(len, frames))

    def pop(self) -> bytes:
        frame = self.frames.popleft()
        self.size_bytes -= len(frame)
        return frame


@dataclass(slots=True, eq=False)
class ModelLink:
    """One link.

    Attributes:
        begun, begun_at: the frame of which a part was taken, and how much.
        is_shut: it takes no more; the goodbye goes last.
        hears: what comes is still looked at.
        said: the goodbye was taken.
        rest: the beginning of a frame that is not whole.
        awaited_bytes: how long that frame is, with its length prefix; 0 for not known.
        accepted, came: count the frames that were put, and that came before the goodbye.
    """

    came_from: int
    raw: bytes = b""
    begun: bytes = b""
    begun_at: int = 0
    control: FrameQueue = field(default_factory=FrameQueue)
    high: FrameQueue = field(default_factory=FrameQueue)
    bulk: FrameQueue = field(default_factory=FrameQueue)
    passed_bytes: int = 0
    is_turn_of_bulk: bool = False
    goodbye: bytes = b""
    is_shut: bool = False
    hears: bool = True
    said: bool = False
    rest: bytearray = field(default_factory=bytearray)
    awaited_bytes: int = 0
    accepted: int = 0
    came: int = 0

    @property
    def backlog_bytes(self) -> int:
        begun = len(self.begun) - self.begun_at
        queued = self.control.size_bytes + self.high.size_bytes + self.bulk.size_bytes
        return len(self.raw) + begun + queued + len(self.goodbye)

    def unsent(self) -> list[bytes]:
        """The bodies of routed frames of which a byte was not taken."""
        begun = [self.begun] if self.begun else []
        frames = [*begun, *self.control.frames, *self.high.frames, *self.bulk.frames]
        return [frame[header.LENGTH_BYTES :] for frame in frames if kind_of(frame) >= 0x40]

    def queue(self, kind: int) -> FrameQueue:
        """Where frames of a kind wait."""
        match kind:
            case contract.BULK:
                return self.bulk
            case contract.HIGH:
                return self.high
        return self.control

    def waiting_bytes(self, kind: int) -> int:
        """What of a kind waits."""
        return len(self.raw) if kind == contract.RAW else self.queue(kind).size_bytes

    def consume(self, taken: bytes) -> Broken | None:
        """Bytes were taken: they must be the next ones.

        Returns:
            What is wrong with them; None where nothing is.
        """
        at = 0
        while at < len(taken):
            if self.raw:
                part = self.raw[: len(taken) - at]
                if not taken.startswith(part, at):
                    return LOSE_NOTHING, "the end of the hello is not written first"
                self.raw = self.raw[len(part) :]
            else:
                part = self._next_part(taken, at)
                if not part or not taken.startswith(part, at):
                    return self._broken(taken, at)
                self._advance(len(part))
            at += len(part)
        return None

    def _next_part(self, taken: bytes, at: int) -> bytes:
        """What of the frame that is next must begin at a place."""
        if not self.begun:
            self._begin()
        if not self.begun_at and taken.startswith(self.begun, at):
            return self.begun
        return self.begun[self.begun_at : self.begun_at + len(taken) - at]

    def _advance(self, count: int) -> None:
        self.begun_at += count
        if self.begun_at == len(self.begun):
            self.begun, self.begun_at = b"", 0

    def _broken(self, taken: bytes, at: int) -> Broken:
        bulk, is_within = self.bulk.frames, self.begun_at > 0
        is_overtaken = bool(bulk) and not is_within and taken.startswith(bulk[0][:40], at)
        rule = OVERTAKE if is_overtaken or is_within else LOSE_NOTHING
        what = "within a frame" if is_within else "what is not next"
        return rule, f"wrote {what}: {taken[at : at + 48]!r}"

    def _begin(self) -> None:
        """The next frame is begun."""
        first = self.control if self.control.frames else self.high
        if first.frames and not self.is_turn_of_bulk:
            self.begun = first.pop()
            self.passed_bytes += len(self.begun) if self.bulk.frames else 0
            self.is_turn_of_bulk = self.passed_bytes >= BULK_TURN_BYTES
        elif self.bulk.frames:
            self.begun = self.bulk.pop()
            spent = BULK_SHARE * len(self.begun)
            self.passed_bytes = max(0, self.passed_bytes - spent) if self.bulk.frames else 0
            self.is_turn_of_bulk = self.is_turn_of_bulk and self.passed_bytes > 0
        else:
            self.begun, self.goodbye = self.goodbye, b""
