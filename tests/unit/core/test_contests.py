"""Messages that name a life that nothing vouches for: not taken, and looked into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from bmgd.core.commands import BroadcastTo, Subscribe
from bmgd.core.effects import Announce, Dial, Effect, RecordChanged, Send
from bmgd.core.events import Event, Received
from bmgd.core.membership import contests, membership
from bmgd.core.membership.contests import CONTEST_NS, CONTEST_TIMER, CONTESTS_MAX
from bmgd.core.membership.membership import Membership, Standing
from bmgd.peers import PeerList
from bmgd.routing.branches import Branch
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
    incarnation_tag,
)
from bmgd.wire.ask_messages import Answer
from bmgd.wire.broadcast_messages import Broadcast, ReliableBroadcast, Watermark
from bmgd.wire.link_messages import Held, Notice, Watermarks
from bmgd.wire.messages import Message
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Segment, SegmentAck, SegmentFlag
from tests.unit.core.clusters import S, observed, reply_to, send, settle

SIZE = 16
DECEIVED, NEAR, FAR = NodeId(0), NodeId(1), NodeId(3)
Forge = Callable[[Network, Route], Message]


def forged_segment(network: Network, route: Route) -> Message:
    body = packed(b"forged")
    route = replace(route, sequence=1 << 32 | 1, priority=2)
    return Segment(route, SegmentFlag.OPEN, "t", 0, 1, 1, 0, body)


def forged_ack(network: Network, route: Route) -> Message:
    route = replace(route, sequence=1 << 32 | 1)
    return SegmentAck(route, incarnation_tag(route.source_incarnation), 1 << 20, False, ())


def forged_broadcast(network: Network, route: Route) -> Message:
    route = replace(route, sequence=7)
    return Broadcast(route, "news", b"forged", 0, (Branch(DECEIVED, 1 << DECEIVED),))


def forged_reliable(network: Network, route: Route) -> Message:
    route = replace(route, sequence=9)
    branches = (Branch(DECEIVED, 1 << DECEIVED),)
    return ReliableBroadcast(route, "news", b"forged", 0, branches, SIZE, 0, (), 0)


def forged_watermark(network: Network, route: Route) -> Message:
    return Watermark(route, 0, 0, False)


def forged_answer(network: Network, route: Route) -> Message:
    return Answer(route, route.source, route.source_incarnation, True)


def forged_holding(network: Network, route: Route) -> Message:
    return Watermarks((Held(route.source, route.source_incarnation, 3, 0, 3),), asks=False)


FORGERIES: list[Forge] = [
    forged_segment,
    forged_broadcast,
    forged_reliable,
    forged_watermark,
    forged_answer,
    forged_holding,
]


def forge(network: Network, source: NodeId, life: Incarnation, make: Forge) -> None:
    """Let a message that names a life of another node arrive over a link of the deceived one."""
    host = network.hosts[DECEIVED]
    link = next(iter(host.ends))
    tag = host.node.parts.context.own_tag
    route = Route(DECEIVED, source, life, tag, 0, 8)
    network._step(host, Received(LinkId(link), make(network, route)))


def later_life(network: Network, node_id: NodeId, by: int = 5 << 32) -> Incarnation:
    return Incarnation(network.status(node_id)["incarnation"] + by)


def reading(size: int = SIZE) -> Network:
    network = Network(size, seed=5)
    settle(network)
    for number in range(size):
        network.issue(number, Subscribe("news", 64))
        network.issue(number, Subscribe("t", 64))
    return network


def news_of(network: Network, source: NodeId) -> list[bytes]:
    announced = network.hosts[DECEIVED].announced
    return [a.payload for a in announced if isinstance(a, Announce) and a.source == source]


@pytest.mark.parametrize("source", [NEAR, FAR], ids=["linked", "not linked"])
@pytest.mark.parametrize(
    ("make", "is_known"),
    [
        *((make, True) for make in (*FORGERIES, forged_ack)),
        *((make, False) for make in FORGERIES),
    ],
)
@pytest.mark.parametrize("by", [5 << 32, 1], ids=["counter", "bits"])
def test_forged_later_life_ends_no_messages(
    make: Forge, source: NodeId, is_known: bool, by: int
) -> None:
    network = reading()
    lives = {i: network.status(i)["incarnation"] for i in range(SIZE)}
    if is_known:
        assert send(network, source, DECEIVED, b"before").error is None
        assert send(network, DECEIVED, source, b"before").error is None
    forge(network, source, later_life(network, source, by), make)
    assert send(network, source, DECEIVED, b"from it").error is None
    assert send(network, DECEIVED, source, b"to it").error is None
    for payload, reliable in ((b"all", True), (b"most", False)):
        reply = reply_to(network, source, BroadcastTo("news", payload, reliable, 10 * S))
        assert reply.error is None
        assert not reply.result["failed"]
    network.run(1)
    assert news_of(network, source)[-2:] == [b"all", b"most"]
    reply = reply_to(network, DECEIVED, BroadcastTo("news", b"mine", True, 10 * S))
    assert not reply.result["failed"]
    settle(network)
    assert {i: network.status(i)["incarnation"] for i in range(SIZE)} == lives, "a life began"
    assert all(host.exit is None for host in network.hosts.values())


class Told(Watcher):
    """The records of another node that one believes, one after the other."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.records: list[Record] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        if host.id == self.node_id:
            self.records += [e.record for e in effects if isinstance(e, RecordChanged)]


