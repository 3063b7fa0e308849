"""Cores that note something else of broadcasts than what came of them, or was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bmgd.core.broadcast import copies
from bmgd.core.broadcast.heard import Heard, SkippedRange
from bmgd.core.commands import BroadcastTo, ConsumedAnnouncements, MulticastTo, Subscribe
from bmgd.core.effects import Announce, Send
from bmgd.core.events import CommandIssued, DeadlineReached, Event, Received
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import id_set
from bmgd.sim.checkers.orphans import NeighborsAreAskedAnew
from bmgd.types import Incarnation, NodeId, NodeState, incarnation_tag
from bmgd.wire.broadcast_messages import Broadcast, ReliableBroadcast, Skip, Skipped
from bmgd.wire.link_messages import Held, Pull, Watermarks
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Entry, Segment, SharedSegment

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

ME, PEER = NodeId(5), NodeId(4)
S = 1_000_000_000


# --- what came ------------------------------------------------------------------------------------


def _copy(f: Forger, count: int = 1) -> ReliableBroadcast:
    return ReliableBroadcast(Route(ME, PEER, f.life, 0, count, 5), "news", b"x", 0, (), 8, 0, (), 0)


def _heard(f: Forger) -> Heard:
    heard = f.inside.to_many.retention.hear(PEER, f.life)
    assert heard is not None
    return heard


def _comes(f: Forger, event: Event, change: Callable[[], Any]) -> None:
    """A step in which a core's tables change so, and nothing else happens."""
    f.scene.before(f.host, event)
    change()
    f.scene.after(f.host, event, ())


def frame_that_is_not_counted(f: Forger) -> None:
    _heard(f)
    f.step(Received(f.link, _copy(f)))


def wait_for_what_nobody_was_asked_for(f: Forger) -> None:
    heard = _heard(f)

    def change() -> None:
        heard.note_came(f.journal.now_ns)
        heard.gap_ns = S

    _comes(f, Received(f.link, _copy(f)), change)


def wait_that_is_forgotten(f: Forger) -> None:
    heard = _heard(f)
    heard.asked, heard.awaited = PEER, 1
    f.network.run(1)

    def change() -> None:
        heard.note_came(f.journal.now_ns)
        heard.gap_ns = 0

    _comes(f, Received(f.link, _copy(f)), change)


def given_twice_as_it_counts(f: Forger) -> None:
    heard, delivery = _heard(f), f.inside.to_many.retention.delivery

    def change() -> None:
        heard.note_came(f.journal.now_ns)
        heard.watermark += 1
        delivery.taken += 2

    _comes(f, Received(f.link, _copy(f)), change)


def passed_over_and_forgotten(f: Forger) -> None:
    _heard(f).watermark = 7
    f.deadline()


def doubt_that_is_not_given_up(f: Forger) -> None:
    heard = _heard(f)
    heard.watermark, heard.silent = 7, (3, 0)
    route = Route(ME, PEER, f.life, incarnation_tag(f.inside.context.incarnation), 9, 5)
    f.step(Received(f.link, Skipped(route, (Skip(ME, 3, 5, False),), 0)))


def ranges_that_could_be_one(f: Forger) -> None:
    heard = _heard(f)
    heard.skips = [SkippedRange(at, at, False, False) for at in (3, 4)]
    f.step(Received(f.link, Skipped(Route(ME, PEER, f.life, 0, 9, 5), (), 0)))


def copy_beyond_the_bound(f: Forger) -> None:
    heard, came = _heard(f), _copy(f, 3)

    def change() -> None:
        heard.note_came(f.journal.now_ns)
        heard.copies[3] = came

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(copies, "HELD_BYTES_MAX", 0)
        _comes(f, Received(f.link, came), change)


def source_without_room_that_is_forgotten(f: Forger) -> None:
    heard, retention = _heard(f), f.inside.to_many.retention

    def change() -> None:
        heard.note_came(f.journal.now_ns)
        retention.refused += 1

    _comes(f, Received(f.link, _copy(f)), change)


def source_that_does_not_wait(f: Forger) -> None:
    f.inside.to_many.retention.copies._reserve.on_refused((PEER, f.life))
    f.inside.to_many.retention.copies._reserve._refused_ns.clear()
    f.deadline()


# --- what neighbors are asked ---------------------------------------------------------------------


def _shared(f: Forger) -> Heard:
    """A life that ended, of which node 6 told that it has more; the checker has seen it."""
    heard = _heard(f)
    heard.told[NodeId(6)] = 9, 9
    orphans = f.inside.to_many.orphans
    orphans._orphans[heard.key] = None
    [checker] = [c for c in f.scene.checkers if isinstance(c, NeighborsAreAskedAnew)]
    checker._shared[ME].add(heard.key)
    return heard


def word_that_is_remembered(f: Forger) -> None:
    heard = _shared(f)
    f.inside.to_many.orphans._orphans.clear()
    heard.said_ns[PEER] = S
    f.deadline()


def ask_that_is_not_sent(f: Forger) -> None:
    heard = _shared(f)

    def change() -> None:
        heard.asks += 1

    _comes(f, DeadlineReached(), change)


