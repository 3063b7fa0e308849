"""Logs on stderr: text or JSON lines, with node, peer, incarnation and event, and a rate limit.

Theory of operation. News is passed on before it is logged: a call only appends to a list. The text
is made, and written with one call, when the list is `BATCH_MAX` long, `FLUSH_S` after its first line, at
an error, and at the end. So the notice of a death waits for nothing but an append:

    observed, line --below the level--> nothing
                   --over the rate, no error--> nothing (counted)
                   --a warning whose cause was written a short while ago--> nothing (counted)
                   --after the error that ends the daemon, no error--> nothing
                   --else--> waits --a moment later, many, an error, the end--> one write
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from bmgd.core.effects import Observed
from bmgd.printable import printable
from bmgd.shell.repeats import Repeats
from bmgd.types import Incarnation, NodeId

RATE_PER_S = 200
"""More lines than this in one second are counted, not written; errors are written."""
BATCH_MAX = 256
"""So many lines wait at most before they are written."""
FLUSH_S = 0.1
"""So long a line waits at most, while the loop runs."""

_LEVELS = {
    "link up": logging.DEBUG,
    "link down": logging.DEBUG,
    "links exact": logging.DEBUG,
    "renewed link": logging.DEBUG,
    "not renewed": logging.WARNING,
    "flooding": logging.WARNING,
    "claimed": logging.WARNING,
    "contested": logging.WARNING,
    "unreachable": logging.DEBUG,
    "suspected": logging.WARNING,
    "verdict": logging.WARNING,
    "refused": logging.WARNING,
    "rejected": logging.WARNING,
    "late": logging.WARNING,
    "left unread": logging.WARNING,
    "quorum lost": logging.WARNING,
    "displaced": logging.WARNING,
    "not joined": logging.WARNING,
}
_NUMBERS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_NAMES = {number: name for name, number in _NUMBERS.items()}


class _Line(NamedTuple):
    """What is to be said; `text` is "" where it follows from the other fields."""

    at_s: float
    level: int
    event: str
    text: str = ""
    peer: NodeId | None = None
    incarnation: Incarnation | None = None
    detail: str = ""
    is_observed: bool = False
    often: str = ""


class DaemonLog:
    """The log of one daemon.

    Args:
        node_id: written into each line; below 0 for a joiner that has no id yet.
        level: "debug", "info", "warning" or "error"; of lines below it nothing is kept.
        form: "text" or "json".
        write: writes text; to stderr by default.
    """

    def __init__(
        self, node_id: int, level: str, form: str, write: Callable[[str], None] | None = None
    ) -> None:
        self._node_id = node_id if node_id >= 0 else None
        self._who = f"node {node_id}" if node_id >= 0 else "joiner"
        self._repeats = Repeats()
        self._is_over = False
        self._write = write or _to_stderr
        self._level = _NUMBERS[level]
        self._format = self._in_json if form == "json" else self._in_text
        self._waiting: list[_Line] = []
        self._planned: asyncio.TimerHandle | None = None
        self._second = 0
        self._count = 0
        self._left_out = 0
        self._stamped_s = -1
        self._stamp = ""

    # --- what is said -------------------------------------------------------------------------

    def observed(self, observed: Observed) -> None:
        """Write what the core observed."""
        level = _LEVELS.get(observed.event, logging.INFO)
        if level < self._level:
            return
        event, peer, detail = observed.event, observed.peer, observed.detail
        self._put(_Line(time.time(), level, event, "", peer, observed.incarnation, detail, True))

    def record(self, node_id: NodeId, incarnation: Incarnation, status: str) -> None:
        """Write that a record changed."""
        level = logging.INFO
        if level >= self._level:
            self._put(_Line(time.time(), level, "record", "", node_id, incarnation, status, True))

    def line(self, event: str, text: str, level: int = logging.INFO) -> None:
        """Write a line of the shell's own."""
        if level >= self._level:
            self._put(_Line(time.time(), level, event, text))

    def warn(self, event: str, text: str) -> None:
        """Write a line of warning of the shell's own."""
        self.line(event, f"{event} {text}", logging.WARNING)

    def end(self, reason: str, level: int) -> None:
        """Write why the daemon ends; after an error nothing but errors follows."""
        self.line("exit", reason, level)
        self._is_over = level >= logging.ERROR

    # --- when it is written -------------------------------------------------------------------

    def flush(self) -> None:
        """Write what waits, with one call."""
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        if self._waiting:
            lines, self._waiting = self._waiting, []
            self._write("".join([self._format(line) for line in lines]))

    def close(self) -> None:
        """Write what waits, and how many lines were left out since the last one."""
        self._tell_left_out(time.time())
        self.flush()

    def _put(self, line: _Line) -> None:
        if self._is_over and line.level < logging.ERROR:
            return
        second = int(line.at_s)
        if second != self._second:
            self._tell_left_out(line.at_s)
            self._second, self._count = second, 0
        # The reason for which a daemon ends is written whatever came before it in the same second.
        if self._count >= RATE_PER_S and line.level < logging.ERROR:
            self._left_out += 1
            return
        if line.level == logging.WARNING:
            count = self._repeats.admit(line.event, line.peer, line.text or line.detail)
            if count is None:
                return
            if count:
                line = line._replace(often=f" ({count} more of these since)")
        self._count += 1
        self._waiting.append(line)
        if line.level >= logging.ERROR or len(self._waiting) >= BATCH_MAX:
            self.flush()
        elif self._planned is None:
            self._plan()

    def _tell_left_out(self, at_s: float) -> None:
        if self._left_out:
            text = f"({self._left_out} lines left out)"
            self._left_out = 0
            self._waiting.append(_Line(at_s, logging.WARNING, "left out", text))

    def _plan(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Before the loop runs, and after it, nothing would come back to write it.
            self.flush()
        else:
            self._planned = loop.call_later(FLUSH_S, self.flush)

    # --- how it looks -------------------------------------------------------------------------

    def _in_text(self, line: _Line) -> str:
        second = int(line.at_s)
        if second != self._stamped_s:
            self._stamped_s = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        milliseconds = int((line.at_s - second) * 1000)
        level = _NAMES[line.level].upper()
        return f"{self._stamp}.{milliseconds:03d}Z {self._who} {level} {printable(_message_of(line))}\n"

    def _in_json(self, line: _Line) -> str:
        fields: dict[str, object] = {
            "time": round(line.at_s, 6),
            "level": _NAMES[line.level],
            "node": self._node_id,
        }
        if line.is_observed:
            fields |= {"peer": line.peer, "incarnation": line.incarnation}
        fields |= {"event": line.event, "message": _message_of(line)}
        return json.dumps(fields, separators=(",", ":")) + "\n"


def _to_stderr(text: str) -> None:
    # Where whoever read the log is gone, the daemon goes on without.
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _message_of(line: _Line) -> str:
    if not line.is_observed:
        return line.text + line.often
    words = [line.event]
    if line.peer is not None:
        words.append(f"peer {line.peer}")
    if line.incarnation is not None:
        words.append(f"incarnation {line.incarnation:#x}")
    if line.detail:
        words.append(f"({line.detail})")
    return " ".join(words) + line.often
