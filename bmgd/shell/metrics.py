"""`/metrics`: everything that this daemon counts, under the names that Prometheus sees.

One function for each subject. A new kind of message, event or reason appears here by itself; a new name
of `counts.PLAIN` needs a line in `_PLAIN`.

https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bmgd.core.counts import PLAIN, Counts
from bmgd.dataclass import dataclass
from bmgd.shell.exposition import Exposition, by_label
from bmgd.shell.vitals import Vitals
from bmgd.types import NodeState
from bmgd.version import VERSION

_EVENTS: Final = {
    "suspected": ("suspicions", "Peers that this node began to suspect."),
    "vetoed": ("vetoes", "Suspicions that an observer vetoed."),
    "verdict": ("verdicts", "Lives that this node declared dead."),
    "refuted": ("refutations", "Accusations of this node that it refuted."),
    "relayout": ("relayouts", "Changes of the layout that this node followed with its links."),
    "healed": ("healings", "Times that this node wrote the dead out of the layout."),
    "link up": ("links_opened", "Links that came up."),
    "late": ("late_steps", "Times that this node found itself too late to accuse anybody."),
    "new life": ("new_lives", "New lives that this node began."),
    "stale source": ("stale_messages", "Messages refused because a former life had sent them."),
    "unreachable": ("unreachable_messages", "Messages that no way was found for here."),
}
"""Observed events that have a family of their own: its name and help."""

_PLAIN: Final = {
    "careful_messages": "Messages passed on in careful mode.",
    "withheld_messages": "Messages not sent, since a member is of a release that does not know them.",
    "flooded_messages": "Messages not looked at, since their sender sends more than any sound one does.",
    "segments_resent": "Segments of streams that were sent again.",
    "segments_confirmed": "Segments of streams that were acknowledged.",
    "stream_silences": "Times that no acknowledgement of a stream came within its pause.",
    "streams_failed": "Streams that ended with an error.",
    "reports_sent": "Reports about this node sent to those who asked.",
    "reports_refused": "Asks for a report that were not answered, at the bound.",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the numbers come from.

    Args:
        counts: of the core.
        status: as `bmgd status` shows it.
        process: as the shell adds it to `status`, see `Daemon.describe`.
        links: rows of a report, see `node_report.py`.
        vitals: of the process.
        totals: of the engine of links, see `LinkEngine.totals`.
        responses: of the HTTP server, by status.
        streams: pages that are open, that were cut, and bytes written to pages.
    """

    counts: Counts
    status: Mapping[str, Any]
    process: Mapping[str, Any]
    links: Iterable[list[int]]
    vitals: Vitals
    totals: Mapping[str, int]
    responses: Mapping[int, int]
    streams: tuple[int, int, int]


def metrics_text(sources: Sources, *, per_link: bool) -> str:
    """The text that a scrape gets.

    Args:
        per_link: whether families with one sample per linked peer are wanted, too.
    """
    out = Exposition()
    _identity(out, sources)
    _membership(out, sources)
    _links(out, sources)
    _messages(out, sources)
    _detection(out, sources)
    _process(out, sources)
    _http(out, sources)
    if per_link:
        _per_link(out, sources)
    return out.text()


def _identity(out: Exposition, sources: Sources) -> None:
    status, process = sources.status, sources.process
    labels = {
        "version": VERSION,
        "backend": str(process["backend"]),
        "engine": str(process["engine"]),
        "loop": str(process["loop"]),
    }
    out.gauge("bmgd_info", "What runs here; always 1.", [(labels, 1)])
    out.gauge("bmgd_node_id", "The id of this node.", status["id"])
    states = {state.value: float(state.value == status["state"]) for state in NodeState}
    out.gauge("bmgd_state", "1 for the state that this node is in.", by_label("state", states))
    ready = status["state"] == "ready" and status["quorum"]["holds"] and not status["isolated"]
    out.gauge("bmgd_ready", "1 if /readyz says yes.", int(ready))
    out.gauge("bmgd_isolated", "1 if this node is cut off from everybody.", int(status["isolated"]))
    out.gauge(
        "bmgd_stands_aside",
        "1 if this node refuses programs because its side has lost the quorum.",
        int(not status["quorum"]["holds"]),
    )


def _membership(out: Exposition, sources: Sources) -> None:
    status = sources.status
    members = {name: float(len(status[name])) for name in ("alive", "dead", "left")}
    out.gauge("bmgd_members", "Node ids by what is believed of them.", by_label("status", members))
    out.gauge("bmgd_layout_size", "Node ids that the graph is built over.", status["layout_size"])
    out.gauge(
        "bmgd_membership_digest",
        "The low 52 bits of the membership's digest: nodes that agree have equal ones.",
        int(status["digest"], 16) & (1 << 52) - 1,
    )
    out.counter(
        "bmgd_membership_changes_total",
        "Records that changed at this node.",
        sources.counts.changes,
    )


def _links(out: Exposition, sources: Sources) -> None:
    status, counts = sources.status, sources.counts
    gone = {*status["dead"], *status["left"]}
    wanted = [peer for peer in status["neighbors"] if peer not in gone]
    linked = {row["id"] for row in status["links"]}
    out.gauge("bmgd_links", "Links that are up.", len(status["links"]))
    out.gauge("bmgd_links_wanted", "Neighbors in the present graph that live.", len(wanted))
    missing = sum(peer not in linked for peer in wanted)
    out.gauge("bmgd_links_missing", "Neighbors that live and have no link.", missing)
    closed = {f"closed: {reason}": count for reason, count in counts.closed.items()}
    lost = {f"lost: {evidence.value}": count for evidence, count in counts.lost.items()}
    out.counter("bmgd_dials_total", "Dials begun.", counts.dials)
    failed = {evidence.value: count for evidence, count in counts.failed.items()}
    out.counter(
        "bmgd_dials_failed_total", "Dials that came to nothing.", by_label("reason", failed)
    )
    out.counter(
        "bmgd_links_closed_total", "Links that ended.", by_label("reason", {**closed, **lost})
    )
    refused = {refusal.text: count for refusal, count in counts.refused.items()}
    out.counter(
        "bmgd_links_refused_total",
        "Hellos that this node's core refused.",
        by_label("reason", refused),
    )


