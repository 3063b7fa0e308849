"""The log before a daemon has its own, and beside it: in the same form, on stderr."""

from __future__ import annotations

import json
import logging
import sys
import time


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "event": "exit" if record.levelno >= logging.ERROR else "start",
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, separators=(",", ":"))


def begin(form: str) -> None:
    """Let the logger ``bmgd`` write lines of one form.

    Args:
        form: "json"; anything else is text.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(_Json())
    else:
        text = logging.Formatter("%(asctime)s.%(msecs)03dZ bmgd %(levelname)s %(message)s")
        text.datefmt, text.converter = "%Y-%m-%dT%H:%M:%S", time.gmtime
        handler.setFormatter(text)
    logger = logging.getLogger("bmgd")
    logger.propagate = False
    logger.handlers = [handler]
