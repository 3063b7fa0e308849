"""What fires the checkers of messages to many: forged steps, and cores changed behind their back.

Each takes a `Forger` of test_checkers.py: a cluster of 8 at rest, and a step of node 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bmgd.core.broadcast import copies, retention, source, window
from bmgd.core.broadcast.announcements import _Gap
from bmgd.core.broadcast.watermarks import WATERMARK_TIMER
from bmgd.core.broadcast.window import OwnBroadcast
from bmgd.core.commands import BroadcastTo, MulticastTo, Subscribe
from bmgd.core.effects import Announce, RecordChanged, Reply, Send, TellMissed
from bmgd.core.events import Backlog, CommandIssued, Received
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import id_set
from bmgd.sim.checkers.all_or_none import AllHaveItOrNone
from bmgd.types import Incarnation, NodeId, Status, incarnation_tag
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    Piece,
    ReliableBroadcast,
    Skip,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.link_messages import Held, Watermarks
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Entry, Segment, SharedSegment
from tests.unit.segments import delivered

ME, PEER, SOURCE = NodeId(5), NodeId(4), NodeId(3)
LIFE = Incarnation(1 << 32 | 1)
TO_ME = Route(ME, SOURCE, LIFE, sequence=1, hop_budget=5)
TO_PEER = replace(TO_ME, destination=PEER, hop_budget=4)
S = 1_000_000_000


def covering(route: Route, *ids: int) -> Broadcast:
    return Broadcast(route, "news", b"x", 0, (Branch(route.destination, id_set(ids)),))


def sends_beyond_its_cover(f: Any) -> None:
    f.step(Received(f.link, covering(TO_ME, 5, 6)), [Send(f.link, covering(TO_PEER, 4))])


def covers_twice(f: Any) -> None:
    sent = Send(f.link, covering(TO_PEER, 4))
    f.step(Received(f.link, covering(TO_ME, 4, 5)), [sent, sent])


def gains_hops(f: Any) -> None:
    richer = replace(TO_PEER, hop_budget=9)
    f.step(Received(f.link, covering(TO_ME, 4, 5)), [Send(f.link, covering(richer, 4))])


def changes_an_audience(f: Any) -> None:
    first = ReliableBroadcast(TO_PEER, "news", b"x", 0, (), 8, 0, (), 0)
    f.deadline(Send(f.link, first), Send(f.link, replace(first, exceptions=1 << 6)))


def changes_the_place_of_a_piece(f: Any) -> None:
    first = BroadcastPiece(TO_PEER, "news", b"x", 0, (), 8, 0, (), 0, Piece(1, 0, 9))
    f.deadline(Send(f.link, first), Send(f.link, replace(first, piece=Piece(1, 4, 9))))


def shows_another_payload(f: Any) -> None:
    f.network.cut(4, 5)
    f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    f.step(CommandIssued(77, Subscribe("news", 1)))
    f.deadline(Announce(77, ME, f.inside.context.incarnation, 1, "news", b"y"))


def shows_a_piece_in_another_place(f: Any) -> None:
    f.step(CommandIssued(77, Subscribe("news", 1)))
    f.step(CommandIssued(78, Subscribe("news", 1)))
    shown = Announce(77, SOURCE, LIFE, 1, "news", b"y", Piece(1, 0, 9))
    f.deadline(shown, replace(shown, request=78, piece=Piece(1, 4, 9)))


def acknowledges_nothing(f: Any) -> None:
    f.network.issue(PEER, BroadcastTo("news", b"x", True, 10 * S))
    f.network.run(1)
    heard = f.inside.to_many.retention.lives[PEER, f.life]
    heard.unacknowledged_bytes = 1
    f.inside.context.timers.set((WATERMARK_TIMER, *heard.key), f.journal.now_ns + 60 * S)
    f.network.run(8)


def keeps_what_it_could_send(f: Any) -> None:
    command = BroadcastTo("news", b"x", True, 60 * S)
    f.inside.to_many.source.window.put(OwnBroadcast(command, 0, 60 * S))
    f.network.run(8)


def shows_a_hole(f: Any) -> None:
    f.step(CommandIssued(77, Subscribe("news", 1)))
    f.deadline(*(Announce(77, SOURCE, LIFE, at, "news", b"%d" % at) for at in (1, 3)))


def shows_one_again(f: Any) -> None:
    f.step(CommandIssued(77, Subscribe("news", 1)))
    f.deadline(*[Announce(77, SOURCE, LIFE, 0, "news", b"x")] * 2)


def tells_of_what_it_showed(f: Any) -> None:
    f.step(CommandIssued(77, Subscribe("news", 1)))
    f.deadline(Announce(77, SOURCE, LIFE, 1, "news", b"x"), TellMissed(77, SOURCE, LIFE, 1, 1))


def tells_of_a_topic_that_carries_none(f: Any) -> None:
    f.step(CommandIssued(77, Subscribe("news", 1)))
    f.deadline(TellMissed(77, SOURCE, LIFE, 1, 1))


def remembers_a_gap_that_was_told(f: Any) -> None:
    request = f.network.issue(ME, Subscribe("news", 1))
    reader = f.inside.to_many.announcements._readers[request]
    reader.gaps[SOURCE, LIFE] = _Gap(SOURCE, LIFE, 1, 1)
    f.scene.at_rest()


def takes_what_is_for_others(f: Any) -> None:
    multicast = Multicast(TO_ME, "news", b"x", (Branch(ME, id_set([6])),))
    f.step(Received(f.link, multicast), [delivered(77, SOURCE, "news", b"x")])


def takes_one_again(f: Any) -> None:
    multicast = Multicast(TO_ME, "news", b"x", (Branch(ME, id_set([5])),))
    for _ in range(2):
        f.step(Received(f.link, multicast), [delivered(77, SOURCE, "news", b"x")])


def shared(route: Route, *entries: Entry) -> SharedSegment:
    return SharedSegment(route, "news", entries, packed(b"x"))


ENTRY = Entry(PEER, 0, 1 << 32 | 1, 0, 1)


def passes_an_entry_on_twice(f: Any) -> None:
    sent = Send(f.link, shared(TO_PEER, ENTRY))
    f.step(Received(f.link, shared(TO_ME, ENTRY)), [sent, sent])


def passes_an_entry_on_changed(f: Any) -> None:
    sent = Send(f.link, shared(TO_PEER, ENTRY._replace(floor=2)))
    f.step(Received(f.link, shared(TO_ME, ENTRY)), [sent])


def keeps_an_entry_for_a_neighbor(f: Any) -> None:
    f.step(Received(f.link, shared(replace(TO_ME, hop_budget=3), ENTRY)))


def gains_hops_for_entries(f: Any) -> None:
    richer = replace(TO_PEER, hop_budget=9)
    f.step(Received(f.link, shared(TO_ME, ENTRY)), [Send(f.link, shared(richer, ENTRY))])


def _multicast(f: Any, *sent: SharedSegment) -> None:
    command = MulticastTo(id_set([PEER]), "news", b"x", True, 10 * S)
    f.step(CommandIssued(78, command), [Send(f.link, each) for each in sent])


def multicasts_to_somebody_else(f: Any) -> None:
    _multicast(f, shared(TO_PEER, Entry(SOURCE, 0, 1 << 32 | 1, 0, 1)))


def sends_a_body_again(f: Any) -> None:
    _multicast(f, *[shared(TO_PEER, ENTRY)] * 2)


def parts_who_could_go_together(f: Any) -> None:
    # From node 5 neighbor 1 begins a shortest way to 0 and to 2, neighbor 6 to 0 alone.
    groups = {NodeId(6): (6, 0), NodeId(1): (1, 2)}
    f.step(
        CommandIssued(78, MulticastTo(id_set([0, 1, 2, 6]), "news", b"x", True, 10 * S)),
        [
            Send(
                f.journal.to(peer)[0].id,
                shared(
                    replace(TO_PEER, destination=peer),
                    *(ENTRY._replace(id=NodeId(each)) for each in ids),
                ),
            )
            for peer, ids in groups.items()
        ],
    )


def sends_bulk_over_a_full_link(f: Any) -> None:
    f.step(Backlog(f.link, 300_000))
    route = Route(PEER, ME, f.inside.context.incarnation, sequence=9 << 32 | 1, priority=3)
    f.deadline(Send(f.link, Segment(route, 1, "t", 0, 1, 1, 0, packed(b"x"))))


def confirms_what_is_not_there(f: Any) -> None:
    f.network.stop(PEER)
    request = f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    f.step(Received(f.link, covering(TO_ME, 5)))
    f.deadline(Reply(request, {"confirmed": [4], "failed": []}))


def _broadcasts_in_vain(f: Any) -> int:
    """One that node 4 does not confirm; the others have by now."""
    f.network.stop(PEER)
    request: int = f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    f.network.run(1)
    return request


def _failed(**changes: Any) -> dict[str, Any]:
    detail = "sent, not confirmed before the deadline"
    return {"id": 4, "error": "UnreachableError", "detail": detail, "sent": True} | changes


def _reports(
    f: Any, failure: dict[str, Any], others: tuple[int, ...] = (0, 1, 2, 3, 5, 6, 7)
) -> None:
    request = _broadcasts_in_vain(f)
    f.deadline(Reply(request, {"confirmed": list(others), "failed": [failure]}))


def reports_too_early(f: Any) -> None:
    _reports(f, _failed())


def reports_as_not_sent(f: Any) -> None:
    _reports(f, _failed(sent=False))


def reports_another_reason(f: Any) -> None:
    _reports(f, _failed(detail="no room in the window before the deadline"))


def reports_a_living_one_as_dead(f: Any) -> None:
    _reports(f, _failed(error="DeadError", detail="it is dead"))


def reports_as_left_who_never_left(f: Any) -> None:
    detail = "it was known to have left before it confirmed"
    _reports(f, _failed(error="DeadError", detail=detail))


def reports_as_failed_who_confirmed_and_left(f: Any) -> None:
    f.network.stop(SOURCE)
    request = f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    f.network.run(0.5)
    f.inside.membership._records[PEER] = f.record(Status.LEFT)
    f.deadline(RecordChanged(PEER, f.record(Status.LEFT), 1))
    failed = [_failed(error="DeadError", detail="it is left"), _failed(id=SOURCE)]
    f.deadline(Reply(request, {"confirmed": [0, 1, 2, 5, 6, 7], "failed": failed}))
    told = [v.text for v in f.scene.violations if v.checker == "reports-are-true"]
    assert any("'it is left'" in text and "it has acknowledged it" in text for text in told)


def reports_the_same_life_as_new(f: Any) -> None:
    detail = "it began a new life before it confirmed"
    _reports(f, _failed(error="NewLifeError", detail=detail))


def reports_on_too_few(f: Any) -> None:
    _reports(f, _failed(), (0, 1, 2, 3, 5, 6))


def names_somebody_at_best_effort(f: Any) -> None:
    reply = Reply(77, {"confirmed": [4], "failed": []})
    f.step(CommandIssued(77, BroadcastTo("news", b"x", False, 10 * S)), [reply])


def sends_what_it_gave_up(f: Any) -> None:
    failed = [_failed(id=i, sent=False) for i in range(8)]
    f.step(CommandIssued(77, BroadcastTo("news", b"x", True, 0)))
    f.deadline(Reply(77, {"confirmed": [], "failed": failed}))
    route = replace(TO_PEER, source=ME, source_incarnation=f.inside.context.incarnation)
    f.deadline(Send(f.link, ReliableBroadcast(route, "news", b"x", 0, (), 8, 0, (), 0)))


def keeps_a_report_back(f: Any) -> None:
    f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    for each in (0, 1, 2, 3, 4, 6, 7):
        life = f.inside.membership.incarnation(NodeId(each))
        came = _watermark(f)
        route = replace(came.route, source=NodeId(each), source_incarnation=life)
        f.step(Received(f.link, replace(came, route=route, watermark=1)))


def _own(f: Any, count: int, stable: int = 0, *covered: int) -> Send:
    life = f.inside.context.incarnation
    route = replace(TO_PEER, source=ME, source_incarnation=life, sequence=count)
    branches = (Branch(PEER, id_set(covered or (4,))),)
    return Send(f.link, ReliableBroadcast(route, "news", b"x", 0, branches, 8, 0, (), stable))


def sends_again_at_once(f: Any) -> None:
    f.deadline(_own(f, 9))
    f.network.run(0.1)
    f.deadline(_own(f, 9))


def sends_again_after_the_same_pause(f: Any) -> None:
    for _ in range(3):
        f.deadline(_own(f, 9))
        f.network.run(0.25)


def sends_again_to_who_has_it(f: Any) -> None:
    f.inside.to_many.source.window.next = 10
    f.deadline(_own(f, 9))
    f.step(Received(f.link, replace(_watermark(f), watermark=9)))
    f.network.run(0.3)
    f.deadline(_own(f, 9))


def sends_to_each_again(f: Any) -> None:
    f.deadline(_own(f, 9))
    f.network.run(0.3)
    bound, source.SINGLY_MAX = source.SINGLY_MAX, 0
    # The tree of node 5 leads to 6, 7 and 1 first.
    f.deadline(_own(f, 9))
    source.SINGLY_MAX = bound


def sends_nothing_again(f: Any) -> None:
    f.network.stop(PEER)
    f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    f.inside.context.timers.cancel(("broadcast resend", 0, 0))
    f.network.run(2)


def tells_again_what_is_stable(f: Any) -> None:
    f.deadline(_own(f, 9, 8))
    route = replace(TO_PEER, source=ME, source_incarnation=f.inside.context.incarnation)
    f.deadline(Send(f.link, Stable(route, 0, (), 8)))


def does_not_tell_what_is_stable(f: Any) -> None:
    f.inside.to_many.source.window.stable = 3
    f.deadline()
    f.network.run(2)


def does_not_answer_who_asks(f: Any) -> None:
    f.step(Received(f.link, replace(_watermark(f), asks=True)))


def does_not_answer_who_asks_a_former_life(f: Any) -> None:
    asked = _watermark(f)
    route = replace(asked.route, destination_tag=asked.route.destination_tag ^ 1)
    f.step(Received(f.link, replace(asked, route=route, asks=True)))


def _acknowledges(f: Any, watermark: int, **changes: Any) -> Send:
    tag = incarnation_tag(f.life)
    route = Route(PEER, ME, f.inside.context.incarnation, tag)
    message = Watermark(route, watermark, 0, asks=False)
    return Send(f.link, replace(message, **changes))


def _comes(f: Any) -> None:
    route = Route(ME, PEER, f.life, 0, 1, 5)
    f.step(Received(f.link, ReliableBroadcast(route, "news", b"x", 0, (), 8, 0, (), 0)))


def drops_a_copy(f: Any) -> None:
    _comes(f)


def waits_for_what_it_is_to_skip(f: Any) -> None:
    f.inside.to_many.retention.hear(PEER, f.life)
    skipped = Skipped(Route(ME, PEER, f.life), (Skip(ME, 1, 3, True),), 0)
    f.step(Received(f.link, skipped))


def hears_nobody_who_tells_what_it_skips(f: Any) -> None:
    f.step(Received(f.link, Skipped(Route(ME, PEER, f.life), (), 0)))


def does_not_heed_a_neighbor(f: Any) -> None:
    f.inside.to_many.retention.hear(PEER, f.life)
    f.step(Received(f.link, Watermarks((Held(PEER, f.life, 0, 0, 3),), asks=False)))


def does_not_ask_who_has_more(f: Any) -> None:
    heard = f.inside.to_many.retention.hear(PEER, f.life)
    heard.told[PEER] = 2, 2
    f.step(Received(f.link, Watermarks((Held(PEER, f.life, 2, 2, 2),), asks=False)))


def acknowledges_before_its_time(f: Any) -> None:
    route = Route(ME, PEER, f.life, 0, 1, 5)
    came = ReliableBroadcast(route, "news", b"x", 0, (), 8, 0, (), 0)
    f.step(Received(f.link, came), [_acknowledges(f, 1)])


def acknowledges_again(f: Any) -> None:
    _comes(f)
    f.deadline(_acknowledges(f, 1))
    f.deadline(_acknowledges(f, 1))


def acknowledges_less(f: Any) -> None:
    _comes(f)
    f.deadline(_acknowledges(f, 2))
    _comes(f)
    f.deadline(_acknowledges(f, 1))


def confirms_what_was_to_be_missed(f: Any) -> None:
    f.network.stop(PEER)
    request = f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    route = Route(PEER, ME, f.inside.context.incarnation, hop_budget=9)
    f.deadline(Send(f.link, Skipped(route, (Skip(PEER, 1, 1, True),), 0)))
    f.step(Received(f.link, replace(_watermark(f), watermark=1)))
    f.deadline(Reply(request, {"confirmed": [4], "failed": []}))
    told = [v.text for v in f.scene.violations if v.checker == "confirmed-means-retained"]
    assert "4 confirms 1, which it was told to miss" in told


def calls_stable_what_is_not(f: Any) -> None:
    f.network.stop(PEER)
    for payload in (b"x", b"y"):
        f.network.issue(ME, BroadcastTo("news", payload, True, 10 * S))
    source = f.inside.to_many.source
    source.on_watermark(_watermark(f))
    source.window.stable = 1
    f.deadline(Send(f.link, covering(TO_PEER, 4)), Reply(10**6))


def _watermark(f: Any) -> Any:
    life = f.inside.context.incarnation
    return Watermark(Route(ME, PEER, f.life, incarnation_tag(life)), 0, 0, asks=False)


def counts_wrongly(f: Any) -> None:
    f.inside.to_many.retention.copies.held_bytes = 5
    f.deadline()


def hears_more_lives_than_it_may(f: Any) -> None:
    f.inside.to_many.retention.hear(PEER, f.life)
    bound, retention.LIVES_MAX = retention.LIVES_MAX, 0
    f.deadline()
    retention.LIVES_MAX = bound


def lets_more_wait_than_it_may(f: Any) -> None:
    command = BroadcastTo("news", b"x", True, 60 * S)
    waiting = OwnBroadcast(command, 0, 60 * S)
    f.inside.to_many.source.window.put(waiting)
    f.inside.to_many.source.window.put(waiting)
    bound, window.WAITING_BYTES_MAX = window.WAITING_BYTES_MAX, 256
    f.deadline()
    window.WAITING_BYTES_MAX = bound


def does_not_know_who_waits(f: Any) -> None:
    f.inside.to_many.retention.copies._reserve._refused_ns[PEER, f.life] = 0
    f.deadline()


def lets_in_who_can_wait(f: Any) -> None:
    kept = f.inside.to_many.retention
    heard = kept.hear(PEER, f.life)
    kept.copies.held_bytes = copies.HELD_BYTES_MAX
    came = ReliableBroadcast(Route(ME, PEER, f.life, 0, 1, 5), "news", b"x", 0, (), 8, 0, (), 0)
    f.scene.before(f.host, Received(f.link, came))
    kept.copies.held_bytes = 0
    kept.copies.keep(heard, came)
    f.scene.after(f.host, Received(f.link, came), [])


def keeps_what_it_does_not_count(f: Any) -> None:
    retention = f.inside.to_many.retention
    heard = retention.hear(PEER, f.life)
    came = ReliableBroadcast(Route(ME, PEER, f.life, 0, 9, 5), "news", b"x", 0, (), 8, 0, (), 0)
    retention.copies.keep(heard, came)
    heard.copies[9] = replace(came, branches=(Branch(PEER, 1 << 100_000),))
    f.deadline()


def forgets_to_tell(f: Any) -> None:
    for number in range(8):
        f.network.issue(number, Subscribe("news", 64))
    f.network.run(1)
    f.network.issue(SOURCE, BroadcastTo("news", b"x", True, 10 * S))
    f.network.run(8)
    (checker,) = [c for c in f.scene.checkers if isinstance(c, AllHaveItOrNone)]
    checker._processes[ME].got.clear()
    f.scene.at_rest()


def never_settles(f: Any) -> None:
    f.network.stop(PEER)
    f.network.issue(ME, BroadcastTo("news", b"x", True, 10 * S))
    f.scene.at_rest()


def deadline_to_acknowledge_nothing(f: Any) -> None:
    context = f.inside.context
    context.timers.set((WATERMARK_TIMER, 4, f.life), context.now_ns + 3600 * S)
    f.deadline()


def tells_nobody_what_is_stable(f: Any) -> None:
    f.inside.to_many.source.window.told_stable = 1
    f.deadline()


FORGERIES_TO_MANY: list[tuple[str, Callable[[Any], None]]] = [
    ("deadlines-have-subjects", deadline_to_acknowledge_nothing),
    ("stable-is-told", tells_nobody_what_is_stable),
    ("covers-are-parted-once", sends_beyond_its_cover),
    ("covers-are-parted-once", covers_twice),
    ("covers-are-parted-once", gains_hops),
    ("audiences-never-change", changes_an_audience),
    ("audiences-never-change", changes_the_place_of_a_piece),
    ("readers-see-everything", shows_another_payload),
    ("readers-see-everything", shows_a_piece_in_another_place),
    ("readers-see-everything", shows_a_hole),
    ("slow-readers-stall-nobody", acknowledges_nothing),
    ("slow-readers-stall-nobody", keeps_what_it_could_send),
    ("readers-see-everything", shows_one_again),
    ("readers-see-everything", tells_of_what_it_showed),
    ("readers-see-everything", tells_of_a_topic_that_carries_none),
    ("counts-are-true", remembers_a_gap_that_was_told),
    ("multicasts-reach-only-whom-they-name", takes_what_is_for_others),
    ("multicasts-reach-only-whom-they-name", takes_one_again),
    ("entries-are-parted-once", passes_an_entry_on_twice),
    ("entries-are-parted-once", passes_an_entry_on_changed),
    ("entries-are-parted-once", keeps_an_entry_for_a_neighbor),
    ("entries-are-parted-once", gains_hops_for_entries),
    ("entries-are-parted-once", multicasts_to_somebody_else),
    ("bodies-cross-links-once", sends_a_body_again),
    ("ways-are-shared", parts_who_could_go_together),
    ("own-bulk-waits", sends_bulk_over_a_full_link),
    ("confirmed-means-retained", confirms_what_is_not_there),
    ("confirmed-means-retained", calls_stable_what_is_not),
    ("confirmed-means-retained", confirms_what_was_to_be_missed),
    ("reports-are-true", reports_too_early),
    ("reports-are-true", reports_as_not_sent),
    ("reports-are-true", reports_another_reason),
    ("reports-are-true", reports_a_living_one_as_dead),
    ("reports-are-true", reports_as_left_who_never_left),
    ("reports-are-true", reports_as_failed_who_confirmed_and_left),
    ("reports-are-true", reports_the_same_life_as_new),
    ("reports-are-true", reports_on_too_few),
    ("reports-are-true", names_somebody_at_best_effort),
    ("reports-are-true", sends_what_it_gave_up),
    ("reports-are-true", keeps_a_report_back),
    ("sources-send-what-is-missed", sends_again_at_once),
    ("sources-send-what-is-missed", sends_again_after_the_same_pause),
    ("sources-send-what-is-missed", sends_again_to_who_has_it),
    ("sources-send-what-is-missed", sends_to_each_again),
    ("sources-send-what-is-missed", sends_nothing_again),
    ("sources-send-what-is-missed", tells_again_what_is_stable),
    ("sources-send-what-is-missed", does_not_tell_what_is_stable),
    ("sources-send-what-is-missed", does_not_answer_who_asks),
    ("sources-send-what-is-missed", does_not_answer_who_asks_a_former_life),
    ("broadcasts-are-taken", drops_a_copy),
    ("broadcasts-are-taken", waits_for_what_it_is_to_skip),
    ("broadcasts-are-taken", hears_nobody_who_tells_what_it_skips),
    ("neighbors-are-heard", does_not_heed_a_neighbor),
    ("neighbors-are-heard", does_not_ask_who_has_more),
    ("nodes-acknowledge-what-came", acknowledges_before_its_time),
    ("nodes-acknowledge-what-came", acknowledges_again),
    ("nodes-acknowledge-what-came", acknowledges_less),
    ("broadcast-bounds-hold", counts_wrongly),
    ("bounds-hold", hears_more_lives_than_it_may),
    ("bounds-hold", lets_more_wait_than_it_may),
    ("broadcast-bounds-hold", does_not_know_who_waits),
    ("broadcast-bounds-hold", lets_in_who_can_wait),
    ("broadcast-bounds-hold", keeps_what_it_does_not_count),
    ("all-have-it-or-none", forgets_to_tell),
    ("all-have-it-or-none", never_settles),
]
