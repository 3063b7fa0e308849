"""The order in which a daemon carries out what its core gave, with another core, and without sockets."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from bmgd.config import Config
from bmgd.core.effects import Displaced, Effect, Reply, Send, StreamMoved
from bmgd.core.events import Event, Heard
from bmgd.errors import InvariantError
from bmgd.peers import PeerList
from bmgd.shell.daemon import Daemon
from bmgd.types import LinkId
from bmgd.wire.link_messages import Ping

MOVED = StreamMoved(7, 2, 1000)
REPLY = Reply(8, {})
PING = Send(LinkId(3), Ping(1))


class Core:
    """Gives one list of effects for each step; fails where there is none."""

    deadline_ns: int | None = None

    def __init__(self, *steps: list[Effect]) -> None:
        self._steps = iter(steps)

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        effects = next(self._steps, None)
        if effects is None:
            raise InvariantError("a step too many")
        return effects


class Around:
    """What stands around the core: links, programs, and the recorder, and what was done, in order."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.links = self

    def absorbed(self) -> list[Event]:
        return []

    def send(self, link: LinkId, message: object) -> None:
        self.done.append("put")

    def flush(self) -> None:
        self.done.append("written")

    def tell(self, effect: Effect) -> None:
        self.done.append(effect)

    def note_failure(self, now_ns: int, event: Event) -> None:
        self.done.append("failed")

    def write_now(self, why: str) -> None:
        pass


@pytest.fixture
def daemon() -> Any:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    made: Any = Daemon(Config(id=0, size=1, peers=PeerList.parse(address, 1)))
    yield made
    made._listener.close()


def steps(daemon: Any, *effects: list[Effect], events: int) -> list[object]:
    """What is done for so many events that come together."""
    around = Around()
    daemon._node, daemon._transport, daemon._telling.control = Core(*effects), around, around
    daemon._flight = daemon._ending.flight = around
    daemon._stepping.begin(daemon._node, around, around, None)
    daemon._stepping.emit_all([Heard(())] * events)
    return around.done


def test_programs_are_told_after_the_neighbors_and_in_order(daemon: Any) -> None:
    done = steps(daemon, [MOVED, PING], [REPLY], events=2)
    assert done == ["put", "written", MOVED, REPLY]


def test_programs_are_told_of_the_steps_before_one_that_fails(daemon: Any) -> None:
    assert steps(daemon, [MOVED], events=2) == ["failed", MOVED]


async def test_core_that_lost_its_id_is_woken_no_more(daemon: Any) -> None:
    """Its deadline stays in the past, since it is not stepped: each wake-up would plan the next."""

    class Late(Core):
        deadline_ns = 1

    around = Around()
    daemon._stepping.begin(Late([]), around, around, None)
    daemon._ending.lose_id(Displaced(()))
    daemon._ending.ended.clear()
    daemon._stepping.emit_all(())
    assert daemon._stepping._wake is None
    daemon._ending.take_id()
    daemon._stepping.emit_all(())
    assert daemon._stepping._wake is not None
    daemon._stepping.stop()
    assert daemon._stepping._wake is None
