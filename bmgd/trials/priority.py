"""Coming before others for processor time: what harms and measures must not wait for it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

HASTE: Final = 15


def hurry() -> None:
    """Come before others; without effect where this user may not."""
    _be_nice(-HASTE)


def be_ordinary() -> None:
    """In a child of a process that hurries: be a session of its own, with the usual share."""
    with suppress(OSError):
        os.setsid()
    _be_nice(0)


def _be_nice(nice: int) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    # Where the kernel shares processor time among sessions, a process is nice only within its own.
    with suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as autogroup:
        autogroup.write(str(nice))
