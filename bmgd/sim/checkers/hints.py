"""What relays tell a source is heeded; what comes at best effort is not dropped without a cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Displaced, Effect, ForwardingChanged, Send
from bmgd.core.events import Event, Received
from bmgd.core.streams.stream_out import StreamOut
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeState
from bmgd.wire.stream_messages import Segment, SegmentFlag, Unreachable

_FIRST_NS: Final = 10_000_000
_LONGEST_NS: Final = 2_000_000_000
_DOUBLINGS: Final = 8


class HintsAreHeeded(Checker):
    """Who is told that a relay found no way sends again soon, and later each time that it is told so.

    The first time after 10 ms, and 2 s at most, a quarter more or less by chance. A segment of its own
    that a search brings back, and that does not go on from there, tells it the same.
    """

    name: ClassVar[str] = "hints-are-heeded"
    events: ClassVar[Kinds] = (Unreachable, Segment)
    before_events: ClassVar[Kinds] = (Unreachable, Segment)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._of: tuple[StreamOut, int] | None = None
        """The stream that a hint is of, and how many there were before."""

    def before(self, journal: Journal, event: Event) -> None:
        self._of = None
        match event:
            case Received(_, Unreachable(route, target)) if route.destination == journal.host.id:
                pass
            case Received(_, Segment(route)) if route.source == journal.host.id:
                target = route.destination
            case _:
                return
        stream = journal.inside.open_ids(target).get(route.sequence >> 32)
        number = route.sequence % (1 << 32)
        if stream is not None and number in stream.underway and not stream.blocked:
            self._of = stream, stream.hints

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if self._of is None or journal.exited:
            return
        (stream, hints), self._of = self._of, None
        came = event.message if isinstance(event, Received) else None
        if isinstance(came, Segment) and _goes_on(came, effects):
            return
        if stream.key not in journal.inside.outbound.table.streams or not stream.underway:
            return
        longest_ns = min(_FIRST_NS << min(hints, _DOUBLINGS), _LONGEST_NS) * 5 // 4
        wait_ns = stream.resend_ns - journal.now_ns
        if wait_ns > longest_ns:
            self.violate(
                journal, f"told {hints + 1} times of no way, and waits for {wait_ns / 1e6:g} ms"
            )
        if stream.hints != hints + 1:
            self.violate(journal, f"told {hints + 1} times of no way, and counts {stream.hints}")


def _goes_on(segment: Segment, effects: Sequence[Effect]) -> bool:
    """Whether a segment that came back has another way, or is for this very node."""
    route = segment.route
    sent = [e.message for e in effects if isinstance(e, Send)]
    return route.destination == route.source or any(
        isinstance(message, Segment)
        and (message.route.destination, message.route.sequence)
        == (route.destination, route.sequence)
        for message in sent
    )


class NewWaysAreTaken(Checker):
    """Where ways have changed, what is underway by another one than the present is looked through.

    Its destination may not have got it, or the answer may have been lost: it is sent again soon.
    """

    name: ClassVar[str] = "new-ways-are-taken"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (ForwardingChanged,)
    before_events: ClassVar[Kinds] = ()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if journal.exited or any(isinstance(effect, Displaced) for effect in effects):
            return
        inside = journal.inside
        if "reroute" in inside.outbound.answers._work:
            return
        for stream in inside.streams_out():
            is_here = stream.destination == journal.host.id
            if not stream.underway or stream.blocked or is_here:
                continue
            way = inside.forwarding.way_to(stream.destination)
            if way != stream.way:
                text = f"what goes to {stream.destination} left by link {stream.way}, not {way}"
                self.violate(journal, f"{text}, and is not looked through")


class BestEffortIsTaken(Checker):
    """A message at best effort is dropped where it comes only if its topic may be full, or one leaves."""

    name: ClassVar[str] = "best-effort-is-taken"
    events: ClassVar[Kinds] = (Segment,)
    before_events: ClassVar[Kinds] = (Segment,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._dropped: int | None = None

    def before(self, journal: Journal, event: Event) -> None:
        self._dropped = None
        message = event.message if isinstance(event, Received) else None
        if not isinstance(message, Segment) or not message.flags & SegmentFlag.BEST_EFFORT:
            return
        inside = journal.inside
        is_here = message.route.destination == journal.host.id and not message.size
        if is_here and inside.context.state is not NodeState.LEAVING and _has_room(inside, message):
            self._dropped = inside.topics.dropped

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if self._dropped is not None and journal.inside.topics.dropped != self._dropped:
            self.violate(journal, "drops a message at best effort, and has room")


def _has_room(inside: Inside, segment: Segment) -> bool:
    """Whether somebody reads the topic and it holds nothing: then a whole segment has room."""
    topic = inside.topics.table.topics.get(segment.topic)
    return topic is not None and bool(topic.readers) and not topic.held_bytes
