"""What a program that subscribes gets, in which order, and where a topic is full."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from bmgd.core.commands import SendTo, Subscribe, Unsubscribe
from bmgd.core.context import Context, LongSettled, RoomFreed
from bmgd.core.effects import Deliver, Effect, Reply
from bmgd.core.events import CommandIssued
from bmgd.core.settings import Settings
from bmgd.core.topics.handing_out import HAND_OUT_MAX
from bmgd.core.topics.taken import Offer, Taken
from bmgd.core.topics.topic_table import (
    HELD_BYTES_MAX,
    QUEUE_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
    TOPICS_MAX,
)
from bmgd.core.topics.topics import Topics
from bmgd.core.work import Work
from bmgd.peers import PeerList
from bmgd.sim.network import Network
from bmgd.types import Incarnation, NodeId
from bmgd.wire.batch import pack_messages
from bmgd.wire.segments import COST_MAX, OVERHEAD_BYTES
from tests.unit.core.clusters import settle
from tests.unit.segments import delivered, payloads_of

SUBSCRIPTION = 1_000
PEERS = PeerList(template="host{id}:7400")


def _alone_with(messages: int) -> Network:
    network = Network(1)
    network.run(1)
    for number in range(messages):
        network.issue(0, SendTo(NodeId(0), "jobs", b"%d" % number, 10**9))
    return network


def _ask(network: Network, request: int, command: Subscribe | Unsubscribe) -> list[Effect]:
    node = network.hosts[NodeId(0)].node
    return node.step(network.now_ns, CommandIssued(request, command))


class Queues:
    """Topics by themselves, with what they tell.

    Args:
        queue_messages: the bound of one topic.
    """

    def __init__(self, queue_messages: int = 1024) -> None:
        settings = Settings(
            NodeId(0), 1, PEERS, PEERS.address_of(NodeId(0)), queue_messages=queue_messages
        )
        self.context = Context(settings, Incarnation(1), Random(0))
        self.work = Work(self.context)
        self.topics = Topics(self.context, self.work)

    def put(self, *texts: str, topic: str = "jobs") -> list[bool]:
        return [self.topics.take(topic, NodeId(7), Incarnation(1), text.encode()) for text in texts]

    def put_together(self, *texts: str, topic: str = "jobs") -> Offer:
        """Offer one segment with all of these messages."""
        body = pack_messages([text.encode() for text in texts])
        return self.topics.offer(topic, Taken(NodeId(7), Incarnation(1), 1, len(texts), body))

    def put_piece(
        self,
        text: str,
        size: int,
        *,
        first: bool = False,
        last: bool = False,
        stream: int = 1,
        line: int = 0,
    ) -> Offer:
        piece = Taken(NodeId(7), Incarnation(1), stream, 0, text.encode(), size, first, last)
        piece.line = line
        return self.topics.offer("jobs", piece)

    def delivered(self) -> list[tuple[int, str]]:
        """(subscription, payload) of what was handed out since the last call."""
        effects, self.context.effects = self.context.effects, []
        return [
            (e.request, payload.decode())
            for e in effects
            if isinstance(e, Deliver)
            for payload in (payloads_of(e) or [e.body])
        ]

    def facts(self) -> list[object]:
        facts: list[object] = list(self.context.facts)
        self.context.facts.clear()
        return facts


def test_topics_answer_a_subscription_before_its_messages() -> None:
    network = _alone_with(2)
    life = network.hosts[NodeId(0)].node.incarnation
    effects = _ask(network, SUBSCRIPTION, Subscribe("jobs", 8))
    assert effects == [
        Reply(SUBSCRIPTION),
        replace(delivered(SUBSCRIPTION, NodeId(0), "jobs", b"0"), incarnation=life),
        replace(delivered(SUBSCRIPTION, NodeId(0), "jobs", b"1"), incarnation=life),
    ]


def test_topics_give_what_a_reader_has_not_consumed_to_the_next() -> None:
    network = _alone_with(3)
    _ask(network, SUBSCRIPTION, Subscribe("jobs", 2))
    assert _ask(network, SUBSCRIPTION, Unsubscribe()) == []
    effects = _ask(network, SUBSCRIPTION + 1, Subscribe("jobs", 8))
    assert [p for e in effects if isinstance(e, Deliver) for p in payloads_of(e)] == [
        b"0",
        b"1",
        b"2",
    ]


def test_topics_forget_one_that_nobody_reads_and_that_holds_nothing() -> None:
    network = _alone_with(0)
    assert _ask(network, SUBSCRIPTION, Subscribe("jobs", 8)) == [Reply(SUBSCRIPTION)]
    assert _ask(network, SUBSCRIPTION, Unsubscribe()) == []
    assert _ask(network, SUBSCRIPTION, Subscribe("jobs", 8)) == [Reply(SUBSCRIPTION)]


def test_topics_hold_as_many_messages_as_the_bound_and_no_more() -> None:
    queues = Queues(queue_messages=3)
    assert queues.put("a", "b", "c", "d") == [True, True, True, False]
    assert queues.topics.table.waiting() == 3
    assert queues.put("e", topic="other") == [True]
    # Where somebody reads, bytes are the bound: his pace is the sender's.
    queues.topics.subscribe(1, "jobs", 1)
    assert queues.delivered() == [(1, "a")]
    assert queues.put("f", "g") == [True, True]
    assert queues.put_together("a", "b", "c", "d", topic="third") is Offer.TAKEN
    assert queues.put("e", topic="third") == [False]


def test_topics_hold_as_many_bytes_as_the_bound_and_no_more() -> None:
    queues = Queues(queue_messages=10**6)
    many = "x" * 60_000
    while queues.put(many) == [True]:
        pass
    held = queues.topics.table.waiting() * (60_000 + 3 + OVERHEAD_BYTES)
    assert QUEUE_BYTES_MAX - COST_MAX < held <= QUEUE_BYTES_MAX
    # Others have room all the same, and one with a reader has more.
    assert queues.put(many, topic="other") == [True]
    queues.topics.subscribe(1, "jobs", 1)
    assert queues.put(many) == [True]


def test_topics_hold_at_most_half_of_what_is_free_and_one_segment_is_reserved() -> None:
    queues = Queues()
    topic = 0
    held = []
    while topic < 40:
        queues.topics.subscribe(topic, str(topic), 1, 1)
        count = 0
        while queues.put("x" * 60_000, topic=str(topic)) == [True]:
            count += 1
        held.append(count)
        topic += 1
    # Each has less than the one before it, and each has something.
    assert held == sorted(held, reverse=True)
    assert held[0] * 60_000 < HELD_BYTES_MAX // 2
    assert min(held) >= 1
    total = sum(held) * (60_000 + 3 + OVERHEAD_BYTES)
    assert total <= HELD_BYTES_MAX + 40 * COST_MAX


def test_topics_that_nobody_reads_expire_with_what_they_hold_and_make_room() -> None:
    queues = Queues()
    for number in range(TOPICS_MAX):
        assert queues.put("a", topic=str(number)) == [True]
    queues.topics.subscribe(1, "0", 0)
    assert queues.put("a", topic="one more") == [False]
    ((key, at_ns),) = [(k, at) for k, (at, _) in queues.context.timers._due.items()]
    queues.context.now_ns = at_ns
    queues.topics.on_expiry_timer(key)
    assert queues.put("a", topic="one more") == [True]
    assert queues.topics.dropped == TOPICS_MAX - 1
    assert queues.topics.table.waiting() == 2


def test_topics_cut_a_segment_between_messages_for_a_reader_whose_credit_is_smaller() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 2)
    assert queues.put_together("a", "b", "c") is Offer.TAKEN
    assert queues.delivered() == [(1, "a"), (1, "b")]
    queues.topics.consumed(1, 2)
    assert queues.delivered() == [(1, "c")]
    queues.topics.subscribe(2, "bytes", 99, OVERHEAD_BYTES + 12)
    queues.put_together("four", "five", "six", topic="bytes")
    assert queues.delivered() == [(2, "four"), (2, "five")]
    queues.topics.consumed(2, 2)
    assert queues.delivered() == [(2, "six")]
    queues.put_together("longer than all of its credit", "x", topic="bytes")
    assert queues.delivered() == []
    queues.topics.consumed(2, 1)
    assert queues.delivered() == [(2, "longer than all of its credit")]


def test_topics_give_back_what_of_a_segment_was_not_consumed_marked_as_redelivered() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 9)
    queues.put_together("a", "b", "c")
    queues.topics.consumed(1, 1)
    queues.delivered()
    queues.topics.unsubscribe(1)
    assert queues.topics.table.waiting() == 2
    queues.topics.subscribe(2, "jobs", 9)
    (handed,) = [e for e in queues.context.effects if isinstance(e, Deliver)]
    assert (payloads_of(handed), handed.redelivered) == ([b"b", b"c"], True)


def test_topics_take_no_long_message_without_a_reader_that_takes_them() -> None:
    queues = Queues()
    assert queues.put_piece("a", 2, first=True) is Offer.NO_READER
    queues.topics.subscribe(1, "jobs", 9)
    assert queues.put_piece("a", 2, first=True) is Offer.NO_READER
    queues.topics.subscribe(2, "jobs", 9, takes_long=True)
    assert queues.put_piece("a", 2, first=True) is Offer.TAKEN
    assert queues.delivered() == [(2, "a")]


def test_topics_settle_a_long_message_when_its_reader_has_consumed_the_last_piece() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 9, takes_long=True)
    queues.put_piece("a", 2, first=True)
    assert queues.put_piece("b", 2, last=True) is Offer.AWAITED
    assert [e.long for e in queues.context.effects if isinstance(e, Deliver)] == [1, 1]
    queues.topics.consumed(1, 1, 1)
    assert queues.facts() == []
    queues.topics.consumed(1, 1, 1)
    assert queues.facts() == [LongSettled(NodeId(7), 1, taken=True)]
    assert queues.topics.table.held_bytes == 0


def test_topics_tell_when_the_reader_of_a_long_message_is_gone() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 9, takes_long=True)
    queues.put_piece("a", 3, first=True)
    queues.topics.unsubscribe(1)
    assert queues.facts() == [LongSettled(NodeId(7), 1, taken=False)]
    assert queues.put_piece("b", 3) is Offer.NO_READER
    assert queues.topics.table.held_bytes == 0


def test_topics_tell_the_reader_of_a_long_message_that_no_more_comes() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 9, takes_long=True)
    queues.put_piece("a", 3, first=True)
    queues.topics.abort(NodeId(7), 1, "its source is gone")
    (_, aborted) = [e for e in queues.context.effects if isinstance(e, Deliver)]
    assert (aborted.long, aborted.aborted) == (1, "its source is gone")


def test_topics_hand_out_what_waits_for_the_credit_of_a_long_message_that_is_aborted() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 10, OVERHEAD_BYTES + 5, takes_long=True)
    assert queues.put_piece("a", 100, first=True) is Offer.TAKEN
    assert queues.put("b") == [True]
    assert queues.delivered() == [(1, "a")]
    queues.topics.abort(NodeId(7), 1, "its source died")
    assert queues.delivered() == [(1, ""), (1, "b")]


def test_topics_let_a_segment_pass_the_pieces_of_a_long_message_that_wait() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 10, 2 * (OVERHEAD_BYTES + 6), takes_long=True)
    for number in range(9):
        queues.put_piece(f"piece{number}", 900, first=number == 0)
    assert queues.put("four") == [True]
    assert queues.delivered() == [(1, "piece0"), (1, "piece1")]
    queues.topics.consumed(1, 1, long=1)
    assert queues.delivered() == [(1, "four")]


def test_topics_of_a_node_with_another_id_hand_out_what_the_former_was_on_its_way_with() -> None:
    former, queues = Queues(), Queues()
    former.topics.subscribe(1, "jobs", 10, OVERHEAD_BYTES + 5, takes_long=True)
    assert former.put_piece("a", 100, first=True) is Offer.TAKEN
    assert former.put("b") == [True]
    assert former.delivered() == [(1, "a")]
    queues.topics.inherit(former.topics)
    assert queues.delivered() == [(1, ""), (1, "b")]


def test_topics_hold_back_pieces_beyond_the_readers_credit() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 9, 2 * (OVERHEAD_BYTES + 1), takes_long=True)
    for number in range(4):
        queues.put_piece(str(number), 4, first=number == 0, last=number == 3)
    assert queues.delivered() == [(1, "0"), (1, "1")]
    queues.topics.consumed(1, 1, 1)
    assert queues.delivered() == [(1, "2")]


def test_topics_tell_of_room_when_somebody_asked_for_it() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 9)
    queues.put("a", "b")
    queues.topics.consumed(1, 1)
    assert queues.facts() == []
    queues.topics.ask_for_room("jobs")
    queues.topics.consumed(1, 1)
    assert queues.facts() == [RoomFreed("jobs")]


def test_topics_hand_out_a_bounded_number_in_one_step() -> None:
    queues = Queues(queue_messages=10**6)
    queues.put(*map(str, range(3 * HAND_OUT_MAX)))
    queues.topics.subscribe(1, "jobs", 10**6, HELD_BYTES_MAX)
    assert len(queues.delivered()) == HAND_OUT_MAX
    for _ in range(2):
        queues.work.on_timer(("work", 0, 0))
        assert len(queues.delivered()) == HAND_OUT_MAX
    assert queues.topics.table.waiting() == 0


def test_topics_serve_readers_in_turn_also_beyond_what_one_step_hands_out() -> None:
    queues = Queues()
    for reader in (1, 2):
        queues.topics.subscribe(reader, "jobs", 0)
    queues.put(*map(str, range(3 * HAND_OUT_MAX)))
    for reader in (1, 2):
        queues.topics.table.subscriptions[reader].credit = 3 * HAND_OUT_MAX
    queues.topics.consumed(1, 0)
    for _ in range(3):
        queues.work.on_timer(("work", 0, 0))
    readers = [reader for reader, _ in queues.delivered()]
    assert sorted(readers[:2]) == [1, 2]
    assert readers == readers[:2] * (3 * HAND_OUT_MAX // 2)


def test_topics_take_no_message_for_one_more_topic_than_the_bound() -> None:
    queues = Queues()
    for number in range(TOPICS_MAX):
        assert queues.put("a", topic=str(number)) == [True]
    assert queues.put("a", topic="one more") == [False]
    assert queues.put("b", topic="0") == [True]
    assert queues.topics.subscribe(2, "0", 8)
    queues.topics.unsubscribe(2)
    assert queues.put("a", topic="one more") == [False]
    queues.topics.subscribe(3, "0", 8)
    queues.topics.consumed(3, 2)
    queues.topics.unsubscribe(3)
    assert queues.put("a", topic="one more") == [True]


def test_topics_let_a_long_message_wait_behind_what_its_stream_brought_before() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 1, takes_long=True)
    assert queues.put_together("a") is Offer.TAKEN
    assert queues.put_together("b") is Offer.TAKEN
    assert queues.put_piece("cc", 4, first=True) is Offer.FULL
    # Of another stream: there is no order between the two.
    assert queues.put_piece("dd", 4, first=True, stream=2) is Offer.TAKEN
    # A stream that took the place of the first one is the same to its program.
    assert queues.put_piece("cc", 4, first=True, stream=3, line=1) is Offer.FULL
    queues.facts()
    queues.topics.consumed(1, 1)
    assert RoomFreed("jobs") in queues.facts()
    assert queues.put_piece("cc", 4, first=True, stream=3, line=1) is Offer.TAKEN
    assert [text for _, text in queues.delivered()] == ["a", "dd", "b", "cc"]


def test_topics_let_no_long_message_wait_for_a_reader_that_takes_none() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 0)
    assert queues.put_together("a") is Offer.TAKEN
    assert queues.put_piece("cc", 4, first=True) is Offer.NO_READER


def test_topics_count_what_a_reader_left_among_what_its_stream_brought() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 8)
    assert queues.put_together("a", "b") is Offer.TAKEN
    queues.topics.consumed(1, 1)
    queues.topics.unsubscribe(1)
    queues.topics.subscribe(2, "jobs", 0, takes_long=True)
    assert queues.put_piece("cc", 4, first=True) is Offer.FULL


def test_topics_that_nobody_reads_keep_no_reader_out() -> None:
    queues = Queues()
    for number in range(TOPICS_MAX):
        assert queues.put("a", topic=str(number)) == [True]
    for number in range(SUBSCRIPTIONS_MAX):
        assert queues.topics.subscribe(1, f"new {number}", 1)
        assert queues.put("a", topic=f"new {number}") == [True]
        queues.topics.unsubscribe(1)
    assert not queues.topics.subscribe(1, "one more", 1)
    assert queues.topics.subscribe(1, "new 0", 1)


def test_topics_have_a_bound_on_subscriptions() -> None:
    queues = Queues()
    assert all(queues.topics.subscribe(number, "jobs", 1) for number in range(SUBSCRIPTIONS_MAX))
    assert not queues.topics.subscribe(SUBSCRIPTIONS_MAX, "jobs", 1)
    queues.topics.unsubscribe(0)
    assert queues.topics.subscribe(SUBSCRIPTIONS_MAX, "jobs", 1)


def test_topics_serve_readers_in_turn() -> None:
    queues = Queues()
    for reader in (1, 2, 3):
        queues.topics.subscribe(reader, "jobs", 4)
    queues.put("a", "b", "c", "d", "e", "f")
    assert queues.delivered() == [(1, "a"), (2, "b"), (3, "c"), (1, "d"), (2, "e"), (3, "f")]


def test_topics_pass_over_a_reader_without_credit() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 1)
    queues.topics.subscribe(2, "jobs", 3)
    queues.put("a", "b", "c", "d", "e")
    assert queues.delivered() == [(1, "a"), (2, "b"), (2, "c"), (2, "d")]
    assert queues.topics.table.waiting() == 1
    queues.topics.consumed(1, 1)
    assert queues.delivered() == [(1, "e")]
    assert queues.topics.table.waiting() == 0


def test_topics_count_no_more_consumed_than_was_delivered() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 2)
    queues.put("a")
    queues.topics.consumed(1, 100)
    queues.put("b", "c", "d")
    assert queues.delivered() == [(1, "a"), (1, "b"), (1, "c")]


def test_topics_put_unconsumed_messages_back_in_front_and_in_order() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 3)
    queues.put("a", "b", "c", "d", "e")
    queues.topics.consumed(1, 1)
    assert queues.delivered() == [(1, "a"), (1, "b"), (1, "c"), (1, "d")]
    queues.topics.unsubscribe(1)
    assert queues.topics.table.waiting() == 4
    queues.topics.subscribe(2, "jobs", 8)
    assert queues.delivered() == [(2, "b"), (2, "c"), (2, "d"), (2, "e")]


def test_topics_give_what_comes_back_to_the_other_readers_at_once() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 2)
    queues.put("a", "b")
    queues.topics.subscribe(2, "jobs", 1)
    assert queues.delivered() == [(1, "a"), (1, "b")]
    queues.topics.unsubscribe(1)
    assert queues.delivered() == [(2, "a")]
    assert queues.topics.table.waiting() == 1


def test_topics_account_for_bytes_that_come_back() -> None:
    queues = Queues()
    queues.topics.subscribe(1, "jobs", 2)
    queues.put("a", "b", "c")
    held = queues.topics.table.held_bytes
    queues.topics.unsubscribe(1)
    assert queues.topics.table.held_bytes == held == 3 * (OVERHEAD_BYTES + 3)
    queues.topics.subscribe(2, "jobs", 9)
    queues.topics.consumed(2, 3)
    assert queues.topics.table.held_bytes == 0


def test_topics_ignore_a_subscription_that_is_over() -> None:
    queues = Queues()
    queues.topics.consumed(1, 1)
    queues.topics.unsubscribe(1)
    assert queues.put("a") == [True]
    assert queues.delivered() == []


def test_reader_that_names_no_bytes_has_at_most_a_mebibyte_in_its_hands() -> None:
    network = Network(2)
    settle(network)
    network.issue(1, Subscribe("t", 1000))
    for _ in range(30):
        network.issue(0, SendTo(NodeId(1), "t", bytes(60_000), 10**10))
    network.run(2)
    handed_out = sum(len(deliver.body) for deliver in network.hosts[NodeId(1)].delivered)
    assert 2**20 - 120_000 < handed_out <= 2**20
