"""Questions that get no answer: who asked is told so, unless nobody is there to hear it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.commands import Unsubscribe
from bmgd.core.effects import Deliver, Effect, Observed
from bmgd.core.events import CommandIssued, Event
from bmgd.core.streams.stream_out import StreamOut
from bmgd.core.topics.questions import Asker
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId, NodeState
from bmgd.wire.answers import read_head
from bmgd.wire.batch import unpack_messages

_Question = tuple[Asker, int]
"""Who asked, and the number of the question."""


class LossesAreTold(Checker):
    """When the last reader that answers goes away, who asked what waits for one is told at once.

    Nobody is told who is held gone. A long question that its asker gave up is owed no answer.
    """

    name: ClassVar[str] = "losses-are-told"
    events: ClassVar[Kinds] = (CommandIssued,)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Deliver,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._waiting: set[_Question] = set()
        self._telling: set[int] = set()
        """The streams that tell askers what is lost, by their keys, before a reader goes away."""
        self._longs: dict[NodeId, dict[int, tuple[int, _Question]]] = {}
        """Long questions on their way to a reader, by their numbers."""

    def on_boot(self, journal: Journal) -> None:
        self._longs[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        if isinstance(event, CommandIssued) and isinstance(event.command, Unsubscribe):
            inside = journal.inside
            self._waiting = _waiting(inside)
            self._telling = {stream.key for stream in _telling(inside)}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver) and effect.long:
                self._on_piece(journal, effect)
        if isinstance(event, CommandIssued) and isinstance(event.command, Unsubscribe):
            self._on_gone(journal, effects)

    def _on_gone(self, journal: Journal, effects: Sequence[Effect]) -> None:
        """A reader, or one who asked, went away."""
        inside, telling = journal.inside, _telling(journal.inside)
        for stream in telling:
            is_new = stream.key not in self._telling
            if is_new and inside.membership.is_gone(stream.destination):
                self.violate(journal, f"tells {stream.destination}, which is gone, what is lost")
        is_untold = any(isinstance(e, Observed) and e.event == "untold" for e in effects)
        if is_untold or journal.exited or inside.context.state is NodeState.LEAVING:
            return
        told = {
            (stream.destination, read_head(each)[1])
            for stream in telling
            for sending in (*stream.queue, *stream.underway.values())
            if sending.count
            for each in unpack_messages(sending.body, sending.count)
        }
        handed = {
            (asker, number + at)
            for asker, number, count in _handed(effects)
            for at in range(max(1, count))
        }
        for asker, number in self._waiting - _waiting(inside) - handed:
            is_there = inside.membership.incarnation(asker.source) == asker.incarnation
            if asker.source == journal.host.id or not is_there:
                continue
            if inside.membership.is_gone(asker.source):
                continue
            if (asker.source, number) not in told:
                text = f"does not tell {asker.source} that question {number} is lost"
                self.violate(journal, text)

    def _on_piece(self, journal: Journal, piece: Deliver) -> None:
        longs = self._longs[journal.place]
        if piece.inbox:
            asker = Asker(piece.source, piece.incarnation, piece.inbox)
            longs[piece.long] = piece.request, (asker, piece.question)
        elif piece.aborted:
            question = longs.pop(piece.long, None)
            if question is not None and question in journal.inside.topics.questions.owed():
                self.violate(journal, f"owes an answer to {question[1]}, which was given up")


def _waiting(inside: Inside) -> set[_Question]:
    """The questions of others that wait for a reader."""
    return {
        (segment.asker, number)
        for topic in inside.topics.table.topics.values()
        for segment in topic.waiting
        if segment.inbox
        for number in segment.numbers
    }


def _telling(inside: Inside) -> list[StreamOut]:
    """The streams that tell others what is lost."""
    streams = inside.streams_out()
    return [s for s in streams if s.is_for_asker and s.destination != inside.context.id]


def _handed(effects: Sequence[Effect]) -> list[tuple[Asker, int, int]]:
    """The questions that are handed out in a step: who asked, the first number, how many."""
    return [
        (Asker(e.source, e.incarnation, e.inbox), e.question, e.count)
        for e in effects
        if isinstance(e, Deliver) and e.inbox
    ]
