"""What a daemon tells of what happened: programs, the log, its pages, its starter, the service manager.

Theory of operation. Effects of a step that concern nobody's next frame wait here until the frames have
been written; the daemon says when. Those for programs wait apart from what is for everybody else, and
each kind keeps its order. What happened carries the time at which it did.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from bmgd.config import Config
from bmgd.core.effects import Observed, RecordChanged
from bmgd.shell.advice import with_advice
from bmgd.shell.control import ControlServer
from bmgd.shell.control_answers import ForPrograms
from bmgd.shell.log import DaemonLog
from bmgd.shell.reports import Report, Reports
from bmgd.shell.service_manager import ServiceManager
from bmgd.shell.surveying import Surveying

FLUSH_AT_EXIT_S = 0.5
_REPORTED = frozenset(
    {
        "ready",
        "suspected",
        "verdict",
        "quorum lost",
        "quorum regained",
        "vetoed",
        "refuted",
        "new life",
        "links exact",
    }
)


class Telling:
    """Tells what happened at one daemon.

    Args:
        config: what the daemon is told.
        report: see `Daemon`.
        manager: the service manager, if there is one.
        surveying: the pages.
        drains_until_ns: until when the core drains, once it is leaving.

    Attributes:
        config: the same, as of now.
        log: of the id that the daemon has now.
        control: where the programs are; None without a socket.
        untold: what the last steps have for programs.
        happened: what everybody else is told of them, and when it happened.
    """

    def __init__(
        self,
        config: Config,
        report: Report | None,
        manager: ServiceManager,
        surveying: Surveying,
        drains_until_ns: Callable[[], int],
    ) -> None:
        self.config = config
        self.log = DaemonLog(config.id, config.log_level, config.log_format)
        self.control: ControlServer | None = None
        self.untold: deque[ForPrograms] = deque()
        self.happened: deque[tuple[int, Observed | RecordChanged]] = deque()
        self._report_to = report
        self._reports: Reports | None = None
        self._manager = manager
        self._surveying = surveying
        self._drains_until_ns = drains_until_ns

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to tell the starter and the service manager."""
        self._reports = Reports(self._report_to, loop)
        self._manager.start(loop)

    def become(self, config: Config) -> None:
        """The daemon has another id: its log says so from now on."""
        self.config = config
        self.log.close()
        self.log = DaemonLog(config.id, config.log_level, config.log_format)

    def close(self) -> None:
        """Write what waits, and end."""
        if self._reports is not None:
            self._reports.flush()
        self._manager.close()
        self.log.close()

    def tell_programs(self) -> None:
        """Pass on what the last steps have for programs, in order."""
        untold, control = self.untold, self.control
        while untold:
            effect = untold.popleft()
            if control is not None:
                control.answers.tell(effect)

    def show_what_happened(self) -> None:
        """Tell the log, the starter and the programs, after the neighbors have been told."""
        while self.happened:
            at_ns, effect = self.happened.popleft()
            if isinstance(effect, Observed):
                self._observed(effect, at_ns)
            else:
                self._record_changed(effect, at_ns)

    def observed_joining(self, observed: Observed) -> None:
        """Something happened to a daemon that has no id yet."""
        self.log.observed(with_advice(observed, self.config))

    def say(self, event: str, text: str) -> None:
        """A line of log."""
        self.log.line(event, text)

    def warn(self, event: str, text: str) -> None:
        """A warning in the log; of one cause not too many."""
        self.log.warn(event, text)

    def report(self, event: str, at_ns: int | None = None, **fields: object) -> None:
        """Tell the starter."""
        if self._report_to is not None and self._reports is not None:
            at_ns = at_ns or time.monotonic_ns()
            self._reports.put({"event": event, "id": self.config.id, "at_ns": at_ns} | fields)

    def _observed(self, observed: Observed, at_ns: int) -> None:
        self.log.observed(with_advice(observed, self.config))
        self._surveying.observed(observed)
        if self.control is not None:
            self.control.answers.observed(observed, at_ns)
        if observed.event == "ready":
            self._manager.ready(f"node {self.config.id} is ready, {observed.detail}")
        elif observed.event == "leaving":
            left_ns = max(0, self._drains_until_ns() - time.monotonic_ns())
            self._manager.stopping(left_ns / 1e9 + FLUSH_AT_EXIT_S)
        elif observed.event in ("quorum lost", "quorum regained"):
            self._manager.status(f"node {self.config.id}: {observed.event}")
        if observed.event in _REPORTED:
            self.report(observed.event, at_ns, peer=observed.peer, detail=observed.detail)

    def _record_changed(self, changed: RecordChanged, at_ns: int) -> None:
        status = changed.record.status.name.lower()
        self.log.record(changed.id, changed.record.incarnation, status)
        self._surveying.record_changed(changed)
        if self.control is not None:
            self.control.answers.record_changed(changed, at_ns)
        if changed.id != self.config.id:
            self.report("notice", at_ns, peer=changed.id, status=status)
