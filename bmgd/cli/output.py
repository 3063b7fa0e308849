"""How commands print: JSON for programs, short lines and tables for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bmgd.errors import BmgdError
from bmgd.printable import printable


def print_json(value: object) -> None:
    """One line of JSON; bytes become text where they are text, else ``{"hex": …}``."""
    print(json.dumps(value, separators=(",", ":"), default=_of_bytes), flush=True)


def clock(unix_s: float) -> str:
    """A moment as logs write it: UTC, to the millisecond."""
    moment = datetime.fromtimestamp(unix_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def life(incarnation: int | None) -> str:
    """An incarnation as logs write it; "" for none and for one that is not known."""
    return f"{incarnation:#x}" if incarnation else ""


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table of these columns, each as wide as it needs."""
    cells = [
        list(columns),
        *([printable(str(row.get(name, ""))) for name in columns] for row in rows),
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print(
            "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        )


class Detailed(BmgdError):
    """An error of a command of which JSON says more.

    Args:
        error: what went wrong.
        fields: what is said beside it.
    """

    def __init__(self, error: BmgdError, fields: Mapping[str, object]) -> None:
        super().__init__(str(error))
        self.error = error
        self.fields = fields


def id_ranges(ids: Sequence[int]) -> str:
    """Sorted ids in short: ``0-6, 8``."""
    parts: list[list[int]] = []
    for node_id in ids:
        if parts and node_id == parts[-1][1] + 1:
            parts[-1][1] = node_id
        else:
            parts.append([node_id, node_id])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "none"


def _of_bytes(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    raise TypeError(f"no JSON for {type(value).__name__}")
