"""Orders that the core gives to the shell (or the simulator), carried out in order."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from bmgd.core.settings import Settings
from bmgd.dataclass import dataclass
from bmgd.errors import BmgdError
from bmgd.routing import Snapshot
from bmgd.types import Incarnation, LinkId, NodeId, Record
from bmgd.wire.broadcast_messages import Piece
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Notice
from bmgd.wire.messages import Message


@dataclass(frozen=True, slots=True)
class Send:
    """Put a message into a link's outbox."""

    link: LinkId
    message: Message


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a peer; answered by `LinkUp` or `DialFailed`, once.

    Args:
        known: the highest incarnation of the peer that is known; 0 for none.
        dial_number: counts this node's dials, for the choice between two links of one pair.
        timeout_ns: how long the dial may take until the hello is answered.
        renews: whether the link is to take the place of those that there are.
    """

    peer: NodeId
    address: str
    known: Incarnation
    dial_number: int
    timeout_ns: int
    renews: bool = False


@dataclass(frozen=True, slots=True)
class Welcome:
    """Accept the hello that waits on this link; the link is up. `known` is told to the peer."""

    link: LinkId
    known: Incarnation


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the hello that waits on this link, and close."""

    link: LinkId
    refusal: Refusal
    known: Incarnation


@dataclass(frozen=True, slots=True)
class Grant:
    """Tell the joiner that waits on this link its id and the founders.

    Its frames are for the core from now on: it asks for the records, page by page (`PageAsk`), and says
    goodbye when it has all.
    """

    link: LinkId
    id: NodeId


@dataclass(frozen=True, slots=True)
class Close:
    """Say goodbye and close once what was sent has gone out; no `LinkDown` follows."""

    link: LinkId
    reason: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand some messages, or a piece of a long one, to the program that holds the subscription `request`.

    Args:
        incarnation: the source's life.
        count: whole messages in the body; 0 of a piece.
        body: see `bmgd.wire.segments`.
        redelivered: another reader had them before, and went away without having consumed them.
        long: numbers a long message in this daemon's life; 0 for whole messages.
        size: of the whole long message.
        last: whether it is its last piece.
        aborted: no further piece comes, for this reason; "" for none.
        inbox: of questions, where at the source the answers go; 0 of other messages.
        question: the number of the first question in it, or of the long one that it is a piece of.
    """

    request: int
    source: NodeId
    incarnation: Incarnation
    topic: str
    count: int
    body: bytes = field(repr=False)
    redelivered: bool = False
    long: int = 0
    size: int = 0
    last: bool = False
    aborted: str = ""
    inbox: int = 0
    question: int = 0


@dataclass(frozen=True, slots=True)
class StreamMoved:
    """What became of segments of the stream `request`.

    Args:
        next: all segments below are done: confirmed, unless told here or before.
        credit: up to which cost, counted from the stream's beginning, the program may put segments.
        withdrawn: numbers of segments that are not sent, and were not taken.
        doubted: numbers of segments whose time is over, and that may have been taken or may yet be.
        error, detail: why they were withdrawn or are doubted: a class of errors, and its text.
    """

    request: int
    next: int
    credit: int
    withdrawn: tuple[int, ...] = ()
    doubted: tuple[int, ...] = ()
    error: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream `request` is over; with an error unless everything is confirmed.

    Args:
        next: all segments below are done.
        unsent: those from here on were not taken, and never will be.
    """

    request: int
    next: int
    unsent: int
    error: BmgdError | None = None


@dataclass(frozen=True, slots=True)
class Announce:
    """Hand a broadcast to the program that holds the subscription `request`.

    Args:
        sequence: the source's count of its reliable broadcasts; 0 at best effort.
        piece: which place it has in a longer message, or None.
    """

    request: int
    source: NodeId
    incarnation: Incarnation
    sequence: int
    topic: str
    payload: bytes = field(repr=False)
    piece: Piece | None = None


@dataclass(frozen=True, slots=True)
class TellMissed:
    """Tell the subscription `request` that it gets nothing of a source's reliable broadcasts first..last.

    They are counted over all topics, from 1 in each life of the source.
    """

    request: int
    source: NodeId
    incarnation: Incarnation
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a program's request with a value or an error of the tree."""

    request: int
    result: Any = None
    error: BmgdError | None = None


@dataclass(frozen=True, slots=True)
class RecordChanged:
    """A record changed; `revision` counts the changes seen by this node, without a gap."""

    id: NodeId
    record: Record
    revision: int


@dataclass(frozen=True, slots=True)
class ForwardingChanged:
    """Use this snapshot for relayed messages from now on."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class AbsorbHeartbeats:
    """Heartbeats with this digest on these links, and no others, are absorbed below the core from now on;
    `HeartbeatsAbsorbed` tells of them, before the next event of another kind."""

    digest: int
    links: tuple[LinkId, ...]


@dataclass(frozen=True, slots=True)
class Overlooked:
    """The core has not looked at this notice, since its bringer sends too much: what others bring of the
    same bytes is not to be absorbed as known."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Observed:
    """Something that an operator may want to see: a line of log and an event of `monitor`."""

    event: str
    peer: NodeId | None = None
    incarnation: Incarnation | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Renewed:
    """This node began a new life with this incarnation; keep its counter, use it in hellos."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class AskContact:
    """Of a joiner: ask the member at this address for an id; `Granted` or `AskFailed` follows, once.

    Args:
        address: of the contact.
        claimed: the id that the joiner had in a former life, or None.
        timeout_ns: how long it may take, connecting included.
    """

    address: str
    claimed: NodeId | None
    incarnation: Incarnation
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Of a joiner: make a `Node` with these; its work is done."""

    settings: Settings
    incarnation: Incarnation
    records: tuple[tuple[NodeId, Record], ...] = field(repr=False)
    retired: tuple[tuple[NodeId, NodeId], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Displaced:
    """Another life has this joiner's id: ask one of these addresses for a new one, as a new life."""

    contacts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportWanted:
    """Another node asks for a report: add what the process knows, and issue `SendReport`.

    Args:
        asker: the node that gets it.
        tag: of the asker's life.
        number: names the ask to the asker.
        facts: what the core tells of itself, see `survey.py`.
    """

    asker: NodeId
    tag: int
    number: int
    facts: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reported:
    """A report came that this node asked for; `body` is as the other node wrote it."""

    source: NodeId
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProgramChange:
    """A registered program of some node started or ended, as far as this node knows.

    Args:
        incarnation: the life of its node.
        exit: how it ended; None where that is not known.
    """

    id: NodeId
    incarnation: Incarnation
    name: str
    started: bool
    exit: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramsChanged:
    """Programs started and ended.

    Args:
        revision: counts these effects, without a gap.
    """

    changes: tuple[ProgramChange, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process with this exit code; the reason is for the log."""

    code: int
    reason: str


Effect = (
    Send
    | Dial
    | Welcome
    | Refuse
    | Grant
    | Close
    | Deliver
    | Announce
    | TellMissed
    | StreamMoved
    | StreamEnded
    | Reply
    | RecordChanged
    | ForwardingChanged
    | AbsorbHeartbeats
    | Overlooked
    | Observed
    | Renewed
    | AskContact
    | Joined
    | Displaced
    | ReportWanted
    | Reported
    | ProgramsChanged
    | Exit
)