def answer_that_counts_for_nothing(f: Forger) -> None:
    heard = _shared(f)
    heard.asked, heard.pulled[PEER] = PEER, 2
    event = Received(f.link, Watermarks((Held(PEER, f.life, 9, 0, 9),), asks=False))
    f.scene.before(f.host, event)
    heard.asked_at, heard.asks = (1, 1), 1
    f.scene.after(f.host, event, [Send(f.link, Pull(PEER, f.life, 2))])


def neighbors_that_are_given_up(f: Forger) -> None:
    heard = _shared(f)
    heard.pulled[NodeId(6)] = 4

    def change() -> None:
        f.inside.to_many.orphans._told_again_ns = f.journal.now_ns

    _comes(f, DeadlineReached(), change)


def pull_that_is_let_lie(f: Forger) -> None:
    heard = _shared(f)
    heard.told[NodeId(6)] = 9, 9
    heard.wanted[PEER] = 2
    f.step(Received(f.link, Pull(PEER, f.life, 2)))


def pull_that_is_not_noted(f: Forger) -> None:
    _shared(f)
    f.step(Received(f.link, Pull(PEER, f.life, 2)))


def copy_that_is_not_passed_on(f: Forger) -> None:
    heard = _shared(f)
    heard.wanted[PEER] = 2
    _comes(f, Received(f.link, _copy(f, 3)), lambda: None)


# --- what is counted ------------------------------------------------------------------------------


def _at_best_effort(f: Forger, life: Incarnation) -> Received:
    cover = (Branch(ME, id_set([ME])),)
    return Received(f.link, Broadcast(Route(ME, PEER, life, 0, 1, 5), "t", b"x", 0, cover))


def best_effort_that_is_not_counted(f: Forger) -> None:
    f.step(_at_best_effort(f, f.life))


def best_effort_of_an_unknown_life(f: Forger) -> None:
    tally = f.inside.to_many.broadcasting.tally

    def change() -> None:
        tally.no_reader += 1

    _comes(f, _at_best_effort(f, Incarnation(f.life + 1)), change)


def best_effort_at_a_node_that_leaves(f: Forger) -> None:
    tally = f.inside.to_many.broadcasting.tally
    f.inside.context.state = NodeState.LEAVING

    def change() -> None:
        tally.no_reader += 1

    _comes(f, _at_best_effort(f, f.life), change)


def own_best_effort_without_a_reader(f: Forger) -> None:
    f.step(CommandIssued(77, BroadcastTo("nobody", b"x", False, S)))


# --- readers, and multicasts ----------------------------------------------------------------------


def topic_that_is_forgotten(f: Forger) -> None:
    f.deadline(Announce(77, PEER, f.life, 1, "t", b"x"))


def reader_that_took_something_unseen(f: Forger) -> None:
    request = f.network.issue(ME, Subscribe("news", 9))
    f.step(CommandIssued(request, ConsumedAnnouncements(1)))


ENTRY = Entry(PEER, 0, 1 << 32 | 1, 0, 1)


def frame_for_one_alone(f: Forger) -> None:
    command = MulticastTo(id_set([PEER]), "news", b"x", True, 10 * S)
    frame = SharedSegment(f.route(), "news", (ENTRY,), packed(b"x"))
    f.step(CommandIssued(78, command), [Send(f.link, frame)])


def sent_singly_and_not_counted(f: Forger) -> None:
    [link] = f.journal.to(PEER)
    link.features = 0
    command = MulticastTo(id_set([PEER]), "news", b"x", True, 10 * S)
    sent = Segment(replace(f.route(), sequence=1 << 32 | 1), 1, "news", 0, 1, 1, 0, packed(b"x"))
    f.step(CommandIssued(78, command), [Send(f.link, sent)])


FORGERIES_OF_NOTES: list[tuple[str, Callable[[Forger], None]]] = [
    ("what-came-is-noted", frame_that_is_not_counted),
    ("what-came-is-noted", wait_for_what_nobody_was_asked_for),
    ("what-came-is-noted", wait_that_is_forgotten),
    ("what-came-is-noted", given_twice_as_it_counts),
    ("what-came-is-noted", passed_over_and_forgotten),
    ("what-came-is-noted", doubt_that_is_not_given_up),
    ("what-came-is-noted", ranges_that_could_be_one),
    ("what-came-is-noted", copy_beyond_the_bound),
    ("what-came-is-noted", source_without_room_that_is_forgotten),
    ("broadcast-bounds-hold", source_that_does_not_wait),
    ("neighbors-are-asked-anew", word_that_is_remembered),
    ("neighbors-are-asked-anew", ask_that_is_not_sent),
    ("neighbors-are-asked-anew", answer_that_counts_for_nothing),
    ("neighbors-are-asked-anew", neighbors_that_are_given_up),
    ("asked-in-vain-asks-others", pull_that_is_let_lie),
    ("asked-in-vain-asks-others", pull_that_is_not_noted),
    ("asked-in-vain-asks-others", copy_that_is_not_passed_on),
    ("best-effort-is-counted", best_effort_that_is_not_counted),
    ("best-effort-is-counted", best_effort_of_an_unknown_life),
    ("best-effort-is-counted", best_effort_at_a_node_that_leaves),
    ("best-effort-is-counted", own_best_effort_without_a_reader),
    ("readers-see-everything", topic_that_is_forgotten),
    ("slow-readers-stall-nobody", reader_that_took_something_unseen),
    ("entries-are-parted-once", frame_for_one_alone),
    ("entries-are-parted-once", sent_singly_and_not_counted),
]
