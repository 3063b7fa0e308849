"""How long nodes take to acknowledge broadcasts, and so how long a source waits before it sends again.

Theory of operation. A fixed pause is too short where nodes are busy: what is only late is sent again,
which makes all of them busier. So the time until a node acknowledges is measured, as TCP measures a
round trip (RFC 6298): its mean, and how far it varies. Only what was sent once counts, as else nobody
knows which copy was acknowledged. Where the pause is too short for that, nothing is measured; so it
doubles each time that something is sent again, until there is a measure.
"""

from __future__ import annotations

from typing import Final

RESEND_MIN_NS: Final = 200_000_000
"""What is acknowledged sooner is waited for so long all the same."""
RESEND_MAX_NS: Final = 2_000_000_000
"""A pause doubles up to this."""
RESEND_SLOW_NS: Final = 4_000_000_000
"""However slowly nodes acknowledge, a broadcast is sent again after so long. After 5 s a node without
room for copies would take its source for one that wants none (`broadcast/reserve.py`)."""


class AnswerTimes:
    """What one source has measured.

    Attributes:
        measured_ns: so long nodes take to acknowledge, with what it varies; 200 ms at least.
        pause_ns: how long a broadcast that is sent now is waited for: as measured, or doubled.
    """

    def __init__(self) -> None:
        self.measured_ns = self.pause_ns = RESEND_MIN_NS
        self._mean_ns = 0
        self._deviation_ns = 0
        self._doubled_ns = 0

    def add(self, took_ns: int) -> None:
        """A node has acknowledged a broadcast that was sent once, so long after it was sent."""
        if self._mean_ns:
            self._deviation_ns += (abs(took_ns - self._mean_ns) - self._deviation_ns) // 4
            self._mean_ns += (took_ns - self._mean_ns) // 8
        else:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
        measured_ns = self._mean_ns + 4 * self._deviation_ns
        self.measured_ns = self.pause_ns = min(max(RESEND_MIN_NS, measured_ns), RESEND_SLOW_NS)

    def on_again(self, now_ns: int, sent_ns: int) -> None:
        """What was sent once is sent again: the pause doubles, once for all that was sent before that."""
        if sent_ns >= self._doubled_ns:
            self._doubled_ns = now_ns
            self.pause_ns = max(self.pause_ns, min(2 * self.pause_ns, RESEND_MAX_NS))
