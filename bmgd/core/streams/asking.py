"""Requests as streams out of this node: questions, their answers, and that no answer comes.

Theory of operation. Streams of questions and of answers are those of all messages (`outbound.py`); here
is what they have beyond. Questions are numbered as they are put, and the room of their answers is kept
(`topics/inboxes.py`). A segment of answers is taken while one of them is owed (`topics/questions.py`).
What is lost is told to its asker by a stream of this node's own to the asker's inbox, which ends when
that is confirmed.
"""

from __future__ import annotations

from bmgd.core.commands import OpenAnswers, OpenQuestions
from bmgd.core.context import Context, QuestionsLost
from bmgd.core.effects import Reply
from bmgd.core.streams.outbound import TOO_OLD, Outbound
from bmgd.core.streams.sending import ABANDONED_NS
from bmgd.core.streams.stream_out import Sending, StreamOut
from bmgd.core.topics.inboxes import topic_of
from bmgd.core.topics.questions import Asker
from bmgd.core.topics.topics import Topics
from bmgd.errors import BmgdError, NewLifeError, RequestError
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.answers import ANSWER_HEAD_BYTES, NO_READER, READER_LOST, answer_head
from bmgd.wire.bounds import SEGMENT_BYTES_MAX
from bmgd.wire.features import Feature
from bmgd.wire.segments import packed

LOSSES_PER_SEGMENT = SEGMENT_BYTES_MAX // (ANSWER_HEAD_BYTES + 2)
"""Questions that one segment tells to be lost."""
TELLING_MAX = 2048
"""Streams of all kinds beyond which no further asker is told."""


class Asking:
    """What streams of questions and answers have beyond others."""

    def __init__(self, context: Context, topics: Topics, outbound: Outbound) -> None:
        self._context = context
        self._topics = topics
        self._outbound = outbound
        self._telling: dict[Asker, StreamOut] = {}

    # --- streams of programs ------------------------------------------------------------------

    def open_questions(self, request: int, command: OpenQuestions) -> None:
        """Open a stream of questions; `Reply` with its first credit follows, or an error."""
        error: BmgdError | None = None
        if not self._topics.inboxes.has(command.inbox):
            error = RequestError(f"no inbox has the number {command.inbox}")
        elif not self._context.compatibility.common & Feature.REQUESTS:
            error = RequestError(TOO_OLD)
        opened = self._outbound.open_stream(
            request, command.destination, command.topic, command.priority, error
        )
        if opened is not None:
            opened.inbox = command.inbox
            first = opened.first_question
            self._context.emit(Reply(request, {"credit": opened.granted, "first": first}))

    def open_answers(self, request: int, command: OpenAnswers) -> None:
        """Open a stream of answers; `Reply` with its first credit follows, or an error."""
        destination, error = command.destination, None
        if command.incarnation != self._life_of(destination):
            detail = "it began a new life, and the former one asked"
            error = NewLifeError(destination, detail)
        topic = topic_of(command.inbox)
        opened = self._outbound.open_stream(request, destination, topic, 2, error, leaves=True)
        if opened is not None:
            opened.tag = incarnation_tag(command.incarnation)
            asker = Asker(destination, command.incarnation, command.inbox)
            opened.answers = command.reader, asker
            self._context.emit(Reply(request, {"credit": opened.granted}))

    def _life_of(self, node_id: NodeId) -> Incarnation:
        if node_id == self._context.id:
            return self._context.incarnation
        return self._context.membership.incarnation(node_id)

    # --- what is lost -------------------------------------------------------------------------

    def tell_lost(self, lost: QuestionsLost) -> None:
        """Tell an asker which of its questions get no answer from this node, if it is still there."""
        membership, source = self._context.membership, lost.source
        is_gone = source != self._context.id and membership.is_gone(source)
        if is_gone or self._life_of(source) != lost.incarnation:
            return
        stream = self._stream_to(lost)
        if stream is None:
            detail = f"{len(lost.questions)} lost questions, and too many streams to say so"
            self._context.observe("untold", source, detail=detail)
            return
        kind = READER_LOST if lost.handed else NO_READER
        stream.closing = False
        for at in range(0, len(lost.questions), LOSSES_PER_SEGMENT):
            numbers = lost.questions[at : at + LOSSES_PER_SEGMENT]
            body = b"".join(packed(answer_head(kind, number)) for number in numbers)
            until_ns = self._context.now_ns + ABANDONED_NS
            sending = Sending(stream.next_number, len(numbers), body, 0, False, False, until_ns)
            stream.next_number += 1
            self._outbound.add(stream, sending)
        stream.closing = True
        self._outbound.sending.finish_if_idle(stream)

    def _stream_to(self, lost: QuestionsLost) -> StreamOut | None:
        """The stream that tells this asker of what it lost; None where there are too many streams."""
        table, key = self._outbound.table, Asker(lost.source, lost.incarnation, lost.inbox)
        stream = self._telling.get(key)
        if stream is not None and not stream.ending and table.streams.get(stream.key) is stream:
            return stream
        self._telling = {k: s for k, s in self._telling.items() if table.streams.get(s.key) is s}
        if len(table.streams) > TELLING_MAX:
            return None
        stream = table.new_stream(0, lost.source, topic_of(lost.inbox), 2, False)
        stream.tag = incarnation_tag(lost.incarnation)
        stream.is_for_asker = True
        self._telling[key] = stream
        return stream
