"""What one node asks another one across the cluster, and the answers.

How they look on the wire: `ask_formats.py`.
"""

from __future__ import annotations

from dataclasses import field

from bmgd.dataclass import dataclass
from bmgd.types import Incarnation, NodeId
from bmgd.wire.routes import Route


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks for a `ProbeReply`; `passed` are the ids that it went through when recording."""

    route: Route
    passed: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """Answers a `Probe` with the way that it took, both ends included when it was recorded."""

    route: Route
    passed: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks a neighbor of a suspect whether it hears the suspect's life."""

    route: Route
    suspect: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers an `Ask`: `alive` is a veto, else the observer concurs."""

    route: Route
    suspect: NodeId
    incarnation: Incarnation
    alive: bool


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A contact asks the lowest live id to give a joiner an id.

    Args:
        incarnation: the joiner's life; it names the request.
        address: the joiner's.
        floor: the contact's id space: no id below is free.
    """

    route: Route
    incarnation: Incarnation
    address: str
    floor: int


@dataclass(frozen=True, slots=True)
class JoinGrant:
    """Answers a `JoinRequest`: the joiner of that incarnation has this id, and everybody is told."""

    route: Route
    incarnation: Incarnation
    id: NodeId


@dataclass(frozen=True, slots=True)
class ReportAsk:
    """Asks a node for a report about itself; the route's sequence is the answer's too."""

    route: Route


@dataclass(frozen=True, slots=True)
class Report:
    """What a node tells of itself to one that asked.

    Args:
        body: a JSON object, see docs/operations.md; at most `REPORT_BYTES_MAX` bytes.
    """

    route: Route
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProgramAsk:
    """Asks a node for the list of its programs.

    Args:
        after: a page of those that started after this revision; 0 for the first page.
    """

    route: Route
    after: int


@dataclass(frozen=True, slots=True)
class ProgramList:
    """A page of the list of the programs that are registered at a node.

    Args:
        revision: of the list; pages of others do not belong to it.
        after: as it was asked for.
        is_last: whether no page follows.
        starts: packed, see `bmgd.wire.program_news`; at most `PROGRAMS_BYTES_MAX` bytes.
    """

    route: Route
    revision: int
    after: int
    is_last: bool
    starts: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TraceAsk:
    """Asks a node to trace the way from itself to another one.

    Args:
        target: where the way is to lead.
        timeout_ms: how long the probe may take, 1..60,000.
    """

    route: Route
    target: NodeId
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """Answers a `TraceAsk`.

    Args:
        rtt_us: from sending the probe to its return.
        passed: the ids that it went through, both ends included.
        problem: why there is no way to show; "" where there is one.
    """

    route: Route
    rtt_us: int
    passed: tuple[NodeId, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class ReadersAsk:
    """Asks a node whether a program there reads a topic; the route's sequence is the answer's too."""

    route: Route
    topic: str


@dataclass(frozen=True, slots=True)
class ReadersAnswer:
    """Answers a `ReadersAsk`."""

    route: Route
    has_reader: bool


AskMessage = (
    Probe
    | ProbeReply
    | Ask
    | Answer
    | JoinRequest
    | JoinGrant
    | ReportAsk
    | Report
    | TraceAsk
    | TraceAnswer
    | ReadersAsk
    | ReadersAnswer
    | ProgramAsk
    | ProgramList
)
