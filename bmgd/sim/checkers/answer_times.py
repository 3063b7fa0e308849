"""How long a source waits before it sends a broadcast again, measured once more beside the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AGAIN_NS: Final = 200_000_000
AGAIN_MAX_NS: Final = 2_000_000_000
"""More than this it is only where nodes take longer to acknowledge, and then at most:"""
SLOW_NS: Final = 4_000_000_000
DARK_NS: Final = 20_000_000_000
"""For so long after there was nobody to send to, something may have been sent again to nobody."""


@dataclass(slots=True)
class AnswerTimes:
    """How long nodes take to acknowledge what was sent once, in nanoseconds: as RFC 6298 has it.

    Args:
        pause_ns: what is sent now is waited for so long.
        measured_ns: the same, as measured last.
        doubled_ns: when that was doubled last, since something was sent again.
        single_ns: what it was before.
        dark_ns: when there was last nobody to send something to.
    """

    pause_ns: int = AGAIN_NS
    measured_ns: int = AGAIN_NS
    mean_ns: int = 0
    apart_ns: int = 0
    doubled_ns: int = 0
    single_ns: int = AGAIN_NS
    dark_ns: int = -DARK_NS

    def measure(self, took_ns: int) -> None:
        """A node has acknowledged something that was sent once."""
        if not self.mean_ns:
            self.mean_ns, self.apart_ns = took_ns, took_ns // 2
        else:
            self.apart_ns += (abs(took_ns - self.mean_ns) - self.apart_ns) // 4
            self.mean_ns += (took_ns - self.mean_ns) // 8
        self.pause_ns = self.mean_ns + 4 * self.apart_ns
        self.measured_ns = self.pause_ns = max(AGAIN_NS, min(self.pause_ns, SLOW_NS))

    def double(self, now_ns: int, sent_ns: int) -> None:
        """Something that was sent once is sent again."""
        if sent_ns >= self.doubled_ns:
            self.doubled_ns, self.single_ns = now_ns, self.pause_ns
            self.pause_ns = max(self.pause_ns, min(2 * self.pause_ns, AGAIN_MAX_NS))

    def follow(self, now_ns: int, pause_ns: int) -> bool:
        """Whether a source's pause can be this one; it may have doubled where nothing was to be seen.

        At its bound that shows only later: what was sent before that doubles it no more.
        """
        expected_ns, is_dark = self.pause_ns, now_ns - self.dark_ns < DARK_NS
        if is_dark and self.doubled_ns == now_ns and pause_ns == self.single_ns:
            expected_ns = pause_ns
        while expected_ns < pause_ns and is_dark:
            expected_ns = min(2 * expected_ns, AGAIN_MAX_NS)
            if expected_ns == AGAIN_MAX_NS:
                break
        is_right = expected_ns == pause_ns
        if expected_ns != self.pause_ns:
            self.doubled_ns = now_ns
        self.pause_ns = pause_ns
        return is_right
