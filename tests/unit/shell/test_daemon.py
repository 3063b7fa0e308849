"""The order in which a daemon carries out what its core gave, with another core, and without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bmgd.config import Config
from bmgd.core.commands import Leave, ShowMembers, ShowStatus
from bmgd.core.effects import Displaced, Effect, Reply, Send, StreamMoved
from bmgd.core.events import Event, Heard
from bmgd.errors import InvariantError
from bmgd.peers import PeerList
from bmgd.shell.carrying_out import OWN_REQUEST
from bmgd.shell.daemon import Daemon
from bmgd.types import LinkId
from bmgd.wire.link_messages import Ping
from tests.integration.ports import free_base_port

LIMIT_S = 10.0
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
        self.links = self.answers = self

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
    address = f"127.0.0.1:{free_base_port(1)}"
    made: Any = Daemon(Config(id=0, size=1, peers=PeerList.parse(address, 1)))
    yield made
    made._listener.close()


def equip(daemon: Any, core: Core, around: Any) -> None:
    """Let a daemon have this core, and this in the place of its links and its programs."""
    daemon._node, daemon._transport, daemon._telling.control = core, around, around
    daemon._has_node = True
    daemon._carrying_out.begin(around)


def steps(daemon: Any, *effects: list[Effect], events: int) -> list[object]:
    """What is done for so many events that come together."""
    around = Around()
    equip(daemon, Core(*effects), around)
    daemon._flight = daemon._ending.flight = around
    daemon._stepping.begin(daemon._node, around, around, None)
    daemon._stepping.emit_all([Heard(())] * events)
    return around.done


def test_programs_are_told_after_the_neighbors_and_in_order(daemon: Any) -> None:
    done = steps(daemon, [MOVED, PING], [REPLY], events=2)
    assert done == ["put", "written", MOVED, REPLY]


def test_programs_are_told_of_the_steps_before_one_that_fails(daemon: Any) -> None:
    assert steps(daemon, [MOVED], events=2) == ["failed", MOVED]


def test_recorder_without_memory_is_given_up_and_the_daemon_goes_on(daemon: Any) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    class Failing(Around):
        def give_up(self, error: Exception) -> None:
            self.done.append(type(error))

    around = Failing()
    equip(daemon, Core([PING], [PING]), around)
    daemon._stepping.begin(daemon._node, around, around, fail)
    daemon._stepping.emit_all([Heard(())] * 2)
    assert around.done == [MemoryError, "put", "put", "written"]
    assert daemon._ending.exit_code is None


def test_daemon_ends_by_its_own_bug_where_the_recorder_has_one_too(daemon: Any) -> None:
    class Failing(Around):
        def write_now(self, why: str) -> None:
            raise ZeroDivisionError

    daemon._telling.control = daemon._ending.flight = Failing()
    with pytest.raises(ZeroDivisionError):
        daemon._ending.on_failure(InvariantError("the core's"))
    assert daemon._ending.exit_code == 1


# --- without an id ------------------------------------------------------------------------------------


class Displaceable(Core):
    """Another life takes its id in its first step."""

    incarnation = 1

    def __init__(self) -> None:
        super().__init__([Displaced(())])

    def status(self, request: int) -> Reply:
        return Reply(request, {"id": 3, "state": "leaving"})


class Asking:
    """A birth that no contact answers, until it is cancelled."""

    control_is_named = False

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.was_cancelled = False

    async def join(self, *_: object) -> None:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled = True

    def close(self) -> None:
        pass


class Surroundings(Around):
    """What serves a whole life: `when_settling` is called while the last frames go out."""

    when_settling: Callable[[], object] = list

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def on_signal(self) -> None:
        pass

    def close(self) -> None:
        pass

    def end_watchers(self, error: object) -> None:
        pass

    async def settle(self, limit_s: float) -> bool:
        self.when_settling()
        return True


def displaced(daemon: Any) -> tuple[Surroundings, Asking, asyncio.Task[None]]:
    """A daemon that is about to lose its id, what it tells programs, and how it asks for the next."""
    around, asking = Surroundings(), Asking()
    equip(daemon, Displaceable(), around)
    daemon._flight = daemon._ending.flight = daemon._reloading = around
    daemon._becoming._birth, daemon._loop = asking, asyncio.get_running_loop()
    daemon._stepping.begin(daemon._node, around, around, None)
    return around, asking, asyncio.ensure_future(daemon._serve())


async def test_daemon_without_an_id_ends_when_it_is_told_to(daemon: Any) -> None:
    _, asking, serving = displaced(daemon)
    await asking.asked.wait()
    # As a signal does.
    daemon.issue(OWN_REQUEST, Leave())
    await asyncio.wait_for(serving, LIMIT_S)
    assert daemon._ending.exit_code == 0
    assert asking.was_cancelled


async def test_daemon_without_an_id_answers_what_its_status_is(daemon: Any) -> None:
    around, asking, serving = displaced(daemon)
    await asking.asked.wait()
    around.done.clear()
    daemon.issue(7, ShowMembers())
    daemon.issue(8, ShowStatus())
    assert around.done == [Reply(8, {"id": 3, "state": "joining"})]
    assert daemon._held == [(7, ShowMembers())]
    daemon.issue(OWN_REQUEST, Leave())
    await asyncio.wait_for(serving, LIMIT_S)


async def test_daemon_that_ends_while_it_gives_up_its_id_asks_for_no_other(daemon: Any) -> None:
    around, asking, serving = displaced(daemon)
    around.when_settling = lambda: daemon._ending.end(1, "a file is gone")
    await asyncio.wait_for(serving, LIMIT_S)
    assert daemon._ending.exit_code == 1
    assert not asking.asked.is_set()


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
