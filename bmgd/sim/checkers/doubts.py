"""What a failed send says of itself: that it may have been taken, only if it was ever put on a link.

That what is told as not sent was not taken, and never is, `MessagesAreTakenOnce` sees to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.commands import PutSegment, SendTo
from bmgd.core.effects import Effect, Reply, Send, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Event
from bmgd.errors import DeliveryError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId
from bmgd.wire.batch import unpack_messages
from bmgd.wire.stream_messages import Segment

_Request = tuple[NodeId, int]
"""The place of a process, and a request of one of its programs."""


class DoubtHasAReason(Checker):
    """A message that is told as perhaps taken left its daemon once; else to send it again is safe.

    Not looked at are messages of a node to itself: they cross no link.
    """

    name: ClassVar[str] = "doubt-has-a-reason"
    events: ClassVar[Kinds] = (CommandIssued,)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Reply, StreamMoved, StreamEnded, Segment)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._singles: dict[_Request, tuple[NodeId, bytes]] = {}
        self._puts: dict[_Request, tuple[NodeId, dict[int, bytes]]] = {}
        self._left: dict[NodeId, set[bytes]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._left[journal.place] = set()

    def before(self, journal: Journal, event: Event) -> None:
        if not isinstance(event, CommandIssued):
            return
        key, me = (journal.place, event.request), journal.host.id
        match event.command:
            case SendTo(destination, _, payload) if destination != me:
                self._singles[key] = destination, payload
            case PutSegment(_, body):
                if key not in self._puts:
                    streams = journal.inside.streams_out()
                    found = [s.destination for s in streams if s.owner == event.request]
                    if not found or found[0] == me:
                        return
                    self._puts[key] = found[0], {}
                bodies = self._puts[key][1]
                bodies[1 + max(bodies, default=0)] = body
            case _:
                pass

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Segment):
                self._note_sent(journal, effect.message)
        for effect in effects:
            match effect:
                case Reply(request):
                    self._on_reply(journal, request, effect)
                case StreamMoved(request):
                    self._on_moved(journal, request, effect)
                case StreamEnded(request):
                    self._puts.pop((journal.place, request), None)
                case _:
                    pass

    def _note_sent(self, journal: Journal, segment: Segment) -> None:
        if segment.route.source != journal.host.id:
            return
        left = self._left[journal.place]
        left.add(segment.body)
        if segment.count:
            left.update(unpack_messages(segment.body, segment.count))

    def _on_reply(self, journal: Journal, request: int, reply: Reply) -> None:
        single = self._singles.pop((journal.place, request), None)
        if single is None or not isinstance(reply.error, DeliveryError) or not reply.error.sent:
            return
        self._check(journal, *single)

    def _on_moved(self, journal: Journal, request: int, moved: StreamMoved) -> None:
        destination, bodies = self._puts.get((journal.place, request), (journal.host.id, {}))
        for number in moved.doubted:
            if number in bodies:
                self._check(journal, destination, bodies[number])

    def _check(self, journal: Journal, destination: NodeId, payload: bytes) -> None:
        if payload not in self._left[journal.place]:
            text = f"a message to {destination} was told as perhaps taken"
            self.violate(journal, f"{text}, and never left")
