"""The line that says how far a long experiment is.

A thread prints it, so it comes also where an experiment reports nothing itself. On a terminal it is
one line that changes each second; elsewhere a line after one second, and then every five.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Final

CLEAR_LINE: Final = "\r\x1b[K"

_FIRST_S = 1.0
_EVERY_S = 5.0
_TERMINAL_S = 1.0


class ProgressLine:
    """Prints on stderr how far an experiment is, while it runs.

    Args:
        name: the experiment's.

    It also ends the process when its parent has died: nobody would read the outcome.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = ""
        self._ended = threading.Event()
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._print, name="progress", daemon=True)

    def __enter__(self) -> ProgressLine:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def tell(self, text: str) -> None:
        """Take the newest report."""
        self._text = text

    def _print(self) -> None:
        began_s = time.monotonic()
        terminal = sys.stderr.isatty()
        due_s = _FIRST_S
        while not self._ended.wait(_FIRST_S):
            if os.getppid() != self._parent:
                os._exit(1)
            seconds = time.monotonic() - began_s
            line = f"{self._name}: {seconds:.0f} s  {self._text}".rstrip()
            if terminal:
                print(f"{CLEAR_LINE}{line[: _width() - 1]}", end="", file=sys.stderr, flush=True)
            elif round(seconds) >= due_s:
                # This thread may wake up late: then so does the line.
                due_s = (round(seconds) // _EVERY_S + 1) * _EVERY_S
                print(line, file=sys.stderr, flush=True)


def _width() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns
