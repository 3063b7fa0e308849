"""What one process tells the kernel of itself: its name in `ps`, and when it must die. Linux only."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_COMM_BYTES_MAX = 15
# Fields of /proc/PID/stat, counted from the one behind the name (see proc(5)).
_STAT_ARG_START = 48 - 3
_STAT_ARG_END = 49 - 3


def set_title(title: str, name: str) -> None:
    """Show this process under another name; without effect where the kernel forbids it.

    Args:
        title: what `ps` shows as the command line; cut to the length of the original one.
        name: what `ps -o comm` and `top` show; cut to 15 bytes.
    """
    with suppress(OSError):
        with open("/proc/self/comm", "wb") as comm:
            comm.write(name.encode()[:_COMM_BYTES_MAX])
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[_STAT_ARG_START]), int(fields[_STAT_ARG_END])
        # The kernel reads the command line from this place in the process's own memory.
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(title.encode()[: end - start - 1].ljust(end - start, b"\0"))


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the parent ends, however it ends.

    Args:
        parent_pid: the process that is meant; if it is gone already, this process exits at once.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    # It may have died before the kernel was told.
    if os.getppid() != parent_pid:
        os._exit(128 + signal.SIGKILL)
