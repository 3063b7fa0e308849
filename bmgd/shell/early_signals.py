"""Signals that tell a daemon something, from its first moment until it hears them.

Until its handlers are there such a signal would end it. So they are held back when its process begins,
before its modules are imported, and released once it listens; what came meanwhile comes then.
"""

from __future__ import annotations

import signal
from typing import Final

TOLD: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""All that a daemon is told by signals, but for its end."""


def hold() -> None:
    """Let them wait."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)


def release() -> None:
    """Let them come; without `hold` this does nothing."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
