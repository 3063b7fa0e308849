"""For all tests: they can interrupt what they start, wherever they run."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let this process, and so its children, hear of interrupts.

    A shell that puts a command into the background lets it ignore them, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
