"""Reliable multicasts: a segment of a stream to each destination, in one frame while they share a way.

Theory of operation. A multicast is a message in a stream to each of its destinations, the one that `send`
to the same topic uses. Those whose stream may send now go together: a frame has the body once, and an
entry for each destination with what its segment has of its own. The frame goes to the next neighbor;
its core takes its own entry as the segment that it is, and groups the others by next hops anew.

    window, credit and an id allow it  --> entry of a frame; alone on its way: a `Segment`
    they do not, or no neighbor begins a shortest way --> a `Segment` when they do, or in careful mode

Among equal next hops the one is taken that most others can share, and the branch with most hops goes
first (ISPA07 §5.2). So where all links are up and layouts are equal a body crosses each link at most
once: if two copies crossed the same link, then each one's first hop would begin a shortest way of the
other too, and they would have left together. What is not acknowledged is sent again by its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from bmgd.core.broadcast.broadcasting import refusal_of
from bmgd.core.commands import MulticastTo
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.forwarding.branching import CAREFUL_MAX, Branching
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.links import Links
from bmgd.core.streams.gathering import Gathering
from bmgd.core.streams.inbound import Inbound
from bmgd.core.streams.outbound import Outbound
from bmgd.core.streams.stream_out import Sending, StreamOut
from bmgd.errors import BmgdError, DeliveryError, RequestError, UnreachableError
from bmgd.routing.id_sets import ids_in
from bmgd.types import NodeId
from bmgd.wire.bounds import ENTRIES_MAX
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Entry, Segment, SegmentFlag, SharedSegment

Ready = dict[NodeId, tuple[StreamOut, Sending]]


@dataclass(slots=True)
class MulticastTally:
    """What became of reliable multicasts, for `status`."""

    sent: int = 0
    shared: int = 0
    singly: int = 0
    relayed: int = 0
    lost: int = 0


class Multicasting:
    """Sends reliable multicasts, and passes them on."""

    def __init__(
        self,
        context: Context,
        links: Links,
        forwarding: Forwarding,
        branching: Branching,
        outbound: Outbound,
        inbound: Inbound,
    ) -> None:
        self._context = context
        self._links = links
        self._forwarding = forwarding
        self._branching = branching
        self._outbound = outbound
        self._inbound = inbound
        self.tally = MulticastTally()

    # --- at the source ------------------------------------------------------------------------

    def multicast(self, request: int, command: MulticastTo) -> None:
        """Take a multicast from a program; one `Reply` follows, at the latest at its deadline."""
        ids = [NodeId(each) for each in ids_in(command.destinations)]
        refusals = {each: self._outbound.refusal(each, command.topic) for each in ids}
        error = self._refusal(command, ids, list(refusals.values()))
        if error is not None:
            self._context.emit(Reply(request, error=error))
            return
        self.tally.sent += 1
        gathering = Gathering(len(ids))
        self._outbound.table.gatherings[request] = gathering
        taken: list[StreamOut] = []
        ready: Ready = {}
        for each in ids:
            refusal = refusals[each]
            found = None if refusal else self._take(request, command, each)
            if found is None:
                detail = "messages to too many topics are underway"
                gathering.settle(each, refusal or UnreachableError(each, detail))
                continue
            taken.append(found[0])
            if self._may_go_now(*found):
                ready[each] = found
        self._send_together(ready)
        self.tally.singly += sum(not self._is_away(stream) for stream in taken)
        self._outbound.sending.pump_all(taken)
        if not gathering.left and request in self._outbound.table.gatherings:
            # Nobody could be sent anything.
            del self._outbound.table.gatherings[request]
            self._context.emit(Reply(request, gathering.report()))

    def _refusal(
        self, command: MulticastTo, ids: Sequence[NodeId], refusals: Sequence[BmgdError | None]
    ) -> BmgdError | None:
        """Why nothing of it can be sent; what concerns some destinations only is no reason."""
        error = refusal_of(self._context, command.topic, command.payload)
        if error is None and len(ids) > ENTRIES_MAX:
            error = RequestError(f"a reliable multicast has at most {ENTRIES_MAX} destinations")
        others = (found for found in refusals if not isinstance(found, DeliveryError | None))
        return error or next(others, None) or self._outbound.room_for(len(ids))

    def _take(
        self, request: int, command: MulticastTo, destination: NodeId
    ) -> tuple[StreamOut, Sending] | None:
        return self._outbound.take(
            request, destination, command.topic, packed(command.payload), command.timeout_ns
        )

    def _may_go_now(self, stream: StreamOut, sending: Sending) -> bool:
        """Whether it would be the next segment of its stream, and is not for this node itself."""
        is_next = len(stream.queue) == 1 and not stream.losses
        if stream.destination == self._context.id or not is_next:
            return False
        return stream.may_send(sending.cost) and self._outbound.sending.prepare(stream, sending)

    @staticmethod
    def _is_away(stream: StreamOut) -> bool:
        return not stream.queue

    def _send_together(self, ready: Ready) -> None:
        sending_part = self._outbound.sending
        groups, _ = self._branching.ways(list(ready))
        for peer, ids in groups:
            link = self._links.to(peer)
            if link is None or not link.knows(SharedSegment):
                # A daemon of an older release: those behind it follow singly.
                continue
            segments = []
            for each in ids:
                stream, sending = ready[each]
                segments.append(sending_part.segment_of(stream, sending))
                stream.queue.popleft()
                sending_part.on_transmitted(stream, sending)
                stream.way = link.id
            first, stream = segments[0], ready[ids[0]][0]
            whole = SharedSegment(
                replace(first.route, destination=peer, destination_tag=0, sequence=0),
                stream.topic,
                tuple(entry_of(segment) for segment in segments),
                first.body,
            )
            self._send(whole, peer, whole.entries)

    # --- on the way ---------------------------------------------------------------------------

    def on_segment(self, message: SharedSegment) -> None:
        """A frame for this node: take what is its own, and pass the rest on."""
        me = self._context.id
        for entry in message.entries:
            if entry.id == me:
                self._inbound.on_segment(unicast(message, entry))
        self.pass_on(message)

    def pass_on(self, message: SharedSegment) -> None:
        """Group what others are to get by next hops; a frame whose link has closed comes back too."""
        entries = {entry.id: entry for entry in message.entries if entry.id != self._context.id}
        if not entries:
            return
        self.tally.relayed += 1
        groups: list[tuple[NodeId, list[NodeId]]] = []
        without = list(entries)
        if message.route.hop_budget:
            groups, without = self._branching.ways(without)
        for peer, ids in groups:
            self._send(message, peer, [entries[each] for each in ids])
        self.tally.lost += len(without[CAREFUL_MAX:])
        for each in without[:CAREFUL_MAX]:
            self._forwarding.relay(unicast(message, entries[each]), None)

    def _send(self, message: SharedSegment, peer: NodeId, entries: Sequence[Entry]) -> None:
        link = self._links.to(peer)
        assert link is not None
        route = replace(message.route, hop_budget=max(0, message.route.hop_budget - 1))
        if len(entries) == 1 or not link.knows(SharedSegment):
            # Relays need no core for a unicast, and those of an older release know nothing else.
            onward = replace(message, route=route)
            for entry in entries:
                self._context.send(link.id, unicast(onward, entry))
            return
        self.tally.shared += len(entries)
        route = replace(route, destination=peer)
        self._context.send(link.id, replace(message, route=route, entries=tuple(entries)))

    def show(self) -> dict[str, int]:
        """The part of `bmgd status --json` about reliable multicasts."""
        return asdict(self.tally)


def entry_of(segment: Segment) -> Entry:
    """What a segment has of its own, in a frame with others."""
    route = segment.route
    return Entry(
        route.destination, route.destination_tag, route.sequence, segment.replaces, segment.floor
    )


def unicast(message: SharedSegment, entry: Entry) -> Segment:
    """What a frame is to one of its destinations."""
    opens = entry.sequence & 0xFFFF_FFFF == 1
    route = replace(
        message.route,
        destination=entry.id,
        destination_tag=entry.tag,
        sequence=entry.sequence,
    )
    return Segment(
        route,
        int(SegmentFlag.OPEN) if opens else 0,
        message.topic if opens else "",
        entry.replaces if opens else 0,
        entry.floor,
        1,
        0,
        message.body,
    )
