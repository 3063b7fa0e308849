"""Requests in the core: an answer, or why there is none, at once; and the room that they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from bmgd.core.commands import (
    CloseStream,
    Command,
    Consumed,
    FindReaders,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    PutSegment,
    Settled,
    Subscribe,
    Unsubscribe,
    Withdraw,
)
from bmgd.core.context import QuestionsLost
from bmgd.core.effects import Deliver, Effect, Reply, Send, StreamEnded, StreamMoved
from bmgd.core.events import Event
from bmgd.core.topics import questions as questions_module
from bmgd.core.topics.inboxes import (
    ANSWER_BYTES,
    QUESTIONS_MAX,
    Inboxes,
    inbox_of,
    is_inbox,
    topic_of,
)
from bmgd.core.topics.taken import Offer, Taken
from bmgd.core.topics.topic_table import HELD_BYTES_MAX
from bmgd.errors import (
    DeadError,
    NewLifeError,
    NoReaderError,
    ReaderLostError,
    RequestError,
)
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.answers import (
    ANSWER,
    ANSWER_HEAD_BYTES,
    NO_READER,
    READER_LOST,
    answer_head,
    read_head,
)
from bmgd.wire.batch import pack_messages, unpack_messages
from bmgd.wire.features import SPOKEN
from bmgd.wire.segments import COST_MAX
from bmgd.wire.stream_messages import Segment, SegmentAck
from tests.unit.core.clusters import S, reply_to, settle
from tests.unit.core.test_topics import Queues

CREDIT_BYTES = 1 << 20


class Effects(Watcher):
    """What every host's core has ordered for its programs."""

    def __init__(self) -> None:
        self.of: dict[tuple[Host, int], list[Effect]] = {}

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver | Reply | StreamMoved | StreamEnded):
                self.of.setdefault((host, effect.request), []).append(effect)


@dataclass
class Cluster:
    """Some nodes at rest, and programs at two of them: `asker` asks, `answerer` answers."""

    size: int = 4
    asker: int = 0
    answerer: int = 3
    network: Network = field(init=False)

    def __post_init__(self) -> None:
        self.network = Network(self.size)
        self.effects = Effects()
        self.network.watchers.append(self.effects)
        settle(self.network)
        self.inbox_request, opened = self.open(self.asker, OpenInbox(CREDIT_BYTES))
        self.inbox: int = opened.result["inbox"]

    def host(self, node_id: int) -> Host:
        return self.network.hosts[NodeId(node_id)]

    def told(self, node_id: int, request: int) -> list[Effect]:
        return self.effects.of.get((self.host(node_id), request), [])

    def open(self, node_id: int, command: Command) -> tuple[int, Reply]:
        request = self.network.issue(node_id, command)
        self.network.run_until(lambda: bool(self.told(node_id, request)), 10)
        reply = self.told(node_id, request)[0]
        assert isinstance(reply, Reply)
        return request, reply

    def read(self, *, takes_long: bool = True, credit: int = 100) -> int:
        command = Subscribe("rpc", credit, CREDIT_BYTES, takes_long)
        return self.open(self.answerer, command)[0]

    def questions(self) -> tuple[int, int]:
        """A stream of questions: its request, and the number of the first."""
        command = OpenQuestions(NodeId(self.answerer), "rpc", 2, self.inbox)
        request, reply = self.open(self.asker, command)
        assert reply.error is None
        return request, reply.result["first"]

    def put(self, node_id: int, request: int, command: Command) -> None:
        self.network.issue_as(self.host(node_id), request, command)

    def question(self, request: int, *payloads: bytes) -> None:
        body = pack_messages(list(payloads))
        self.put(self.asker, request, PutSegment(len(payloads), body, timeout_ns=10 * S))

    def delivered(self, reader: int) -> list[Deliver]:
        return [e for e in self.told(self.answerer, reader) if isinstance(e, Deliver)]

    def until_delivered(self, reader: int, count: int = 1) -> list[Deliver]:
        self.network.run_until(lambda: len(self.delivered(reader)) >= count, 10)
        return self.delivered(reader)

    def ask(self, *payloads: bytes) -> tuple[int, int, int, Deliver]:
        """A reader, a stream of questions, the number of its first, and those as the reader got them."""
        reader = self.read()
        stream, first = self.questions()
        self.question(stream, *payloads)
        (deliver,) = self.until_delivered(reader)
        return reader, stream, first, deliver

    def answers(self, reader: int, deliver: Deliver) -> int:
        """A stream of answers to who asked what was delivered."""
        command = OpenAnswers(deliver.source, deliver.incarnation, deliver.inbox, reader)
        request, reply = self.open(self.answerer, command)
        assert reply.error is None, reply.error
        return request

    def answer(self, request: int, *answers: tuple[int, bytes]) -> None:
        body = pack_messages([answer_head(ANSWER, number) + text for number, text in answers])
        numbers = tuple(number for number, _ in answers)
        self.put(self.answerer, request, PutSegment(len(answers), body, answers=numbers))

    def outcomes(self) -> list[tuple[int, int, bytes]]:
        """(kind, question, answer) of all that has come to the inbox."""
        found = []
        for effect in self.told(self.asker, self.inbox_request):
            if isinstance(effect, Deliver):
                for message in unpack_messages(effect.body, effect.count):
                    found.append((*read_head(message), message[ANSWER_HEAD_BYTES:]))
        return found

    def until_outcomes(self, count: int = 1) -> list[tuple[int, int, bytes]]:
        self.network.run_until(lambda: len(self.outcomes()) >= count, 10)
        return self.outcomes()

    def owed(self) -> int:
        return len(self.host(self.answerer).node.parts.topics.questions)

    def ended(self, node_id: int, request: int) -> StreamEnded | None:
        found = [e for e in self.told(node_id, request) if isinstance(e, StreamEnded)]
        return found[0] if found else None

    def until_ended(self, node_id: int, request: int) -> StreamEnded:
        self.network.run_until(lambda: self.ended(node_id, request) is not None, 10)
        ended = self.ended(node_id, request)
        assert ended is not None
        return ended


