"""What waits to be written to one link: in which order, how much of it, and what is left of it.

Theory of operation. What waits is written in this order:

    raw, the rest of a frame that was begun, control, high, bulk, the goodbye

*Raw* is what is no frame: the end of a hello. Control overtakes high, and both overtake bulk, between two
frames, never within one: after a partial write the frame that was begun is kept apart, with its
beginning, and what stands behind it in its run goes back to the front of its queue. So control waits for
one frame, not for a run. The goodbye is last: what was put before it goes before it. It works only
while the kernel's own unsent backlog is kept short (TCP_NOTSENT_LOWAT).

Bulk keeps an eighth of the link. Frames that overtake waiting bulk are counted; when they have
`BULK_TURN_BYTES`, it is the turn of bulk until it has sent a seventh of that. Whole frames count when
they begin, so the order of the bytes does not depend on how many a socket takes at once.

A frame of which any byte is unwritten cannot have reached the other end whole. So the frame that was
begun counts as unsent, and finds another way like those behind it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from bmgd.linklayer.frames import bodies_in, frame_end, is_routed

BULK_BYTES_MAX = 8 * 1024 * 1024
CONTROL_BYTES_MAX = 4 * 1024 * 1024
URGENT_BYTES_MAX = CONTROL_BYTES_MAX // 2
"""Urgent frames of others have half of control's room: they must not cost a link its own control."""
HIGH_BYTES_MAX = URGENT_BYTES_MAX
"""Frames of the class *high*, own ones and others', beside control's room."""
BULK_SHARE = 7
"""Bulk sends one byte for so many that overtake it."""
BULK_TURN_BYTES = BULK_SHARE * 64 * 1024
GATHER_MAX = 64
"""So many buffers are written by one call at most."""

Run = bytes | memoryview


class _Queue:
    """Runs in order, and how many bytes they have."""

    __slots__ = ("runs", "size_bytes")

    def __init__(self) -> None:
        self.runs: deque[Run] = deque()
        self.size_bytes = 0

    def put(self, run: Run, bytes_max: int) -> bool:
        """Add whole frames at the end; False, and nothing is added, where there is no room."""
        if self.size_bytes + len(run) > bytes_max:
            return False
        self.runs.append(run)
        self.size_bytes += len(run)
        return True

    def first(self, least_bytes: int, buffers_max: int) -> list[Run]:
        """The first whole frames that have at least so many bytes, or all; so many buffers at most."""
        found: list[Run] = []
        for run in islice(self.runs, buffers_max):
            if least_bytes <= 0:
                break
            end = len(run)
            if end > least_bytes:
                end = frame_end(run, 0)
                while end < least_bytes:
                    end = frame_end(run, end)
            found.append(run if end == len(run) else memoryview(run)[:end])
            least_bytes -= end
        return found

    def advance(self, written: int) -> tuple[int, Run, int]:
        """Forget so many bytes from the front.

        Returns:
            (how many there were too many, the frame that was begun or nothing, how far it is
            written); a frame that was begun is no longer in the queue.
        """
        while written and self.runs:
            run = self.runs.popleft()
            self.size_bytes -= len(run)
            if written >= len(run):
                written -= len(run)
                continue
            at, end = 0, frame_end(run, 0)
            while end <= written:
                at, end = end, frame_end(run, end)
            # What stands behind is whole, so others may go before it.
            kept = at if at == written else end
            if kept < len(run):
                self.runs.appendleft(memoryview(run)[kept:])
                self.size_bytes += len(run) - kept
            return (0, run[at:kept], written - at) if kept > at else (0, b"", 0)
        return written, b"", 0


