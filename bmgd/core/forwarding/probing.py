"""Ping and trace: a probe to a node and back, with the ids that it went through when recorded.

A probe is sent again while no reply comes. Its sequence names the probe and the sending, and a reply
repeats it, so that the time is that of the sending which is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bmgd.core.commands import ProbeTo
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.show import gone_text
from bmgd.core.timers import TimerKey
from bmgd.errors import BmgdError, DeadError, RequestError, UnreachableError
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.ask_messages import Probe, ProbeReply
from bmgd.wire.bounds import ROUTE_IDS_MAX

Answered = Callable[[dict[str, Any] | None, BmgdError | None], None]
"""Takes the result of a probe, or why there is none."""

PROBES_MAX = 1024
PROBE_TIMER = "probe"
AGAIN_NS = 300_000_000
SENDING_BITS = 16
"""Of a sequence; a probe that waits for so long that its sendings are more is not sent again."""


@dataclass(slots=True)
class _Open:
    """A probe that is not answered.

    Args:
        sent_ns: when it was sent, the first time first.
    """

    answer: Answered
    command: ProbeTo
    sent_ns: list[int]


class Probing:
    """The probes underway from here; answers those of others."""

    def __init__(self, context: Context, forwarding: Forwarding) -> None:
        self._context = context
        self._forwarding = forwarding
        self._open: dict[int, _Open] = {}
        self._count = 0

    def start(self, request: int, command: ProbeTo) -> None:
        """Send a program's probe; one `Reply` follows."""

        def answer(result: dict[str, Any] | None, error: BmgdError | None) -> None:
            self._context.emit(Reply(request, result, error))

        self.probe(command, answer)

    def probe(self, command: ProbeTo, answer: Answered) -> None:
        """Send a probe; sent again until a reply, the destination's death or the deadline."""
        context, destination = self._context, command.destination
        error: BmgdError | None = None
        if context.membership.status_of(destination) is None:
            error = RequestError(f"no node has the id {destination}")
        elif context.membership.is_gone(destination):
            error = DeadError(destination, gone_text(context.membership, destination))
        elif len(self._open) >= PROBES_MAX:
            error = RequestError("too many probes underway")
        if error is not None:
            answer(None, error)
        elif destination == context.id:
            path = [int(destination)] if command.record else []
            answer({"rtt_ns": 0, "path": path}, None)
        else:
            self._count += 1
            self._open[self._count] = _Open(answer, command, [])
            self._send(self._count)

    def _send(self, number: int) -> None:
        probe, context = self._open[number], self._context
        command, sending = probe.command, len(probe.sent_ns)
        if sending < 1 << SENDING_BITS:
            probe.sent_ns.append(context.now_ns)
            sequence = number << SENDING_BITS | sending
            route = self._forwarding.route_to(
                command.destination, sequence=sequence, record=command.record
            )
            self._forwarding.originate(Probe(route, ()))
        deadline_ns = probe.sent_ns[0] + command.timeout_ns
        at_ns = min(context.now_ns + AGAIN_NS, deadline_ns)
        context.timers.set((PROBE_TIMER, number, 0), at_ns)

    def on_timer(self, key: TimerKey) -> None:
        """No reply yet: send again, or give up at the deadline."""
        probe, now_ns = self._open[key[1]], self._context.now_ns
        destination = probe.command.destination
        if self._context.membership.is_gone(destination):
            text = gone_text(self._context.membership, destination)
            self._end(key[1], error=DeadError(destination, text))
        elif now_ns - probe.sent_ns[0] >= probe.command.timeout_ns:
            self._end(key[1], error=UnreachableError(destination, "no answer to the probe"))
        else:
            self._send(key[1])

    def abandon(self, why: str) -> None:
        """Give up all probes underway."""
        for number, probe in list(self._open.items()):
            self._end(number, error=UnreachableError(probe.command.destination, why))

    def on_probe(self, probe: Probe) -> None:
        """Another node's probe arrived: send back the way that it took."""
        route = probe.route
        if route.record and len(probe.passed) >= ROUTE_IDS_MAX:
            return
        passed = (*probe.passed, self._context.id) if route.record else ()
        tag = incarnation_tag(route.source_incarnation)
        back = self._forwarding.route_to(route.source, tag=tag, sequence=route.sequence)
        self._forwarding.originate(ProbeReply(replace(back, record=False), passed))

    def on_reply(self, reply: ProbeReply) -> None:
        """The own probe came back."""
        number, sending = divmod(reply.route.sequence, 1 << SENDING_BITS)
        probe = self._open.get(number)
        if reply.route.destination_tag != self._context.own_tag:
            # It answers a former life of this node.
            return
        if probe is None or probe.command.destination != reply.route.source:
            return
        if sending >= len(probe.sent_ns):
            return
        path: list[NodeId] = list(reply.passed)
        result = {"rtt_ns": self._context.now_ns - probe.sent_ns[sending], "path": path}
        self._end(number, result=result)

    def _end(
        self, number: int, result: dict[str, Any] | None = None, error: BmgdError | None = None
    ) -> None:
        probe = self._open.pop(number)
        self._context.timers.cancel((PROBE_TIMER, number, 0))
        probe.answer(result, error)
