"""Programs that ask for what cannot be: a cluster refuses it all, and does nothing else."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.commands import Subscribe
from bmgd.core.streams.outbound import Outbound
from bmgd.core.streams.stream_out import Sending, StreamOut
from bmgd.sim import Network
from bmgd.sim.checkers import Scene, watch
from bmgd.sim.readers import TOPIC
from bmgd.sim.unusable_requests import UnusableRequests
from tests.unit.core.clusters import S, settle

SIZE = 5


def _ask(per_second: float) -> tuple[Network, Scene]:
    network = Network(SIZE)
    scene = watch(network)
    settle(network)
    for number in range(SIZE):
        network.issue(number, Subscribe(TOPIC, 64))
    asking = UnusableRequests(network, Random(1), per_second)
    asking.start(network.now_ns + 2 * S)
    network.run(5)
    return network, scene


def test_unusable_requests_are_refused_and_nobody_gets_anything() -> None:
    network, scene = _ask(200)
    assert len(network.unusable) > 300
    assert scene.violations == []
    assert not any(host.delivered or host.announced for host in network.hosts.values())


def test_no_unusable_requests_come_where_there_are_none() -> None:
    network, scene = _ask(0)
    assert not network.unusable
    assert scene.violations == []


def test_unusable_request_that_is_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbound, "refusal", lambda *_: None)
    _, scene = _ask(200)
    assert "unusable-are-refused" in {violation.checker for violation in scene.violations}


def test_unusable_segment_that_is_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Outbound._wrong

    def take_pieces(self: Outbound, stream: StreamOut, sending: Sending) -> str:
        return "" if sending.size and not sending.count else wrong(self, stream, sending)

    monkeypatch.setattr(Outbound, "_wrong", take_pieces)
    _, scene = _ask(200)
    assert "unusable-are-refused" in {violation.checker for violation in scene.violations}