class Outbox:
    """The bytes that one link still has to write.

    Args:
        bulk_bytes_max: the bound of bulk.
    """

    __slots__ = (
        "_begun",
        "_begun_at",
        "_bulk",
        "_bulk_bytes_max",
        "_control",
        "_goodbye",
        "_high",
        "_is_turn_of_bulk",
        "_passed_bytes",
        "_raw",
    )

    def __init__(self, bulk_bytes_max: int = BULK_BYTES_MAX) -> None:
        self._bulk_bytes_max = bulk_bytes_max
        self._raw = b""
        self._begun: Run = b""
        self._begun_at = 0
        self._control = _Queue()
        self._high = _Queue()
        self._bulk = _Queue()
        self._goodbye = b""
        self._passed_bytes = 0
        self._is_turn_of_bulk = False

    @property
    def backlog_bytes(self) -> int:
        """How many bytes wait, all told."""
        begun = len(self._begun) - self._begun_at
        queued = self._control.size_bytes + self._high.size_bytes + self._bulk.size_bytes
        return len(self._raw) + begun + queued + len(self._goodbye)

    @property
    def control_bytes(self) -> int:
        """How many bytes of control wait behind what was begun."""
        return self._control.size_bytes

    @property
    def bulk_bytes(self) -> int:
        """How many bytes of bulk wait behind what was begun."""
        return self._bulk.size_bytes

    # --- putting: False, and nothing is added, where the bound has no room ----------------------

    def put_raw(self, data: bytes) -> bool:
        """Add what is no frame; it goes before all frames."""
        if len(self._raw) + len(data) > CONTROL_BYTES_MAX:
            return False
        self._raw += data
        return True

    def put_control(self, run: bytes) -> bool:
        """Add own urgent frames."""
        return self._control.put(run, CONTROL_BYTES_MAX)

    def put_urgent(self, run: bytes) -> bool:
        """Add urgent frames of others."""
        return self._control.put(run, URGENT_BYTES_MAX)

    def put_high(self, run: bytes) -> bool:
        """Add frames of the class high."""
        return self._high.put(run, min(HIGH_BYTES_MAX, self._bulk_bytes_max))

    def put_bulk(self, run: bytes) -> bool:
        """Add other frames."""
        return self._bulk.put(run, self._bulk_bytes_max)

    def put_goodbye(self, frame: bytes) -> None:
        """Add the last frame; it goes behind everything."""
        self._goodbye = frame

    # --- writing ------------------------------------------------------------------------------

    def gather(self) -> list[Run]:
        """The buffers to write next, in order, at most `GATHER_MAX`; `advance` forgets them.

        They end where the turn of bulk begins or ends.
        """
        buffers: list[Run] = [self._raw] if self._raw else []
        if self._begun:
            buffers.append(memoryview(self._begun)[self._begun_at :])
        if self._is_turn_of_bulk:
            owed = -(-self._passed_bytes // BULK_SHARE)
            return [*buffers, *self._bulk.first(owed, GATHER_MAX - len(buffers))]
        first = self._control.size_bytes + self._high.size_bytes
        left = BULK_TURN_BYTES - self._passed_bytes
        if self._bulk.size_bytes and first >= left:
            buffers += self._control.first(left, GATHER_MAX - len(buffers))
            left -= self._control.size_bytes
            if left > 0:
                buffers += self._high.first(left, GATHER_MAX - len(buffers))
            return buffers
        for queue in (self._control, self._high, self._bulk):
            buffers.extend(islice(queue.runs, GATHER_MAX - len(buffers)))
        if self._goodbye and len(buffers) < GATHER_MAX:
            buffers.append(self._goodbye)
        return buffers

    def advance(self, written: int) -> None:
        """Forget so many bytes from the front of what `gather` told; O(frames of a run)."""
        if self._raw:
            of_raw = min(written, len(self._raw))
            self._raw = self._raw[of_raw:]
            written -= of_raw
        if self._begun:
            of_begun = min(written, len(self._begun) - self._begun_at)
            self._begun_at += of_begun
            written -= of_begun
            if self._begun_at == len(self._begun):
                self._begun, self._begun_at = b"", 0
        if not self._is_turn_of_bulk:
            for queue in (self._control, self._high):
                if written:
                    before = queue.size_bytes
                    written, self._begun, self._begun_at = queue.advance(written)
                    if self._bulk.size_bytes:
                        self._passed_bytes += before - queue.size_bytes
        if written:
            before = self._bulk.size_bytes
            written, self._begun, self._begun_at = self._bulk.advance(written)
            sent = before - self._bulk.size_bytes
            self._passed_bytes = max(0, self._passed_bytes - BULK_SHARE * sent)
        self._settle_turn()
        if written:
            if written < len(self._goodbye):
                self._begun, self._begun_at = self._goodbye, written
            self._goodbye = b""

    def _settle_turn(self) -> None:
        if not self._bulk.size_bytes:
            self._passed_bytes = 0
        if self._passed_bytes == 0:
            self._is_turn_of_bulk = False
        elif self._passed_bytes >= BULK_TURN_BYTES:
            self._is_turn_of_bulk = True

    def unsent(self) -> list[bytes]:
        """The bodies of the routed frames that were not written whole, in the order of writing."""
        runs = (self._begun, *self._control.runs, *self._high.runs, *self._bulk.runs)
        return [body for run in runs for body in bodies_in(run) if is_routed(body)]
