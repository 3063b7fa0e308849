"""What a program may ask of its daemon's core. Each is answered by one `Reply`, reads by more."""

from __future__ import annotations

from dataclasses import field

from bmgd.dataclass import dataclass
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import Piece


@dataclass(frozen=True, slots=True)
class ShowStatus:
    """Answered by the dict of `bmgd status --json`."""


@dataclass(frozen=True, slots=True)
class ShowMembers:
    """Answered by a list of dicts, one for every id in the id space, sorted by id."""


@dataclass(frozen=True, slots=True)
class ShowLinks:
    """Answered by a list of dicts, one for every link that is up, sorted by peer."""


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a payload; answered when the destination's daemon took it, or by an error.

    Those of one daemon to one topic of one node share a stream, in order.
    """

    destination: NodeId
    topic: str
    payload: bytes = field(repr=False)
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class BroadcastTo:
    """Send a payload to every reader of a topic, at every node.

    Answered by ``{"confirmed": [id…], "failed": [{"id", "error", "detail", "sent"}…]}``: at best
    effort at once and empty, else when every node has it, is held dead, or the time is over.

    Args:
        piece: of a longer message, which place this piece has in it; reliable only.
    """

    topic: str
    payload: bytes = field(repr=False)
    reliable: bool
    timeout_ns: int
    piece: Piece | None = None


@dataclass(frozen=True, slots=True)
class MulticastTo:
    """Send a payload to one reader of a topic at each of these nodes; answered as `BroadcastTo`.

    Args:
        destinations: a set of ids (`bmgd.routing.id_sets`).
    """

    destinations: int
    topic: str
    payload: bytes = field(repr=False)
    reliable: bool
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class ConsumedAnnouncements:
    """The program has taken `count` more broadcasts of the subscription `request`; not answered."""

    count: int


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream; answered at once, then `StreamMoved` effects until `StreamEnded`.

    Args:
        priority: 1 high, 2 normal, 3 bulk.
        best_effort: segments are sent at most once, and count as done when they are.
    """

    destination: NodeId
    topic: str
    priority: int = 2
    best_effort: bool = False


@dataclass(frozen=True, slots=True)
class PutSegment:
    """The next segment of the stream `request`; numbered from 1 by both sides, not answered.

    Args:
        count: whole messages in it; 0 of a piece.
        size: of a piece, the length of the whole message; else 0.
        first, last: of a piece, whether it is the first and the last.
        timeout_ns: for how long it may be sent; 0 for ever.
        answers: of a stream of answers, the numbers of the questions that begin to be answered in it.
    """

    count: int
    body: bytes = field(repr=False)
    size: int = 0
    first: bool = False
    last: bool = False
    timeout_ns: int = 0
    answers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenInbox:
    """Take answers: after the `Reply` ``{"inbox": …}``, `Deliver` effects as of `Subscribe`.

    Args:
        credit_bytes: see `Subscribe`.
    """

    credit_bytes: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The program has taken answers, and some of its questions have their outcome; not answered.

    Args:
        count: messages of the inbox `request` that it has taken.
        questions: the numbers of those whose reserved room is given back.
    """

    count: int
    questions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenQuestions:
    """Open a stream whose messages are questions; answered as `OpenStream`, with ``"first"`` too.

    The questions are numbered from that on, as they are put. The stream ends when its destination
    dies or begins a new life, whatever is underway.

    Args:
        priority: see `OpenStream`.
        inbox: where the answers go.
    """

    destination: NodeId
    topic: str
    priority: int
    inbox: int


@dataclass(frozen=True, slots=True)
class OpenAnswers:
    """Open a stream of answers to one inbox; answered as `OpenStream`.

    Args:
        destination, incarnation: the life that asked.
        inbox: where its answers go.
        reader: the subscription that was handed the questions.
    """

    destination: NodeId
    incarnation: Incarnation
    inbox: int
    reader: int


@dataclass(frozen=True, slots=True)
class FindReaders:
    """Ask who has a reader of a topic; answered by ``{"readers": [id…], "silent": [id…]}``.

    Args:
        timeout_ns: after so long those that have not answered are silent.
    """

    topic: str
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """As if the time of this segment of the stream `request` were over; told by `StreamMoved`.

    Args:
        number: of the segment; of a long message its last piece stands for all.
    """

    number: int


@dataclass(frozen=True, slots=True)
class CloseStream:
    """No further segment; what was put is still sent, and `StreamEnded` follows when it is confirmed.

    Args:
        abandon: nobody waits for that any more, and a long message that is not whole is aborted.
    """

    abandon: bool = False


@dataclass(frozen=True, slots=True)
class ProbeTo:
    """Measure the way to a node; answered by ``{"rtt_ns":…, "path":[…]}`` (path when `record`)."""

    destination: NodeId
    record: bool
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Read a topic: after the `Reply`, `Deliver` effects with what its credit allows unconsumed.

    Args:
        credit: messages.
        credit_bytes: costs of segments; one message or piece is handed out whatever it costs.
        takes_long: whether long messages may be handed out, in pieces, and questions.
    """

    topic: str
    credit: int
    credit_bytes: int = 1 << 20
    takes_long: bool = False


