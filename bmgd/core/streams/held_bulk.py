"""Own streams of the bulk class that wait for a link that has much to write.

Theory of operation. A link is told to have much to write from 256 KiB on, and to have little again from
64 KiB on (`Backlog`). Between the two, streams of the bulk class that would leave by it are held. Other
streams of this node still send over it, and for every seven bytes of theirs the first held stream sends
one, so that bulk never starves. A held stream goes on when its link has little to write, or when links
came or went, since it may leave by another one then. What is relayed never waits: hop-by-hop
backpressure deadlocks on cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.streams.stream_out import StreamOut
from bmgd.types import LinkId
from bmgd.wire.routes import BULK_PRIORITY
from bmgd.wire.segments import COST_MAX

BULK_SHARE: Final = 7
"""A held stream sends a byte for so many that pass it."""
BACKLOG_LOW_BYTES: Final = 64 * 1024
"""A link that has no more to write has little."""


@dataclass(slots=True, eq=False)
class _Held:
    """What waits for one link.

    Args:
        streams: of the bulk class, by key.
        passed_bytes: what other streams have sent over the link, less what bulk has sent of its share.
    """

    streams: dict[int, StreamOut] = field(default_factory=dict)
    passed_bytes: int = 0


class HeldBulk:
    """Which streams are held, and for which link.

    Args:
        forwarding: knows by which link a stream would leave.
        wake: lets streams send again, in turns.
    """

    def __init__(self, forwarding: Forwarding, wake: Callable[[Iterable[StreamOut]], None]) -> None:
        self._forwarding = forwarding
        self._wake = wake
        self._links: dict[LinkId, _Held] = {}
        """Of each link that has much to write."""

    @property
    def links(self) -> frozenset[LinkId]:
        """The links that have much to write."""
        return frozenset(self._links)

    def on_backlog(self, link: LinkId, backlog_bytes: int) -> None:
        """A link has much to write, or little again."""
        if backlog_bytes > BACKLOG_LOW_BYTES:
            self._links.setdefault(link, _Held())
            return
        held = self._links.pop(link, None)
        if held is not None:
            self._wake(held.streams.values())

    def on_ways_changed(self) -> None:
        """Links came or went: what waits for one looks again which way it has."""
        for link in list(self._links):
            held = self._links.pop(link)
            if self._forwarding.has_link(link):
                self._links[link] = _Held()
            self._wake(held.streams.values())

    def holds(self, stream: StreamOut) -> bool:
        """Whether the first segment in a stream's queue must wait; if so, the stream is held.

        A segment that may go takes its cost from what has passed the held ones.
        """
        if not self._links or stream.priority != BULK_PRIORITY:
            return False
        held = self._held_for(stream)
        if held is None:
            return False
        cost = BULK_SHARE * stream.queue[0].cost
        if held.passed_bytes >= cost:
            held.passed_bytes -= cost
            return False
        held.streams[stream.key] = stream
        return True

    def on_sent(self, stream: StreamOut, cost: int) -> None:
        """A segment of so many bytes was sent: a held stream that it passed may have a turn now."""
        if not self._links or stream.priority == BULK_PRIORITY:
            return
        held = self._held_for(stream)
        if held is None:
            return
        held.passed_bytes = min(held.passed_bytes + cost, 2 * BULK_SHARE * COST_MAX)
        first = next(iter(held.streams.values()), None)
        if first is None:
            return
        # What it held may have been withdrawn.
        owed = BULK_SHARE * first.queue[0].cost if first.queue else 0
        if held.passed_bytes >= owed:
            del held.streams[first.key]
            self._wake((first,))

    def _held_for(self, stream: StreamOut) -> _Held | None:
        """Of the link that a stream would leave by; None where that has little to write."""
        way = self._forwarding.first_link_to(stream.destination)
        return None if way is None else self._links.get(way)
