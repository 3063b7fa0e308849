"""Which of the nodes that lack a broadcast at rest have an excuse."""

from __future__ import annotations

import pytest

from bmgd.core.broadcast import retention
from bmgd.core.commands import BroadcastTo, Subscribe
from bmgd.sim import Network
from bmgd.sim.checkers import watch
from bmgd.sim.checkers.all_or_none import AllHaveItOrNone
from bmgd.sim.checkers.broadcasts import FEW_LIVES, retention_of
from bmgd.types import NodeId
from tests.unit.core.clusters import S, settle

SOURCE, LACKING = NodeId(0), NodeId(5)


@pytest.mark.parametrize(
    ("lives_max", "refused", "source_ends", "is_excused"),
    [
        (3, 1, True, True),
        (FEW_LIVES, 1, True, False),
        (3, 0, True, False),
        (3, 1, False, False),
    ],
)
def test_who_had_no_room_for_a_source_that_ended_lacks_its_broadcasts_with_an_excuse(
    monkeypatch: pytest.MonkeyPatch,
    lives_max: int,
    refused: int,
    source_ends: bool,
    is_excused: bool,
) -> None:
    network = Network(8)
    scene = watch(network)
    settle(network)
    for number in range(8):
        network.issue(number, Subscribe("news", 64))
    network.run(1)
    network.issue(SOURCE, BroadcastTo("news", b"x", True, 10 * S))
    network.run(8)
    if source_ends:
        network.kill(SOURCE)
        network.run(8)
    assert scene.violations == []
    (checker,) = [each for each in scene.checkers if isinstance(each, AllHaveItOrNone)]
    source = scene.journals[SOURCE]
    # It was held dead meanwhile, and has had nothing of that source.
    checker._processes[LACKING].got.clear()
    checker._last_dead_ns[LACKING] = network.now_ns
    known = retention_of(scene.journals[LACKING])
    del known.lives[SOURCE, source.incarnation]
    known.refused = refused
    with monkeypatch.context() as narrow:
        narrow.setattr(retention, "LIVES_MAX", lives_max)
        network.issue(LACKING, Subscribe("another", 64))
    # Where the bound is wide again at rest.
    checker.at_rest([scene.journals[NodeId(number)] for number in range(1, 8)])
    found = [each.text for each in scene.violations]
    assert any(text.startswith("lacks 1 of ") for text in found) is not is_excused
