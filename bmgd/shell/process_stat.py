"""What the kernel shows of a process in /proc/PID/stat: see proc(5)."""

from __future__ import annotations

import os
from typing import Final

# Places among the fields, counted from the one behind the name.
STATE: Final = 3 - 3
START_TICKS: Final = 22 - 3
ARG_START: Final = 48 - 3
ARG_END: Final = 49 - 3


def process_stat(pid: int) -> list[bytes]:
    """The fields behind a process's name, which alone may hold blanks.

    Args:
        pid: its id.

    Raises:
        OSError: there is no such process.
    """
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()


def process_began_s(pid: int) -> float:
    """When a process began, in seconds of CLOCK_BOOTTIME, rounded down to a kernel's tick.

    Args:
        pid: its id.

    Raises:
        OSError: there is no such process.
    """
    return int(process_stat(pid)[START_TICKS]) / os.sysconf("SC_CLK_TCK")
