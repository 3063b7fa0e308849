"""Credit for streams into this node: how much each may send.

Theory of operation. Credit is granted in bytes of cost, `GRANTED_MAX` in all, to at most `ACTIVE_MAX`
streams that sent something within `IDLE_NS`; any other may have one segment underway. It follows the
room of the topic, so a sender goes at the pace of the readers. A stream that was granted less than a
segment, or one of which was refused, is *starved*: when its topic has room again, the first of them hear
how much, the others when it has more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bmgd.core.context import Context
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.topics.topics import Topics
from bmgd.types import NodeId
from bmgd.wire.segments import COST_MAX

GRANTED_MAX: Final = 8 * 1024 * 1024
"""Credit of all streams together, and what is kept behind gaps."""
GRANT_MAX: Final = 4 * 1024 * 1024
"""Credit of one stream."""
ACTIVE_MAX: Final = 32
IDLE_NS: Final = 1_000_000_000
TOLD_OF_ROOM: Final = 8
"""Streams that hear at once when a topic has room again."""

Key = tuple[NodeId, int]
"""A stream's source and id."""


class Granting:
    """Which streams have credit, and which of them starve."""

    def __init__(self, context: Context, topics: Topics) -> None:
        self._context = context
        self._topics = topics
        self._active: dict[Key, StreamIn] = {}
        self._starved: dict[str, dict[Key, StreamIn]] = {}
        """By topic."""

    @property
    def active(self) -> Mapping[Key, StreamIn]:
        """The streams that have credit."""
        return self._active

    @property
    def starved(self) -> Mapping[Key, StreamIn]:
        """The streams that wait for room of their topic."""
        return {key: stream for each in self._starved.values() for key, stream in each.items()}

    def grant(self, stream: StreamIn) -> None:
        """Let a stream send as much as its topic has room for, and as its share of all credit is."""
        if stream.key not in self._active and not self._activate(stream):
            stream.credit = stream.taken
            return
        others = sum(s.credit - s.taken for s in self._active.values()) - (
            stream.credit - stream.taken
        )
        share = min(GRANT_MAX, GRANTED_MAX // max(2, len(self._active)), GRANTED_MAX - others)
        room = self._topics.room(stream.topic)
        stream.credit = max(stream.credit, stream.taken + max(0, min(share, room)))
        if stream.full or stream.credit - stream.taken < COST_MAX:
            self._starved.setdefault(stream.topic, {})[stream.key] = stream
            self._topics.ask_for_room(stream.topic)
        else:
            self._feed(stream)

    def forget(self, stream: StreamIn) -> None:
        """It is over: its credit is for others."""
        if self._active.get(stream.key) is stream:
            del self._active[stream.key]
        self._feed(stream)

    def _feed(self, stream: StreamIn) -> None:
        """It waits for no room any more."""
        starved = self._starved.get(stream.topic)
        if starved is None:
            return
        starved.pop(stream.key, None)
        if not starved:
            del self._starved[stream.topic]

    def _activate(self, stream: StreamIn) -> bool:
        if len(self._active) >= ACTIVE_MAX:
            membership, now_ns = self._context.membership, self._context.now_ns
            for known, other in list(self._active.items()):
                if other.heard_ns + IDLE_NS <= now_ns or membership.is_gone(other.source):
                    # What it sends on that credit is answered FULL, or taken where there is room.
                    other.credit = other.taken
                    del self._active[known]
        if len(self._active) >= ACTIVE_MAX:
            return False
        self._active[stream.key] = stream
        return True

    def on_room(self, topic: str) -> list[StreamIn]:
        """A topic has room again: grant it to those who wait for it.

        Returns:
            The streams whose sources are to hear of it, in the order in which they began to wait.
        """
        starved = self._starved.get(topic)
        if not starved:
            return []
        told = []
        now_ns = self._context.now_ns
        for key in list(starved)[:TOLD_OF_ROOM]:
            stream = starved.pop(key)
            if not stream.full and stream.heard_ns + IDLE_NS <= now_ns:
                # It has nothing to send, or asks by itself.
                continue
            was_full, before = stream.full, stream.credit
            stream.full = stream.refused = False
            self.grant(stream)
            if was_full or stream.credit > before:
                told.append(stream)
        starved = self._starved.get(topic)
        if starved:
            self._topics.ask_for_room(topic)
        elif starved is not None:
            del self._starved[topic]
        return told
