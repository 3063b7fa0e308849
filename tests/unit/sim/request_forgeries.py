"""Steps that no core makes: requests with two outcomes, or none, and room that is not given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bmgd.core.commands import (
    CloseStream,
    Command,
    Consumed,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    OpenStream,
    PutSegment,
    Register,
    Settled,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.effects import Deliver, Effect, Reply, Send, StreamMoved
from bmgd.core.events import CommandIssued
from bmgd.core.streams import table
from bmgd.core.topics.inboxes import topic_of
from bmgd.core.topics.questions import Asker
from bmgd.errors import DeadError, NewLifeError
from bmgd.sim.unusable_requests import NEVER_SENT
from bmgd.types import Incarnation, NodeId
from bmgd.wire.answers import ANSWER, NO_READER, READER_LOST, answer_head
from bmgd.wire.batch import pack_messages
from tests.unit.segments import segment

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

ME, PEER = NodeId(5), NodeId(4)
QUESTION = b"question"


class _Asked:
    """Node 5 has asked node 4, whose reader has the question, or none is there."""

    def __init__(self, f: Forger, *, is_read: bool = True) -> None:
        self.f = f
        self.life = f.inside.context.incarnation
        self.reader = self.issue(PEER, Subscribe("rpc", 8, 1 << 20, True)) if is_read else 0
        self.inbox = self.issue(ME, OpenInbox(1 << 20))
        self.stream = self.issue(ME, OpenQuestions(PEER, "rpc", 2, 1))
        (out,) = [s for s in f.inside.streams_out() if s.owner == self.stream]
        self.number = out.first_question
        self.put(ME, self.stream, PutSegment(1, pack_messages([QUESTION])))
        f.network.run(1)
        assert f.scene.violations == []

    def issue(self, node_id: NodeId, command: Command) -> int:
        request = self.f.network.issue(node_id, command)
        self.f.network.run(0.1)
        return request

    def put(self, node_id: NodeId, request: int, command: Command) -> None:
        self.f.network.issue_as(self.f.network.hosts[node_id], request, command)

    def hear(self, message: bytes, source: NodeId = PEER) -> None:
        """A message comes to the inbox, whatever the core knows of it."""
        self.f.deadline(self.delivered(message, source))

    def delivered(self, message: bytes, source: NodeId) -> Effect:
        body = pack_messages([message])
        return Deliver(self.inbox, source, Incarnation(1), topic_of(1), 1, body)

    def handed(self, number: int, payload: bytes) -> None:
        """Node 4 hands a question out, whatever the core knows of it."""
        body = pack_messages([payload])
        deliver = Deliver(self.reader, ME, self.life, "rpc", 1, body, inbox=1, question=number)
        host, event = self.f.network.hosts[PEER], CommandIssued(10**6, CloseStream())
        self.f.scene.before(host, event)
        self.f.scene.after(host, event, [deliver])

    def answer(self) -> None:
        """Node 4's program answers, and the answer comes."""
        asker = Asker(ME, self.life, 1)
        stream = self.issue(PEER, OpenAnswers(*asker, self.reader))
        body = pack_messages([answer_head(ANSWER, self.number) + QUESTION])
        self.put(PEER, stream, PutSegment(1, body, answers=(self.number,)))
        self.f.network.run(1)


def outcome_of_nothing(f: Forger) -> None:
    _Asked(f).hear(answer_head(ANSWER, 99))


def two_outcomes(f: Forger) -> None:
    asked = _Asked(f)
    asked.answer()
    assert f.scene.violations == []
    asked.hear(answer_head(ANSWER, asked.number) + QUESTION)


def outcome_from_another_node(f: Forger) -> None:
    asked = _Asked(f)
    asked.hear(answer_head(NO_READER, asked.number), NodeId(3))


def answer_that_nobody_put(f: Forger) -> None:
    asked = _Asked(f)
    asked.hear(answer_head(ANSWER, asked.number) + QUESTION)


def lost_by_a_reader_that_is_there(f: Forger) -> None:
    asked = _Asked(f)
    asked.hear(answer_head(READER_LOST, asked.number))


def no_reader_where_one_had_it(f: Forger) -> None:
    asked = _Asked(f)
    asked.hear(answer_head(NO_READER, asked.number))


def question_handed_out_twice(f: Forger) -> None:
    asked = _Asked(f)
    asked.handed(asked.number, QUESTION)


def question_that_nobody_asked(f: Forger) -> None:
    _Asked(f).handed(99, QUESTION)


def owed_answer_that_is_not_taken(f: Forger) -> None:
    asked = _Asked(f)
    stream = asked.issue(PEER, OpenAnswers(ME, asked.life, 1, asked.reader))
    host = f.network.hosts[PEER]
    body = pack_messages([answer_head(ANSWER, asked.number) + QUESTION])
    event = CommandIssued(stream, PutSegment(1, body, answers=(asked.number,)))
    f.scene.before(host, event)
    f.scene.after(host, event, [StreamMoved(stream, 2, 0, (1,), (), "RequestError", "no")])


def loss_that_is_not_told(f: Forger) -> None:
    asked = _Asked(f)
    peer = f.network.hosts[PEER]
    peer.node.parts.topics.questions.forget_all()
    asked.put(PEER, asked.reader, Unsubscribe())
    f.network.run(10)
    asked.put(ME, asked.inbox, Settled(0, (asked.number,)))


