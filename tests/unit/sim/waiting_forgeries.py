"""Cores in which something waits, and nothing will come of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bmgd.core.commands import FindReaders, Register, SendTo, TraceFrom
from bmgd.core.events import CommandIssued
from bmgd.core.membership.retirement import RETIRE_TIMER
from bmgd.types import NodeId
from tests.unit.core.clusters import S

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

ME, PEER = 5, NodeId(4)


def _sends(f: Forger) -> None:
    """A message that is not confirmed: its destination is gone, and nobody knows."""
    f.network.kill(PEER)
    f.network.issue(ME, SendTo(PEER, "t", b"waits", 10 * S))


def time_that_is_left_is_counted_too_long(f: Forger) -> None:
    _sends(f)
    f.inside.streams_out()[0].earliest_ns += 1
    f.deadline()


def stream_that_is_ready_and_nobody_sends(f: Forger) -> None:
    _sends(f)
    (stream,) = f.inside.streams_out()
    f.inside.outbound.sending._ready[stream.key] = stream
    f.deadline()


def _without(purpose: str, command: FindReaders | TraceFrom) -> Callable[[Forger], None]:
    def forge(f: Forger) -> None:
        f.network.kill(PEER)
        f.network.issue(ME, command)
        [key] = [key for key in f.inside.deadlines() if key[0] == purpose]
        f.inside.context.timers.cancel(key)
        f.deadline()

    return forge


def orphan_that_nobody_is_told_of(f: Forger) -> None:
    f.inside.to_many.orphans._untold[PEER, f.life] = None
    f.scene.at_rest()


def deadline_to_forget_nobody(f: Forger) -> None:
    f.inside.context.timers.set((RETIRE_TIMER, 0, 0), f.network.now_ns + S)
    f.scene.at_rest()


def way_that_is_measured_for_ever(f: Forger) -> None:
    f.step(CommandIssued(10**6, TraceFrom(PEER, NodeId(0), S)))
    f.network.run(1.5)
    f.deadline()
    assert f.scene.violations == []
    f.network.run(1)
    f.deadline()


def program_that_is_not_registered_at_once(f: Forger) -> None:
    f.step(CommandIssued(10**6, Register("worker")))


FORGERIES_OF_WAITING: list[tuple[str, Callable[[Forger], None]]] = [
    ("bounds-hold", time_that_is_left_is_counted_too_long),
    ("deadlines-have-subjects", stream_that_is_ready_and_nobody_sends),
    ("deadlines-have-subjects", _without("find readers", FindReaders("t", S))),
    ("deadlines-have-subjects", _without("trace", TraceFrom(PEER, NodeId(0), S))),
    ("counts-are-true", orphan_that_nobody_is_told_of),
    ("counts-are-true", deadline_to_forget_nobody),
    ("requests-are-answered-once", way_that_is_measured_for_ever),
    ("requests-are-answered-once", program_that_is_not_registered_at_once),
]
