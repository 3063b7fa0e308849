"""Copies that come a second time: a program is given each message once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from bmgd.core.broadcast import broadcasting
from bmgd.core.commands import BroadcastTo, MulticastTo, SendTo, Subscribe
from bmgd.core.effects import Effect
from bmgd.core.events import Event, Received
from bmgd.sim import Network
from bmgd.sim.checkers import Scene, watch
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.sim.second_copies import COPIES_MAX, SecondCopies, is_at_best_effort, is_of_a_stream
from bmgd.types import LinkId, NodeId
from bmgd.wire.messages import Message
from bmgd.wire.stream_messages import Segment
from tests.unit.core.clusters import S, settle

SIZE = 9
SOURCE = NodeId(0)
ALL = (1 << SIZE) - 1


def _send(percent: int) -> tuple[Network, Scene]:
    """Broadcasts and multicasts in turn: a copy may come after that of a later message."""
    network = Network(SIZE)
    scene = watch(network)
    settle(network)
    for number in range(SIZE):
        network.issue(number, Subscribe("t", 64))
    copies = SecondCopies(network, Random(1), percent, is_at_best_effort)
    network.watchers.append(copies)
    copies.start(network.now_ns + 2 * S)
    for number in range(20):
        body = b"%d" % number
        network.issue(SOURCE, BroadcastTo("t", body, False, S))
        network.issue(SOURCE, MulticastTo(ALL & ~(1 << number % SIZE), "t", body, False, S))
        network.run(0.05)
    network.run(2)
    return network, scene


def _repeated(network: Network) -> int:
    hosts = network.hosts.values()
    return sum(host.node.parts.to_many.broadcasting.tally.repeated for host in hosts)


@pytest.mark.parametrize("percent", [0, 100])
def test_second_copies_come_and_are_taken_by_nobody(percent: int) -> None:
    network, scene = _send(percent)
    assert scene.violations == []
    assert bool(_repeated(network)) == bool(percent)
    taken = [len(host.announced) for host in network.hosts.values()]
    assert taken == [20] * SIZE


def test_second_copies_are_few_though_each_is_sent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    network, came = Network(SIZE), []
    settle(network)
    copies = SecondCopies(network, Random(1), 100, is_at_best_effort)
    network.watchers.append(copies)
    copies.start(network.now_ns + 5 * S)
    let_come = network.let_come

    def note(host: Host, link: LinkId, message: Message) -> None:
        came.append(message)
        let_come(host, link, message)

    monkeypatch.setattr(network, "let_come", note)
    network.issue(SOURCE, BroadcastTo("t", b"x", False, S))
    network.run(3)
    assert len(came) == COPIES_MAX


@pytest.mark.parametrize("fault", ["cut", "stop", "kill"])
def test_second_copies_do_not_come_from_who_is_not_there(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would tell a failure detector that it is."""
    network = Network(SIZE)
    settle(network)
    copies = SecondCopies(network, Random(1), 100, is_at_best_effort)
    network.watchers.append(copies)
    copies.start(network.now_ns + 2 * S)
    for source in (SOURCE, 1):
        network.issue(source, BroadcastTo("t", b"x", False, S))
    network.run(0.01)
    if fault == "stop":
        network.stop(SOURCE)
    elif fault == "kill":
        network.kill(SOURCE)
    else:
        for number in range(1, SIZE):
            network.cut(SOURCE, number)
    heard = []

    def note(host: Host, link: LinkId, message: Message) -> None:
        other = host.ends[link].other
        heard.append(other and other.host.id)

    monkeypatch.setattr(network, "let_come", note)
    network.run(0.5)
    assert heard
    assert SOURCE not in heard


@pytest.mark.parametrize("percent", [0, 100])
def test_late_segments_come_and_are_taken_by_nobody(percent: int) -> None:
    network, count = Network(SIZE), 20
    scene = watch(network)
    settle(network)
    network.issue(1, Subscribe("t", 64))
    late = SecondCopies(network, Random(1), percent, is_of_a_stream)
    seen = _Segments()
    network.watchers += [late, seen]
    late.start(network.now_ns + 2 * S)
    for number in range(count):
        network.issue(SOURCE, SendTo(NodeId(1), "t", b"%d" % number, S))
        network.run(0.05)
    network.run(2)
    assert scene.violations == []
    assert seen.count == (2 * count if percent else count)
    assert sum(each.count for each in network.hosts[NodeId(1)].delivered) == count


class _Segments(Watcher):
    """Counts the segments that come."""

    count = 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self.count += isinstance(event, Received) and isinstance(event.message, Segment)


def test_second_copy_that_is_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcasting._Seen, "is_new", lambda self, count: True)
    _, scene = _send(100)
    assert scene.violations != []
