"""What confirms a message, and what only seems to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bmgd.core.commands import (
    CloseStream,
    Leave,
    OpenStream,
    ProbeTo,
    PutSegment,
    SendTo,
    Subscribe,
)
from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.core.forwarding.probing import SENDING_BITS
from bmgd.core.node import Node
from bmgd.errors import UnreachableError
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.sim.wires import ends_between
from bmgd.types import Incarnation, LinkId, NodeId, NodeState, incarnation_tag
from bmgd.wire.ask_messages import ProbeReply
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import ResetReason, Segment, SegmentAck, StreamReset
from tests.unit.core.clusters import S, settle
from tests.unit.segments import segment

FORMER = Incarnation(7)


def far_apart() -> tuple[Network, Node, NodeId]:
    """A cluster at rest, its node 0, and the id of one whose life that one does not know."""
    network = Network(16)
    settle(network)
    source = network.hosts[NodeId(0)].node
    known_tag = source.parts.outbound.table.known_tag
    far = next(i for i in map(NodeId, range(1, 16)) if not known_tag(i))
    return network, source, far


def restarted() -> Network:
    """Three nodes; 0 is linked to both others."""
    network = Network(3)
    settle(network)
    return network


def answered(network: Network, request: int, message: SegmentAck | ProbeReply) -> bool:
    """Whether what comes from node 1 answers a request of node 0."""
    host = network.hosts[NodeId(0)]
    (end,) = ends_between(host, NodeId(1))
    network._step(host, Received(end.link, message))
    return request in host.replies


def route(network: Network, tag: int) -> Route:
    one = network.hosts[NodeId(1)].node.incarnation
    return Route(NodeId(0), NodeId(1), one, tag, sequence=1 << 32 | 2)


def probed(network: Network, tag: int) -> Route:
    return replace(route(network, tag), sequence=1 << SENDING_BITS)


def test_acknowledgement_for_a_former_life_confirms_nothing_of_this_one() -> None:
    network = restarted()
    network.cut(0, 1)
    request = network.issue(0, SendTo(NodeId(1), "t", b"x", 1 * S))
    own = incarnation_tag(network.hosts[NodeId(0)].node.incarnation)
    its = incarnation_tag(network.hosts[NodeId(1)].node.incarnation)
    former = incarnation_tag(FORMER)
    assert not answered(network, request, SegmentAck(route(network, former), its, 0, False))
    assert answered(network, request, SegmentAck(route(network, own), its, 0, False))


def test_reply_to_a_former_lifes_probe_is_none_to_this_ones() -> None:
    network = restarted()
    network.cut(0, 1)
    request = network.issue(0, ProbeTo(NodeId(1), record=False, timeout_ns=1 * S))
    own = incarnation_tag(network.hosts[NodeId(0)].node.incarnation)
    former = incarnation_tag(FORMER)
    assert not answered(network, request, ProbeReply(probed(network, former), ()))
    assert answered(network, request, ProbeReply(probed(network, own), ()))


@pytest.mark.parametrize("age_s", [0.1, 60.0])
def test_life_takes_nothing_that_is_for_no_life_however_old_it_is(age_s: float) -> None:
    """Nobody may have told it of a former one, which could have taken it: it may have been stopped."""
    network = Network(3, start=False)
    host = network.boot(0)
    network.run(age_s)
    answers = Answers()
    network.watchers.append(answers)
    one = NodeId(1), Incarnation(1 << 32 | 5)
    to_nobody = Route(NodeId(0), *one, sequence=1 << 32 | 1, hop_budget=9)
    network._step(host, Received(LinkId(10**6), segment(to_nobody, b"x")))
    assert host.node.parts.topics.table.waiting() == 0
    its_own = replace(to_nobody, destination_tag=incarnation_tag(host.node.incarnation))
    network._step(host, Received(LinkId(10**6), segment(its_own, b"x")))
    assert host.node.parts.topics.table.waiting() == 1


def test_young_life_that_may_be_followed_does_not_ask_for_what_is_for_no_life() -> None:
    """The life that follows it would refuse what came under its tag."""
    network = Network(3, start=False)
    host, other = network.boot(0), network.boot(1)
    network.run(0.1)
    assert host.node.state is NodeState.JOINING
    answers = Answers()
    network.watchers.append(answers)
    (end,) = ends_between(host, NodeId(1))
    sent = Route(NodeId(0), NodeId(1), other.node.incarnation, hop_budget=9)
    network._step(host, Received(end.link, segment(sent, b"x")))
    assert answers.resets == []
    network.run(host.node.parts.context.settings.join_ns / S)
    network._step(host, Received(end.link, segment(sent, b"x")))
    assert answers.resets == [ResetReason.FOREIGN_TAG]


def test_first_message_to_a_life_that_is_not_known_asks_for_it() -> None:
    network, _, far = far_apart()
    answers = Answers()
    network.watchers.append(answers)
    request = network.issue(0, SendTo(far, "t", b"x", 10 * S))
    network.run_until(lambda: request in network.hosts[NodeId(0)].replies, 1)
    assert network.hosts[NodeId(0)].replies[request].error is None
    assert answers.resets == [ResetReason.FOREIGN_TAG]
    assert network.hosts[far].node.parts.topics.table.waiting() == 1


def test_life_is_taken_over_however_often_a_message_was_sent_to_none() -> None:
    """The destination stood still meanwhile: copies wait for it, and it answers each."""
    network, source, far = far_apart()
    network.stop(far)
    request = network.issue(0, SendTo(far, "t", b"x", 10 * S))
    network.run(0.7)
    (stream,) = source.parts.outbound.table.streams.values()
    assert stream.underway[1].transmissions > 1
    network.resume(far)
    network.run_until(lambda: request in network.hosts[NodeId(0)].replies, 5)
    assert network.hosts[NodeId(0)].replies[request].error is None
    assert network.hosts[far].node.parts.topics.table.waiting() == 1


@pytest.mark.parametrize("size", [2, 3])
def test_life_that_leaves_first_says_whose_a_message_to_no_life_would_be(size: int) -> None:
    """Ready or not: of what is for another one it cannot say that it was not taken."""
    network = Network(3, start=False)
    hosts = [network.boot(node_id) for node_id in range(size)]
    network.run(hosts[0].node.parts.context.settings.join_ns / S)
    host, other = hosts[:2]
    assert (host.node.state is NodeState.READY) == (size == 3)
    network.issue(0, SendTo(NodeId(2), "t", b"unconfirmed", 10 * S))
    network.issue(0, Leave())
    refusals = Answers()
    network.watchers.append(refusals)
    (end,) = ends_between(host, NodeId(1))
    to_nobody = Route(NodeId(0), NodeId(1), other.node.incarnation, hop_budget=9)
    network._step(host, Received(end.link, segment(to_nobody, b"x")))
    assert refusals.resets == [ResetReason.FOREIGN_TAG]
    its_own = replace(to_nobody, destination_tag=incarnation_tag(host.node.incarnation))
    network._step(host, Received(end.link, segment(its_own, b"x")))
    assert refusals.resets == [ResetReason.FOREIGN_TAG, ResetReason.LEAVING]


def test_young_life_that_knows_of_a_former_one_says_so_at_once() -> None:
    network = Network(8)
    settle(network)
    network.kill(1)
    for silent in range(2, 8):
        network.stop(silent)
    host = network.boot(1, counter=2)
    network.run_until(lambda: NodeId(0) in host.node.parts.links.by_peer, 1)
    assert host.node.state is NodeState.JOINING
    one = network.hosts[NodeId(0)].node.incarnation
    sent = Route(NodeId(1), NodeId(0), one, hop_budget=9)
    host.node.parts.inbound.on_segment(segment(sent, b"x"))
    reasons = [
        effect.message.reason
        for effect in host.node.parts.context.effects
        if isinstance(effect, Send) and isinstance(effect.message, StreamReset)
    ]
    assert host.node.parts.topics.table.waiting() == 0
    assert reasons == [ResetReason.FOREIGN_TAG]


def test_stream_that_was_never_answered_keeps_its_id_and_what_follows_waits() -> None:
    network = restarted()
    network.stop(1)
    first = network.issue(0, SendTo(NodeId(1), "t", b"in doubt", S // 4))
    network.run(0.3)
    streams = network.hosts[NodeId(0)].node.parts.outbound.table.streams
    (stream,) = streams.values()
    known_as = stream.id
    second = network.issue(0, SendTo(NodeId(1), "t", b"withdrawn", S // 4))
    network.run(0.3)
    third = network.issue(0, SendTo(NodeId(1), "t", b"taken", 10 * S))
    replies = network.hosts[NodeId(0)].replies
    errors = [replies[request].error for request in (first, second)]
    assert all(isinstance(error, UnreachableError) for error in errors)
    assert [error.sent for error in errors if isinstance(error, UnreachableError)] == [True, False]
    assert list(streams.values()) == [stream]
    assert (stream.id, stream.replaces, stream.answered) == (known_as, 0, False)
    network.resume(1)
    network.run_until(lambda: third in replies, 2)
    assert replies[third].error is None
    assert (stream.id, stream.replaces, stream.answered) == (known_as, 0, True)
    assert network.hosts[NodeId(1)].node.parts.topics.table.waiting() == 2


class Segments(Watcher):
    """The segments that a host sends."""

    def __init__(self) -> None:
        self.sent: list[Segment] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        messages = [effect.message for effect in effects if isinstance(effect, Send)]
        self.sent += [message for message in messages if isinstance(message, Segment)]


def test_late_segment_of_a_closed_stream_that_was_never_answered_is_not_taken_out_of_order() -> (
    None
):
    network = restarted()
    network.issue(1, Subscribe("t", 8))
    network.run(0.1)
    network.stop(1)
    source, reader = network.hosts[NodeId(0)], network.hosts[NodeId(1)]
    sends = Segments()
    network.watchers.append(sends)
    # One that stays open keeps the floor down.
    network.issue(0, SendTo(NodeId(1), "other", b"x", 10 * S))
    stream = network.issue(0, OpenStream(NodeId(1), "t"))
    for number, timeout_ns in enumerate((S // 8, S // 4, 10 * S), 1):
        body = packed(b"%d" % number)
        network.issue_as(source, stream, PutSegment(number, body, timeout_ns=timeout_ns))
    network.issue_as(source, stream, CloseStream())
    network.run(0.3)
    on_topic = {each.body: each for each in sends.sent if each.topic == "t"}
    # What was sent last comes first.
    for each in reversed(on_topic.values()):
        reader.node.step(network.now_ns, Received(ends_between(reader, NodeId(0))[0].link, each))
    entry = reader.node.parts.topics.table.topics["t"]
    taken = [bytes(each.body) for r in entry.readers for each in r.unconsumed]
    assert taken == sorted(taken)
    assert len(on_topic) == 1


class Answers(Watcher):
    """Why the hosts take nothing more of streams."""

    def __init__(self) -> None:
        self.resets: list[int] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        messages = [effect.message for effect in effects if isinstance(effect, Send)]
        self.resets += [each.reason for each in messages if isinstance(each, StreamReset)]


class Acks(Watcher):
    """The acknowledgements that a host sends."""

    def __init__(self) -> None:
        self.sent: list[SegmentAck] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        messages = [effect.message for effect in effects if isinstance(effect, Send)]
        self.sent += [message for message in messages if isinstance(message, SegmentAck)]


def test_acknowledgement_names_the_runs_that_are_here_and_no_segment_between_them() -> None:
    network = Network(2)
    settle(network)
    network.issue(1, Subscribe("t", 8))
    network.cut(0, 1)
    source, reader = (network.hosts[NodeId(number)] for number in (0, 1))
    (end,) = ends_between(reader, NodeId(0))
    tag = incarnation_tag(reader.node.incarnation)
    to_reader = Route(NodeId(1), NodeId(0), source.node.incarnation, tag, hop_budget=4)
    acks = Acks()
    network.watchers.append(acks)
    gaps = []
    for number in (1, 3, 5, 6):
        network._step(reader, Received(end.link, segment(to_reader, b"x", number=number)))
        network.run(0.02)
        gaps.append(acks.sent[-1].gaps)
    assert gaps == [(), ((3, 3),), ((3, 3), (5, 5)), ((3, 3), (5, 6))]
