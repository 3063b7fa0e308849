"""What a message takes in memory beside its payload."""

from __future__ import annotations

from dataclasses import replace

from bmgd.types import Incarnation, NodeId
from bmgd.wire.ask_messages import Probe
from bmgd.wire.holding import ID_BYTES, RUN_BYTES, held_bytes
from bmgd.wire.routes import Route, Search

ROUTE = Route(NodeId(1), NodeId(2), Incarnation(3))
IDS = tuple(NodeId(i) for i in range(10))


def test_message_takes_what_its_ids_take() -> None:
    assert held_bytes(Probe(ROUTE, ())) == 0
    assert held_bytes(Probe(ROUTE, IDS)) == 10 * ID_BYTES


def test_message_in_careful_mode_takes_the_state_of_its_search_too() -> None:
    bitmap = Search(restarts=0, visited=bytes(100), stack=IDS)
    runs = Search(restarts=0, visited=((NodeId(1), NodeId(5)),), stack=())
    for search, size in ((bitmap, 100 + 10 * ID_BYTES), (runs, RUN_BYTES)):
        message = Probe(replace(ROUTE, search=search), IDS)
        assert held_bytes(message) == 10 * ID_BYTES + size
