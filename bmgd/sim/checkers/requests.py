"""Requests: one word on each question, of the one who was asked, and room that is given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import ClassVar, Final

from bmgd.core.commands import (
    CloseStream,
    OpenAnswers,
    PutSegment,
    Settled,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.effects import Deliver, Effect, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Event
from bmgd.core.streams.stream_out import StreamOut
from bmgd.core.topics.inboxes import ANSWER_BYTES, is_inbox, topic_of
from bmgd.errors import LeavingError, RequestError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.host import Host
from bmgd.types import Incarnation, NodeId
from bmgd.wire.answers import (
    ANSWER,
    ANSWER_HEAD_BYTES,
    FAILED,
    NO_READER,
    READER_LOST,
    read_head,
)
from bmgd.wire.batch import unpack_messages

NAME_BYTES: Final = 8
"""A question begins with its name, and its answer repeats that."""
TOLD_NS: Final = 3_000_000_000
"""So long after a reader has ended its askers know, where nothing is disturbed."""

Key = tuple[NodeId, Incarnation, int]
"""The life that asked, and the number of the question."""


@dataclass(slots=True)
class _Asked:
    """A question, as its program put it.

    Args:
        payload: its name.
        put_ns: in virtual time.
        said: how many messages about it came to the inbox.
        handed: where it was handed out, to which reader, and in which life.
        inbox: the number of the one that its answer goes to.
        forsaken: its answer was not confirmed yet when the program that put it went away.
        over: its stream has ended, or it was settled.
        answers: how many answers to it the segment held that answered it; its program takes the first.
    """

    payload: bytes
    destination: NodeId
    topic: str
    stream: int
    inbox: int
    put_ns: int
    said: int = 0
    handed: tuple[NodeId, int, Incarnation] | None = None
    answered: bool = False
    forsaken: bool = False
    over: bool = False
    answers: int = 1


@dataclass(slots=True)
class _Readers:
    """Who can answer at one node.

    Args:
        there: the readers, by request, and their topics.
        ended: the readers that have ended, and when.
        booted_ns: when the process began.
        without_ns: until when there was none, by topic, as far as that is over.
        ids: those that the process has had.
    """

    host: Host
    there: dict[int, str] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    booted_ns: int = 0
    without_ns: dict[str, int] = field(default_factory=dict)
    ids: set[NodeId] = field(default_factory=set)


def is_put(event: Event, request: int) -> bool:
    """Whether a program puts a segment into this stream."""
    match event:
        case CommandIssued(at, PutSegment()):
            return at == request
    return False


class RequestsHaveOneOutcome(Checker):
    """One message about each question comes to its inbox, from the node that was asked, and it is true.

    An answer is one that a program put, and repeats its own question. *Reader lost* was handed to a
    reader that has ended, *no reader* was not handed to any, and there was none once since it was put. A
    question is handed out once. Whose reader ended hears of it at once, and not by its timeout.
    """

    name: ClassVar[str] = "requests-have-one-outcome"
    events: ClassVar[Kinds] = (CommandIssued,)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Deliver, StreamMoved, StreamEnded)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[Key, _Asked] = {}
        self._readers: dict[NodeId, _Readers] = {}
        """By id: of several processes that were given one, those of the last."""
        self._readers_at: dict[NodeId, _Readers] = {}
        """By the place of their process."""
        self._longs: set[tuple[NodeId, Incarnation, int]] = set()
        self._answers: dict[tuple[Host, int, int], list[_Asked]] = {}
        """Questions that a segment was the first to answer, by its stream and number."""
        self._pieces: dict[tuple[Host, int], dict[int, _Asked]] = {}
        """Of which long question each piece is, by its stream and number."""
        self._askers: dict[tuple[Host, int], tuple[NodeId, Incarnation]] = {}
        """The lives that streams of answers are opened for."""
        self._is_refused = scene.network.conditions.refusing_percent > 0
        """Whether a node may have too many streams to tell what is lost, or to be told."""

    def on_boot(self, journal: Journal) -> None:
        # Who is given another id keeps its readers.
        known = self._readers_at.get(journal.place)
        if known is None or known.host is not journal.host:
            known = _Readers(journal.host)
            known.booted_ns = self.scene.now_ns
        known.ids.add(journal.host.id)
        self._readers[journal.host.id] = self._readers_at[journal.place] = known

    def before(self, journal: Journal, event: Event) -> None:
        if not isinstance(event, CommandIssued):
            return
        request, now_ns = event.request, self.scene.now_ns
        readers = self._readers_at[journal.place]
        match event.command:
            case PutSegment() as put:
                for stream in journal.inside.streams_out():
                    if stream.owner == request:
                        self._on_put(journal, stream, put)
            case OpenAnswers(destination, incarnation):
                self._askers[journal.host, request] = destination, incarnation
            case CloseStream(abandon=True):
                self._on_abandoned(journal, request)
            case Subscribe(topic, takes_long=True):
                if topic not in readers.there.values():
                    readers.without_ns[topic] = now_ns
                readers.there[request] = topic
            case Unsubscribe():
                if readers.there.pop(request, None) is not None:
                    readers.ended[request] = now_ns
            case Settled(_, questions):
                for number in questions:
                    self._on_settled(journal, number)

    def _on_put(self, journal: Journal, stream: StreamOut, put: PutSegment) -> None:
        if stream.inbox:
            if put.first or not put.size:
                self._on_asked(journal, stream, put)
            if put.size:
                self._on_piece(journal, stream, put)
        elif stream.answers is not None:
            asker = self._askers[journal.host, stream.owner]
            times = Counter((*asker, each) for each in put.answers)
            known = [key for key in times if key in self._asked]
            unanswered = [key for key in known if not self._asked[key].answered]
            segment = [self._asked[key] for key in unanswered]
            self._answers[journal.host, stream.owner, stream.next_number] = segment
            for key, asked in zip(unanswered, segment, strict=True):
                asked.answered, asked.answers = True, times[key]

    def _on_asked(self, journal: Journal, stream: StreamOut, put: PutSegment) -> None:
        names = [put.body] if put.size else unpack_messages(put.body, put.count)
        first = stream.first_question + stream.asked
        for at, name in enumerate(names):
            key = journal.host.id, journal.incarnation, first + at
            if key in self._asked:
                self.violate(journal, f"gives the number {first + at} to two questions")
            self._asked[key] = _Asked(
                name[:NAME_BYTES],
                stream.destination,
                stream.topic,
                stream.owner,
                stream.inbox,
                self.scene.now_ns,
            )

    def _on_piece(self, journal: Journal, stream: StreamOut, put: PutSegment) -> None:
        """Pieces of one long question follow each other."""
        pieces = self._pieces.setdefault((journal.host, stream.owner), {})
        key = journal.host.id, journal.incarnation, stream.first_question + stream.asked
        asked = self._asked.get(key) if put.first else pieces.get(stream.next_number - 1)
        if asked is not None:
            pieces[stream.next_number] = asked

    def _on_abandoned(self, journal: Journal, request: int) -> None:
        """A program goes away: of what it has put, nobody is told what was not sent in time."""
        for stream in journal.inside.streams_out():
            if stream.owner != request:
                continue
            for sending in (*stream.queue, *stream.underway.values()):
                for asked in self._answers.get((journal.host, request, sending.number), ()):
                    asked.forsaken = True

    @staticmethod
    def _was_held_dead(asker: NodeId, other: Journal, since_ns: int) -> bool:
        """Whether a node held an asker dead at that time or later: it tells the dead nothing."""
        return other.inside.context.moved_ns.get(asker, -1) >= other.host.local_ns(since_ns)

    def _on_settled(self, journal: Journal, number: int) -> None:
        """A question is done: if that is because its time was over, nobody could have known more."""
        asked = self._asked.get((journal.host.id, journal.incarnation, number))
        if asked is None or asked.over:
            return
        asked.over = True
        other = self.scene.of_node(asked.destination)
        if asked.said or other is None or other.exited or not other.host.alive:
            return
        if self._is_refused:
            return
        if self.scene.is_disturbed(journal.place) or self.scene.is_disturbed(other.place):
            return
        if asked.handed is None or asked.answered or asked.handed[0] != other.place:
            return
        ended_ns = self._readers_at[other.place].ended.get(asked.handed[1])
        if ended_ns is None or self._was_held_dead(journal.host.id, other, ended_ns):
            return
        if other.inside.waits_for_an_id(journal.host.id, topic_of(asked.inbox)):
            return
        if self.scene.now_ns - ended_ns > TOLD_NS:
            self.violate(journal, f"is not told that the reader of question {number} has ended")

    # --- what comes ---------------------------------------------------------------------------

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver() if is_inbox(effect.topic) and effect.count:
                    for message in unpack_messages(effect.body, effect.count):
                        self._on_said(journal, effect.source, message)
                case Deliver() if effect.inbox:
                    self._on_handed(journal, effect)
                case StreamMoved(request) if effect.withdrawn or effect.doubted:
                    self._on_pieces_lost(journal, request, effect)
                    self._on_withdrawn(journal, request, effect)
                case StreamEnded(request):
                    self._pieces.pop((journal.host, request), None)
                    if is_put(event, request):
                        self._on_refused(journal, request)
                    for asked in self._asked.values():
                        asked.over |= asked.stream == request
                case _:
                    pass

    def _on_pieces_lost(self, journal: Journal, request: int, moved: StreamMoved) -> None:
        """By that its program is told of a long question: nobody else need say more of it."""
        pieces = self._pieces.get((journal.host, request), {})
        for number in (*moved.withdrawn, *moved.doubted):
            if number in pieces:
                pieces[number].over = True

    def _on_withdrawn(self, journal: Journal, request: int, moved: StreamMoved) -> None:
        """Answers were not sent: they may be given again, unless they are not owed."""
        for number in moved.withdrawn:
            for asked in self._answers.pop((journal.host, request, number), ()):
                asked.answered = False
                # What a former life of the node was asked, nobody waits for any more.
                is_of_this_life = (
                    asked.handed is not None and asked.handed[2] == journal.incarnation
                )
                if moved.error == RequestError.__name__ and is_of_this_life:
                    self.violate(journal, "does not take an answer to a question that is owed one")

    def _on_refused(self, journal: Journal, request: int) -> None:
        """A stream ended instead of taking a segment: the answers in it may be given again."""
        mine = [key for key in self._answers if key[:2] == (journal.host, request)]
        for asked in self._answers.pop(max(mine, key=itemgetter(2)), ()) if mine else ():
            asked.answered = False

    def _on_handed(self, journal: Journal, deliver: Deliver) -> None:
        if deliver.long:
            long = journal.place, journal.incarnation, deliver.long
            if long in self._longs or deliver.aborted:
                return
            self._longs.add(long)
        for number in range(deliver.question, deliver.question + max(1, deliver.count)):
            asked = self._asked.get((deliver.source, deliver.incarnation, number))
            if asked is None:
                self.violate(journal, f"hands out a question that {deliver.source} never asked")
            elif asked.handed is not None:
                self.violate(journal, f"hands out question {number} of {deliver.source} again")
            else:
                asked.handed = journal.place, deliver.request, journal.incarnation
                name = deliver.body if deliver.long else None
                names = unpack_messages(deliver.body, deliver.count) if name is None else [name]
                if names[number - deliver.question][:NAME_BYTES] != asked.payload:
                    self.violate(journal, f"hands out another question under number {number}")

    def _on_said(self, journal: Journal, source: NodeId, message: bytes) -> None:
        kind, number = read_head(message)
        asked = self._asked.get((journal.host.id, journal.incarnation, number))
        if asked is None:
            self.violate(journal, f"hears of question {number}, which it never asked")
            return
        asked.said += 1
        if asked.said > asked.answers:
            self.violate(journal, f"hears of question {number} again")
        known = self._readers.get(source)
        if known is None or asked.destination not in known.ids:
            # Who answers under another id than it was asked under is not heard by the program.
            self.violate(journal, f"hears of question {number} from {source}")
            return
        for text in self._untrue(asked, kind, message):
            self.violate(journal, f"question {number} to {source}: {text}")

    def _untrue(self, asked: _Asked, kind: int, message: bytes) -> Iterator[str]:
        # Of two processes that were given one id each has its own readers.
        is_twice = asked.destination in self.scene.given_twice
        readers = None if is_twice else self._readers.get(asked.destination)
        if kind in (ANSWER, FAILED):
            if not asked.answered:
                yield "an answer that nobody put"
            if message[ANSWER_HEAD_BYTES:] != asked.payload:
                yield "the answer to another one"
        elif kind == READER_LOST:
            if asked.handed is None:
                yield "lost by a reader that never had it"
            elif readers is not None and asked.handed[1] in readers.there:
                yield "lost by a reader that is there"
            elif asked.answered and not asked.forsaken:
                yield "lost, and was answered"
        elif kind == NO_READER:
            if asked.handed is not None:
                yield "no reader, and one had it"
            elif readers is not None and asked.topic in readers.there.values():
                since_ns = readers.without_ns.get(asked.topic, readers.booted_ns)
                if max(since_ns, readers.booted_ns) < asked.put_ns:
                    yield "no reader, and there was one all the time"
        else:
            yield f"a message of the kind {kind}"


class RoomOfAnswersIsGivenBack(Checker):
    """Room is kept for exactly the questions that were taken in and not settled, and counted right."""

    name: ClassVar[str] = "room-of-answers-is-given-back"
    events: ClassVar[Kinds] = (CommandIssued,)
    before_events: ClassVar[Kinds] = (CommandIssued,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._kept: dict[Host, dict[int, set[int]]] = {}
        self._putting: tuple[StreamOut, int] | None = None

    def on_boot(self, journal: Journal) -> None:
        self._kept.setdefault(journal.host, {})

    def before(self, journal: Journal, event: Event) -> None:
        self._putting = None
        if not isinstance(event, CommandIssued):
            return
        kept = self._kept[journal.host]
        match event.command:
            case PutSegment():
                for stream in journal.inside.streams_out():
                    if stream.owner == event.request and stream.inbox:
                        self._putting = stream, stream.asked
            case Settled(_, questions):
                inbox = self._inbox_of(journal, event.request)
                kept.setdefault(inbox, set()).difference_update(questions)
            case Unsubscribe():
                kept.pop(self._inbox_of(journal, event.request), None)

    @staticmethod
    def _inbox_of(journal: Journal, request: int) -> int:
        opened = journal.inside.topics.inboxes.inboxes()
        return next((each.number for each in opened if each.request == request), 0)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if self._putting is not None and not _is_turned_down(self._putting[0], effects):
            stream, before = self._putting
            first = stream.first_question
            kept = self._kept[journal.host].setdefault(stream.inbox, set())
            kept.update(range(first + before, first + stream.asked))
        if isinstance(event, CommandIssued) and isinstance(event.command, PutSegment | Settled):
            self._look(journal)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            self._look(journal)

    def _look(self, journal: Journal) -> None:
        topics = journal.inside.topics
        inboxes, kept = topics.inboxes, self._kept[journal.host]
        covered = underway = 0
        for inbox in inboxes.inboxes():
            there = kept.get(inbox.number, set())
            if set(inbox.underway) != there:
                wrong = sorted(set(inbox.underway) ^ there)[:4]
                self.violate(journal, f"keeps room for other questions than are open: {wrong}")
            underway += len(there)
            held = topics.table.topics[topic_of(inbox.number)].held_bytes
            if inbox.held_bytes != held:
                self.violate(journal, f"counts {inbox.held_bytes} bytes of answers, not {held}")
            covered += min(held, len(there) * ANSWER_BYTES)
        if (inboxes.underway, inboxes.covered_bytes) != (underway, covered):
            self.violate(journal, f"counts {inboxes.underway} questions, there are {underway}")


def _is_turned_down(stream: StreamOut, effects: Sequence[Effect]) -> bool:
    """Whether the segment that was just put is not taken: its daemon leaves, or has too many."""
    return any(
        isinstance(effect, StreamMoved)
        and effect.request == stream.owner
        and stream.next_number - 1 in effect.withdrawn
        and effect.error in (RequestError.__name__, LeavingError.__name__)
        for effect in effects
    )
