"""The links of a daemon: what the engine tells of one that is gone meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bmgd.core.events import Event, LinkDown
from bmgd.linkevents import RETURNED_COST_MAX
from bmgd.shell.links import Links
from bmgd.types import Evidence, LinkId
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Heartbeat
from tests.unit.linklayer.engines import ENGINES

LINK = LinkId(1)
NO_HEARTBEAT = encode(Heartbeat(1, 2, 3))[:-1] + b"\xc0"


class Carrier:
    """Takes all that waits at once."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.ended = self.closed = 0

    def on_waiting(self) -> None:
        while self.links.take(LINK, 1 << 16):
            pass

    def end_writing(self) -> None:
        self.ended += 1

    def read(self) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("name", sorted(ENGINES))
async def test_links_forget_that_a_link_is_written_which_is_gone(name: str) -> None:
    told: list[Event] = []

    def emit_all(events: Iterable[Event]) -> None:
        told.extend(events)

    links = Links(ENGINES[name](), emit_all)
    carrier = Carrier(links)
    links.adopt_fed(LINK, 5, carrier, b"")
    # In one turn of the loop: what costs it the link comes, and the core closes it for another reason.
    links.feed(LINK, NO_HEARTBEAT)
    links.close(LINK, "a newer link")
    links.flush()
    links.drain()
    assert told == [LinkDown(LINK, Evidence.PROTOCOL_ERROR)]
    assert (carrier.ended, carrier.closed) == (0, 1)


async def test_links_end_the_turn_of_the_core_when_they_are_written() -> None:
    links = Links(ENGINES["layer"](), lambda events: None)
    links._events._returned_cost = RETURNED_COST_MAX
    links.flush()
    assert links._events._returned_cost == 0
