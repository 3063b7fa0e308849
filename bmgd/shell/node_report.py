"""The report about this node: from its core, its process and its sockets.

docs/operations.md has the keys. A report has at most `REPORT_BYTES_MAX`: if the links do not fit,
the last of them are left out, and `links_left_out` says how many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bmgd.shell.traffic import LinkTraffic, traffic_of
from bmgd.types import LinkId
from bmgd.version import VERSION
from bmgd.wire.bounds import REPORT_BYTES_MAX

Descriptors = Iterable[tuple[LinkId, int, int]]
"""Of every link: its id, its descriptor (-1 without one), and the bytes in its outbox."""


def link_rows(
    core_links: Iterable[Mapping[str, Any]], descriptors: Descriptors, own_id: int
) -> list[Any]:
    """A row for each link, as short as it can be.

    ``[peer, dialled here 0/1, silent ms, up ms, accused 0/1, sent bytes, received bytes, backlog bytes,
    round trip us]``
    """
    traffic: dict[int, tuple[LinkTraffic, int]] = {
        link: (traffic_of(fd), backlog) for link, fd, backlog in descriptors
    }
    rows = []
    for link in core_links:
        carried, backlog = traffic.get(link["link"], (LinkTraffic(), 0))
        rows.append(
            [
                link["peer"],
                int(link["dialled_by"] == own_id),
                link["silent_ms"],
                link["up_ms"],
                int(link["accused"]),
                carried.sent_bytes,
                carried.received_bytes,
                backlog + carried.unsent_bytes,
                carried.rtt_us,
            ]
        )
    return rows


def whole_report(
    facts: Mapping[str, Any], descriptors: Descriptors, process: Mapping[str, Any]
) -> dict[str, Any]:
    """The core's facts, its links with what the kernel knows of them, and the process."""
    rows = link_rows(facts["links"], descriptors, facts["id"])
    return {**facts, "links": rows, "version": VERSION, **process}


def report_bytes(report: Mapping[str, Any]) -> bytes:
    """A report as JSON of at most `REPORT_BYTES_MAX` bytes."""
    links, left_out = list(report["links"]), 0
    while True:
        whole = {**report, "links": links}
        if left_out:
            whole["links_left_out"] = left_out
        body = json.dumps(whole, separators=(",", ":")).encode()
        if len(body) <= REPORT_BYTES_MAX or not links:
            return body
        cut = max(1, len(links) // 4)
        left_out += cut
        del links[-cut:]
