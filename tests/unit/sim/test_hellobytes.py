"""Hellos byte by byte beside simulated ones: both come to the same, with secrets and without."""

from __future__ import annotations

import pytest

from bmgd.sim import Network
from bmgd.sim.checkers import watch
from bmgd.sim.checkers.hellos import HellosMeanWhatTheySay
from tests.unit.core.clusters import settle

OLD, BOTH, NEW = ("a",), ("b", "a"), ("b",)


def found(network: Network) -> set[str]:
    (scene,) = network.watchers
    violations = scene.violations  # type: ignore[attr-defined]
    return {one.text for one in violations if one.checker == HellosMeanWhatTheySay.name}


@pytest.mark.parametrize("keys", [(), OLD, BOTH], ids=["no secret", "one", "two"])
def test_links_joiners_and_later_lives_are_what_their_bytes_say(keys: tuple[str, ...]) -> None:
    network = Network(6)
    watch(network)
    for number in range(6):
        network.rekey(number, keys)
    settle(network)
    joiner = network.join(2, 4)
    joiner.keys = keys
    network.kill(3)
    network.run(2)
    network.boot(3).keys = keys
    network.run(8)
    assert joiner.joiner is None
    assert found(network) == set()


def test_secrets_that_change_in_turn_are_proven_in_bytes() -> None:
    network = Network(5)
    watch(network)
    for keys in (OLD, BOTH, NEW):
        for number in range(5):
            network.rekey(number, keys)
            network.run(0.05)
        network.run(3)
    assert found(network) == set()


def test_dials_that_no_core_hears_of_are_refused_by_their_bytes() -> None:
    network = Network(4)
    watch(network)
    network.rekey(0, OLD)
    network.rekey(1, NEW)
    network.run(1)
    network.kill(3)
    network.hosts[3].squatter = "cluster"  # type: ignore[index]
    network.run(5)
    assert found(network) == set()
