"""Steps that no core makes: leaves that give something up; programs that start twice, or nobody knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bmgd.core.broadcast import programs
from bmgd.core.commands import Leave, Register, SendTo
from bmgd.core.draining import ABANDONED
from bmgd.core.effects import Announce, Exit, ProgramChange, ProgramsChanged, Reply
from bmgd.core.events import CommandIssued, Received
from bmgd.errors import UnreachableError
from bmgd.types import NodeId
from bmgd.wire.broadcast_messages import Skipped
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER = NodeId(4)
REQUEST = 10**6


def leave_that_gives_up_a_message(f: Forger) -> None:
    f.step(CommandIssued(REQUEST, SendTo(PEER, "t", b"x", 60 * S)))
    f.step(CommandIssued(REQUEST + 1, Leave(60 * S)))
    error = UnreachableError(PEER, f"{ABANDONED} the confirmation came", sent=True)
    f.deadline(Reply(REQUEST, error=error), Exit(0, "left"))


def leave_before_a_reader_has_finished(f: Forger) -> None:
    f.step(CommandIssued(REQUEST, Leave(60 * S)))
    f.deadline(Announce(REQUEST + 1, PEER, f.life, 0, "news", b"x"))
    f.deadline(Exit(0, "left"))


def program_that_starts_twice(f: Forger) -> None:
    change = ProgramChange(PEER, f.life, "a", started=True)
    f.deadline(ProgramsChanged((change, change), 1))


def program_that_nobody_knows(f: Forger) -> None:
    f.step(CommandIssued(REQUEST, Register("a")), [Reply(REQUEST)])
    f.scene.at_rest()


def programs_that_a_former_node_knew(f: Forger) -> None:
    inherited = f.inside.to_many.retention._inherited
    inherited[PEER, f.life] = 3
    came = Received(f.link, Skipped(Route(NodeId(5), PEER, f.life), (), 0))
    f.scene.before(f.host, came)
    inherited.clear()
    f.scene.after(f.host, came, [])


def more_programs_than_a_node_may_know(f: Forger) -> None:
    row = programs._Row(f.life, names=dict.fromkeys(range(131_073), "a"))
    f.inside.to_many.programs._rows[PEER] = row
    f.deadline()


FORGERIES_OF_PROGRAMS: list[tuple[str, Callable[[Forger], None]]] = [
    ("leaving-drains", leave_that_gives_up_a_message),
    ("leaving-drains", leave_before_a_reader_has_finished),
    ("programs-are-known", program_that_starts_twice),
    ("programs-are-known", program_that_nobody_knows),
    ("programs-are-known", programs_that_a_former_node_knew),
    ("bounds-hold", more_programs_than_a_node_may_know),
]
