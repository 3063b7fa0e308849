"""The topics that `status` shows: what waits in each, and who reads it."""

from __future__ import annotations

from bmgd.core.commands import OpenInbox, SendTo, Subscribe
from bmgd.shell.topic_rows import SHOWN_TOPICS_MAX, topic_rows
from bmgd.sim import Network
from bmgd.types import NodeId
from tests.unit.core.clusters import S, reply_to, settle


def send(network: Network, topic: str, payload: bytes) -> None:
    """A message from 0 to 1, which is taken."""
    assert reply_to(network, 0, SendTo(NodeId(1), topic, payload, 10 * S)).error is None


def test_topics_that_hold_the_most_come_first() -> None:
    network = Network(2)
    settle(network)
    topics = network.hosts[NodeId(1)].node.parts.topics.table.topics
    assert topic_rows(topics) == {"topics": [], "topics_left_out": 0}
    for topic, payload in (("few", b"x"), ("much", b"y" * 5000), ("few", b"z")):
        send(network, topic, payload)
    network.issue(1, Subscribe("read", 10))
    network.issue(1, OpenInbox(1 << 20))
    send(network, "read", b"in its hands")
    rows = topic_rows(topics)["topics"]
    assert [(row["topic"], row["waiting"], row["readers"]) for row in rows] == [
        ("much", 1, 0),
        ("few", 2, 0),
        ("read", 0, 1),
    ]
    assert rows[0]["held_bytes"] > 5000 > rows[1]["held_bytes"] > rows[2]["held_bytes"] > 0


def test_topics_beyond_the_bound_are_counted() -> None:
    network = Network(2)
    settle(network)
    for number in range(SHOWN_TOPICS_MAX + 3):
        send(network, f"topic {number}", b"x")
    found = topic_rows(network.hosts[NodeId(1)].node.parts.topics.table.topics)
    assert (len(found["topics"]), found["topics_left_out"]) == (SHOWN_TOPICS_MAX, 3)