def loss_that_waits_though_an_id_is_free(f: Forger) -> None:
    loss_behind_a_long_message(f, freed=1)


def loss_behind_a_long_message(f: Forger, freed: int) -> None:
    """Node 4 has no more ids beyond that of a message which its program does not end."""
    asked = _Asked(f)
    asked.issue(ME, Subscribe("jobs", 8, 1 << 20, True))
    long = asked.issue(PEER, OpenStream(ME, "jobs"))
    asked.put(PEER, long, PutSegment(0, b"first piece", size=100, first=True))
    f.network.run(1)
    ids = f.network.hosts[PEER].node.parts.outbound.table.peers[ME]
    ids.next_id = ids.floor + table.SPAN - 1
    asked.put(PEER, asked.reader, Unsubscribe())
    f.network.run(5)
    ids.next_id -= freed
    asked.put(ME, asked.inbox, Settled(0, (asked.number,)))


def loss_after_a_piece_was_given_up(f: Forger, *, is_told: bool) -> None:
    """Node 5 asks in two pieces, and may be told that the last one is given up; node 4's reader ends."""
    asked = _Asked(f)
    number = asked.number + 1
    for first in (True, False):
        piece = PutSegment(0, bytes(50_000), 100_000, first=first, last=not first)
        asked.put(ME, asked.stream, piece)
    f.network.run(1)
    topics = f.network.hosts[PEER].node.parts.topics
    (long,) = topics.longs.by_stream.values()
    asked.put(PEER, asked.reader, Consumed(2, long.number))
    f.network.run(1)
    if is_told:
        f.deadline(StreamMoved(asked.stream, 3, 0, (3,), (), "QueueFullError", "it is full"))
    topics.questions.forget_all()
    asked.put(PEER, asked.reader, Unsubscribe())
    f.network.run(10)
    asked.put(ME, asked.inbox, Settled(0, (number,)))


def lost_though_its_answer_is_underway(f: Forger) -> None:
    asked = _Asked(f)
    asked.put(ME, asked.stream, PutSegment(1, pack_messages([QUESTION])))
    f.network.run(1)
    streams = [asked.issue(PEER, OpenAnswers(ME, asked.life, 1, asked.reader)) for _ in range(2)]
    for stream, number in zip(streams, (asked.number, asked.number + 1), strict=True):
        body = pack_messages([answer_head(ANSWER, number) + QUESTION])
        asked.put(PEER, stream, PutSegment(1, body, answers=(number,)))
    # Of what a program that went away has put, some may not be sent, and nobody is told.
    asked.put(PEER, streams[1], CloseStream(abandon=True))
    asked.put(PEER, asked.reader, Unsubscribe())
    asked.hear(answer_head(READER_LOST, asked.number + 1))
    assert f.scene.violations == []
    asked.hear(answer_head(READER_LOST, asked.number))


def room_that_is_not_given_back(f: Forger) -> None:
    asked = _Asked(f)
    event = CommandIssued(asked.inbox, Settled(0, (asked.number,)))
    f.step(event)


def answers_that_are_not_counted(f: Forger) -> None:
    _Asked(f)
    f.inside.topics.inboxes.inboxes()[0].held_bytes += 1
    f.scene.at_rest()


def unusable_request_that_is_taken(f: Forger) -> None:
    f.network.unusable.add(77)
    f.step(CommandIssued(77, Register("")), [Reply(77)])


def unusable_request_that_is_refused_for_no_reason(f: Forger) -> None:
    f.network.unusable.add(77)
    f.step(CommandIssued(77, Register("")), [Reply(77, error=DeadError(4, "it is dead"))])


def answers_to_a_former_life_that_are_refused_for_another(f: Forger) -> None:
    f.network.unusable.add(77)
    error = NewLifeError(PEER, "it began a new life")
    f.step(CommandIssued(77, OpenAnswers(ME, Incarnation(1), 1, 1)), [Reply(77, error=error)])


def unusable_payload_that_is_sent(f: Forger) -> None:
    f.network.unusable.add(77)
    f.deadline(Send(f.link, segment(f.route(source=ME), NEVER_SENT)))


FORGERIES_OF_REQUESTS: list[tuple[str, Callable[[Forger], None]]] = [
    ("unusable-are-refused", unusable_request_that_is_taken),
    ("unusable-are-refused", unusable_request_that_is_refused_for_no_reason),
    ("unusable-are-refused", answers_to_a_former_life_that_are_refused_for_another),
    ("unusable-are-refused", unusable_payload_that_is_sent),
    ("requests-have-one-outcome", outcome_of_nothing),
    ("requests-have-one-outcome", two_outcomes),
    ("requests-have-one-outcome", outcome_from_another_node),
    ("requests-have-one-outcome", answer_that_nobody_put),
    ("requests-have-one-outcome", lost_by_a_reader_that_is_there),
    ("requests-have-one-outcome", no_reader_where_one_had_it),
    ("requests-have-one-outcome", question_handed_out_twice),
    ("requests-have-one-outcome", question_that_nobody_asked),
    ("requests-have-one-outcome", owed_answer_that_is_not_taken),
    ("requests-have-one-outcome", loss_that_is_not_told),
    ("requests-have-one-outcome", loss_that_waits_though_an_id_is_free),
    ("requests-have-one-outcome", lost_though_its_answer_is_underway),
    ("room-of-answers-is-given-back", room_that_is_not_given_back),
    ("room-of-answers-is-given-back", answers_that_are_not_counted),
]
