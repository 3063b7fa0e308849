"""A step that raises what only wrong code raises ends the daemon as a bug, with the event named."""

from __future__ import annotations

import pytest

from bmgd.core.events import DeadlineReached, Event
from bmgd.errors import InvariantError
from bmgd.sim import Network
from bmgd.types import NodeId
from tests.unit.core.clusters import settle

BUGS = [
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    ZeroDivisionError,
]


@pytest.mark.parametrize("kind", BUGS)
def test_step_with_a_bug_is_an_invariant_error(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(2)
    settle(network)
    node = network.hosts[NodeId(0)].node

    def fail(event: Event) -> None:
        raise kind("wrong")

    monkeypatch.setattr(node, "_on_event", fail)
    with pytest.raises(InvariantError, match=f"DeadlineReached: {kind.__name__}") as raised:
        node.step(node.parts.context.now_ns, DeadlineReached())
    assert isinstance(raised.value.__cause__, kind)
