"""Copies of others' reliable broadcasts, and the room that they have.

Theory of operation. A copy is kept from when it comes until it is stable, whoever reads it here. All
copies share one bound. Beyond it the next broadcast of a source that is stuck has room in the reserve
(`broadcast/reserve.py`); any other is not kept, and its source sends it again.
"""

from __future__ import annotations

from dataclasses import replace

from bmgd.core.broadcast.heard import Heard
from bmgd.core.broadcast.reserve import BroadcastReserve
from bmgd.core.broadcast.window import OVERHEAD_BYTES
from bmgd.core.context import Context
from bmgd.types import NodeId
from bmgd.wire.broadcast_messages import ReliableBroadcast
from bmgd.wire.holding import audience_bytes

HELD_BYTES_MAX = 128 << 20
"""Of all sources together; beyond it the sources send again, and those that are stuck have a reserve."""


def copy_cost(message: ReliableBroadcast) -> int:
    """What a copy costs: its payload, and what of its audience may take as much in memory."""
    return len(message.payload) + OVERHEAD_BYTES + audience_bytes(message)


def copy_for(message: ReliableBroadcast, peer: NodeId, stable: int) -> ReliableBroadcast:
    """A copy for one neighbor, that covers nobody else and tells what is stable."""
    route = replace(message.route, destination=peer, hop_budget=0, search=None)
    return replace(message, route=route, branches=(), stable=stable)


class BroadcastCopies:
    """The copies of all sources.

    Attributes:
        held_bytes: their cost.
    """

    def __init__(self, context: Context) -> None:
        self._reserve = BroadcastReserve(context)
        self.held_bytes = 0

    def keep(self, heard: Heard, message: ReliableBroadcast) -> bool:
        """Keep a copy of what is not kept yet; whether there was room."""
        cost = copy_cost(message)
        over_bytes = self.held_bytes + cost - HELD_BYTES_MAX
        is_next = message.route.sequence == heard.watermark + 1
        if over_bytes > 0 and not (is_next and self._reserve.admits(heard.key, over_bytes)):
            if is_next:
                self._reserve.on_refused(heard.key)
            return False
        self._reserve.on_kept(heard.key)
        route = message.route
        if route.search is not None:
            route = replace(route, search=None)
        if message.branches or route is not message.route:
            # Where this one went on to is in no count, and may be much more than all the rest.
            message = replace(message, route=route, branches=())
        heard.copies[message.route.sequence] = message
        heard.copies_bytes += cost
        self.held_bytes += cost
        return True

    def on_stable(self, heard: Heard, counts: list[int]) -> None:
        """More of a life is stable: of that these were given to readers, and are not kept any more."""
        for count in counts:
            cost = copy_cost(heard.copies.pop(count))
            heard.copies_bytes -= cost
            self.held_bytes -= cost
        self._reserve.on_stable(heard.key, has_copies=bool(heard.copies))

    def drop_all(self, heard: Heard) -> None:
        """Nobody is helped any more by the copies of a life."""
        self.held_bytes -= heard.copies_bytes
        heard.copies.clear()
        heard.copies_bytes = 0
        self._reserve.forget(heard.key)