def test_forged_first_life_is_settled_by_a_record() -> None:
    network = reading()
    life = network.status(FAR)["incarnation"]
    told = Told(DECEIVED)
    network.watchers.append(told)
    forge(network, FAR, later_life(network, FAR), forged_segment)
    assert send(network, FAR, DECEIVED).error is None
    (contested,) = observed(network, DECEIVED, "contested")
    assert contested.peer == FAR
    # The least version above that of no record, whoever asks.
    assert told.records[0].version == 1
    for host in network.hosts.values():
        record = host.node.parts.context.membership.exceptions()[FAR]
        assert (record.incarnation, record.status) == (life, Status.ALIVE)
    # From now on it is not even assumed.
    for _ in range(3):
        forge(network, FAR, later_life(network, FAR), forged_segment)
        assert send(network, FAR, DECEIVED).error is None
        network.run(2 * CONTEST_NS / S)
    assert len(observed(network, DECEIVED, "contested")) == 1


def test_forged_life_is_told_in_no_hello_and_in_no_verdict() -> None:
    network = reading()
    node = network.hosts[DECEIVED].node
    forge(network, FAR, later_life(network, FAR), forged_segment)
    assert node.parts.context.membership.incarnation(FAR) == later_life(network, FAR)
    assert node.parts.dialling.dial(FAR)
    (dial,) = [e for e in node.parts.context.effects if isinstance(e, Dial)]
    assert dial.known == UNKNOWN_INCARNATION
    network = reading()
    life = network.status(FAR)["incarnation"]
    forge(network, FAR, later_life(network, FAR), forged_segment)
    network.kill(FAR)
    settle(network, dead=[FAR])
    assert network.hosts[DECEIVED].node.parts.context.membership.incarnation(FAR) in (life, 0)


def test_message_of_a_new_life_is_taken_once_its_record_is_there() -> None:
    network = reading()
    node = network.hosts[DECEIVED].node
    life = later_life(network, NEAR, 1 << 32)
    route = Route(DECEIVED, NEAR, life, node.parts.context.own_tag, 1 << 32 | 1, 8)
    first = Received(
        LinkId(next(iter(network.hosts[DECEIVED].ends))), forged_segment(network, route)
    )

    def is_acknowledged() -> bool:
        effects = node.step(network.now_ns, first)
        return any(isinstance(e, Send) and isinstance(e.message, SegmentAck) for e in effects)

    assert not is_acknowledged()
    record = Record(life, 0, Status.ALIVE, "sim1:7400")
    node.step(network.now_ns, Received(first.link, Notice(((NEAR, record),))))
    assert is_acknowledged()


