"""Between an engine and a core: what frames, ends and bounds become, and what messages do."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from bmgd import linkevents
from bmgd.core.events import (
    AbsorbedBeat,
    Backlog,
    Event,
    Heard,
    HeartbeatsAbsorbed,
    LinkDown,
    Received,
)
from bmgd.frameheader import FRAME_BYTES_MAX, LENGTH_BYTES
from bmgd.linkevents import RETURNED_COST_MAX, RETURNED_FRAME_COST, LinkEvents, evidence_of
from bmgd.linklayer import LinkLayer, contract
from bmgd.linklayer.outbox import CONTROL_BYTES_MAX
from bmgd.routing.branches import Branch
from bmgd.sim import Network
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.ask_messages import Probe
from bmgd.wire.broadcast_messages import Broadcast, Stable
from bmgd.wire.codec import decode, encode
from bmgd.wire.link_messages import Goodbye, Heartbeat, Notice, Ping
from bmgd.wire.messages import Message
from bmgd.wire.routes import Route, Search
from tests.unit.core.clusters import settle
from tests.unit.linklayer.engines import ENGINES, data, goodbye, snapshot

LEFT, RIGHT = LinkId(1), LinkId(2)
LONG = Broadcast(
    Route(NodeId(1), NodeId(5), Incarnation(7), search=Search(bytes(16_000), ())),
    "t" * 300,
    bytes(66_500),
    0,
    (),
)
"""Of any lengths: nobody reads it."""
RECORD = (NodeId(3), Record(Incarnation(1 << 32), 0, Status.DEAD, "h:1"))


class Between:
    """A layer with two links, and what is between it and a core."""

    def __init__(self) -> None:
        self.layer = LinkLayer()
        self.gone: list[LinkId] = []
        self.written: list[LinkId] = []
        self.events = LinkEvents(self.layer, self.gone.append, self.written.append)
        self.layer.adopt(-1, LEFT, 1)
        self.layer.adopt(-1, RIGHT, 2)
        self.layer.publish(snapshot({1: LEFT, 2: RIGHT}))

    def told(self) -> list[Event]:
        return self.events.of(self.layer.poll())


@pytest.fixture
def between() -> Between:
    return Between()


def probe(to: int, priority: int = 0) -> Probe:
    return Probe(Route(NodeId(to), NodeId(5), Incarnation(7), hop_budget=3, priority=priority), ())


def malformed(kind_from: bytes) -> bytes:
    """A frame with a header that is in order, and a field that is not."""
    body = b"\x92" + kind_from[5:39] + b"\xc0"
    return len(body).to_bytes(4, "big") + body


def test_frames_become_what_the_core_receives(between: Between) -> None:
    between.layer.feed(LEFT, encode(Ping(5)) + encode(probe(0)))
    assert between.told() == [Received(LEFT, Ping(5)), Received(LEFT, probe(0))]


def test_malformed_link_message_costs_its_link_and_what_waits_finds_another_way(
    between: Between,
) -> None:
    between.events.send(LEFT, probe(1))
    between.layer.feed(LEFT, malformed(encode(Ping(5))) + encode(Ping(6)))
    events = between.told()
    assert events == [LinkDown(LEFT, Evidence.PROTOCOL_ERROR), Received(LEFT, probe(1))]
    assert between.gone == [LEFT]
    assert between.events.malformed_frames == 0


def test_malformed_routed_message_is_dropped_and_counted_and_closes_nothing(
    between: Between,
) -> None:
    between.layer.feed(LEFT, malformed(encode(probe(0))) + encode(Ping(6)))
    assert between.told() == [Received(LEFT, Ping(6))]
    assert between.events.malformed_frames == 1
    assert between.gone == []
    between.layer.feed(LEFT, data(1))
    between.layer.finish(LEFT, 0)
    assert between.told() == [LinkDown(LEFT, Evidence.EOF)]


def test_notice_that_comes_twice_at_once_is_told_once_and_both_links_are_heard(
    between: Between,
) -> None:
    told = encode(Notice((RECORD,)))
    between.layer.feed(LEFT, told)
    between.layer.feed(RIGHT, told)
    assert between.told() == [Received(LEFT, Notice((RECORD,)))]
    assert between.events.heard() == [Heard((RIGHT,))]
    assert between.events.heard() == []
    between.layer.feed(RIGHT, told)
    assert between.told() == []
    assert between.events.heard() == [Heard((RIGHT,))]


def test_notice_is_known_when_the_core_has_looked_at_it(between: Between) -> None:
    told = encode(Notice((RECORD,)))
    between.layer.feed(LEFT, told)
    assert between.told() == [Received(LEFT, Notice((RECORD,)))]
    between.events.end_turn()
    between.layer.feed(RIGHT, told)
    assert between.layer.poll() == []


def test_notice_that_the_core_overlooked_is_told_as_another_link_brings_it(
    between: Between,
) -> None:
    told = encode(Notice((RECORD,)))
    between.layer.feed(LEFT, told + told)
    (received,) = between.told()
    assert isinstance(received, Received)
    notice = received.message
    assert isinstance(notice, Notice)
    between.layer.feed(RIGHT, told)
    assert between.told() == []
    assert between.events.overlook(notice) == [Received(RIGHT, notice)]
    assert between.events.overlook(notice) == []
    between.events.end_turn()
    assert between.events.overlook(notice) == []
    between.layer.feed(RIGHT, told)
    assert between.told() == [Received(RIGHT, notice)]


def test_absorbed_heartbeats_are_one_event(between: Between) -> None:
    between.events.absorb_heartbeats(77, (LEFT, RIGHT))
    between.layer.feed(LEFT, encode(Heartbeat(3, 1, 77)) + encode(Heartbeat(4, 2, 77)))
    between.layer.feed(RIGHT, encode(Heartbeat(1, 0, 78)))
    assert between.told() == [Received(RIGHT, Heartbeat(1, 0, 78))]
    assert between.events.absorbed() == [HeartbeatsAbsorbed((AbsorbedBeat(LEFT, 0, 4, 2, 2),))]
    assert between.events.absorbed() == []


def test_notice_behind_a_malformed_frame_is_not_known_to_be_read(between: Between) -> None:
    told = encode(Notice((RECORD,)))
    between.layer.feed(LEFT, malformed(encode(Ping(5))) + told)
    between.layer.feed(RIGHT, told)
    assert between.told()[-1] == Received(RIGHT, Notice((RECORD,)))


@pytest.mark.parametrize(
    ("number", "evidence"),
    [
        (0, Evidence.EOF),
        (errno.ECONNRESET, Evidence.RESET),
        (errno.EPIPE, Evidence.RESET),
        (errno.ETIMEDOUT, Evidence.TIMED_OUT),
        (errno.ECONNREFUSED, Evidence.REFUSED),
        (errno.EHOSTUNREACH, Evidence.NO_ANSWER),
    ],
)
def test_end_of_a_link_is_the_evidence_of_its_error(
    between: Between, number: int, evidence: Evidence
) -> None:
    assert evidence_of(number) is evidence
    between.layer.finish(LEFT, number)
    assert between.told() == [LinkDown(LEFT, evidence)]
    assert between.gone == [LEFT]


def test_goodbye_is_a_lost_link_and_a_shut_one_ends_untold(between: Between) -> None:
    between.layer.feed(LEFT, goodbye())
    between.layer.shut(RIGHT, encode(Goodbye("done")))
    between.layer.take(RIGHT, 1000)
    between.layer.finish(RIGHT, 0)
    assert between.told() == [LinkDown(LEFT, Evidence.GOODBYE)]
    assert between.written == [RIGHT]
    assert between.gone == [LEFT, RIGHT]


def test_messages_go_by_their_urgency(between: Between) -> None:
    for message in (probe(1, 1), probe(1, 0), Ping(1)):
        assert between.events.send(LEFT, message) == []
    in_order = encode(probe(1, 0)) + encode(Ping(1)) + encode(probe(1, 1))
    assert between.layer.take(LEFT, 1000) == in_order


@pytest.mark.parametrize("engine", ENGINES)
def test_routed_frame_that_grew_beyond_the_longest_is_dropped_and_counted(engine: str) -> None:
    layer = ENGINES[engine]()
    events = LinkEvents(layer, lambda link: None, lambda link: None)
    layer.adopt(-1, LEFT, 1)
    frame = LENGTH_BYTES + FRAME_BYTES_MAX
    longest = replace(LONG, topic=LONG.topic + "t" * (frame - len(encode(LONG))))
    for message in (longest, replace(longest, topic=longest.topic + "t")):
        assert events.send(LEFT, message) == []
    assert layer.backlog(LEFT) == frame
    assert events.oversized_frames == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_frames_of_ended_links_are_told_up_to_a_bound_in_a_turn(engine: str) -> None:
    layer = ENGINES[engine]()
    events = LinkEvents(layer, lambda link: None, lambda link: None)
    most = RETURNED_COST_MAX // RETURNED_FRAME_COST
    frames = [encode(probe(1, number % 4)) for number in range(most)]

    def end_both() -> list[Event]:
        """Both links end with more than a turn takes, one by itself, one by the core."""
        for link in (LEFT, RIGHT):
            layer.adopt(-1, link, 1)
            layer.put(link, b"".join(frames), contract.BULK)
        layer.put(RIGHT, frames[0], contract.CONTROL)
        layer.finish(RIGHT, 0)
        return [*events.of(layer.poll()), *events.end(LEFT)]

    first = [LinkDown(RIGHT, Evidence.EOF), Received(RIGHT, probe(1))]
    told = end_both()
    assert told[:2] == first
    assert told[2:] == [Received(RIGHT, probe(1, n % 4)) for n in range(most - 1)]
    assert events.unreturned_frames == most + 1
    events.end_turn()
    layer.adopt(-1, LinkId(3), 1)
    layer.put(LinkId(3), frames[0], contract.URGENT)
    assert events.end(LinkId(3)) == [Received(LinkId(3), probe(1))]


def test_simulator_says_when_a_turn_is_over() -> None:
    """Else nothing more would come back once a bound's worth of frames had."""
    network = Network(4)
    settle(network)
    host = network.hosts[NodeId(0)]
    assert host.link_events is not None
    host.link_events._returned_cost = RETURNED_COST_MAX
    network.run(1)
    assert host.link_events._returned_cost == 0


