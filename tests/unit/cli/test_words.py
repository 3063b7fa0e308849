"""What commands tell a person: plain words, wall clock, incarnations as in logs, and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from bmgd.cli import _told, members, monitor, programs
from bmgd.cli.cluster_table import Row, line_of
from bmgd.cli.output import clock, life, print_table
from bmgd.cli.status import lines_of
from bmgd.client.programs import Program
from bmgd.errors import RequestError

NOW_S = 1_764_000_000.0


def member(**fields: Any) -> dict[str, Any]:
    return {
        "id": 3,
        "status": "alive",
        "incarnation": 0x100000001,
        "version": 0,
        "address": "a:1",
        "for_ms": 2500,
        **fields,
    }


EVIL = "a\x1b]0;x\x07\r\x00\x9b2J\u202eb"
"""What a terminal obeys, and what curses does not take."""


def test_what_others_say_is_shown_without_what_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([{"address": EVIL}], ["address"])
    programs._show_all([Program(3, 1 << 32, EVIL)], as_json=False)
    programs._show(Program(3, 1 << 32, EVIL), as_json=False)
    print(monitor._line({"event": EVIL, "time": NOW_S, "detail": EVIL}))
    print(line_of(Row(3, EVIL, digest=EVIL)))
    _told("send", RequestError(EVIL), as_json=False)
    out, err = capsys.readouterr()
    lines = [*out.splitlines(), *err.splitlines()]
    assert len(lines) == 7
    assert all(line.isprintable() for line in lines)
    assert all("a\\x1b]0;x" in line for line in lines[1:])


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("expected", "alive, not met"),
        ("alive", "alive"),
        ("dead", "dead, still in the graph"),
        ("excluded", "dead"),
        ("left", "left"),
    ],
)
def test_members_are_shown_in_the_words_of_a_person(status: str, word: str) -> None:
    assert members._row(member(status=status), NOW_S)["is"] == word


def test_members_show_since_when_on_the_wall_clock() -> None:
    assert members._row(member(), NOW_S)["since"] == "2025-11-24T15:59:57.500Z"


def test_incarnations_are_written_as_in_logs() -> None:
    assert members._row(member(), NOW_S)["incarnation"] == "0x100000001"
    assert (life(0), life(None)) == ("", "")


def test_monitor_shows_the_wall_clock_and_incarnations_as_in_logs() -> None:
    event = {
        "event": "verdict",
        "peer": 5,
        "incarnation": 0x2A,
        "detail": "refused",
        "time": NOW_S,
        "at_ns": 17,
    }
    line = monitor._line(event)
    assert line == f"{clock(NOW_S)} verdict peer=5 incarnation=0x2a detail=refused"
    assert line.startswith("2025-11-24T16:00:00.000Z ")


def status_of_three() -> dict[str, Any]:
    """What a daemon of an older release answers."""
    return {
        "id": 3,
        "state": "ready",
        "rank": 3,
        "incarnation": 0x2A,
        "version": 0,
        "founding_size": 4,
        "layout_size": 4,
        "alive": [0, 1, 3],
        "dead": [2],
        "left": [],
        "neighbors": [0, 1, 2],
        "links": [{"id": 0}],
        "quorum": {"holds": True, "living": 3, "of": 4},
        "digest": "00",
        "backend": "c",
        "loop": "uvloop",
    }


def test_status_names_the_topics_that_hold_the_most() -> None:
    rows = [
        {"topic": f"t\n{number}", "waiting": 1234, "held_bytes": 2_500_000, "readers": number}
        for number in range(7)
    ]
    (line,) = (
        line
        for line in lines_of({**status_of_three(), "topics": rows, "topics_left_out": 3})
        if line.startswith("  topics ")
    )
    assert line.startswith(
        "  topics       t\\n0 1,234 waiting, 2.5 MB held, no readers; "
        "t\\n1 1,234 waiting, 2.5 MB held, 1 reader; t\\n2 1,234 waiting, 2.5 MB held, 2 readers; "
    )
    assert line.endswith("; and 5 more")
    nothing = lines_of({**status_of_three(), "topics": [], "topics_left_out": 0})
    assert not [line for line in nothing if "topics" in line]


def test_status_of_a_daemon_of_an_older_release_is_shown() -> None:
    """In a rolling upgrade the new command asks daemons that do not tell of releases yet."""
    status = status_of_three()
    shown = lines_of(status)
    assert shown[0] == "node 3 is ready (rank 3)"
    assert "  awaited      1" in shown
    assert not [line for line in shown if "older" in line]
    assert "  older        0-1: what they do not know is not used yet" in lines_of(
        {**status, "older": [0, 1]}
    )
