"""A forked process: what it keeps open, and its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

EVENTS_FD: Final = 3
"""Where a daemon of a launch writes its events."""

_MAX_FD = 1 << 20


def finish_process(main: Callable[[], int]) -> NoReturn:
    """Run `main` in a forked child and exit: it must never return into its parent's frames."""
    code = 1
    try:
        code = main()
    finally:
        error = sys.exc_info()
        if error[0] is not None and error[1] is not None:
            sys.excepthook(error[0], error[1], error[2])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def take_descriptors(log_path: str, events_in: int | None = None) -> None:
    """Read nothing, write into a log, keep the pipe of events as descriptor 3, and nothing else."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if events_in is not None:
        os.dup2(events_in, EVENTS_FD, inheritable=False)
    os.closerange(EVENTS_FD + (events_in is not None), _MAX_FD)