def test_link_that_lets_control_pile_up_is_lost(between: Between) -> None:
    notice = Notice(tuple((NodeId(i), RECORD[1]) for i in range(256)))
    events: list[Event] = []
    for _ in range(1 + CONTROL_BYTES_MAX // len(encode(notice))):
        events = between.events.send(LEFT, notice)
    assert events == [LinkDown(LEFT, Evidence.TIMED_OUT)]
    assert between.gone == [LEFT]
    assert isinstance(between.told()[0], Backlog)


def test_poll_is_read_in_parts_when_its_messages_take_much(
    between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linkevents, "PART_BYTES", 50_000)
    read: list[bytes] = []

    def reading(body: bytes) -> Message:
        read.append(body)
        return decode(body)

    events = LinkEvents(between.layer, between.gone.append, between.written.append, reading)
    to_me = Route(NodeId(0), NodeId(5), Incarnation(7), hop_budget=3)
    wide = Stable(to_me, 0, (Branch(NodeId(9), 1 << 131_071),), 1)
    between.layer.feed(LEFT, encode(wide) * 10 + encode(probe(0)))
    sizes = []
    for part in events.in_parts(between.layer.poll()):
        sizes.append(len(part))
        assert len(read) == sum(sizes), "what follows is not read yet"
    assert sizes == [4, 4, 3]


def test_frames_that_come_back_share_one_bound_of_work_and_memory(
    between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linkevents, "RETURNED_COST_MAX", 16 * RETURNED_FRAME_COST)
    wide = Stable(
        Route(NodeId(2), NodeId(5), Incarnation(7)), 0, (Branch(NodeId(9), 1 << 131_071),), 1
    )
    for message in [probe(1)] * 8 + [wide] * 10:
        assert between.events.send(RIGHT, message) == []
    came = between.events.end(RIGHT)
    assert [event.message for event in came if isinstance(event, Received)] == [
        *([probe(1)] * 8),
        *([wide] * 2),
    ], "a wide one takes 16 KiB, and the time of one"
    assert between.events.unreturned_frames == 8
    between.events.end_turn()
    assert between.events.send(LEFT, wide) == []
    assert len(between.events.end(LEFT)) == 1