def test_contest_that_a_record_settles_in_time_asks_for_nothing() -> None:
    network = reading()
    assert send(network, FAR, DECEIVED).error is None
    network.run(1)
    life = later_life(network, FAR)
    forge(network, FAR, life, forged_segment)
    host = network.hosts[DECEIVED]
    assert (CONTEST_TIMER, FAR, 0) in host.node.parts.context.timers
    record = Record(life, 0, Status.ALIVE, "sim3:7400")
    network._step(host, Received(LinkId(next(iter(host.ends))), Notice(((FAR, record),))))
    network.run(2 * CONTEST_NS / S)
    assert observed(network, DECEIVED, "contested") == []


def test_contests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "CONTESTS_MAX", 2)
    network = reading()
    for source in (3, 5, 6, 9):
        for by in (1, 2):
            life = Incarnation(later_life(network, NodeId(source)) + by)
            forge(network, NodeId(source), life, forged_segment)
    timers = network.hosts[DECEIVED].node.parts.context.timers
    assert [i for i in range(SIZE) if (CONTEST_TIMER, i, 0) in timers] == [3, 5]
    network.run(2 * CONTEST_NS / S)
    assert len(observed(network, DECEIVED, "contested")) == 2
    # Their places are free again.
    for by in (1, 2):
        forge(network, NodeId(10), later_life(network, NodeId(10), by), forged_segment)
    assert (CONTEST_TIMER, 10, 0) in timers
    assert CONTESTS_MAX == 64


# --- what a membership says of a life --------------------------------------------------------------

LIFE, LATER = Incarnation(2 << 32), Incarnation(3 << 32)
ID = NodeId(3)


def known() -> Membership:
    return Membership(8, PeerList.parse("sim{id}:7400", 8))


@pytest.mark.parametrize("through", ["record", "link"])
def test_vouched_life_is_the_one_whatever_messages_say(through: str) -> None:
    members = known()
    assert members.standing(ID, LATER) is Standing.CURRENT, "the first one is assumed"
    assert members.standing(ID, LIFE) is Standing.UNVOUCHED
    assert (members.incarnation(ID), members.vouched(ID)) == (LATER, 0)
    if through == "link":
        members.meet_life(ID, LIFE)
    else:
        members.join(ID, Record(LIFE, 0, Status.ALIVE, "sim3:7400"))
    assert (members.incarnation(ID), members.vouched(ID)) == (LIFE, LIFE)
    assert members.standing(ID, LIFE) is Standing.CURRENT
    assert members.standing(ID, LATER) is Standing.UNVOUCHED
    assert members.standing(ID, Incarnation(LIFE - 1)) is Standing.FORMER
    assert members.incarnation(ID) == LIFE


def test_record_of_life_0_vouches_for_none() -> None:
    members = known()
    members.join(ID, Record(UNKNOWN_INCARNATION, 0, Status.DEAD, "sim3:7400"))
    assert members.standing(ID, LIFE) is Standing.CURRENT
    assert members.standing(ID, LATER) is Standing.UNVOUCHED
    assert members.incarnation(ID) == LIFE


def test_life_0_is_never_assumed() -> None:
    members = known()
    members.standing(ID, UNKNOWN_INCARNATION)
    assert members.standing(ID, LIFE) is Standing.CURRENT
    assert members.incarnation(ID) == LIFE


def test_assumed_lives_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LIVES_MAX", 3)
    members = known()
    found = [members.standing(NodeId(number), LIFE) for number in range(8)]
    assert set(found) == {Standing.CURRENT}, "those beyond are not known yet"
    assert [i for i in range(8) if members.incarnation(NodeId(i))] == [0, 1, 2]
