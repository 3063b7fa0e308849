"""What former lives left: nodes that have a part each compare it, and each has all in the end."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.broadcast import retention
from bmgd.core.broadcast.heard import Heard
from bmgd.core.commands import Subscribe
from bmgd.sim import Network
from bmgd.sim.checkers import Scene, watch
from bmgd.sim.checkers.broadcasts import retention_of
from bmgd.sim.legacies import SPREAD_NS, Legacies
from bmgd.sim.witness.numbers import NUMBERS
from tests.unit.core.clusters import settle

NODES = 4


def _leave(seed: int, count: int = 1) -> tuple[Network, Scene]:
    network = Network(NODES)
    scene = watch(network)
    settle(network)
    for number in range(NODES):
        network.issue(number, Subscribe("news", 64))
    Legacies(network, Random(seed), count).start(network.now_ns + 3 * SPREAD_NS)
    network.run(12)
    return network, scene


def _left(scene: Scene) -> list[Heard]:
    """What nodes have of lives that ended before the run."""
    return [
        heard
        for journal in scene.journals.values()
        for heard in retention_of(journal).lives.values()
        if heard.incarnation < journal.inside.membership.incarnation(heard.source)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_have_a_part_each_have_all_in_the_end(seed: int) -> None:
    _, scene = _leave(seed)
    left = _left(scene)
    assert len(left) == NODES - 1
    assert len({heard.key for heard in left}) == 1
    (reached,) = {heard.watermark for heard in left}
    assert reached in (3, 8, 20)
    assert scene.violations == []


def test_former_lives_that_left_something_are_no_more_than_their_number() -> None:
    _, scene = _leave(1, count=0)
    assert _left(scene) == []


@pytest.mark.parametrize(("name", "most"), [("FORMER_MAX", 1), ("LIVES_MAX", 6)])
def test_nothing_is_left_where_it_could_take_the_room_of_another_life(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, name, most)
    monkeypatch.setitem(NUMBERS["core.broadcast.retention"], name, most)
    _, scene = _leave(1)
    assert _left(scene) == []
