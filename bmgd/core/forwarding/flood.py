"""Floods: a member that sends more of what costs the core than any sound one does is slowed, and named.

Theory of operation. Heartbeats, pings, notices, digests, pages, asks, probes and joins are rare, and all
of them are sent again or made good by something else when one is lost. So for each neighbor, and for each
source behind it, there is a rate: `RATE_PER_S` of them, `BURST` at once (a leaky bucket, by the time at
which it would be empty); one more for what programs cause, so that a program that pings as fast as it can
slows no heartbeat; and one for what neighbors tell and ask of broadcasts whose source is gone.
What comes beyond is not looked at, and counted; who sent it is shown once in `NAMED_NS`.
Messages of programs have windows of their own, and are not counted here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bmgd.core.context import Context, Link
from bmgd.types import NodeId
from bmgd.wire.ask_messages import Answer, Ask, JoinGrant, JoinRequest, Probe, ProgramAsk
from bmgd.wire.link_messages import (
    Buckets,
    Heartbeat,
    Notice,
    OlderMembers,
    PageAsk,
    Ping,
    Pong,
    Pull,
    RecordPage,
    Unwanted,
    Watermarks,
)
from bmgd.wire.messages import Message
from bmgd.wire.stream_messages import Unreachable

RATE_PER_S = 1024
BURST = 4096
SENDERS_MAX = 4096
NAMED_NS = 10_000_000_000
_COST_NS = 1_000_000_000 // RATE_PER_S
_ROUTED = (Ask, Answer, JoinRequest, JoinGrant, ProgramAsk)
_OF_PROGRAMS = (Probe, Unreachable)
"""As many as programs ping, and send to nodes out of reach."""
_OF_LINK = (
    *(Heartbeat, Ping, Pong, Unwanted, OlderMembers),
    *(Notice, Buckets, PageAsk, RecordPage),
)


class Rate(Enum):
    """What has a rate of its own."""

    CLUSTER = "what keeps the cluster together"
    PROGRAMS = "what programs cause"
    ORPHANS = "what neighbors compare of sources that are gone"


Sender = tuple[NodeId, NodeId, Rate]
"""A neighbor, the source behind it or itself, and what they send."""


@dataclass(slots=True)
class Flood:
    """Decides what of a neighbor's messages is looked at."""

    context: Context
    _empty_ns: dict[Sender, int] = field(default_factory=dict)
    _named_ns: dict[Sender, int] = field(default_factory=dict)

    def admits(self, link: Link, message: Message) -> bool:
        """Whether this message is within its sender's rate. Complexity: O(1) on average."""
        sender: Sender
        if isinstance(message, _ROUTED):
            sender = link.peer, message.route.source, Rate.CLUSTER
        elif isinstance(message, _OF_PROGRAMS):
            sender = link.peer, message.route.source, Rate.PROGRAMS
        elif isinstance(message, _OF_LINK):
            sender = link.peer, link.peer, Rate.CLUSTER
        elif isinstance(message, Watermarks | Pull):
            # Many when many sources die at once: they have a rate of their own, and slow no heartbeat.
            sender = link.peer, link.peer, Rate.ORPHANS
        else:
            return True
        now_ns = self.context.now_ns
        empty_ns = max(self._empty_ns.get(sender, 0), now_ns)
        if empty_ns - now_ns >= BURST * _COST_NS:
            self._drop(sender)
            return False
        if len(self._empty_ns) >= SENDERS_MAX and sender not in self._empty_ns:
            self._forget_idle()
        self._empty_ns[sender] = empty_ns + _COST_NS
        return True

    def _drop(self, sender: Sender) -> None:
        self.context.counts.add("flooded_messages")
        now_ns = self.context.now_ns
        if now_ns >= self._named_ns.get(sender, 0):
            self._named_ns[sender] = now_ns + NAMED_NS
            neighbor, source, _ = sender
            behind = "" if source == neighbor else f", by way of node {neighbor}"
            detail = f"more than {RATE_PER_S} messages a second{behind}: the rest is not looked at"
            self.context.observe("flooding", source, detail=detail)

    def _forget_idle(self) -> None:
        """Make room; if all are busy, whoever has sent least is forgotten, and begins anew."""
        now_ns = self.context.now_ns
        self._empty_ns = {s: at_ns for s, at_ns in self._empty_ns.items() if at_ns > now_ns}
        if len(self._empty_ns) >= SENDERS_MAX:
            del self._empty_ns[min(self._empty_ns, key=self._empty_ns.__getitem__)]
        self._named_ns = {s: at_ns for s, at_ns in self._named_ns.items() if at_ns > now_ns}
