"""The nodes of a cluster as rows: what `bmgd top` shows, from two documents of one daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bmgd.printable import printable

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One node; figures are -1 where it did not report.

    Args:
        links: that are up.
        sent_per_s, received_per_s: bytes over its links.
        delivered_per_s, relayed_per_s: messages to its programs, frames for others.
        backlog_bytes: what waits to be written.
        cpu_percent: of one processor.
        rss_bytes: resident memory.
        suspects: whom it suspects.
    """

    id: int
    state: str
    links: int = -1
    sent_per_s: float = -1
    received_per_s: float = -1
    delivered_per_s: float = -1
    relayed_per_s: float = -1
    backlog_bytes: float = -1
    cpu_percent: float = -1
    rss_bytes: float = -1
    suspects: tuple[int, ...] = ()
    digest: str = ""


COLUMNS: Final = (
    ("node", "id", 5),
    ("state", "state", 11),
    ("links", "links", 6),
    ("sent/s", "sent_per_s", 9),
    ("recv/s", "received_per_s", 9),
    ("msgs/s", "delivered_per_s", 7),
    ("relay/s", "relayed_per_s", 8),
    ("backlog", "backlog_bytes", 8),
    ("cpu%", "cpu_percent", 6),
    ("memory", "rss_bytes", 8),
    ("digest", "digest", 9),
    ("suspects", "suspects", 10),
)
"""The heading, the field and the width of each column."""

_BYTES: Final = frozenset({"sent_per_s", "received_per_s", "backlog_bytes", "rss_bytes"})
_GONE: Final = ("dead", "excluded", "left")


def rows_of(document: Document, former: Document | None) -> list[Row]:
    """A row for each member, sorted by id; rates need a former document."""
    reports = {report["id"]: report for report in document["reports"]}
    before = {report["id"]: report for report in former["reports"]} if former else {}
    silent = set(document["summary"]["silent"])
    suspected = set(document["summary"]["suspected"])
    rows = []
    for member in document["members"]:
        node_id, status = member["id"], member["status"]
        report = reports.get(node_id)
        if status in _GONE:
            rows.append(Row(node_id, "left" if status == "left" else "dead"))
        elif report is None or node_id in silent:
            rows.append(Row(node_id, "no answer"))
        else:
            state = "suspected" if node_id in suspected else report["state"]
            rows.append(_row(node_id, state, report, before.get(node_id)))
    return rows


def _row(
    node_id: int, state: str, report: Mapping[str, Any], former: Mapping[str, Any] | None
) -> Row:
    passed_s = 0.0 if former is None else report.get("uptime_s", 0) - former.get("uptime_s", 0)

    def per_s(key: str) -> float:
        if former is None or passed_s <= 0:
            return -1
        return max(0.0, float(report.get(key, 0) - former.get(key, 0)) / passed_s)

    cpu = per_s("cpu_ms")
    return Row(
        node_id,
        state,
        links=len(report["links"]),
        sent_per_s=per_s("sent_bytes"),
        received_per_s=per_s("received_bytes"),
        delivered_per_s=per_s("delivered"),
        relayed_per_s=per_s("relayed_frames"),
        backlog_bytes=report.get("backlog_bytes", -1),
        cpu_percent=cpu / 10 if cpu >= 0 else -1,
        rss_bytes=report.get("rss_bytes", -1),
        suspects=tuple(report["suspects"]),
        digest=str(report["digest"])[:8],
    )


def arranged(rows: Sequence[Row], by: str, *, reverse: bool, only: str) -> list[Row]:
    """The rows that have the text `only` in their id or state, sorted by a field, then by id."""
    shown = [row for row in rows if only in f"{row.id} {row.state}"]
    return sorted(
        sorted(shown, key=lambda row: row.id), key=lambda row: getattr(row, by), reverse=reverse
    )


def line_of(row: Row) -> str:
    """A row as text, in the widths of `COLUMNS`."""
    cells = [_cell(name, getattr(row, name), width) for _, name, width in COLUMNS]
    return printable(" ".join(cells).rstrip())


def heading() -> str:
    """The line above the rows."""
    return " ".join(
        f"{title:<{width}}" if name in ("state", "suspects") else f"{title:>{width}}"
        for title, name, width in COLUMNS
    ).rstrip()


def title_of(document: Document) -> str:
    """The state of the whole cluster in a line."""
    summary = document["summary"]
    agree = {
        "yes": f"all {summary['reported']} agree",
        "no": f"{len(summary['digests'])} different memberships",
        "settling": "a change goes round",
        "asking": f"asking, {summary['reported']} of {summary['alive']} have answered",
    }.get(summary["agree"], f"{len(summary['silent'])} do not answer")
    more = f", {len(summary['isolated'])} cut off" if summary["isolated"] else ""
    # A daemon of an older release does not know whether settings differ.
    if summary.get("settings_differ"):
        more += f"; their {', '.join(summary['settings_differ'])} differ"
    return (
        f"{document['cluster']} seen from node {document['own_id']}: {summary['alive']} alive,"
        f" {summary['dead']} dead, {summary['left']} left; {agree}{more}"
    )


def _cell(name: str, value: Any, width: int) -> str:
    if name == "suspects":
        return " ".join(map(str, value))
    if name == "state":
        return f"{value:<{width}}"
    if isinstance(value, str):
        return f"{value:>{width}}"
    if value < 0:
        return f"{'-':>{width}}"
    if name in _BYTES:
        return f"{short_bytes(value):>{width}}"
    if name == "cpu_percent":
        return f"{value:>{width}.1f}"
    return f"{value:>{width}.0f}"


def short_bytes(count: float) -> str:
    """A number of bytes in at most six characters: ``813``, ``4.2k``, ``17M``."""
    for unit in ("", "k", "M", "G"):
        if count < 1000:
            return f"{count:.1f}{unit}" if unit and count < 10 else f"{count:.0f}{unit}"
        count /= 1000
    return f"{count:.0f}T"
