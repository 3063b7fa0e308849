"""What programs ask for and cannot be is refused at once, and does nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.commands import CloseStream, OpenAnswers, PutSegment
from bmgd.core.effects import Effect, Reply, Send, StreamEnded
from bmgd.core.events import CommandIssued, Event
from bmgd.errors import LeavingError, NewLifeError, NoQuorumError, RequestError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.unusable_requests import NEVER_SENT
from bmgd.wire.broadcast_messages import Broadcast, Multicast, ReliableBroadcast
from bmgd.wire.messages import Message
from bmgd.wire.stream_messages import Segment, SharedSegment

_OF_NOW = LeavingError | NoQuorumError
"""While a node leaves, or stands aside, that may be why."""


class UnusableAreRefused(Checker):
    """Who asks for what cannot be is told so at once, and nothing of it is ever sent.

    A stream into which something is put that it does not take ends.
    """

    name: ClassVar[str] = "unusable-are-refused"
    events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Segment, SharedSegment, Broadcast, ReliableBroadcast, Multicast)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    sees_unusable: ClassVar[bool] = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._is_watched = False

    def before(self, journal: Journal, event: Event) -> None:
        assert isinstance(event, CommandIssued)
        self._is_watched = (
            event.request in self.scene.network.unusable
            and not isinstance(event.command, CloseStream)
            and (not isinstance(event.command, PutSegment) or self._takes(journal, event.request))
        )

    @staticmethod
    def _takes(journal: Journal, request: int) -> bool:
        """Whether a stream is open: nothing happens to what is put into another one."""
        streams = journal.inside.streams_out()
        return any(stream.owner == request and not stream.closing for stream in streams)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects if self.scene.network.unusable else ():
            if isinstance(effect, Send) and NEVER_SENT in _content(effect.message):
                self.violate(journal, f"sends {type(effect.message).__name__} which cannot be")
        if isinstance(event, CommandIssued) and self._is_watched:
            self._is_watched = False
            self._check_answer(journal, event, effects)

    def _check_answer(
        self, journal: Journal, event: CommandIssued, effects: Sequence[Effect]
    ) -> None:
        answers = [e for e in effects if isinstance(e, Reply | StreamEnded)]
        errors = [answer.error for answer in answers if answer.request == event.request]
        what = type(event.command).__name__
        if len(errors) != 1 or errors[0] is None:
            self.violate(journal, f"does not refuse an unusable {what}")
        elif isinstance(event.command, OpenAnswers):
            # The life that asked is over.
            error = errors[0]
            is_so = (
                isinstance(error, NewLifeError | _OF_NOW) and error.destination == journal.host.id
            )
            if not is_so:
                self.violate(journal, f"refuses answers to a former life with {error!r}")
        elif not isinstance(errors[0], RequestError | _OF_NOW):
            self.violate(journal, f"refuses an unusable {what} with {errors[0]!r}")


def _content(message: Message) -> bytes:
    """What of programs' a message carries."""
    match message:
        case Segment() | SharedSegment():
            return message.body
        case Broadcast() | ReliableBroadcast() | Multicast():
            return message.payload
        case _:
            return b""
