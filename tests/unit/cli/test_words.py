"""What commands tell a person: plain words, wall clock, incarnations as in logs, and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from bmgd.cli import members, monitor
from bmgd.cli.output import clock, life

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
