"""How much of what costs a core a node looks at, for each neighbor and each source behind it.

The rules of docs/architecture.md ("What is bounded") once more, for who writes down what a node did: 4096
messages at once and 1024 a second of what keeps the cluster together; as many of what programs cause; as
many of what neighbors compare of sources that are gone. What is beyond is not looked at. Only so many
senders are remembered: where there is one more, those that may send all again are forgotten, and where
none may, the one that may soonest, which begins anew.
"""

from __future__ import annotations

from typing import Final

from bmgd.core.forwarding import flood
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

AT_ONCE: Final = 4096
EACH_NS: Final = 976_562
"""A 1024th of a second."""
NAMED_AGAIN_NS: Final = 10_000_000_000

_OF_SOURCES: Final = {
    **dict.fromkeys((Ask, Answer, JoinRequest, JoinGrant, ProgramAsk), "cluster"),
    **dict.fromkeys((Probe, Unreachable), "programs"),
}
_OF_NEIGHBORS: Final = {
    **dict.fromkeys((Heartbeat, Ping, Pong, Unwanted, OlderMembers), "cluster"),
    **dict.fromkeys((Notice, Buckets, PageAsk, RecordPage), "cluster"),
    **dict.fromkeys((Watermarks, Pull), "gone sources"),
}

Sender = tuple[NodeId, NodeId, str]
"""A neighbor, who is behind it, and what for."""


class Rates:
    """What one process has looked at.

    Attributes:
        dropped: how many messages were beyond.
        sender: of the last message that was looked at; None for one of those that are not counted.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.sender: Sender | None = None
        self._done_ns: dict[Sender, int] = {}
        self._named_ns: dict[Sender, int] = {}

    def admits(self, now_ns: int, peer: NodeId, message: Message) -> bool:
        """Whether a message that comes over a link now is looked at; it is counted in either case."""
        self.sender = sender = _sender_of(peer, message)
        if sender is None:
            return True
        done_ns = max(self._done_ns.get(sender, 0), now_ns)
        if done_ns - now_ns >= AT_ONCE * EACH_NS:
            self.dropped += 1
            return False
        if sender not in self._done_ns and len(self._done_ns) >= flood.SENDERS_MAX:
            self._make_room(now_ns)
        self._done_ns[sender] = done_ns + EACH_NS
        return True

    def _make_room(self, now_ns: int) -> None:
        busy = [(at_ns, sender) for sender, at_ns in self._done_ns.items() if at_ns > now_ns]
        if len(busy) >= flood.SENDERS_MAX:
            # Of several with the same time the one that was there first.
            busy.remove(min(busy, key=lambda row: row[0]))
        self._done_ns = {sender: at_ns for at_ns, sender in busy}

    @property
    def remembered(self) -> dict[Sender, int]:
        """Who is remembered, and when each may send all again."""
        return self._done_ns

    def named(self, now_ns: int, peer: NodeId, message: Message) -> NodeId | None:
        """Who is to be named for a message that was dropped; None where it was not long ago."""
        sender = _sender_of(peer, message)
        if sender is None or now_ns < self._named_ns.get(sender, 0):
            return None
        self._named_ns[sender] = now_ns + NAMED_AGAIN_NS
        return sender[1]


def _sender_of(peer: NodeId, message: Message) -> Sender | None:
    kind = type(message)
    if kind in _OF_NEIGHBORS:
        return peer, peer, _OF_NEIGHBORS[kind]
    if kind in _OF_SOURCES:
        return peer, message.route.source, _OF_SOURCES[kind]  # type: ignore[union-attr]
    return None
