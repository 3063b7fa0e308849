"""Settings of a daemon's process: its name in `ps`, its end with its parent, its garbage collector."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from bmgd.errors import ConfigError
from bmgd.shell.process_stat import ARG_END, ARG_START, process_stat

GARBAGE_OBJECTS = 20_000
"""So many new objects must have stayed before the collector looks for cycles."""
DESCRIPTORS_MAX = 65_536
DESCRIPTORS_MIN = 64
"""With fewer a daemon has no links to speak of, or does not even begin."""
_PR_SET_PDEATHSIG = 1
_COMM_BYTES_MAX = 15


def allow_descriptors() -> None:
    """Let this process have as many descriptors as it may: a link, and a program, is one each.

    Raises:
        ConfigError: they are too few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if 0 <= soft < DESCRIPTORS_MIN:
        raise ConfigError(
            f"this process may have {soft} descriptors, and needs {DESCRIPTORS_MIN} or more"
            " (ulimit -n)"
        )


def set_title(title: str, name: str) -> None:
    """Show this process under another name; without effect where the kernel forbids it.

    Args:
        title: what `ps` shows as the command line; cut to the length of the original one.
        name: what `ps -o comm` and `top` show; cut to 15 bytes.
    """
    with suppress(OSError):
        with open("/proc/self/comm", "wb") as comm:
            comm.write(name.encode()[:_COMM_BYTES_MAX])
        fields = process_stat(os.getpid())
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        # The kernel reads the command line from this place in the process's own memory.
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(title.encode()[: end - start - 1].ljust(end - start, b"\0"))


def look_for_garbage_rarely() -> None:
    """Let Python look for cyclic garbage after `GARBAGE_OBJECTS` objects that stayed, not after 700.

    What the flight recorder keeps are new objects that stay and are in no cycle. To look at each of them
    again and again was most of what it cost; the oldest go about as fast as new ones come. What a daemon
    itself leaves in cycles is little: closed connections, errors with their frames.
    """
    gc.set_threshold(GARBAGE_OBJECTS, *gc.get_threshold()[1:])


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the parent ends, however it ends.

    Args:
        parent_pid: the process that is meant; if it is gone already, this process exits at once.
    """
    set_signal, errno_of = _prctl()
    if set_signal(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        error = errno_of()
        raise OSError(error, os.strerror(error))
    # It may have died before the kernel was told.
    if os.getppid() != parent_pid:
        os._exit(128 + signal.SIGKILL)


@cache
def _prctl() -> tuple[Callable[..., int], Callable[[], int]]:
    """The system call and what reads its errno; found once, in the zygote for all daemons."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).prctl, ctypes.get_errno
