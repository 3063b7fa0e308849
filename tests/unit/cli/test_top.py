"""The table of `bmgd top`: rows and rates, sorting and filter, keys, and what fits on a screen."""

from __future__ import annotations

from typing import Any

import pytest

from bmgd.cli.check import CRITICAL, OK, WARNING, check_agreement, check_links, check_ready
from bmgd.cli.cluster_table import (
    COLUMNS,
    Row,
    arranged,
    heading,
    line_of,
    rows_of,
    short_bytes,
    title_of,
)
from bmgd.cli.top import Screen


def report(node_id: int, second: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "state": "ready",
        "digest": "ab" * 16,
        "suspects": [],
        "links": [[0], [1]],
        "uptime_s": 10.0 + 2 * second,
        "sent_bytes": 5000 * second,
        "received_bytes": 200 * second,
        "delivered": 20 * second,
        "relayed_frames": 60 * second,
        "backlog_bytes": 123_456,
        "cpu_ms": 500 * second,
        "rss_bytes": 27_000_000,
        **changes,
    }


def document(second: int, **changes: Any) -> dict[str, Any]:
    statuses = ["alive", "alive", "excluded", "left", "alive"]
    return {
        "own_id": 0,
        "cluster": "c",
        "members": [{"id": i, "status": status} for i, status in enumerate(statuses)],
        "reports": [report(0, second), report(1, second, suspects=[4], **changes)],
        "summary": {
            "alive": 3,
            "dead": 1,
            "left": 1,
            "reported": 2,
            "silent": [4],
            "suspected": [1],
            "isolated": [],
            "agree": "not all answer",
            "digests": {"ab": 2},
        },
    }


def test_top_rows_have_states_and_rates_between_two_looks() -> None:
    rows = rows_of(document(1), document(0))
    assert [row.state for row in rows] == ["ready", "suspected", "dead", "left", "no answer"]
    assert (rows[0].sent_per_s, rows[0].received_per_s) == (2500, 100)
    assert (rows[0].delivered_per_s, rows[0].relayed_per_s, rows[0].cpu_percent) == (10, 30, 25)
    assert rows[1].suspects == (4,)
    assert rows[2].links == -1
    assert rows_of(document(1), None)[0].sent_per_s == -1


def test_top_rates_of_a_new_life_are_unknown() -> None:
    assert rows_of(document(0), document(1))[0].sent_per_s == -1


def test_top_lines_are_as_wide_as_the_heading_says() -> None:
    rows = rows_of(document(1), document(0))
    line = line_of(rows[0])
    assert line.split() == [
        "0",
        "ready",
        "2",
        "2.5k",
        "100",
        "10",
        "30",
        "123k",
        "25.0",
        "27M",
        "abababab",
    ]
    end = 0
    for title, _, width in COLUMNS[:-1]:
        end += width
        assert title in heading()[: end + 1]
        end += 1
    assert line_of(rows[4]).split()[:4] == ["4", "no", "answer", "-"]
    assert title_of(document(1)) == "c seen from node 0: 3 alive, 1 dead, 1 left; 1 do not answer"


def test_top_sorts_by_a_column_and_filters_by_id_or_state() -> None:
    rows = [Row(1, "ready", links=3), Row(2, "dead"), Row(12, "ready", links=9)]
    assert [r.id for r in arranged(rows, "links", reverse=True, only="")] == [12, 1, 2]
    assert [r.id for r in arranged(rows, "id", reverse=False, only="ready")] == [1, 12]
    assert [r.id for r in arranged(rows, "id", reverse=False, only="2")] == [2, 12]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1000, "1.0k"), (54_321, "54k"), (2e12, "2T")]
)
def test_top_writes_bytes_in_short(count: float, text: str) -> None:
    assert short_bytes(count) == text


def test_top_screen_follows_its_keys_and_fits() -> None:
    screen = Screen(rows=[Row(i, "ready", links=i) for i in range(50)], title="t")
    assert len(screen.lines(10)) == 10
    assert "rows 1-7 of 50" in screen.lines(10)[1]
    screen.press("KEY_NPAGE")
    assert screen.lines(10)[3].split()[0] == "20"
    for _ in range(9):
        screen.press("KEY_NPAGE")
    assert screen.lines(10)[-1].split()[0] == "49"
    screen.press("s")
    screen.press("s")
    assert (screen.sort, screen.reverse) == ("links", True)
    for key in ("/", "4", "9", "x", "KEY_BACKSPACE"):
        screen.press(key)
    assert "filter: 49_" in screen.lines(10)[1]
    screen.press("q")
    assert (screen.ended, screen.only) == (False, "49q")
    screen.press("\x1b")
    assert (screen.typing, screen.only) == (False, "")
    screen.press(" ")
    assert "PAUSED" in screen.lines(10)[1]
    screen.press("q")
    assert screen.ended
    assert len(screen.lines(2)) == 2


STATUS: dict[str, Any] = {
    "id": 3,
    "state": "ready",
    "isolated": False,
    "quorum": {"holds": True},
    "neighbors": [1, 2, 5],
    "dead": [5],
    "left": [],
    "links": [{"id": 1}, {"id": 2}, {"id": 9}],
}


@pytest.mark.parametrize(
    ("changes", "code", "part"),
    [
        ({}, OK, "node 3 is ready"),
        ({"state": "joining"}, CRITICAL, "joining"),
        ({"isolated": True}, CRITICAL, "cut off from everybody"),
        ({"quorum": {"holds": False}}, CRITICAL, "stands aside"),
    ],
)
def test_check_ready(changes: dict[str, Any], code: int, part: str) -> None:
    finding = check_ready({**STATUS, **changes})
    assert finding.code == code
    assert part in finding.text


@pytest.mark.parametrize(
    ("links", "code"), [([1, 2], OK), ([1], WARNING), ([9], CRITICAL), ([], CRITICAL)]
)
def test_check_links_counts_neighbors_that_live(links: list[int], code: int) -> None:
    finding = check_links({**STATUS, "links": [{"id": i} for i in links]})
    assert finding.code == code
    assert finding.figures["links"] == len(links)


@pytest.mark.parametrize(
    ("agree", "digests", "silent", "code"),
    [
        ("yes", {"a": 4}, [], OK),
        ("no", {"a": 3, "b": 1}, [], CRITICAL),
        ("settling", {"a": 3, "b": 1}, [], CRITICAL),
        ("not all answer", {"a": 3}, [2], WARNING),
        ("asking", {"a": 3}, [], WARNING),
    ],
)
def test_check_agreement(agree: str, digests: dict[str, int], silent: list[int], code: int) -> None:
    summary = {
        "agree": agree,
        "digests": digests,
        "silent": silent,
        "alive": 4,
        "dead": 1,
        "reported": sum(digests.values()),
    }
    assert check_agreement(summary).code == code


def test_check_warns_of_settings_that_differ() -> None:
    summary = {
        "agree": "yes",
        "digests": {"a": 4},
        "silent": [],
        "alive": 4,
        "dead": 0,
        "reported": 4,
    }
    assert check_agreement({**summary, "settings_differ": []}).code == OK
    finding = check_agreement({**summary, "settings_differ": ["healing", "quorum"]})
    assert finding.code == WARNING
    assert "all 4 nodes agree, but their healing, quorum differ" in finding.text
