"""Logs on stderr: text or JSON lines, with node, peer, incarnation and event, and a rate limit."""

from __future__ import annotations

import json
import logging
import sys
import time

from bmgd.core.effects import Observed

RATE_PER_S = 200
"""More lines than this in one second are counted, not written."""

_LEVELS = {
    "link up": logging.DEBUG,
    "link down": logging.DEBUG,
    "links exact": logging.DEBUG,
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


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
        }
        fields |= getattr(record, "fields", {})
        fields["message"] = record.getMessage()
        return json.dumps(fields, separators=(",", ":"))


class _RateLimit(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        second = int(record.created)
        if second != self._second:
            if self._count > RATE_PER_S:
                record.msg = f"({self._count - RATE_PER_S} lines left out) {record.msg}"
            self._second, self._count = second, 0
        self._count += 1
        return self._count <= RATE_PER_S


class DaemonLog:
    """The log of one daemon.

    Args:
        node_id: written into each line.
        level: "debug", "info", "warning" or "error".
        form: "text" or "json".
    """

    def __init__(self, node_id: int, level: str, form: str) -> None:
        self._node_id = node_id
        self._logger = logging.Logger(f"bmgd.{node_id}", level.upper())
        handler = logging.StreamHandler(sys.stderr)
        if form == "json":
            handler.setFormatter(_JsonFormatter())
        else:
            formatter = logging.Formatter(
                f"%(asctime)s.%(msecs)03dZ node {node_id} %(levelname)s %(message)s",
                "%Y-%m-%dT%H:%M:%S",
            )
            formatter.converter = time.gmtime
            handler.setFormatter(formatter)
        handler.addFilter(_RateLimit())
        self._logger.addHandler(handler)

    def observed(self, observed: Observed) -> None:
        """Write what the core observed."""
        level = _LEVELS.get(observed.event, logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        words = [observed.event]
        if observed.peer is not None:
            words.append(f"peer {observed.peer}")
        if observed.incarnation is not None:
            words.append(f"incarnation {observed.incarnation:#x}")
        if observed.detail:
            words.append(f"({observed.detail})")
        fields = {
            "node": self._node_id,
            "peer": observed.peer,
            "incarnation": observed.incarnation,
            "event": observed.event,
        }
        self._logger.log(level, " ".join(words), extra={"fields": fields})

    def line(self, event: str, text: str, level: int = logging.INFO) -> None:
        """Write a line of the shell's own."""
        fields = {"node": self._node_id, "event": event}
        self._logger.log(level, text, extra={"fields": fields})

    def warn(self, event: str, text: str) -> None:
        """Write a line of warning of the shell's own."""
        self.line(event, f"{event} {text}", logging.WARNING)
