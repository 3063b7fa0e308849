"""Four nodes at rest; the tests of single steps look at the first one.

Nothing of bmgd is imported before a test runs: benchmarks/mutants changes modules before they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bmgd.core.node import Node
    from bmgd.sim import Network


@pytest.fixture
def network() -> Network:
    """Four nodes at rest; the tests look at node 0."""
    from bmgd.sim import Network
    from tests.unit.core.clusters import settle

    found = Network(4)
    settle(found)
    found.run(2)
    return found


@pytest.fixture
def node(network: Network) -> Node:
    """The first of them."""
    return next(host.node for host in network.hosts.values())
