"""Reading the report of another node: what is kept of it can be shown to a page or a program."""

from __future__ import annotations

import json
import math
from typing import Any, Final

_LINK_FIELDS: Final = 9
_NUMBERS: Final = frozenset(
    {
        "backlog_bytes",
        "cpu_ms",
        "delivered",
        "dropped_frames",
        "lag_us",
        "pid",
        "received_bytes",
        "record_version",
        "relayed_frames",
        "relayouts",
        "rss_bytes",
        "sent_bytes",
        "underway",
        "uptime_s",
        "waiting",
    }
)
_TEXTS: Final = frozenset({"backend", "engine", "loop", "version"})
"""What the page and `bmgd top` count on to be a number, or a text, if it is there."""


def parse_report(source: int, body: bytes) -> dict[str, Any] | None:
    """Read a report that another daemon wrote, perhaps of another version; None when it is none.

    What is needed is checked. Of further keys those are kept that can be shown: whose values are plain,
    or lists of plain values, and the known ones only with the values that they are to have. So whatever
    is kept can be published, and answered to programs.
    """
    try:
        report = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or report.get("id") != source:
        return None
    texts = all(_is_text(report.get(key)) for key in ("state", "digest", "incarnation"))
    lists = all(_is_ints(report.get(key)) for key in ("suspects", "wanted"))
    links = report.get("links")
    texts = texts and report["incarnation"].isascii() and report["incarnation"].isdigit()
    if not (texts and lists and isinstance(links, list)):
        return None
    if not all(_is_ints(row) and len(row) >= _LINK_FIELDS for row in links):
        return None
    shown = {key: value for key, value in report.items() if _is_text(key) and _is_due(key, value)}
    return {"isolated": False, "stands_aside": False, **shown, "links": links}


def _is_ints(value: object) -> bool:
    return isinstance(value, list) and all(_is_int(item) for item in value)


def _is_int(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_text(value: object) -> bool:
    """Whether it is a text that has bytes: JSON can name half a character."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool) or _is_int(value) or _is_text(value)


def _is_due(key: str, value: object) -> bool:
    if key in _NUMBERS:
        return _is_int(value) or (isinstance(value, float) and math.isfinite(value))
    return _is_text(value) if key in _TEXTS else _is_shown(value)


def _is_shown(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else _is_plain(value)
