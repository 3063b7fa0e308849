"""When the sources of reliable broadcasts hear how far this node is, and what they are asked.

Theory of operation. The watermark of a life goes straight to its source, after a quarter of a window
or 20 ms. Copies that are kept for long, and gaps below what is stable, say that something was lost:
then the source is reminded, after a second, and then ever later. It answers what this node skips. Of
a life that is over nobody is told; `broadcast/orphans.py` is about those.
"""

from __future__ import annotations

from bmgd.core.broadcast.announcements import Announcements
from bmgd.core.broadcast.heard import Heard
from bmgd.core.broadcast.window import (
    OVERHEAD_BYTES,
    PIECES_WINDOW_BYTES,
    WINDOW_ALL_BYTES,
    WINDOW_MIN_BYTES,
)
from bmgd.core.context import Context
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.types import incarnation_tag
from bmgd.wire.broadcast_messages import Watermark

WATERMARK_NS = 20_000_000
REMIND_NS = 1_000_000_000
REMIND_MAX_NS = 8_000_000_000
WATERMARK_TIMER = "broadcast watermark"
REMIND_TIMER = "broadcast remind"


class BroadcastWatermarks:
    """The acknowledgements of others' reliable broadcasts."""

    def __init__(
        self, context: Context, forwarding: Forwarding, announcements: Announcements
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._announcements = announcements

    # --- telling ------------------------------------------------------------------------------

    def acknowledge_soon(self, heard: Heard, size: int) -> None:
        """A payload of so many bytes came, or news of what is skipped: its source is to hear of it."""
        if self._is_orphan(heard):
            return
        heard.unacknowledged_bytes += size + OVERHEAD_BYTES
        timers, key = self._context.timers, (WATERMARK_TIMER, *heard.key)
        living = max(1, self._context.membership.layout_size - len(self._context.membership.dead))
        window = max(WINDOW_MIN_BYTES, WINDOW_ALL_BYTES // living)
        if heard.pieces_of:
            window = min(window, PIECES_WINDOW_BYTES)
        if heard.unacknowledged_bytes * 4 >= window and not self._must_wait(heard):
            self._acknowledge(heard, asks=False)
        elif key not in timers:
            timers.set(key, self._context.now_ns + WATERMARK_NS)
        if heard.copies:
            self._remind_later(heard)

    def on_timer(self, heard: Heard) -> None:
        """What came lately is acknowledged."""
        if self._must_wait(heard):
            key = (WATERMARK_TIMER, *heard.key)
            self._context.timers.set(key, self._context.now_ns + WATERMARK_NS)
            return
        self._acknowledge(heard, asks=heard.stable > heard.watermark)

    def _must_wait(self, heard: Heard) -> bool:
        """Whether readers of a long broadcast are behind: its source sends as they take."""
        return any(map(self._announcements.is_behind, heard.pieces_of))

    def _acknowledge(self, heard: Heard, *, asks: bool) -> None:
        heard.unacknowledged_bytes = 0
        heard.pieces_of.clear()
        self._context.timers.cancel((WATERMARK_TIMER, *heard.key))
        if self._is_orphan(heard):
            return
        tag = incarnation_tag(heard.incarnation)
        route = self._forwarding.route_to(heard.source, tag=tag, sequence=heard.watermark)
        self._forwarding.originate(Watermark(route, heard.watermark, heard.stable, asks))

    # --- reminding ----------------------------------------------------------------------------

    @staticmethod
    def waits(heard: Heard) -> bool:
        """Whether something of a life is still to come from its source."""
        return bool(heard.copies) or heard.asking or heard.stable > heard.watermark

    def _remind_later(self, heard: Heard) -> None:
        key = (REMIND_TIMER, *heard.key)
        if key not in self._context.timers:
            heard.reminded_ns = REMIND_NS
            self._context.timers.set(key, self._context.now_ns + REMIND_NS)

    def remind_no_more(self, heard: Heard) -> None:
        """Something came from the source: it is reminded only while something is still to come."""
        # A life that was followed may not be adopted yet: with copies, this deadline sees to it.
        if not self.waits(heard):
            self._context.timers.cancel((REMIND_TIMER, *heard.key))

    def remind(self, heard: Heard) -> None:
        """Copies are kept for long: the source may not have heard, or not have been heard."""
        self._acknowledge(heard, asks=True)
        heard.reminded_ns = min(2 * heard.reminded_ns, REMIND_MAX_NS)
        key = (REMIND_TIMER, *heard.key)
        self._context.timers.set(key, self._context.now_ns + heard.reminded_ns)

    def ask(self, heard: Heard) -> None:
        """Let the source say what went on without this node (RESYNC)."""
        if self._is_orphan(heard):
            return
        heard.asking = True
        self._acknowledge(heard, asks=True)
        self._remind_later(heard)

    def ask_later(self, heard: Heard) -> None:
        """Let the source say within a second what this node skips: neighbors have none of it any more."""
        if not self._is_orphan(heard):
            heard.asking = True
            self._remind_later(heard)

    def forget(self, heard: Heard) -> None:
        """There is nobody to tell, or to remind."""
        for name in (WATERMARK_TIMER, REMIND_TIMER):
            self._context.timers.cancel((name, *heard.key))

    def _is_orphan(self, heard: Heard) -> bool:
        return heard.is_orphan(self._context.membership)
