"""What a daemon tells the process that started it: each event a dict, in batches unless it is urgent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

Event = Mapping[str, object]
Report = Callable[[Sequence[Event]], None]
"""Gets events, oldest first; each has `event`, `id` and `at_ns`."""

GATHER_S = 0.02
"""So long an event waits for others. It carries the time at which it happened."""
GATHERED_MAX = 64
_GATHERED = frozenset({"notice", "links exact", "suspected", "verdict", "vetoed", "refuted"})


class Reports:
    """Gathers events of a death; all others are told at once, with what was gathered before.

    Args:
        report: told the events; None for nobody.
        loop: the running loop.
    """

    def __init__(self, report: Report | None, loop: asyncio.AbstractEventLoop) -> None:
        self._report = report
        self._loop = loop
        self._gathered: list[Event] = []
        self._planned: asyncio.TimerHandle | None = None

    def put(self, event: Event) -> None:
        """Tell an event, soon or at once."""
        if self._report is None:
            return
        self._gathered.append(event)
        if event["event"] not in _GATHERED or len(self._gathered) >= GATHERED_MAX:
            self.flush()
        elif self._planned is None:
            self._planned = self._loop.call_later(GATHER_S, self.flush)

    def flush(self) -> None:
        """Tell what has been gathered."""
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        if self._gathered and self._report is not None:
            gathered, self._gathered = self._gathered, []
            self._report(gathered)
