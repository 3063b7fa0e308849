"""Reports: this daemon's own, those of the others, and the questions to its core.

Every daemon has it, since any other may ask for a report. `web.py` and the verb ``cluster`` show its
contents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from bmgd.core.commands import Command, SendReport, ShowReport
from bmgd.core.counts import Counts
from bmgd.core.effects import Observed, RecordChanged, Reply, Reported, ReportWanted
from bmgd.errors import RequestError, SilentDaemonError
from bmgd.shell.node_report import Descriptors, report_bytes, whole_report
from bmgd.shell.view import ClusterView
from bmgd.shell.vitals import Vitals
from bmgd.types import NodeId

ANSWER_S: Final = 12.0
"""How long the core may take to answer."""

Publish = Callable[[str, object], None]


class Inside(Protocol):
    """What is seen of the daemon here."""

    @property
    def counts(self) -> Counts:
        """Of its core."""

    @property
    def vitals(self) -> Vitals:
        """Of its process."""

    def issue(self, request: int, command: Command) -> None:
        """Hand a command to the core; a `Reply` to a request below 0 comes to `Surveying.reply`."""

    def describe(self) -> Mapping[str, Any]:
        """What the shell adds to `status`."""

    def describe_process(self) -> Mapping[str, Any]:
        """What of it reports and metrics have too."""

    def descriptors(self) -> Descriptors:
        """Of every link that is up."""

    def totals(self) -> Mapping[str, int]:
        """What the engine of links has counted, see `LinkEngine.totals`."""


class Surveying:
    """Reports to others, and the view of the cluster.

    Args:
        inside: the daemon.
        cluster: its cluster's name.

    Attributes:
        inside: the same.
        publish: takes every change of the view, as a named JSON value.
        can_trace: whether the page may ask for a trace.
    """

    def __init__(self, inside: Inside, cluster: str) -> None:
        self.inside = inside
        self.publish: Publish = _to_nobody
        self.can_trace = False
        self._cluster = cluster
        self._view: ClusterView | None = None
        self._held = False
        self._waiting: dict[int, Callable[[Reply], None]] = {}
        self._last_request = 0

    @property
    def is_member(self) -> bool:
        """Whether the daemon has an id."""
        return self._view is not None

    def become(self, own_id: NodeId) -> None:
        """The daemon is the member with this id from now on."""
        self.close()
        self._view = ClusterView(own_id, self._ask, self._own_report, self._publish)
        if self._held:
            self._view.hold()
            # A page that shows the node of the former id begins anew.
            self._publish("cluster", self.cluster_document())

    def lose_id(self) -> None:
        """The daemon is no member until `become`: nothing is asked, since nothing answers."""
        self.close()
        self._view = None

    def close(self) -> None:
        """Stop asking."""
        if self._view is not None:
            self._view.close()

    def watch(self, *, held: bool) -> None:
        """Somebody looks until further notice, or nobody does."""
        if held == self._held:
            return
        self._held = held
        if self._view is not None:
            if held:
                self._view.hold()
            else:
                self._view.release()

    def _publish(self, name: str, value: object) -> None:
        self.publish(name, value)

    # --- what the daemon hands on -------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """The core's answer to a command of this module."""
        waiting = self._waiting.pop(reply.request, None)
        if waiting is not None:
            waiting(reply)

    def observed(self, observed: Observed) -> None:
        """The core observed something."""
        if self._view is not None:
            self._view.on_observed(observed)

    def record_changed(self, change: RecordChanged) -> None:
        """What is believed of a node has changed."""
        if self._view is not None:
            self._view.on_record_changed(change)

    def report_wanted(self, wanted: ReportWanted) -> None:
        """Another node asks for a report."""
        body = report_bytes(self._whole(wanted.facts))
        self.inside.issue(0, SendReport(wanted.asker, wanted.tag, wanted.number, body))

    def reported(self, reported: Reported) -> None:
        """A report came."""
        if self._view is not None:
            self._view.on_reported(reported.source, reported.body)

    # --- what is shown ------------------------------------------------------------------------

    def cluster_document(self) -> dict[str, Any]:
        """What the page begins with, and `bmgd top` reads; from now on the others are asked.

        Raises:
            RequestError: this daemon is not a member yet.
        """
        if self._view is None:
            raise RequestError("this daemon is not a member yet")
        self._view.lease()
        return {**self._view.document(), "cluster": self._cluster, "can_trace": self.can_trace}

    def shown(self) -> dict[str, Any]:
        """The same without its timeline, for `bmgd top` and `bmgd check`.

        Raises: as `cluster_document`.
        """
        return {**self.cluster_document(), "events": []}

    async def result(self, command: Command) -> Any:
        """What the core answers.

        Raises:
            SilentDaemonError: nothing within `ANSWER_S`.
            BmgdError: what it answers is an error.
        """
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answer(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        number = self._request(command, answer)
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await future
        except TimeoutError:
            raise SilentDaemonError("the core did not answer") from None
        finally:
            self._waiting.pop(number, None)
        if reply.error is not None:
            raise reply.error
        return reply.result

    def _request(self, command: Command, answer: Callable[[Reply], None]) -> int:
        self._last_request -= 1
        number = self._last_request
        self._waiting[number] = answer
        self.inside.issue(number, command)
        return number

    def _ask(self, command: Command, use: Callable[[Any], None] | None) -> None:
        if use is None:
            self.inside.issue(0, command)
            return

        def answer(reply: Reply) -> None:
            if reply.error is None:
                use(reply.result)

        self._request(command, answer)

    def _own_report(self, keep: Callable[[dict[str, Any]], None]) -> None:
        self._ask(ShowReport(), lambda facts: keep(self._whole(facts)))

    def _whole(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        inside = self.inside
        totals = inside.totals()
        process = {
            **inside.describe_process(),
            "cpu_ms": round(inside.vitals.cpu_s() * 1000),
            "rss_bytes": inside.vitals.resident_bytes(),
            "lag_us": inside.vitals.lag.take_max() // 1000,
            "sent_bytes": totals["sent_bytes"],
            "received_bytes": totals["received_bytes"],
            "relayed_frames": totals["relayed_frames"],
        }
        return whole_report(facts, inside.descriptors(), process)


def _to_nobody(name: str, value: object) -> None:
    pass
