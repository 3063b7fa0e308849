"""Coming before others for processor time: what harms and measures must not wait for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

HASTE: Final = 15


def hurry() -> None:
    """Come before others; without effect where this user may not."""
    _be_nice(-HASTE)


@contextmanager
def hurrying() -> Iterator[None]:
    """Come before others inside; then the session of this process has the share that it had."""
    before = _nice_of_session()
    hurry()
    try:
        yield
    finally:
        _be_nice(before)


def _nice_of_session() -> int:
    with suppress(OSError, ValueError), open("/proc/self/autogroup", encoding="ascii") as autogroup:
        return int(autogroup.read().rpartition(" ")[2])
    return 0


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
