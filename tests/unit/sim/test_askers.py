"""Programs that ask: what becomes of their questions when their daemon ends in the midst."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.chaos.plan import Workload
from bmgd.core.commands import CloseStream, Command
from bmgd.sim import Network
from bmgd.sim.askers import Askers
from bmgd.sim.host import Host
from bmgd.types import NodeId
from tests.unit.core.clusters import S, settle


def test_asker_that_hangs_up_outlives_a_daemon_that_ends_at_the_first_of_its_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network(4)
    settle(network)
    host, closed = network.hosts[NodeId(0)], list[int]()
    askers = Askers(network, Random(1), Workload(messages_per_second=1, timeout_s=5))
    askers.boot(host)
    network.watchers.append(askers)
    network.run(0.1)
    for number in (1, 2, 3):
        askers._ask(host, NodeId(number))
    assert len(askers._asking) == 3
    issue_as = network.issue_as

    def ends(host: Host, request: int, command: Command) -> None:
        if isinstance(command, CloseStream):
            closed.append(request)
            network.kill(0)
        issue_as(host, request, command)

    monkeypatch.setattr(network, "issue_as", ends)
    askers._hang_up(host)
    assert len(closed) == 1
    network.run(1)
    assert network.now_ns > S
