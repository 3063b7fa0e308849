"""What a scrape gets: Prometheus' format, names by its conventions, no more series than are known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from bmgd.core.counts import PLAIN, Counts
from bmgd.core.effects import Observed
from bmgd.shell import metrics
from bmgd.shell.exposition import Exposition, Histogram, by_label
from bmgd.shell.metrics import Sources, metrics_text
from bmgd.shell.vitals import Vitals

STATUS: dict[str, Any] = {
    "id": 3,
    "state": "ready",
    "alive": [0, 1, 3],
    "dead": [2],
    "left": [],
    "links": [{"id": 0}, {"id": 1}],
    "neighbors": [0, 1, 2],
    "quorum": {"holds": True},
    "isolated": False,
    "layout_size": 3,
    "digest": "ff" * 16,
    "underway": 4,
    "waiting": 5,
}
PROCESS = {"backend": "c", "engine": "python", "loop": "uvloop"}
TOTALS = {
    "sent_bytes": 11,
    "received_bytes": 12,
    "relayed_frames": 14,
    "relayed_bytes": 15,
    "absorbed_frames": 16,
    "returned_frames": 17,
    "dropped_urgent_frames": 18,
    "dropped_bulk_frames": 19,
    "malformed_frames": 20,
    "oversized_frames": 23,
    "unreturned_frames": 24,
    "backlog_bytes": 21,
}
ROWS = [[0, 1, 1500, 9000, 0, 10, 20, 30, 250], [1, 0, 0, 9000, 0, 1, 2, 3, 100]]
SERIES_MAX = 400


def sources(counts: Counts | None = None) -> Sources:
    return Sources(
        counts or Counts(), STATUS, PROCESS, ROWS, Vitals(), TOTALS, {200: 13}, (1, 2, 3)
    )


def samples(text: str) -> dict[str, float]:
    """The value of each series."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_metrics_tell_what_the_sources_have() -> None:
    counts = Counts()
    counts.effect(Observed("suspected"))
    counts.add("careful_messages", 9)
    found = samples(metrics_text(sources(counts), per_link=False))
    assert found["bmgd_suspicions_total"] == 1
    assert found["bmgd_careful_messages_total"] == 9
    assert found["bmgd_links"] == 2
    assert found["bmgd_links_wanted"] == 2
    assert found["bmgd_links_missing"] == 0
    assert found['bmgd_members{status="dead"}'] == 1
    assert found["bmgd_membership_digest"] == 2**52 - 1
    assert found["bmgd_link_sent_bytes_total"] == 11
    assert found["bmgd_relayed_frames_total"] == 14
    assert found['bmgd_dropped_frames_total{reason="bulk at the bound"}'] == 19
    assert found["bmgd_ready"] == 1
    assert found['bmgd_http_responses_total{code="200"}'] == 13
    assert found["process_resident_memory_bytes"] > 1e6


def test_metrics_have_help_and_type_before_their_samples_and_names_by_convention() -> None:
    text = metrics_text(sources(), per_link=True)
    kinds: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            assert current not in kinds
            assert line.endswith(".")
        elif line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name == current
            kinds[name] = kind
        else:
            assert re.match(r"[a-z_]+", line)[0].startswith(current)  # type: ignore[index]
    for name, kind in kinds.items():
        assert (kind == "counter") == name.endswith("_total")
        assert kind != "histogram" or name.endswith("_seconds")
        assert name.startswith(("bmgd_", "process_"))


def test_metrics_name_peers_only_when_asked() -> None:
    assert "peer=" not in metrics_text(sources(), per_link=False)
    found = samples(metrics_text(sources(), per_link=True))
    assert found['bmgd_link_peer_silent_seconds{peer="0"}'] == 1.5
    assert found['bmgd_link_peer_rtt_seconds{peer="0"}'] == 0.00025
    assert found['bmgd_link_peer_received_bytes_total{peer="1"}'] == 2
    assert len(samples(metrics_text(sources(), per_link=False))) < SERIES_MAX


def test_metrics_have_one_series_per_peer_while_its_link_is_renewed() -> None:
    old = [4, 0, 1500, 90_000, 0, 10, 20, 5, 250]
    new = [4, 1, 2, 100, 0, 1, 2, 3, 0]
    twice = replace(sources(), links=[old, new])
    lines = metrics_text(twice, per_link=True).splitlines()
    names = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(set(names)) == len(names)
    found = samples("\n".join(lines))
    assert found['bmgd_link_peer_silent_seconds{peer="4"}'] == 0.002
    assert found['bmgd_link_peer_backlog_bytes{peer="4"}'] == 3


def test_metrics_have_a_help_for_every_plain_count() -> None:
    assert set(metrics._PLAIN) == set(PLAIN)


def test_histogram_counts_each_duration_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((10, 20))
    for duration_ns in (1, 10, 11, 20, 21, 1_000_000_000):
        histogram.observe(duration_ns)
    out = Exposition()
    out.histogram("x_seconds", "X.", histogram)
    found = samples(out.text())
    assert found['x_seconds_bucket{le="1e-08"}'] == 2
    assert found['x_seconds_bucket{le="2e-08"}'] == 4
    assert found['x_seconds_bucket{le="+Inf"}'] == 6
    assert found["x_seconds_count"] == 6
    assert abs(found["x_seconds_sum"] - 1.000000063) < 1e-12
    assert histogram.take_max() == 1_000_000_000
    assert histogram.take_max() == 0


def test_exposition_escapes_labels() -> None:
    out = Exposition()
    out.gauge("x", "X.", by_label("name", {'a"b\\c\nd': 1}))
    assert out.text().splitlines()[2] == 'x{name="a\\"b\\\\c\\nd"} 1'
