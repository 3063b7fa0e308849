"""What a message takes in memory beside its payload: some bytes of a frame can be very many here.

A set of ids that a frame has in 5 bytes is an integer of 16 KiB, and an id of 5 bytes an object of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bmgd.routing.id_sets import set_bytes
from bmgd.wire.ask_messages import Probe, ProbeReply, ProgramList, TraceAnswer
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    ReliableBroadcast,
    Skipped,
    Stable,
)
from bmgd.wire.link_messages import BUCKETS, Buckets, OlderMembers, Watermarks
from bmgd.wire.routes import Search
from bmgd.wire.stream_messages import SegmentAck, SharedSegment

ID_BYTES: Final = 40
"""An integer, and its place in a tuple; about, as are all these."""
BRANCH_BYTES: Final = 136
SKIP_BYTES: Final = 160
ENTRY_BYTES: Final = 250
MEMBER_BYTES: Final = 180
RUN_BYTES: Final = 130


def _branched(message: Any) -> int:
    return sum(BRANCH_BYTES + set_bytes(branch.cover) for branch in message.branches)


def audience_bytes(message: ReliableBroadcast) -> int:
    """What a reliable broadcast holds of its audience."""
    # Bound to names, for this runs for every copy that comes; most have neither.
    exceptions, skips = message.exceptions, message.skips
    return (set_bytes(exceptions) if exceptions else 0) + SKIP_BYTES * len(skips)


def _reliable(message: Any) -> int:
    return _branched(message) + audience_bytes(message)


def _passed(message: Any) -> int:
    return ID_BYTES * len(message.passed)


_HOLDS: Final[dict[type[Any], Callable[[Any], int]]] = {
    Broadcast: _branched,
    Multicast: _branched,
    Stable: _branched,
    ReliableBroadcast: _reliable,
    BroadcastPiece: _reliable,
    Skipped: lambda m: SKIP_BYTES * len(m.skips),
    Probe: _passed,
    ProbeReply: _passed,
    TraceAnswer: _passed,
    ProgramList: lambda m: len(m.starts),
    SharedSegment: lambda m: ENTRY_BYTES * len(m.entries),
    SegmentAck: lambda m: RUN_BYTES * len(m.gaps),
    Watermarks: lambda m: ENTRY_BYTES * len(m.held),
    OlderMembers: lambda m: MEMBER_BYTES * len(m.members),
    Buckets: lambda m: ID_BYTES * BUCKETS,
}


def held_bytes(message: Any) -> int:
    """What the sets, lists and the search of a message take, without payload, records and texts."""
    holds = _HOLDS.get(type(message))
    size = 0 if holds is None else holds(message)
    route = getattr(message, "route", None)
    search = None if route is None else route.search
    return size if search is None else size + _search_bytes(search)


def _search_bytes(search: Search) -> int:
    visited = search.visited
    size = len(visited) if type(visited) is bytes else RUN_BYTES * len(visited)
    return size + ID_BYTES * len(search.stack)