@pytest.fixture(params=[3, 0], ids=["over a relay", "oneself"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(answerer=request.param)


def test_questions_are_numbered_and_answered(cluster: Cluster) -> None:
    reader = cluster.read()
    stream, first = cluster.questions()
    cluster.question(stream, b"a", b"b")
    cluster.question(stream, b"c")
    one, two = cluster.until_delivered(reader, 2)
    assert (one.question, one.count, one.inbox) == (first, 2, cluster.inbox)
    assert (two.question, two.count) == (first + 2, 1)
    assert cluster.owed() == 3
    back = cluster.answers(reader, one)
    cluster.answer(back, (first + 2, b"C"), (first, b"A"))
    cluster.answer(back, (first + 1, b"B"))
    assert sorted(cluster.until_outcomes(3)) == [
        (ANSWER, first, b"A"),
        (ANSWER, first + 1, b"B"),
        (ANSWER, first + 2, b"C"),
    ]
    assert cluster.owed() == 0


class Sent(Watcher):
    """The kinds of messages about segments that each step of one host sent, of steps that sent some."""

    def __init__(self, host: Host) -> None:
        self.steps: list[list[type[object]]] = []
        self._host = host

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        sent = [type(effect.message) for effect in effects if isinstance(effect, Send)]
        kinds: list[type[object]] = [kind for kind in sent if kind in (Segment, SegmentAck)]
        if host is self._host and kinds:
            self.steps.append(kinds)


def test_acknowledgement_of_a_short_question_goes_with_the_answer_or_a_moment_later() -> None:
    cluster = Cluster()
    reader, stream, first, one = cluster.ask(b"a")
    back = cluster.answers(reader, one)
    cluster.answer(back, (first, b"A"))
    cluster.until_outcomes()
    cluster.network.run(0.1)
    sent = Sent(cluster.host(3))
    cluster.network.watchers.append(sent)
    cluster.question(stream, b"b")
    cluster.until_delivered(reader, 2)
    cluster.network.run(0.01)
    assert sent.steps == []
    cluster.answer(back, (first + 1, b"B"))
    assert sent.steps == [[SegmentAck, Segment]]
    cluster.until_outcomes(2)
    cluster.network.run(0.1)
    sent.steps.clear()
    cluster.question(stream, b"c")
    cluster.network.run(0.1)
    assert sent.steps == [[SegmentAck]]


def test_question_waits_for_no_reader(cluster: Cluster) -> None:
    stream, first = cluster.questions()
    cluster.question(stream, b"a", b"b")
    began_ns = cluster.network.now_ns
    assert cluster.until_outcomes(2) == [(NO_READER, first, b""), (NO_READER, first + 1, b"")]
    assert cluster.network.now_ns - began_ns < S // 10
    # The stream goes on, and with a reader the next question is answered.
    reader = cluster.read()
    cluster.question(stream, b"c")
    (deliver,) = cluster.until_delivered(reader)
    assert deliver.question == first + 2


def test_question_goes_to_no_reader_that_cannot_answer(cluster: Cluster) -> None:
    cluster.read(takes_long=False)
    stream, first = cluster.questions()
    cluster.question(stream, b"a")
    assert cluster.until_outcomes() == [(NO_READER, first, b"")]


def test_question_of_a_reader_that_ends_is_lost_at_once(cluster: Cluster) -> None:
    reader = cluster.read(credit=2)
    stream, first = cluster.questions()
    cluster.question(stream, b"a", b"b")
    cluster.question(stream, b"c")
    (deliver,) = cluster.until_delivered(reader)
    cluster.network.run(0.1)
    back = cluster.answers(reader, deliver)
    cluster.answer(back, (first, b"A"))
    cluster.put(cluster.answerer, reader, Unsubscribe())
    assert sorted(cluster.until_outcomes(3)) == [
        (ANSWER, first, b"A"),
        (READER_LOST, first + 1, b""),
        # It waited behind the credit: nobody had it.
        (NO_READER, first + 2, b""),
    ]
    assert cluster.owed() == 0


def test_question_that_waits_goes_to_another_reader(cluster: Cluster) -> None:
    reader = cluster.read(credit=1)
    stream, first = cluster.questions()
    cluster.question(stream, b"a")
    cluster.until_delivered(reader)
    cluster.question(stream, b"b")
    cluster.network.run(0.2)
    other = cluster.read()
    cluster.put(cluster.answerer, reader, Unsubscribe())
    (deliver,) = cluster.until_delivered(other)
    assert deliver.question == first + 1
    assert not deliver.redelivered
    assert cluster.until_outcomes() == [(READER_LOST, first, b"")]


def test_consumed_question_is_owed_until_it_is_answered(cluster: Cluster) -> None:
    reader, _, first, _ = cluster.ask(b"a")
    cluster.put(cluster.answerer, reader, Consumed(1))
    assert cluster.owed() == 1
    cluster.put(cluster.answerer, reader, Unsubscribe())
    assert cluster.until_outcomes() == [(READER_LOST, first, b"")]


def test_answer_that_is_not_owed_is_withdrawn(cluster: Cluster) -> None:
    reader, _, first, deliver = cluster.ask(b"a")
    back = cluster.answers(reader, deliver)
    cluster.answer(back, (first, b"A"))
    cluster.answer(back, (first, b"again"))
    cluster.network.run(0.5)
    moved = [e for e in cluster.told(cluster.answerer, back) if isinstance(e, StreamMoved)]
    assert [e.error for e in moved if e.withdrawn == (2,)] == [RequestError.__name__]
    assert cluster.outcomes() == [(ANSWER, first, b"A")]


def test_question_that_one_segment_answers_twice_is_answered(cluster: Cluster) -> None:
    reader, _, first, deliver = cluster.ask(b"a", b"b")
    back = cluster.answers(reader, deliver)
    cluster.answer(back, (first, b"A"), (first, b"again"))
    assert cluster.until_outcomes()[0] == (ANSWER, first, b"A")
    assert cluster.owed() == 1


def test_answer_to_an_asker_that_is_gone_is_refused(cluster: Cluster) -> None:
    reader, stream, first, deliver = cluster.ask(b"a")
    cluster.put(cluster.asker, stream, CloseStream(abandon=True))
    cluster.put(cluster.asker, cluster.inbox_request, Unsubscribe())
    back = cluster.answers(reader, deliver)
    cluster.answer(back, (first, b"A"))
    cluster.network.run(0.5)
    ended = cluster.ended(cluster.answerer, back)
    assert ended is not None
    assert isinstance(ended.error, NoReaderError)
    assert not ended.error.sent


def test_asker_that_is_held_dead_is_told_of_no_lost_question() -> None:
    cluster = Cluster()
    reader, *_ = cluster.ask(b"a")
    cluster.network.kill(cluster.asker)
    settle(cluster.network, [cluster.asker])
    cluster.put(cluster.answerer, reader, Unsubscribe())
    table = cluster.host(cluster.answerer).node.parts.outbound.table
    assert [s for s in table.streams.values() if s.destination == cluster.asker] == []


def test_question_to_a_node_that_dies_ends_with_its_stream() -> None:
    cluster = Cluster()
    cluster.read()
    stream, _ = cluster.questions()
    cluster.question(stream, b"a")
    cluster.network.run(0.5)
    cluster.network.kill(3)
    ended = cluster.until_ended(0, stream)
    assert isinstance(ended.error, DeadError)


def test_question_to_a_node_that_restarts_ends_with_its_stream() -> None:
    cluster = Cluster()
    cluster.read()
    stream, _ = cluster.questions()
    cluster.question(stream, b"a")
    cluster.network.run(0.5)
    cluster.network.kill(3)
    cluster.network.boot(3, counter=2)
    ended = cluster.until_ended(0, stream)
    assert isinstance(ended.error, DeadError | NewLifeError)


def test_answer_to_a_former_life_of_its_asker_is_refused() -> None:
    cluster = Cluster()
    reader, _, _, deliver = cluster.ask(b"a")
    cluster.network.kill(0)
    cluster.network.boot(0, counter=2)
    settle(cluster.network)
    command = OpenAnswers(deliver.source, deliver.incarnation, deliver.inbox, reader)
    _, reply = cluster.open(3, command)
    assert isinstance(reply.error, NewLifeError)


def test_long_question_without_a_reader_is_refused() -> None:
    cluster = Cluster()
    stream, _ = cluster.questions()
    piece = PutSegment(0, bytes(1000), 2000, first=True)
    cluster.put(0, stream, piece)
    ended = cluster.until_ended(0, stream)
    assert isinstance(ended.error, NoReaderError)


def test_long_question_is_owed_from_its_first_piece_and_forgotten_when_it_is_withdrawn(
    cluster: Cluster,
) -> None:
    reader = cluster.read()
    stream, first = cluster.questions()
    cluster.put(cluster.asker, stream, PutSegment(0, bytes(1000), 2000, first=True))
    (piece,) = cluster.until_delivered(reader)
    assert (piece.inbox, piece.question, piece.size) == (cluster.inbox, first, 2000)
    assert cluster.owed() == 1
    cluster.put(cluster.asker, stream, Withdraw(0))
    _, aborted = cluster.until_delivered(reader, 2)
    assert aborted.aborted
    assert cluster.owed() == 0
    # All its pieces were one question.
    cluster.question(stream, b"next")
    assert cluster.until_delivered(reader, 3)[2].question == first + 1


def test_long_question_of_a_reader_that_ends_is_lost(cluster: Cluster) -> None:
    reader = cluster.read()
    stream, first = cluster.questions()
    cluster.put(cluster.asker, stream, PutSegment(0, bytes(9), 18, first=True))
    cluster.put(cluster.asker, stream, PutSegment(0, bytes(9), 18, last=True))
    pieces = cluster.until_delivered(reader, 2)
    cluster.put(cluster.answerer, reader, Consumed(2, pieces[0].long))
    cluster.network.run(0.2)
    cluster.put(cluster.answerer, reader, Unsubscribe())
    assert cluster.until_outcomes() == [(READER_LOST, first, b"")]
    assert cluster.ended(cluster.asker, stream) is None


def test_long_question_being_handed_out_ends_its_stream_when_its_reader_ends(
    cluster: Cluster,
) -> None:
    reader = cluster.read()
    stream, _ = cluster.questions()
    cluster.put(cluster.asker, stream, PutSegment(0, bytes(9), 18, first=True))
    cluster.until_delivered(reader)
    cluster.put(cluster.answerer, reader, Unsubscribe())
    ended = cluster.until_ended(cluster.asker, stream)
    assert isinstance(ended.error, ReaderLostError)


def test_answer_whose_time_is_over_before_it_was_sent_is_owed_again() -> None:
    cluster = Cluster()
    reader, stream, first, deliver = cluster.ask(b"a")
    back = cluster.answers(reader, deliver)
    for peer in range(3):
        cluster.network.cut(3, peer)
    # The first one is underway, so the second is not sent before its time is over.
    cluster.answer(back, (first, b"A"))
    cluster.question(stream, b"b")
    body = pack_messages([answer_head(ANSWER, first)])
    assert cluster.owed() == 0
    cluster.host(3).node.parts.topics.questions.handed(reader, _asker(deliver), [first])
    command = PutSegment(1, body, timeout_ns=S // 100, answers=(first,))
    cluster.put(3, back, command)
    assert cluster.owed() == 0
    cluster.network.run(0.1)
    assert cluster.owed() == 1


def test_answer_that_was_not_sent_is_lost_when_its_reader_has_ended_meanwhile() -> None:
    cluster = Cluster()
    reader = cluster.read()
    stream, first = cluster.questions()
    cluster.question(stream, b"a")
    cluster.question(stream, b"b")
    deliver, _ = cluster.until_delivered(reader, 2)
    back = cluster.answers(reader, deliver)
    for peer in range(3):
        cluster.network.cut(3, peer)
    # The first one is underway, so the second is not sent before its time is over.
    cluster.answer(back, (first, b"A"))
    body = pack_messages([answer_head(ANSWER, first + 1)])
    cluster.put(3, back, PutSegment(1, body, timeout_ns=S // 100, answers=(first + 1,)))
    cluster.put(3, reader, Unsubscribe())
    cluster.network.run(0.1)
    assert cluster.owed() == 0
    cluster.network.mend()
    assert (READER_LOST, first + 1, b"") in cluster.until_outcomes(2)


@pytest.mark.parametrize("gives_up", [Withdraw(0), CloseStream(abandon=True)])
def test_long_answer_that_is_given_up_before_it_was_sent_is_lost_when_its_reader_ends(
    gives_up: Command,
) -> None:
    cluster = Cluster()
    reader, _, first, deliver = cluster.ask(b"a", b"b")
    back = cluster.answers(reader, deliver)
    for peer in range(3):
        cluster.network.cut(3, peer)
    # The first one is underway, so nothing of the second is sent.
    cluster.answer(back, (first, b"A"))
    body = answer_head(ANSWER, first + 1)
    begun = PutSegment(0, body, size=2 * len(body), first=True, answers=(first + 1,))
    cluster.put(3, back, begun)
    assert cluster.owed() == 0
    cluster.put(3, back, gives_up)
    assert cluster.owed() == 1
    cluster.put(3, reader, Unsubscribe())
    cluster.network.mend()
    assert (READER_LOST, first + 1, b"") in cluster.until_outcomes(2)


def test_lost_question_of_a_new_life_is_told_by_a_stream_of_its_own() -> None:
    cluster = Cluster()
    parts = cluster.host(3).node.parts
    for peer in range(3):
        cluster.network.cut(3, peer)
    former = cluster.host(0).node.incarnation
    parts.asking.tell_lost(QuestionsLost(NodeId(0), former, cluster.inbox, (1,), handed=True))
    # It goes on in another life before anybody knows that the former one is over.
    later = Incarnation(former + (1 << 32))
    parts.context.membership.meet_life(NodeId(0), later)
    parts.asking.tell_lost(QuestionsLost(NodeId(0), later, cluster.inbox, (1,), handed=True))
    told = [stream.tag for stream in parts.outbound.table.streams.values()]
    assert told == [incarnation_tag(former), incarnation_tag(later)]


def _asker(deliver: Deliver) -> questions_module.Asker:
    return questions_module.Asker(deliver.source, deliver.incarnation, deliver.inbox)


def test_too_many_owed_questions_lose_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions_module, "OWED_MAX", 2)
    cluster = Cluster()
    cluster.read()
    stream, first = cluster.questions()
    cluster.question(stream, b"a", b"b", b"c")
    assert cluster.until_outcomes() == [(READER_LOST, first, b"")]
    assert cluster.owed() == 2


# --- the room of answers --------------------------------------------------------------------------


def test_room_of_an_answer_is_kept_until_the_question_is_settled() -> None:
    cluster = Cluster()
    stream, first = cluster.questions()
    inboxes = cluster.host(0).node.parts.topics.inboxes
    cluster.question(stream, b"a", b"b")
    assert inboxes.underway == 2
    cluster.put(0, cluster.inbox_request, Settled(0, (first, first, 12345)))
    assert inboxes.underway == 1
    cluster.put(0, cluster.inbox_request, Unsubscribe())
    assert inboxes.underway == 0
    assert inboxes.covered_bytes == 0


def test_one_question_too_many_is_withdrawn() -> None:
    cluster = Cluster()
    stream, first = cluster.questions()
    inboxes = cluster.host(0).node.parts.topics.inboxes
    assert inboxes.reserve(cluster.inbox, range(1, QUESTIONS_MAX))
    cluster.question(stream, b"a", b"b")
    moved = [e for e in cluster.told(0, stream) if isinstance(e, StreamMoved)]
    assert [(e.withdrawn, e.error) for e in moved] == [((1,), RequestError.__name__)]
    assert inboxes.underway == QUESTIONS_MAX - 1
    cluster.question(stream, b"c")
    cluster.network.run(0.1)
    assert [number for _, number, _ in cluster.outcomes()] == [first + 2]


def test_answers_are_taken_where_all_other_room_is_used_up() -> None:
    queues = Queues(queue_messages=10**6)
    queues.topics.open_inbox(1, CREDIT_BYTES)
    queues.topics.inboxes.reserve(1, range(1, 41))
    # All other room is used up, and the inbox holds more than one segment's worth is always taken.
    queues.topics.table.held_bytes += HELD_BYTES_MAX
    body = pack_messages([bytes(60_000)])
    answer = Taken(NodeId(7), Incarnation(1), 1, 1, body)
    assert queues.topics.offer(topic_of(1), answer) is Offer.TAKEN
    again = Taken(NodeId(7), Incarnation(1), 1, 1, body)
    assert queues.topics.room(topic_of(1)) == 40 * ANSWER_BYTES - answer.cost
    assert queues.topics.offer(topic_of(1), again) is Offer.TAKEN
    third = Taken(NodeId(7), Incarnation(1), 1, 1, body)
    assert queues.topics.offer(topic_of(1), third) is Offer.FULL
    assert queues.topics.room("jobs") == 0 or queues.topics.room("jobs") < COST_MAX


def test_inbox_that_holds_something_has_no_room_where_all_is_used_up() -> None:
    queues = Queues()
    queues.topics.open_inbox(1, CREDIT_BYTES)
    body = pack_messages([b"x"])
    answer = Taken(NodeId(7), Incarnation(1), 1, 1, body)
    assert queues.topics.offer(topic_of(1), answer) is Offer.TAKEN
    queues.topics.table.held_bytes += HELD_BYTES_MAX
    assert queues.topics.room(topic_of(1)) == 0


def test_what_answers_hold_within_their_room_takes_none_from_others() -> None:
    queues = Queues()
    queues.topics.open_inbox(1, CREDIT_BYTES)
    before = queues.topics.room("jobs")
    queues.topics.inboxes.reserve(1, range(1, 41))
    body = pack_messages([bytes(60_000)])
    queues.topics.offer(topic_of(1), Taken(NodeId(7), Incarnation(1), 1, 1, body))
    assert queues.topics.room("jobs") == before
    queues.topics.settled(1, 0, range(1, 41))
    assert queues.topics.room("jobs") < before
    queues.topics.settled(1, 1, ())
    assert queues.topics.room("jobs") == before


def test_inbox_ends_with_what_it_holds() -> None:
    queues = Queues()
    queues.topics.open_inbox(1, CREDIT_BYTES)
    body = pack_messages([bytes(60_000)])
    queues.topics.offer(topic_of(1), Taken(NodeId(7), Incarnation(1), 1, 1, body))
    queues.topics.unsubscribe(1)
    assert queues.topics.table.held_bytes == 0
    again = Taken(NodeId(7), Incarnation(1), 1, 1, body)
    assert queues.topics.offer(topic_of(1), again) is Offer.NO_READER
    queues.topics.open_inbox(2, CREDIT_BYTES)
    assert queues.topics.offer(topic_of(1), again) is Offer.NO_READER


@pytest.mark.parametrize("topic", ["_inbox.", "_inbox.x", "inbox.3", "_inbox.-3"])
def test_inbox_has_no_number_where_its_topic_is_none(topic: str) -> None:
    assert inbox_of(topic) == 0
    assert is_inbox(topic) == topic.startswith("_inbox.")
    assert inbox_of(topic_of(3)) == 3
    assert not Inboxes().reserve(1, [1])


# --- who has a reader -----------------------------------------------------------------------------


def found(network: Network, timeout_ns: int = 2 * S) -> object:
    return reply_to(network, 1, FindReaders("rpc", timeout_ns)).result


def test_readers_are_found_everywhere_and_sorted() -> None:
    network = Network(12)
    settle(network)
    assert found(network) == {"readers": [], "silent": []}
    for reader in (7, 1, 3):
        network.issue(reader, Subscribe("rpc", 1))
    network.issue(5, Subscribe("other", 1))
    network.run(0.1)
    assert found(network) == {"readers": [1, 3, 7], "silent": []}


def test_reader_of_a_node_that_is_silent_is_named_as_such() -> None:
    network = Network(6)
    settle(network)
    network.issue(4, Subscribe("rpc", 1))
    network.issue(2, Subscribe("rpc", 1))
    network.run(0.1)
    network.stop(2)
    began_ns = network.now_ns
    assert found(network, S // 10) == {"readers": [4], "silent": [2]}
    assert network.now_ns - began_ns == pytest.approx(S // 10, rel=0.1)


def test_reader_of_a_node_that_was_asked_in_vain_twice_is_named_as_silent() -> None:
    network = Network(6)
    settle(network)
    network.stop(2)
    began_ns = network.now_ns
    assert found(network, S) == {"readers": [], "silent": [2]}
    assert network.now_ns - began_ns == pytest.approx(S, rel=0.1)


def test_dead_node_is_not_waited_for() -> None:
    network = Network(6)
    settle(network)
    network.kill(2)
    settle(network, [2])
    began_ns = network.now_ns
    assert found(network) == {"readers": [], "silent": []}
    assert network.now_ns - began_ns < S // 10


def test_one_search_for_readers_too_many_is_refused() -> None:
    network = Network(4)
    settle(network)
    network.stop(2)
    for _ in range(16):
        network.issue(1, FindReaders("rpc", S // 10))
    reply = reply_to(network, 1, FindReaders("rpc", S))
    assert isinstance(reply.error, RequestError)
    network.run(0.3)
    assert reply_to(network, 1, FindReaders("rpc", S // 10)).error is None


def test_silent_node_is_asked_again() -> None:
    network = Network(6)
    settle(network)
    network.issue(4, Subscribe("rpc", 1))
    network.run(0.1)
    network.stop(4)
    request = network.issue(1, FindReaders("rpc", 2 * S))
    network.run(0.1)
    network.resume(4)
    replies = network.hosts[NodeId(1)].replies
    network.run_until(lambda: request in replies, 5)
    assert replies[request].result == {"readers": [4], "silent": []}


# --- members of an older release ------------------------------------------------------------------


def test_requests_wait_for_the_last_member_of_an_older_release() -> None:
    network = Network(4, start=False)
    for node_id in range(4):
        network.boot(node_id, features=0 if node_id == 2 else SPOKEN)
    settle(network)
    inbox = reply_to(network, 0, OpenInbox(CREDIT_BYTES)).result["inbox"]
    refused = reply_to(network, 0, OpenQuestions(NodeId(3), "rpc", 2, inbox))
    assert isinstance(refused.error, RequestError)
    assert "older release" in str(refused.error)
    # Nobody is asked who would not know what is meant: all are silent.
    found = reply_to(network, 0, FindReaders("rpc", S // 10)).result
    assert found == {"readers": [], "silent": [1, 2, 3]}


def test_questions_end_when_a_member_goes_back_to_an_older_release() -> None:
    cluster = Cluster()
    cluster.read()
    stream, first = cluster.questions()
    cluster.question(stream, b"a")
    network = cluster.network
    network.kill(2)
    settle(network, [2])
    network.boot(2, counter=2, features=0)
    settle(network)
    cluster.question(stream, b"b")
    moved = [e for e in cluster.told(0, stream) if isinstance(e, StreamMoved)]
    assert [(e.withdrawn, e.error) for e in moved if e.withdrawn] == [((2,), "RequestError")]
    assert set(cluster.host(0).node.parts.topics.inboxes.inboxes()[0].underway) == {first}