def _messages(out: Exposition, sources: Sources) -> None:
    counts = sources.counts
    for table, name, text in (
        (counts.sent, "sent", "Messages that the core sent, by kind; relayed ones not counted."),
        (counts.received, "received", "Messages that came to the core, by kind."),
    ):
        rows = {kind.__name__.lower(): float(count) for kind, count in table.items()}
        out.counter(f"bmgd_messages_{name}_total", text, by_label("kind", rows))
    out.counter("bmgd_messages_delivered_total", "Messages handed to programs.", counts.delivered)
    totals = sources.totals
    for name, key, text in (
        ("link_sent_bytes", "sent_bytes", "Bytes written to links."),
        ("link_received_bytes", "received_bytes", "Bytes that came over links."),
        ("relayed_frames", "relayed_frames", "Frames of others that were passed on."),
        ("relayed_bytes", "relayed_bytes", "Bytes of others that were passed on."),
        (
            "absorbed_frames",
            "absorbed_frames",
            "Known notices, and heartbeats of which nothing follows.",
        ),
        ("returned_frames", "returned_frames", "Frames whose link had gone, for another way."),
    ):
        out.counter(f"bmgd_{name}_total", text, totals[key])
    dropped = {
        "urgent at the bound": totals["dropped_urgent_frames"],
        "bulk at the bound": totals["dropped_bulk_frames"],
        "malformed": totals["malformed_frames"],
        "oversized": totals["oversized_frames"],
        "returned beyond the bound": totals["unreturned_frames"],
    }
    out.counter(
        "bmgd_dropped_frames_total", "Frames that were dropped.", by_label("reason", dropped)
    )
    out.gauge("bmgd_backlog_bytes", "Bytes that wait to be written.", totals["backlog_bytes"])
    status = sources.status
    out.gauge("bmgd_underway", "What programs sent that is not confirmed.", status["underway"])
    out.gauge("bmgd_waiting", "What waits for a reader.", status["waiting"])
    for name in PLAIN:
        if name in _PLAIN:
            out.counter(f"bmgd_{name}_total", _PLAIN[name], counts.plain[name])


def _detection(out: Exposition, sources: Sources) -> None:
    events = sources.counts.events
    for event, (name, text) in _EVENTS.items():
        out.counter(f"bmgd_{name}_total", text, events[event])
    rest = {event: count for event, count in events.items() if event not in _EVENTS}
    out.counter("bmgd_events_total", "Other events of the core.", by_label("event", rest))


def _process(out: Exposition, sources: Sources) -> None:
    vitals = sources.vitals
    out.histogram(
        "bmgd_step_seconds", "How long the core's steps took, effects included.", vitals.steps
    )
    out.histogram(
        "bmgd_loop_lag_seconds",
        "How much later than asked for the event loop called the daemon.",
        vitals.lag,
    )
    out.counter("process_cpu_seconds_total", "Processor time, user and system.", vitals.cpu_s())
    out.gauge("process_resident_memory_bytes", "Resident memory.", vitals.resident_bytes())
    out.gauge("process_open_fds", "Open descriptors.", vitals.open_descriptors())
    out.gauge(
        "process_start_time_seconds",
        "When the process began, in seconds since the epoch.",
        round(vitals.began_s, 3),
    )
    out.gauge("bmgd_scrape_time_seconds", "This node's clock.", round(time.time(), 3))


def _http(out: Exposition, sources: Sources) -> None:
    clients, dropped, sent = sources.streams
    responses = {str(status): count for status, count in sorted(sources.responses.items())}
    out.counter("bmgd_http_responses_total", "Answers by status.", by_label("code", responses))
    out.gauge("bmgd_http_streams", "Pages that are open.", clients)
    out.counter("bmgd_http_streams_dropped_total", "Pages cut because they were slow.", dropped)
    out.counter("bmgd_http_streams_sent_bytes_total", "Bytes written to pages.", sent)


def _per_link(out: Exposition, sources: Sources) -> None:
    # While a link is renewed there are two to one peer; a series must not be there twice.
    newest: dict[int, list[int]] = {}
    for row in sources.links:
        if row[0] not in newest or row[3] < newest[row[0]][3]:
            newest[row[0]] = row
    rows = [({"peer": str(peer)}, row) for peer, row in newest.items()]
    for name, at, text in (
        ("link_peer_silent_seconds", 2, "How long nothing came over the link."),
        ("link_peer_backlog_bytes", 7, "Bytes that wait to be written to the link."),
        ("link_peer_rtt_seconds", 8, "The kernel's round trip time."),
    ):
        scale = {2: 1e3, 8: 1e6}.get(at, 1)
        samples = [(labels, row[at] / scale) for labels, row in rows]
        out.gauge(f"bmgd_{name}", text, samples)
    for name, at, text in (
        ("link_peer_sent_bytes_total", 5, "Bytes that the peer has acknowledged on this link."),
        ("link_peer_received_bytes_total", 6, "Bytes that came over this link."),
    ):
        out.counter(f"bmgd_{name}", text, [(labels, row[at]) for labels, row in rows])
