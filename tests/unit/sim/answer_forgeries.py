"""Steps that no core makes: answers to streams, questions and asks that come too late, or do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bmgd.core.commands import AskReports, FindReaders, OpenStream, PutSegment, SendTo, Unsubscribe
from bmgd.core.effects import Deliver, Reply, Reported, Send, StreamMoved
from bmgd.core.events import Backlog, CommandIssued, Received
from bmgd.core.streams.held_bulk import _Held
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.streams.stream_out import StreamOut
from bmgd.core.topics.questions import Asker
from bmgd.core.topics.taken import Taken
from bmgd.core.topics.topic_table import TopicQueue
from bmgd.errors import UnreachableError
from bmgd.types import LinkId, NodeId, incarnation_tag
from bmgd.wire.ask_messages import Report
from bmgd.wire.batch import pack_messages
from bmgd.wire.routes import BULK_PRIORITY, NORMAL_PRIORITY
from bmgd.wire.segments import OVERHEAD_BYTES
from bmgd.wire.stream_messages import Segment, SegmentAck
from tests.unit.segments import segment

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

ME, PEER = NodeId(5), NodeId(4)
STREAM = 9
REQUEST = 10**6


def _came(f: Forger, number: int, **changes: object) -> Segment:
    tag = f.inside.context.own_tag
    route = f.route(destination=ME, destination_tag=tag, source=PEER, source_incarnation=f.life)
    whole = segment(route, b"x", stream=STREAM, number=number)
    return replace(whole, **changes)  # type: ignore[arg-type]


def _stream(f: Forger, following: int = 2, **changes: object) -> StreamIn:
    """A stream of which so much was taken, as a core has it."""
    cost = (following - 1) * (OVERHEAD_BYTES + len(_came(f, 1).body))
    stream = StreamIn(PEER, f.life, STREAM, "t", 2, following, cost, 10**6)
    for name, value in changes.items():
        setattr(stream, name, value)
    source = f.inside.inbound._source_of(PEER, f.life)
    assert source is not None
    source.streams[STREAM] = stream
    f.inside.inbound._stream_count += 1
    return stream


def _ack(f: Forger, following: int, *, full: bool = False) -> Send:
    tag, sequence = incarnation_tag(f.life), STREAM << 32 | following
    route = f.route(source=ME, destination=PEER, sequence=sequence, destination_tag=tag)
    own_tag = incarnation_tag(f.host.node.incarnation)
    return Send(f.link, SegmentAck(route, own_tag, 0 if full else 10**6, full))


def first_that_is_not_acknowledged(f: Forger) -> None:
    _stream(f)
    f.step(Received(f.link, _came(f, 1)))


def acknowledged_one_by_one(f: Forger) -> None:
    stream = _stream(f)
    f.step(Received(f.link, _came(f, 1)), [_ack(f, 2)])
    assert "acks-come-in-time" not in {found.checker for found in f.scene.violations}
    stream.next, stream.taken = 3, 2 * stream.taken
    f.step(Received(f.link, _came(f, 2)), [_ack(f, 3)])


def held_up_and_not_acknowledged(f: Forger) -> None:
    stream = _stream(f)
    f.step(Received(f.link, _came(f, 1)), [_ack(f, 2)])
    stream.kept[3] = _came(f, 3)
    f.step(Received(f.link, stream.kept[3]))


def cost_that_is_not_counted(f: Forger) -> None:
    stream = _stream(f)
    stream.taken += 1
    f.step(Received(f.link, _came(f, 1)), [_ack(f, 2)])


def refused_with_room(f: Forger) -> None:
    f.step(Received(f.link, _came(f, 1)), [_ack(f, 1, full=True)])


def starves_and_waits_for_nothing(f: Forger) -> None:
    stream = _stream(f, heard_ns=f.network.now_ns, credit=0)
    f.inside.inbound.granting._active[stream.key] = stream
    f.deadline()


def end_of_a_long_message_that_was_not_begun(f: Forger) -> None:
    route = f.route(source=ME, destination=PEER, source_incarnation=f.inside.context.incarnation)
    mark = replace(segment(route, b"x", stream=STREAM, number=2), count=0, body=b"")
    f.deadline(Send(f.link, segment(route, b"x", stream=STREAM, number=1)))
    f.scene.violations.clear()
    f.deadline(Send(f.link, mark))
    credit = [found for found in f.scene.violations if "credit" in found.text]
    f.scene.violations[:] = [found for found in f.scene.violations if found not in credit]


# --- sources -----------------------------------------------------------------------------------


class _Sending:
    """Three segments of a stream to node 4 are on their way."""

    def __init__(self, f: Forger) -> None:
        self.f = f
        f.network.run(1)
        request = f.network.issue(ME, OpenStream(PEER, "t"))
        f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"1"])))
        f.network.run(0.5)
        for number in (2, 3, 4):
            f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"%d" % number])))
        (self.stream,) = [s for s in f.inside.streams_out() if s.owner == request]
        assert sorted(self.stream.underway) == [2, 3, 4]

    def hears(self, following: int, *gaps: tuple[int, int]) -> None:
        f, stream = self.f, self.stream
        f.network.timeline.now_ns += 1
        route = f.route(
            source=PEER,
            destination=ME,
            source_incarnation=f.life,
            destination_tag=incarnation_tag(f.inside.context.incarnation),
            sequence=stream.id << 32 | following,
        )
        ack = SegmentAck(route, incarnation_tag(f.life), stream.credit, False, gaps)
        f.step(Received(f.link, ack))


def there_and_not_held_so(f: Forger) -> None:
    _Sending(f).hears(2, (3, 3))


def held_so_and_not_there(f: Forger) -> None:
    sending = _Sending(f)
    sending.stream.underway[3].held = True
    sending.hears(2)


def waits_for_room_that_is_there(f: Forger) -> None:
    sending = _Sending(f)
    sending.stream.blocked = True
    sending.hears(2)


def waits_longer_though_it_is_answered(f: Forger) -> None:
    sending = _Sending(f)
    f.scene.before(f.host, Received(f.link, _ack_of(f, sending.stream)))
    del sending.stream.underway[2]
    sending.stream.backoff = 1
    f.scene.after(f.host, Received(f.link, _ack_of(f, sending.stream)), [])


def _ack_of(f: Forger, stream: StreamOut) -> SegmentAck:
    route = f.route(
        source=PEER,
        destination=ME,
        source_incarnation=f.life,
        destination_tag=incarnation_tag(f.inside.context.incarnation),
        sequence=stream.id << 32 | 3,
    )
    return SegmentAck(route, incarnation_tag(f.life), stream.credit, False)


def answer_that_took_no_such_time(f: Forger) -> None:
    sending = _Sending(f)
    sending.stream.srtt_ns = 10**12
    sending.hears(2)


# --- bulk --------------------------------------------------------------------------------------


def _held(f: Forger, link: LinkId) -> tuple[StreamOut, _Held]:
    """A stream of the bulk class that waits for a link."""
    f.network.kill(4)
    request = f.network.issue(ME, OpenStream(PEER, "t", BULK_PRIORITY))
    f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"1"])))
    f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"2"])))
    (stream,) = [s for s in f.inside.streams_out() if s.owner == request]
    assert stream.queue
    held = f.inside.outbound.sending.held._links[link] = _Held({stream.key: stream})
    return stream, held


def bulk_that_does_not_go_on(f: Forger) -> None:
    link = f.link
    _held(f, link)
    f.step(Backlog(link, 0))


def bulk_that_has_no_turn(f: Forger) -> None:
    link, life = f.link, f.life
    _, held = _held(f, link)
    route = f.route(source=ME, destination=PEER, source_incarnation=life, priority=NORMAL_PRIORITY)
    held.passed_bytes = 10**6
    for number in (1, 2):
        f.deadline(Send(link, segment(route, b"x", stream=STREAM, number=number)))


def bulk_for_a_link_that_is_gone(f: Forger) -> None:
    f.inside.outbound.sending.held._links[LinkId(99)] = _Held()
    f.deadline()


# --- work, and what programs are told ----------------------------------------------------------


def work_for_what_is_over(f: Forger) -> None:
    f.inside.outbound.sending._work.begin("find 99", lambda: iter(()))
    f.step(CommandIssued(REQUEST, Unsubscribe()))


def itself_that_waits_for_what_is_given_up(f: Forger) -> None:
    request = f.network.issue(ME, OpenStream(ME, "t"))
    f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"1"])))
    (stream,) = [s for s in f.inside.streams_out() if s.owner == request]
    sending = replace(_Sending(f).stream.underway[2], doubted=True)
    stream.underway[1] = sending
    f.deadline()


def error_that_names_another(f: Forger) -> None:
    request = f.network.issue(ME, SendTo(PEER, "t", b"soon", 1))
    f.deadline(Reply(request, error=UnreachableError(NodeId(3), "no way")))


def error_that_says_nothing(f: Forger) -> None:
    request = f.network.issue(ME, OpenStream(PEER, "t"))
    put = PutSegment(1, pack_messages([b"soon"]), timeout_ns=1)
    f.network.issue_as(f.host, request, put)
    f.deadline(StreamMoved(request, 2, 10**6, (), (1,), "UnreachableError", ""))


def goes_on_with_what_is_lost(f: Forger) -> None:
    f.network.kill(4)
    request = f.network.issue(ME, OpenStream(PEER, "t"))
    for is_first in (True, False):
        put = PutSegment(0, b"piece", size=100, first=is_first, timeout_ns=1)
        f.network.issue_as(f.host, request, put)
    f.deadline(StreamMoved(request, 2, 10**6, (), (1,), "UnreachableError", "in time"))


# --- questions and asks ------------------------------------------------------------------------


def _waits(f: Forger, asker: Asker) -> None:
    """A question of another node waits for a reader, and then for nobody."""
    queue = f.inside.topics.table.topics["rpc"] = TopicQueue()
    body = pack_messages([b"question"])
    queue.waiting.append(
        Taken(asker.source, asker.incarnation, 1, 1, body, inbox=asker.inbox, question=7)
    )
    event = CommandIssued(REQUEST, Unsubscribe())
    f.scene.before(f.host, event)
    queue.waiting.clear()
    f.scene.after(f.host, event, [])


def loss_that_is_not_told_at_once(f: Forger) -> None:
    _waits(f, Asker(PEER, f.life, 1))


def loss_that_is_told_to_who_is_gone(f: Forger) -> None:
    event = CommandIssued(REQUEST, Unsubscribe())
    f.inside.membership._records[PEER] = f.record()
    f.scene.before(f.host, event)
    stream = f.inside.outbound.table.new_stream(0, PEER, "_inbox.1", 2, False)
    stream.is_for_asker = True
    f.scene.after(f.host, event, [])


def answer_that_is_owed_though_given_up(f: Forger) -> None:
    asker = Asker(PEER, f.life, 1)
    f.inside.topics.questions.handed(3, asker, [7])
    piece = Deliver(3, PEER, f.life, "rpc", 0, b"x", long=1, size=9, inbox=1, question=7)
    f.deadline(piece)
    f.deadline(replace(piece, inbox=0, question=0, aborted="its source aborted it"))


def _report(f: Forger, number: int) -> Received:
    tag = incarnation_tag(f.inside.context.incarnation)
    route = f.route(source=PEER, destination=ME, destination_tag=tag, sequence=number)
    return Received(f.link, Report(route, b"{}"))


def report_that_is_not_told(f: Forger) -> None:
    f.step(CommandIssued(REQUEST, AskReports((PEER,))))
    f.step(_report(f, 1))


def report_that_nobody_asked_for(f: Forger) -> None:
    f.step(_report(f, 1), [Reported(PEER, b"{}")])


def silent_that_was_not_asked(f: Forger) -> None:
    f.step(CommandIssued(REQUEST, FindReaders("t", 10**9)))
    f.network.timeline.now_ns += 10**9
    f.deadline(Reply(REQUEST, {"readers": [], "silent": [PEER]}))


FORGERIES_OF_ANSWERS: list[tuple[str, Callable[[Forger], None]]] = [
    ("acks-come-in-time", first_that_is_not_acknowledged),
    ("acks-come-in-time", acknowledged_one_by_one),
    ("acks-come-in-time", held_up_and_not_acknowledged),
    ("acks-are-honest", cost_that_is_not_counted),
    ("acks-are-honest", refused_with_room),
    ("sources-keep-their-credit", end_of_a_long_message_that_was_not_begun),
    ("starving-are-fed", starves_and_waits_for_nothing),
    ("answers-are-heeded", there_and_not_held_so),
    ("answers-are-heeded", held_so_and_not_there),
    ("answers-are-heeded", waits_for_room_that_is_there),
    ("answers-are-heeded", waits_longer_though_it_is_answered),
    ("answers-are-heeded", answer_that_took_no_such_time),
    ("own-bulk-waits", bulk_that_does_not_go_on),
    ("own-bulk-waits", bulk_that_has_no_turn),
    ("memories-are-of-use", bulk_for_a_link_that_is_gone),
    ("deadlines-have-subjects", work_for_what_is_over),
    ("deadlines-have-subjects", itself_that_waits_for_what_is_given_up),
    ("errors-have-their-reason", error_that_names_another),
    ("errors-have-their-reason", error_that_says_nothing),
    ("errors-have-their-reason", goes_on_with_what_is_lost),
    ("losses-are-told", loss_that_is_not_told_at_once),
    ("losses-are-told", loss_that_is_told_to_who_is_gone),
    ("losses-are-told", answer_that_is_owed_though_given_up),
    ("asked-are-heard", report_that_is_not_told),
    ("asked-are-heard", report_that_nobody_asked_for),
    ("asked-are-heard", silent_that_was_not_asked),
]
