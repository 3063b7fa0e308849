"""What is left of former lives on its way: nobody takes what was meant for one of them."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.commands import SendTo
from bmgd.core.streams.sending import StreamSending
from bmgd.core.streams.stream_out import Sending, StreamOut
from bmgd.errors import NewLifeError
from bmgd.sim import Network
from bmgd.sim.checkers import Scene, watch
from bmgd.sim.former_lives import FormerLives
from bmgd.sim.host import Host
from bmgd.sim.inside import known_life
from bmgd.types import NodeId
from tests.unit.core.clusters import S, settle

ME, PEER = NodeId(0), NodeId(3)


def _meet(count: int = 1) -> tuple[Network, Scene, list[int]]:
    """Two messages to a node of which nothing was heard, and between them one of its former life."""
    network, requests = Network(9), list[int]()
    scene = watch(network)
    settle(network)
    assert not known_life(network.hosts[ME].node, PEER)

    def send(host: Host, peer: NodeId, timeout_ns: int) -> None:
        requests.append(network.next_request())
        network.issue_as(host, requests[-1], SendTo(peer, "t", b"for a former life", timeout_ns))

    former = FormerLives(network, Random(1), count, send)
    network.watchers.append(former)
    former.start(network.now_ns + 20 * S)
    requests.append(network.issue(ME, SendTo(PEER, "t", b"for whoever is there", 10 * S)))
    network.run(8)
    return network, scene, requests


def test_message_for_a_former_life_is_not_taken_by_the_present_one() -> None:
    network, scene, (first, second) = _meet()
    replies = network.hosts[ME].replies
    assert replies[first].error is None
    assert isinstance(replies[second].error, NewLifeError)
    assert scene.violations == []


def test_message_for_a_former_life_that_the_present_one_takes_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare = StreamSending.prepare

    def for_any_life(self: StreamSending, stream: StreamOut, sending: Sending) -> bool:
        sending.tag = 0
        return prepare(self, stream, sending)

    monkeypatch.setattr(StreamSending, "prepare", for_any_life)
    _, scene, _ = _meet()
    assert {v.checker for v in scene.violations} == {"messages-are-taken-once"}
    assert "for its former life" in scene.violations[0].text


def test_messages_of_former_lives_are_no_more_than_their_number() -> None:
    _, scene, requests = _meet(count=0)
    assert len(requests) == 1
    assert scene.violations == []
