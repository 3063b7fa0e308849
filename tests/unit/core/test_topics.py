"""What a program that subscribes gets, in which order, and where a topic is full."""

from __future__ import annotations

from random import Random

from bmgd.core.commands import SendTo, Subscribe, Unsubscribe
from bmgd.core.context import Context
from bmgd.core.effects import Deliver, Effect, Reply
from bmgd.core.events import CommandIssued
from bmgd.core.settings import Settings
from bmgd.core.topics import (
    CREDIT_MAX,
    QUEUE_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
    TOPICS_MAX,
    Taken,
    Topics,
)
from bmgd.peers import PeerList
from bmgd.sim.network import Network
from bmgd.types import Incarnation, NodeId

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
        self.topics = Topics(self.context)

    def put(self, *texts: str, topic: str = "jobs") -> list[bool]:
        return [self.topics.take(topic, Taken(NodeId(7), text.encode())) for text in texts]

    def delivered(self) -> list[tuple[int, str]]:
        """(subscription, payload) of what was handed out since the last call."""
        effects, self.context.effects = self.context.effects, []
        return [(e.request, e.payload.decode()) for e in effects if isinstance(e, Deliver)]


def test_topics_answer_a_subscription_before_its_messages() -> None:
    effects = _ask(_alone_with(2), SUBSCRIPTION, Subscribe("jobs", 8))
    assert effects == [
        Reply(SUBSCRIPTION),
        Deliver(SUBSCRIPTION, NodeId(0), "jobs", b"0"),
        Deliver(SUBSCRIPTION, NodeId(0), "jobs", b"1"),
    ]


def test_topics_give_what_a_reader_has_not_consumed_to_the_next() -> None:
    network = _alone_with(3)
    _ask(network, SUBSCRIPTION, Subscribe("jobs", 2))
    assert _ask(network, SUBSCRIPTION, Unsubscribe()) == []
    effects = _ask(network, SUBSCRIPTION + 1, Subscribe("jobs", 8))
    assert [e.payload for e in effects if isinstance(e, Deliver)] == [b"0", b"1", b"2"]


def test_topics_forget_one_that_nobody_reads_and_that_holds_nothing() -> None:
    network = _alone_with(0)
    assert _ask(network, SUBSCRIPTION, Subscribe("jobs", 8)) == [Reply(SUBSCRIPTION)]
    assert _ask(network, SUBSCRIPTION, Unsubscribe()) == []
    assert _ask(network, SUBSCRIPTION, Subscribe("jobs", 8)) == [Reply(SUBSCRIPTION)]


def test_topics_hold_as_many_messages_as_the_bound_and_no_more() -> None:
    queues = Queues(queue_messages=3)
    assert queues.put("a", "b", "c", "d") == [True, True, True, False]
    assert queues.topics.waiting() == 3
    assert queues.put("e", topic="other") == [True]
    queues.topics.subscribe(1, "jobs", 1)
    assert queues.delivered() == [(1, "a")]
    assert queues.put("f", "g") == [True, False]


def test_topics_hold_as_many_bytes_as_the_bound_and_no_more() -> None:
    queues = Queues()
    half = "x" * (QUEUE_BYTES_MAX // 2)
    assert queues.put(half, half, "y") == [True, True, False]
    assert queues.put("") == [True]
    queues.topics.subscribe(1, "jobs", 1)
    assert queues.put("y") == [True]


def test_topics_take_no_message_for_one_more_topic_than_the_bound() -> None:
    queues = Queues()
    for number in range(TOPICS_MAX):
        assert queues.put("a", topic=str(number)) == [True]
    assert queues.put("a", topic="one more") == [False]
    assert queues.put("b", topic="0") == [True]
    assert not queues.topics.subscribe(1, "one more", 1)
    assert queues.topics.subscribe(2, "0", 8)
    queues.topics.unsubscribe(2)
    assert queues.put("a", topic="one more") == [False]
    queues.topics.subscribe(3, "0", 8)
    queues.topics.consumed(3, 2)
    queues.topics.unsubscribe(3)
    assert queues.put("a", topic="one more") == [True]


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
    assert queues.topics.waiting() == 1
    queues.topics.consumed(1, 1)
    assert queues.delivered() == [(1, "e")]
    assert queues.topics.waiting() == 0


def test_topics_give_no_reader_more_than_its_credit() -> None:
    queues = Queues(queue_messages=CREDIT_MAX + 10)
    queues.put(*(str(number) for number in range(CREDIT_MAX + 2)))
    queues.topics.subscribe(1, "jobs", 10**9)
    assert len(queues.delivered()) == CREDIT_MAX
    queues.topics.consumed(1, 1)
    assert queues.delivered() == [(1, str(CREDIT_MAX))]


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
    assert queues.topics.waiting() == 4
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
    assert queues.topics.waiting() == 1


def test_topics_account_for_bytes_that_come_back() -> None:
    queues = Queues()
    half = "x" * (QUEUE_BYTES_MAX // 2)
    queues.put(half, half)
    queues.topics.subscribe(1, "jobs", 2)
    assert queues.put("y") == [True]
    queues.topics.unsubscribe(1)
    assert queues.put("z") == [False]


def test_topics_ignore_a_subscription_that_is_over() -> None:
    queues = Queues()
    queues.topics.consumed(1, 1)
    queues.topics.unsubscribe(1)
    assert queues.put("a") == [True]
    assert queues.delivered() == []
