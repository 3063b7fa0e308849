"""Sources that do not heed hints, programs that lose what has room, and lives that are not counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bmgd.core.broadcast import programs
from bmgd.core.commands import OpenStream, PutSegment, Register, Subscribe
from bmgd.core.effects import Renewed, Send
from bmgd.core.events import DeadlineReached, Received
from bmgd.core.streams.stream_out import StreamOut
from bmgd.types import Incarnation, NodeId
from bmgd.wire.batch import pack_messages
from bmgd.wire.link_messages import Pull
from bmgd.wire.stream_messages import SegmentFlag, Unreachable
from tests.unit.segments import segment

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

ME, PEER = NodeId(5), NodeId(4)
S = 1_000_000_000


def _hint(f: Forger) -> tuple[StreamOut, Unreachable]:
    """A segment is underway to a node that is gone, and a relay says that it found no way."""
    f.network.kill(PEER)
    request = f.network.issue(ME, OpenStream(PEER, "t", 2))
    f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"x"]), timeout_ns=9 * S))
    (stream,) = f.inside.streams_out()
    (sequence,) = stream.underway
    route = f.route(destination=ME, source=PEER, sequence=stream.id << 32 | sequence)
    return stream, Unreachable(route, PEER)


def hint_that_is_not_heeded(f: Forger) -> None:
    _, hint = _hint(f)
    f.step(Received(f.link, hint))


def hint_after_which_is_waited_for_long(f: Forger) -> None:
    stream, hint = _hint(f)
    event = Received(f.link, hint)
    f.scene.before(f.host, event)
    stream.hints += 1
    stream.resend_ns = f.journal.now_ns + S
    f.scene.after(f.host, event, ())


def best_effort_that_is_dropped(f: Forger) -> None:
    f.network.issue(ME, Subscribe("t", 9))
    route = f.route(destination=ME, source=PEER, source_incarnation=f.life)
    sent = replace(segment(route, b"x"), topic="t", flags=int(SegmentFlag.BEST_EFFORT))
    event = Received(f.link, sent)
    f.scene.before(f.host, event)
    f.inside.topics.dropped += 1
    f.scene.after(f.host, event, ())


def life_that_is_not_counted(f: Forger) -> None:
    f.inside.context.incarnation = Incarnation(f.inside.context.incarnation + (1 << 32))
    f.step(DeadlineReached(), [Renewed(f.inside.context.incarnation)])


def pull_that_is_not_counted(f: Forger) -> None:
    heard = f.inside.to_many.retention.hear(PEER, f.life)
    assert heard is not None
    f.step(DeadlineReached(), [Send(f.link, Pull(PEER, f.life, 1))])


def more_programs_than_may_be_registered(f: Forger) -> None:
    for name in ("one", "two"):
        f.network.issue(ME, Register(name))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(programs, "REGISTERED_MAX", 1)
        f.deadline()


FORGERIES_OF_HINTS: list[tuple[str, Callable[[Forger], None]]] = [
    ("hints-are-heeded", hint_that_is_not_heeded),
    ("hints-are-heeded", hint_after_which_is_waited_for_long),
    ("best-effort-is-taken", best_effort_that_is_dropped),
    ("lives-grow", life_that_is_not_counted),
    ("own-words-are-true", pull_that_is_not_counted),
    ("bounds-hold", more_programs_than_may_be_registered),
]
