"""Why a message was not sent or confirmed is told as it is: each class of errors has its cause.

What a daemon says of it is compared with what happened to it: the time that a program gave, what the
destination answered, what is believed of the destination, how full the daemon's own tables were before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bmgd.core.commands import (
    FindReaders,
    MulticastTo,
    OpenAnswers,
    OpenQuestions,
    OpenStream,
    PutSegment,
    SendTo,
    Withdraw,
)
from bmgd.core.effects import (
    Displaced,
    Effect,
    Exit,
    RecordChanged,
    Renewed,
    Reply,
    StreamEnded,
    StreamMoved,
)
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.core.streams import finding, outbound
from bmgd.core.topics import inboxes
from bmgd.errors import (
    BmgdError,
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
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId, NodeState, Status
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX
from bmgd.wire.features import Feature
from bmgd.wire.stream_messages import ResetReason, SegmentAck, StreamReset

_OPENS = OpenStream | OpenQuestions | OpenAnswers
_ASKED = SendTo | FindReaders | OpenStream | OpenQuestions | OpenAnswers


@dataclass(slots=True)
class _Asked:
    """What a program asked for: a message, a stream, a search for readers.

    Args:
        lives: of the destination, as they were known when something was put.
        topic: of a message that was sent singly: those to one topic of a node share a stream.
        over_ns: when the time of the message, or of each segment by its number, is over.
        withdrawn: the segments that the program gave up.
        pieces: the segments that are pieces of long messages: they end with others of theirs.
        next: the number of the segment that is put next.
        left_bytes: of the long message that is being put, what it has beside the pieces that were put.
    """

    destination: NodeId
    is_stream: bool
    lives: set[Incarnation] = field(default_factory=set)
    topic: str = ""
    over_ns: dict[int, int] = field(default_factory=dict)
    withdrawn: set[int] = field(default_factory=set)
    pieces: set[int] = field(default_factory=set)
    next: int = 1
    left_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Multicast:
    """A reliable multicast: its messages share the streams of those that are sent singly."""

    topic: str
    lives: dict[NodeId, Incarnation]


@dataclass(slots=True)
class _Told:
    """An error that a program is told, and of what.

    Args:
        for_others: in the same step an earlier message of its stream fails, which was for another life:
            a stream ends as a whole. It may be one of a multicast.
        is_named: whether the error itself is told, and not only its class.
    """

    asked: _Asked
    event: Event
    numbers: tuple[int, ...]
    is_over: bool
    for_others: bool = False
    is_named: bool = True


class ErrorsHaveTheirReason(Checker):
    """What a program is told of a message that fails, or of a stream that is refused, is the reason.

    Dead, leaving, a new life, no quorum: that is so. No reader, reader lost, queue full: the destination
    said it. Unreachable: the time that the program gave is over, or it gave up. What is refused for a
    bound is refused when that is reached. Each names the node that it is of, and says why. Of a long
    message nothing waits of which a piece is told as lost.
    """

    name: ClassVar[str] = "errors-have-their-reason"
    events: ClassVar[Kinds] = (CommandIssued, SegmentAck)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Reply, StreamMoved, StreamEnded, RecordChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[NodeId, dict[int, _Asked]] = {}
        self._multicasts: dict[NodeId, dict[int, _Multicast]] = {}
        self._full: dict[NodeId, set[NodeId]] = {}
        self._may_refuse = False
        """Whether the command underway may be refused."""
        self._statuses: dict[NodeId, dict[NodeId, Status]] = {}
        """What was believed of others before the step, where a record of theirs has changed."""
        self._passed: dict[NodeId, list[Status]] = {}
        """What was believed before the step and within it: one may be dead first, and then have left."""

    def on_boot(self, journal: Journal) -> None:
        self._asked[journal.place] = {}
        self._statuses[journal.place] = {}
        self._multicasts[journal.place] = {}
        self._full[journal.place] = set()

    def before(self, journal: Journal, event: Event) -> None:
        self._may_refuse = False
        if not isinstance(event, CommandIssued):
            return
        known, inside, request = self._asked[journal.place], journal.inside, event.request
        match event.command:
            case (
                SendTo() | FindReaders() | OpenStream() | OpenQuestions() | OpenAnswers() as command
            ):
                self._may_refuse = _may_refuse(inside, command)
                asked = _Asked(journal.host.id, is_stream=isinstance(command, _OPENS))
                if not isinstance(command, FindReaders):
                    asked.destination = command.destination
                    asked.lives.add(inside.membership.incarnation(command.destination))
                if isinstance(command, OpenAnswers):
                    asked.lives.add(command.incarnation)
                if isinstance(command, SendTo):
                    asked.topic = command.topic
                    asked.over_ns[0] = journal.now_ns + command.timeout_ns
                known[request] = asked
            case MulticastTo(destinations, topic, reliable=True):
                life_of = inside.membership.incarnation
                lives = {NodeId(i): life_of(NodeId(i)) for i in ids_in(destinations)}
                self._multicasts[journal.place][request] = _Multicast(topic, lives)
            case PutSegment() as put:
                self._may_refuse = _may_turn_down(inside, request, put)
                if request in known:
                    self._note_put(journal, known[request], put)
                    self._may_refuse |= _is_miscounted(known[request], put)
            case Withdraw(number):
                if request in known:
                    known[request].withdrawn.add(number)
            case _:
                pass

    @staticmethod
    def _note_put(journal: Journal, asked: _Asked, put: PutSegment) -> None:
        asked.lives.add(journal.inside.membership.incarnation(asked.destination))
        if put.timeout_ns:
            asked.over_ns[asked.next] = journal.now_ns + put.timeout_ns
        if put.size:
            asked.pieces.add(asked.next)
            asked.left_bytes = (put.size if put.first else asked.left_bytes) - len(put.body)
        asked.next += 1

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        message = event.message if isinstance(event, Received) else None
        if isinstance(message, SegmentAck) and message.full:
            self._full[journal.place].add(message.route.source)
        known = self._asked[journal.place]
        is_over = any(isinstance(effect, Renewed | Displaced | Exit) for effect in effects)
        is_over |= journal.inside.context.state is NodeState.LEAVING
        ended: set[tuple[NodeId, str]] = set()
        self._note_statuses(journal, effects)
        for effect in effects:
            match effect:
                case Reply(request, _, error):
                    asked = known.get(request)
                    if asked is not None and error is not None:
                        stream = asked.destination, asked.topic
                        for_others = stream in ended or self._was_put_for_another(journal, asked)
                        told = _Told(asked, event, (0,), is_over, for_others)
                        self._check(journal, error, told)
                        if isinstance(error, NewLifeError) and asked.topic:
                            ended.add(stream)
                    if asked is not None and (error is not None or not asked.is_stream):
                        del known[request]
                case StreamMoved(request) if effect.error and request in known:
                    self._check_rest(journal, effect)
                    if not effect.detail:
                        self.violate(journal, f"tells a {effect.error}, and not why")
                    numbers = (*effect.withdrawn, *effect.doubted)
                    is_refused = effect.error == RequestError.__name__
                    error = RequestError("") if is_refused else _KINDS[effect.error](0, "")
                    self._check(
                        journal,
                        error,
                        _Told(known[request], event, numbers, is_over, is_named=False),
                    )
                case StreamEnded(request, _, _, error):
                    asked = known.pop(request, None)
                    if asked is not None and error is not None:
                        self._check(journal, error, _Told(asked, event, (), is_over))
                case _:
                    pass
        for effect in effects:
            if isinstance(effect, Reply):
                self._multicasts[journal.place].pop(effect.request, None)

    def _note_statuses(self, journal: Journal, effects: Sequence[Effect]) -> None:
        known = self._statuses[journal.place]
        self._passed.clear()
        for effect in effects:
            if isinstance(effect, RecordChanged):
                before = [known[effect.id]] if effect.id in known else []
                self._passed.setdefault(effect.id, before).append(effect.record.status)
        known.update({peer: statuses[-1] for peer, statuses in self._passed.items()})

    def _was_put_for_another(self, journal: Journal, asked: _Asked) -> bool:
        """Whether a multicast to that topic was put for another life of the destination."""
        now = journal.inside.membership.incarnation(asked.destination)
        return any(
            multicast.topic == asked.topic and multicast.lives.get(asked.destination, now) != now
            for multicast in self._multicasts[journal.place].values()
        )

    def _check_rest(self, journal: Journal, moved: StreamMoved) -> None:
        """Nothing that waits goes on with a long message that is lost."""
        stream = journal.inside.outbound.table.owned.get(moved.request)
        lost = {*moved.withdrawn, *moved.doubted}
        for sending in stream.queue if stream is not None else ():
            if sending.size and not sending.first and sending.number - 1 in lost:
                self.violate(journal, f"goes on with a long message that is lost: {sending!r}")

    def _check(self, journal: Journal, error: BmgdError, told: _Told) -> None:
        if isinstance(error, DeliveryError) and told.is_named:
            named = error.destination, bool(error.detail)
            if named != (told.asked.destination, True):
                self.violate(journal, f"tells of {told.asked.destination}: {error!r}")
        if not self._has_reason(journal, error, told):
            kind, peer = type(error).__name__, told.asked.destination
            self.violate(journal, f"tells a {kind} of {peer}, and nothing is the reason: {error}")

    def _has_reason(self, journal: Journal, error: BmgdError, told: _Told) -> bool:
        inside, peer = journal.inside, told.asked.destination
        is_own = peer == journal.host.id
        match error:
            case RequestError():
                return self._may_refuse
            case DeadError():
                statuses = (inside.membership.status_of(peer), *self._passed.get(peer, ()))
                return any(is_told_gone(status, error) for status in statuses)
            case NoQuorumError():
                return inside.context.stands_aside
            case LeavingError():
                is_leaving = inside.context.state is NodeState.LEAVING
                return is_leaving or _was_reset(told.event, peer, ResetReason.LEAVING)
            case NewLifeError():
                is_foreign = _was_reset(told.event, peer, ResetReason.FOREIGN_TAG)
                return (
                    is_own
                    or is_foreign
                    or told.for_others
                    or told.asked.lives != {inside.membership.incarnation(peer)}
                )
            case QueueFullError():
                return is_own or peer in self._full[journal.place]
            case NoReaderError():
                return is_own or _was_reset(told.event, peer, ResetReason.NO_READER)
            case ReaderLostError():
                return is_own or _was_reset(told.event, peer, ResetReason.READER_LOST)
            case UnreachableError():
                is_unknown = _was_reset(told.event, peer, ResetReason.UNKNOWN)
                return told.is_over or is_unknown or _is_over(journal.now_ns, told)
        return False


_KINDS: Final = {
    kind.__name__: kind for kind in (LeavingError, QueueFullError, UnreachableError, NewLifeError)
}


def is_told_gone(status: Status | None, error: DeadError) -> bool:
    """Whether a node is gone, and an error says how: it is dead, has left, or was never there."""
    if status is None:
        return "it is no member" in str(error)
    text = "it has left" if status is Status.LEFT else "it is dead"
    return status >= Status.DEAD and text in str(error)


def _is_over(now_ns: int, told: _Told) -> bool:
    """Whether the time of what is told is over, or its program gave it up."""
    asked = told.asked
    return bool(told.numbers) and all(
        number in asked.withdrawn
        or number in asked.pieces
        or asked.over_ns.get(number, now_ns + 1) <= now_ns
        for number in told.numbers
    )


def _is_miscounted(asked: _Asked, put: PutSegment) -> bool:
    """Whether the pieces of a long message are more or fewer bytes than it says."""
    return put.size > 0 and (asked.left_bytes < 0 or put.last != (asked.left_bytes == 0))


def _was_reset(event: Event, peer: NodeId, reason: ResetReason) -> bool:
    """Whether an event is what a peer says of a stream."""
    message = event.message if isinstance(event, Received) else None
    if not isinstance(message, StreamReset):
        return False
    return message.reason == reason and message.route.source == peer


def _may_refuse(inside: Inside, command: _ASKED) -> bool:
    """Whether a command is one that cannot be carried out, as things are before it."""
    table, membership = inside.outbound.table, inside.membership
    if isinstance(command, FindReaders):
        return inside.searches_for_readers() >= finding.FINDS_MAX
    if membership.status_of(command.destination) is None:
        return True
    if isinstance(command, SendTo):
        if not 0 < len(command.topic.encode()) <= TOPIC_BYTES_MAX:
            return True
        is_busy = len(table.shared) >= outbound.SHARED_MAX and not any(
            stream.is_idle for stream in table.shared.values()
        )
        is_long = len(command.payload) > PAYLOAD_BYTES_MAX
        return is_busy or is_long or table.sent_count >= outbound.SENT_MAX
    if isinstance(command, OpenQuestions):
        is_old = not inside.context.compatibility.common & Feature.REQUESTS
        if is_old or not inside.topics.inboxes.has(command.inbox):
            return True
    if (
        not isinstance(command, OpenAnswers)
        and not 0 < len(command.topic.encode()) <= TOPIC_BYTES_MAX
    ):
        return True
    return len(table.owned) + len(table.abandoned) >= outbound.STREAMS_MAX


def _may_turn_down(inside: Inside, request: int, put: PutSegment) -> bool:
    """Whether a segment is one that is not taken, as things are before it."""
    stream = inside.outbound.table.owned.get(request)
    if stream is None or stream.answers is not None:
        # Whether an answer is owed, `RequestsHaveOneOutcome` knows.
        return True
    if inside.membership.status_of(stream.destination) is None:
        return True
    if not stream.inbox:
        return False
    opened = inside.topics.inboxes
    is_old = not inside.context.compatibility.common & Feature.REQUESTS
    is_full = opened.underway + max(1, put.count) > inboxes.QUESTIONS_MAX
    return is_old or is_full or not opened.has(stream.inbox)