@dataclass(frozen=True, slots=True)
class Consumed:
    """The program has taken `count` more messages of the subscription `request`; not answered.

    Args:
        long: for 0 whole messages, oldest first; else pieces of that long message.
    """

    count: int
    long: int = 0


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End the subscription `request`; what was delivered and not consumed waits again."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Take an id out of the cluster; answered by ``{"id":…, "was":…, "ended":…}``.

    Args:
        timeout_ns: for how long the target's end is waited for.
    """

    id: NodeId
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the cluster gracefully: drain, tell everybody, end. Answered once everybody was told.

    The answer is what is left over, see `bmgd.core.draining`.

    Args:
        timeout_ns: for how long to drain at most; None for the node's own `leave_ns`.
    """

    timeout_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Register:
    """The program of this request starts under a name; answered at once, over by `Unregister`.

    Args:
        name: 1 to 255 bytes, not that of another registered program of this node.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Unregister:
    """The program that the request has registered ended; not answered.

    Args:
        exit: its exit code; None where it is not known.
    """

    exit: int | None = None


@dataclass(frozen=True, slots=True)
class ShowPrograms:
    """Answered by the registered programs of all nodes that are held alive, see `core.programs`."""


@dataclass(frozen=True, slots=True)
class ShowReport:
    """Answered by the core's part of a report about this node, see `survey.py`."""


@dataclass(frozen=True, slots=True)
class AskReports:
    """Ask these nodes for a report each; not answered, but each report is a `Reported`."""

    ids: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class SendReport:
    """What a `ReportWanted` has ordered; not answered.

    Args:
        body: at most `REPORT_BYTES_MAX` bytes.
    """

    asker: NodeId
    tag: int
    number: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TraceFrom:
    """The way from one node to another, measured there; answered as `ProbeTo` with a path is.

    Args:
        timeout_ns: at least 1 ms, at most `TRACE_MS_MAX`.
    """

    source: NodeId
    destination: NodeId
    timeout_ns: int


Command = (
    ShowStatus
    | ShowMembers
    | ShowLinks
    | SendTo
    | BroadcastTo
    | MulticastTo
    | ConsumedAnnouncements
    | OpenStream
    | OpenInbox
    | Settled
    | OpenQuestions
    | OpenAnswers
    | FindReaders
    | PutSegment
    | Withdraw
    | CloseStream
    | ProbeTo
    | Subscribe
    | Consumed
    | Unsubscribe
    | Evict
    | Leave
    | Register
    | Unregister
    | ShowPrograms
    | ShowReport
    | AskReports
    | SendReport
    | TraceFrom
)
