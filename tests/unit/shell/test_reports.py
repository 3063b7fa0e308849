"""What a daemon tells its starter: gathered where nobody waits for it, never out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bmgd.shell.reports import GATHERED_MAX, Event, Reports

DEADLINE_S = 30.0
NOTICE: Event = {"event": "notice", "peer": 5}
READY: Event = {"event": "ready"}


def test_reports_of_a_death_are_told_together() -> None:
    async def run() -> list[list[Event]]:
        told: list[list[Event]] = []
        any_told = asyncio.Event()

        def report(events: Sequence[Event]) -> None:
            told.append(list(events))
            any_told.set()

        reports = Reports(report, asyncio.get_running_loop())
        reports.put(NOTICE)
        reports.put(NOTICE)
        assert told == []
        await asyncio.wait_for(any_told.wait(), DEADLINE_S)
        return told

    assert asyncio.run(run()) == [[NOTICE, NOTICE]]


def test_report_that_is_waited_for_goes_at_once_behind_the_gathered() -> None:
    async def run() -> list[list[Event]]:
        told: list[list[Event]] = []
        reports = Reports(lambda events: told.append(list(events)), asyncio.get_running_loop())
        reports.put(NOTICE)
        reports.put(READY)
        reports.flush()
        return told

    assert asyncio.run(run()) == [[NOTICE, READY]]


def test_reports_that_wait_are_bounded() -> None:
    async def run() -> int:
        told: list[list[Event]] = []
        reports = Reports(lambda events: told.append(list(events)), asyncio.get_running_loop())
        for _ in range(GATHERED_MAX):
            reports.put(NOTICE)
        return len(told)

    assert asyncio.run(run()) == 1
