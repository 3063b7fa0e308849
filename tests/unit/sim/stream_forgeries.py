"""Steps that no core makes: segments that are sent again for nothing, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bmgd.core.commands import MulticastTo, OpenStream, PutSegment, SendTo, Subscribe
from bmgd.core.effects import Reply, Send, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Received
from bmgd.core.streams.stream_in import StreamIn
from bmgd.errors import (
    DeadError,
    DeliveryError,
    LeavingError,
    NewLifeError,
    NoQuorumError,
    NoReaderError,
    QueueFullError,
    ReaderLostError,
    RequestError,
    UnreachableError,
)
from bmgd.sim.checkers.doubts import DoubtHasAReason
from bmgd.sim.narrowing import REFUSING, refusing
from bmgd.types import Incarnation, NodeId, Record, Status, incarnation_tag
from bmgd.wire.batch import pack_messages
from bmgd.wire.segments import OVERHEAD_BYTES
from bmgd.wire.stream_messages import SegmentAck, Unreachable
from tests.unit.segments import segment

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

ME, PEER = NodeId(5), NodeId(4)
STREAM = 9
STREAMS_MAX = next(small for _, name, small in REFUSING if name == "STREAMS_MAX")
KINDS = (
    *(DeadError, LeavingError, NewLifeError, NoQuorumError),
    *(NoReaderError, QueueFullError, ReaderLostError),
)


def sends(f: Forger, number: int, payload: bytes = b"x") -> None:
    """A segment of a stream leaves; credit is no matter."""
    f.deadline(Send(f.link, segment(f.route(source=ME), payload, stream=STREAM, number=number)))
    f.scene.violations[:] = [
        found for found in f.scene.violations if found.checker != "sources-keep-their-credit"
    ]


def is_told(
    f: Forger, following: int, *gaps: tuple[int, int], full: bool = False, credit: int = 10**7
) -> None:
    """An acknowledgement of it comes."""
    route = f.route(
        destination=ME,
        source=PEER,
        source_incarnation=f.life,
        destination_tag=incarnation_tag(f.inside.context.incarnation),
        sequence=STREAM << 32 | following,
    )
    f.step(Received(f.link, SegmentAck(route, incarnation_tag(f.life), credit, full, gaps)))


def sent_again_and_acknowledged(f: Forger) -> None:
    sends(f, 1)
    is_told(f, 2)
    sends(f, 1)


def sent_again_and_is_there(f: Forger) -> None:
    for number in (1, 2, 3):
        sends(f, number)
    is_told(f, 1, (2, 3))
    f.network.run(1)
    sends(f, 3)


def sent_again_too_soon(f: Forger) -> None:
    sends(f, 1)
    f.network.run(0.1)
    sends(f, 1)


def sent_again_before_what_is_missing(f: Forger) -> None:
    for number in (1, 2, 3, 4):
        sends(f, number)
    f.network.run(1)
    is_told(f, 1, (4, 4))
    sends(f, 3)


def sent_again_and_just_refused(f: Forger) -> None:
    sends(f, 1)
    is_told(f, 1, full=True)
    sends(f, 1)


def sent_behind_what_was_refused(f: Forger) -> None:
    sends(f, 1)
    is_told(f, 1, full=True)
    sends(f, 2)


def sent_beyond_the_window(f: Forger) -> None:
    sends(f, 1)
    is_told(f, 2)
    for number in (2, 3, 4, 5):
        sends(f, number, b"x" * 60_000)


def sends_again_what_lacks(f: Forger) -> None:
    """As a source may do it."""
    for number in (1, 2, 3):
        sends(f, number)
    is_told(f, 1, (2, 2))
    f.network.run(1)
    sends(f, 1)
    sends(f, 3)
    is_told(f, 3, full=True)
    f.network.run(1)
    sends(f, 3)
    hint = Unreachable(f.route(source=PEER, destination=ME, sequence=STREAM << 32 | 3), PEER)
    is_told(f, 3)
    f.step(Received(f.link, hint))
    sends(f, 3)


def _has_stream(f: Forger) -> StreamIn:
    """Segments 1, 3 and 4 of a stream came, and are kept as they should be."""
    stream = StreamIn(PEER, f.life, STREAM, "t", 2, next=2, taken=10**3, credit=10**6)
    route = f.route(destination=ME, source=PEER, source_incarnation=f.life)
    came = [segment(route, b"x", stream=STREAM, number=number) for number in (1, 3, 4)]
    for each in came:
        f.step(Received(f.link, each))
    source = f.inside.inbound._source_of(PEER, f.life)
    assert source is not None
    source.streams[STREAM] = stream
    stream.kept = {3: came[1], 4: came[2]}
    stream.kept_cost = sum(len(each.body) + OVERHEAD_BYTES for each in stream.kept.values())
    f.inside.inbound._kept_bytes += stream.kept_cost
    f.inside.inbound._stream_count += 1
    f.inside.inbound.granting._active[stream.key] = stream
    return stream


def _tells(f: Forger, *gaps: tuple[int, int], credit: int = 10**6) -> None:
    sequence = STREAM << 32 | 2
    route = f.route(destination=PEER, sequence=sequence, destination_tag=incarnation_tag(f.life))
    tag = incarnation_tag(f.host.node.incarnation)
    f.deadline(Send(f.link, SegmentAck(route, tag, credit, False, gaps)))


def gap_that_is_not_named(f: Forger) -> None:
    _has_stream(f)
    _tells(f)


def gap_in_two_pieces(f: Forger) -> None:
    _has_stream(f)
    _tells(f, (3, 3), (4, 4))


def credit_that_is_not_counted(f: Forger) -> None:
    _has_stream(f)
    _tells(f, (3, 4), credit=10**6 + 1)


def multicast_told_as_perhaps_taken_and_never_left(f: Forger) -> None:
    request = f.network.issue(ME, MulticastTo(1 << PEER, "t", b"far", True, 10**10))
    _forget_what_left(f)
    failure = {"id": PEER, "error": "UnreachableError", "detail": "", "sent": True}
    f.deadline(Reply(request, {"confirmed": [], "failed": [failure]}))


def _forget_what_left(f: Forger) -> None:
    (checker,) = [c for c in f.scene.checkers if isinstance(c, DoubtHasAReason)]
    checker._left[ME].bodies.clear()


def _put(f: Forger) -> int:
    """A segment to who does not answer has left."""
    f.network.kill(4)
    request = f.network.issue(ME, OpenStream(PEER, "t"))
    f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"far"])))
    return request


def withdrawn_and_has_left(f: Forger) -> None:
    request = _put(f)
    f.deadline(StreamMoved(request, 2, 10**6, (1,), (), "UnreachableError"))


def ended_as_not_sent_and_has_left(f: Forger) -> None:
    request = _put(f)
    f.deadline(StreamEnded(request, 1, 1, UnreachableError(PEER, "")))


def ended_as_perhaps_taken_and_never_left(f: Forger) -> None:
    request = _put(f)
    _forget_what_left(f)
    f.deadline(StreamEnded(request, 1, 2, UnreachableError(PEER, "", sent=True)))


def ended_as_perhaps_taken_and_was_refused(f: Forger) -> None:
    request = _put(f)
    (checker,) = [c for c in f.scene.checkers if isinstance(c, DoubtHasAReason)]
    left = checker._left[ME]
    left.turned_down |= {(PEER, name) for names in left.names.values() for name in names}
    f.deadline(StreamEnded(request, 1, 2, UnreachableError(PEER, "no way", sent=True)))


def stream_that_is_not_answered_at_once(f: Forger) -> None:
    f.step(CommandIssued(10**6, OpenStream(PEER, "t")))


def unreachable_before_its_time(f: Forger) -> None:
    request = f.network.issue(ME, SendTo(PEER, "t", b"soon", 10**10))
    f.deadline(Reply(request, error=UnreachableError(PEER, "", sent=True)))


def told_of_another_reason(kind: type[DeliveryError]) -> Callable[[Forger], None]:
    """An error of a message to who is there, and said nothing of it."""

    def forge(f: Forger) -> None:
        request = f.network.issue(ME, SendTo(PEER, "t", b"there", 10**10))
        f.deadline(Reply(request, error=kind(PEER, "", sent=True)))

    return forge


def refused_with_room(f: Forger) -> None:
    f.step(CommandIssued(10**6, OpenStream(PEER, "t")), [Reply(10**6, error=RequestError(""))])


def withdrawn_before_its_time(f: Forger) -> None:
    request = f.network.issue(ME, OpenStream(PEER, "t"))
    put = PutSegment(1, pack_messages([b"soon"]), timeout_ns=10**10)
    f.network.issue_as(f.host, request, put)
    f.deadline(StreamMoved(request, 1, 10**6, (), (1,), "UnreachableError"))


def more_streams_than_there_may_be(f: Forger) -> None:
    with refusing(0, 100):
        for _ in range(STREAMS_MAX + 1):
            request = f.network.issue(ME, OpenStream(PEER, "t"))
        (stream,) = [s for s in f.inside.streams_out() if s.owner == request - 1]
        f.inside.outbound.table.owned[request] = replace(stream, owner=request)
        f.deadline()


def comes_and_is_not_answered(f: Forger, said: Record) -> None:
    """A segment comes while this is the record of its source, and no answer goes."""
    stream, records = _has_stream(f), f.inside.membership._records
    route = f.route(destination=ME, source=PEER, source_incarnation=f.life)
    assert PEER not in records
    records[PEER] = said
    f.step(Received(f.link, segment(route, b"x", stream=STREAM, number=1)))
    del records[PEER]
    f.inside.inbound.acknowledging.forget(stream)
    f.network.run(0.5)
    f.deadline()


def segment_that_is_not_answered(f: Forger) -> None:
    comes_and_is_not_answered(f, f.record(Status.ALIVE))


def acknowledged_to_a_former_life(f: Forger) -> None:
    records, tag = f.inside.membership._records, incarnation_tag(f.life)
    records[PEER] = Record(Incarnation(f.life + 1), 0, Status.ALIVE, "sim4:7400")
    came = f.route(destination=ME, source=PEER, source_incarnation=f.life)
    back = f.route(destination=PEER, destination_tag=tag, sequence=STREAM << 32 | 2)
    ack = SegmentAck(back, incarnation_tag(f.host.node.incarnation), 10**6, False)
    f.step(Received(f.link, segment(came, b"x", stream=STREAM, number=1)), [Send(f.link, ack)])


def passes_over_an_unfinished_long_message(f: Forger) -> None:
    f.network.issue(ME, Subscribe("t", 9, takes_long=True))
    request = f.network.issue(PEER, OpenStream(ME, "t"))
    put = PutSegment(0, b"first piece", size=100, first=True)
    f.network.issue_as(f.network.hosts[PEER], request, put)
    f.network.run(1)
    (long,) = f.inside.topics.longs.by_stream.values()
    stream = f.inside.stream_in(PEER, long.stream)
    assert stream is not None
    route = f.route(destination=ME, source=PEER, source_incarnation=f.life)
    came = Received(f.link, segment(route, b"x", stream=long.stream, number=stream.next))
    f.scene.before(f.host, came)
    stream.next += 1
    f.scene.after(f.host, came, [])


FORGERIES_OF_STREAMS: list[tuple[str, Callable[[Forger], None]]] = [
    ("unfinished-are-aborted", passes_over_an_unfinished_long_message),
    ("only-what-lacks-is-sent-again", sent_again_and_acknowledged),
    ("only-what-lacks-is-sent-again", sent_again_and_is_there),
    ("only-what-lacks-is-sent-again", sent_again_too_soon),
    ("only-what-lacks-is-sent-again", sent_again_before_what_is_missing),
    ("only-what-lacks-is-sent-again", sent_again_and_just_refused),
    ("only-what-lacks-is-sent-again", sent_behind_what_was_refused),
    ("only-what-lacks-is-sent-again", sent_beyond_the_window),
    ("acks-are-honest", gap_that_is_not_named),
    ("acks-are-honest", gap_in_two_pieces),
    ("acks-are-honest", credit_that_is_not_counted),
    ("doubt-has-a-reason", multicast_told_as_perhaps_taken_and_never_left),
    ("doubt-has-a-reason", withdrawn_and_has_left),
    ("doubt-has-a-reason", ended_as_not_sent_and_has_left),
    ("doubt-has-a-reason", ended_as_perhaps_taken_and_never_left),
    ("doubt-has-a-reason", ended_as_perhaps_taken_and_was_refused),
    ("requests-are-answered-once", stream_that_is_not_answered_at_once),
    ("errors-have-their-reason", unreachable_before_its_time),
    ("errors-have-their-reason", withdrawn_before_its_time),
    ("errors-have-their-reason", refused_with_room),
    *(("errors-have-their-reason", told_of_another_reason(kind)) for kind in KINDS),
    ("segments-are-answered", segment_that_is_not_answered),
    ("segments-are-answered", acknowledged_to_a_former_life),
    ("bounds-hold", more_streams_than_there_may_be),
]
