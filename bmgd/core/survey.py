"""Reports: what one node tells of itself to another that asks, and ways measured elsewhere.

Theory of operation. A node that shows the cluster to somebody (`bmgd.shell.view`) asks each of the
others for a report now and then; without one that looks nothing is asked, nothing is sent and nothing
is kept. An ask has no state and no deadline: it or its answer may be lost, and the next one will do.

    AskReports -> ReportAsk ~~> on_ask: ReportWanted -> the shell adds what the process knows
    Reported   <- Report    <~~ send:   SendReport   <-

A way between two other nodes is measured by a probe of the first one, which sends back what it saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bmgd.core.commands import ProbeTo, SendReport, TraceFrom
from bmgd.core.context import Context
from bmgd.core.effects import Reply, Reported, ReportWanted
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.forwarding.probing import Probing
from bmgd.core.links import Links
from bmgd.core.membership.quorum import Quorum
from bmgd.core.neighbors.detector import Detector
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.neighbors.relayout import Relayout
from bmgd.core.show import gone_text, is_isolated
from bmgd.core.streams.outbound import Outbound
from bmgd.core.timers import TimerKey
from bmgd.core.topics.topics import Topics
from bmgd.errors import BmgdError, DeadError, RequestError, UnreachableError
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.ask_messages import Report, ReportAsk, TraceAnswer, TraceAsk
from bmgd.wire.bounds import PROBLEM_BYTES_MAX, TRACE_MS_MAX
from bmgd.wire.routes import NORMAL_PRIORITY, Route

"""Reports wait behind what keeps the cluster together."""
REPORTS_PER_S: Final = 256
"""Reports that a node sends in one second; further asks in it are not answered."""
FOREIGN_TRACES_MAX: Final = 16
"""Ways that a node measures for others at a time; further asks are answered by a problem."""
TRACES_MAX: Final = 64
"""Ways that a node lets others measure at a time."""
LINKS_MAX: Final = 128
"""Links that one report tells of."""
TRACE_TIMER: Final = "trace"
_SECOND_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Survey:
    """Asks others about themselves, and answers them."""

    context: Context
    links: Links
    forwarding: Forwarding
    probing: Probing
    detector: Detector
    dialling: Dialling
    outbound: Outbound
    topics: Topics
    relayout: Relayout
    quorum: Quorum
    _asked: int = 0
    _taken: dict[NodeId, int] = field(default_factory=dict)
    """For each node, which ask the last report that was taken of it answers."""
    _second: int = -1
    _sent: int = 0
    _measuring: int = 0
    _traces: dict[int, tuple[int, TraceFrom]] = field(default_factory=dict)
    _trace_count: int = 0

    # --- reports ------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The core's part of a report, ready for JSON. Complexity: O(links), not O(N).

        Big numbers are texts: what reads JSON in a browser has 53 bits.
        """
        context, membership = self.context, self.context.membership
        return {
            "id": context.id,
            "state": context.state.value,
            "incarnation": str(context.incarnation),
            "record_version": context.version,
            "digest": f"{membership.digest:032x}",
            "revision": membership.revision,
            "layout_size": membership.layout_size,
            "living": self.quorum.living,
            "counted": self.quorum.counted,
            "isolated": is_isolated(self.links, self.quorum.counted),
            "stands_aside": context.stands_aside,
            "suspects": self.detector.suspects,
            "wanted": list(self.dialling.wanted)[:LINKS_MAX],
            "underway": self.outbound.underway,
            "waiting": self.topics.table.waiting(),
            "delivered": context.counts.delivered,
            "relayouts": self.relayout.relayouts,
            "links": self._links(),
        }

    def _links(self) -> list[dict[str, Any]]:
        now_ns = self.context.now_ns
        rows = sorted(self.links.table.values(), key=lambda link: (link.peer, link.id))
        return [
            {
                "link": link.id,
                "peer": link.peer,
                "dialled_by": link.dialled_by,
                "accused": link.accused_ns > 0,
                "silent_ms": (now_ns - link.heard_ns) // 1_000_000,
                "up_ms": (now_ns - link.opened_ns) // 1_000_000,
            }
            for link in rows[:LINKS_MAX]
        ]

    def ask(self, ids: tuple[NodeId, ...]) -> None:
        """Ask these nodes for a report each."""
        self._asked += 1
        for node_id in ids:
            if node_id != self.context.id and self.context.membership.in_layout(node_id):
                self.forwarding.originate(ReportAsk(self._route_to(node_id, self._asked)))

    def on_ask(self, ask: ReportAsk) -> None:
        """Somebody asks: let the shell complete the report, or count it as refused at the bound."""
        context = self.context
        second = context.now_ns // _SECOND_NS
        if second != self._second:
            self._second, self._sent = second, 0
        if self._sent >= REPORTS_PER_S:
            context.counts.add("reports_refused")
            return
        self._sent += 1
        tag = incarnation_tag(ask.route.source_incarnation)
        asker, number = ask.route.source, ask.route.sequence
        context.emit(ReportWanted(asker, tag, number, self.describe()))

    def send(self, report: SendReport) -> None:
        """Send the completed report."""
        route = self.forwarding.route_to(
            report.asker, tag=report.tag, sequence=report.number, priority=NORMAL_PRIORITY
        )
        self.context.counts.add("reports_sent")
        self.forwarding.originate(Report(route, report.body))

    def on_report(self, report: Report) -> None:
        """A report came; one that a former life of this node has asked for is nobody's.

        Of each node one is taken for each ask: to read one costs more than to send it.
        """
        route = report.route
        if route.destination_tag != self.context.own_tag or route.sequence > self._asked:
            return
        if route.sequence <= self._taken.get(route.source, 0):
            return
        # Who was asked has its place in the layout, which bounds this.
        if self.context.membership.in_layout(route.source):
            self._taken[route.source] = route.sequence
            self.context.emit(Reported(route.source, report.body))

    def _route_to(self, destination: NodeId, sequence: int) -> Route:
        tag = incarnation_tag(self.context.membership.incarnation(destination))
        return self.forwarding.route_to(
            destination, tag=tag, sequence=sequence, priority=NORMAL_PRIORITY
        )

    # --- ways ---------------------------------------------------------------------------------

    def trace(self, request: int, command: TraceFrom) -> None:
        """Have a way measured, here or at another node; one `Reply` follows."""
        context, source = self.context, command.source
        probe = ProbeTo(command.destination, record=True, timeout_ns=command.timeout_ns)
        if source == context.id:
            self.probing.start(request, probe)
            return
        error: BmgdError | None = None
        if context.membership.status_of(source) is None:
            error = RequestError(f"no node has the id {source}")
        elif context.membership.is_gone(source):
            error = DeadError(source, gone_text(context.membership, source))
        elif len(self._traces) >= TRACES_MAX:
            error = RequestError("too many ways are being measured")
        if error is not None:
            context.emit(Reply(request, error=error))
            return
        self._trace_count += 1
        number = self._trace_count
        self._traces[number] = request, command
        context.timers.set((TRACE_TIMER, number, 0), context.now_ns + 2 * command.timeout_ns)
        timeout_ms = min(max(1, command.timeout_ns // 1_000_000), TRACE_MS_MAX)
        ask = TraceAsk(self._route_to(source, number), command.destination, timeout_ms)
        self.forwarding.originate(ask)

    def on_trace_ask(self, ask: TraceAsk) -> None:
        """Somebody wants to know the way from here to another node."""
        if self._measuring >= FOREIGN_TRACES_MAX:
            self._answer(ask, 0, (), "this node measures enough ways for others already")
            return
        self._measuring += 1

        def answer(result: dict[str, Any] | None, error: BmgdError | None) -> None:
            self._measuring -= 1
            if result is None:
                self._answer(ask, 0, (), str(error))
            else:
                self._answer(ask, result["rtt_ns"] // 1000, tuple(result["path"]), "")

        self.probing.probe(ProbeTo(ask.target, True, ask.timeout_ms * 1_000_000), answer)

    def _answer(self, ask: TraceAsk, rtt_us: int, path: tuple[NodeId, ...], problem: str) -> None:
        tag = incarnation_tag(ask.route.source_incarnation)
        back = self.forwarding.route_to(ask.route.source, tag=tag, sequence=ask.route.sequence)
        text = problem.encode()[:PROBLEM_BYTES_MAX].decode(errors="ignore")
        self.forwarding.originate(TraceAnswer(back, rtt_us, path, text))

    def on_trace_answer(self, answer: TraceAnswer) -> None:
        """The way that this node wanted to know."""
        number = answer.route.sequence
        known = self._traces.get(number)
        is_own = answer.route.destination_tag == self.context.own_tag
        if known is None or not is_own or known[1].source != answer.route.source:
            return
        if answer.problem:
            problem = f"node {answer.route.source} says: {answer.problem}"
            self._end(number, error=UnreachableError(known[1].destination, problem))
        else:
            self._end(number, {"rtt_ns": answer.rtt_us * 1000, "path": list(answer.passed)})

    def on_trace_timer(self, key: TimerKey) -> None:
        """The other node did not answer."""
        source = self._traces[key[1]][1].source
        self._end(key[1], error=UnreachableError(source, "no answer to the wish for a trace"))

    def abandon(self, why: str) -> None:
        """Give up all ways that others measure for this node."""
        for number, (_, command) in list(self._traces.items()):
            self._end(number, error=UnreachableError(command.source, why))

    def _end(
        self, number: int, result: dict[str, Any] | None = None, error: BmgdError | None = None
    ) -> None:
        request, _ = self._traces.pop(number)
        self.context.timers.cancel((TRACE_TIMER, number, 0))
        self.context.emit(Reply(request, result, error))
