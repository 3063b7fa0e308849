"""The verbs of the control protocol: from a request's parameters to a command of the core.

docs/control-protocol.md describes each verb for those who write a client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from bmgd.core.commands import (
    BroadcastTo,
    Command,
    Evict,
    FindReaders,
    Leave,
    MulticastTo,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    OpenStream,
    ProbeTo,
    Register,
    SendTo,
    ShowLinks,
    ShowMembers,
    ShowPrograms,
    ShowStatus,
    Subscribe,
    Unregister,
)
from bmgd.core.effects import (
    Announce,
    Deliver,
    Observed,
    ProgramsChanged,
    RecordChanged,
    StreamMoved,
    TellMissed,
)
from bmgd.core.topics.inboxes import TOPIC_PREFIX, is_inbox
from bmgd.errors import ProtocolError, RequestError
from bmgd.routing.id_sets import ID_SET_SPACE, set_of_runs
from bmgd.types import NODE_ID_MAX, Incarnation, NodeId
from bmgd.wire.answers import ANSWER, FAILED, read_head
from bmgd.wire.batch import unpack_messages
from bmgd.wire.bounds import INBOX_MAX, LONG_BYTES_MAX, PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX
from bmgd.wire.broadcast_messages import Piece
from bmgd.wire.control import (
    CREDIT_MAX,
    READ_BYTES_MAX,
    READ_CREDIT_MAX,
    SEQUENCE_MAX,
    TIMEOUT_S_MAX,
)
from bmgd.wire.program_news import EXIT_MAX, NAME_BYTES_MAX
from bmgd.wire.routes import BULK_PRIORITY, HIGH_PRIORITY, NORMAL_PRIORITY

RANGES_MAX: Final = 4096
"""Ranges of ids in the destinations of a multicast."""

PRIORITIES: Final[Mapping[str, int]] = {
    "high": HIGH_PRIORITY,
    "normal": NORMAL_PRIORITY,
    "bulk": BULK_PRIORITY,
}

Params = Mapping[str, Any]


def _only(params: Params, *names: str) -> None:
    if params.keys() != set(names):
        raise RequestError(f"wrong parameters: needed are {', '.join(names) or 'none'}")


def _destination(params: Params) -> NodeId:
    value = params["destination"]
    if type(value) is not int or not 0 <= value <= NODE_ID_MAX:
        raise RequestError(f"a destination is a node id in 0..{NODE_ID_MAX}")
    return NodeId(value)


def _timeout_ns(params: Params) -> int:
    value = params["timeout"]
    if type(value) not in (int, float) or not 0 < value <= TIMEOUT_S_MAX:
        raise RequestError(f"a timeout is a number of seconds above 0, at most {TIMEOUT_S_MAX:.0f}")
    return int(value * 1e9)


def _topic(params: Params) -> str:
    value = params["topic"]
    if type(value) is not str or not 0 < len(value.encode()) <= TOPIC_BYTES_MAX:
        raise RequestError(f"a topic is a text of 1 to {TOPIC_BYTES_MAX} bytes")
    if is_inbox(value):
        raise RequestError(f"topics that begin with {TOPIC_PREFIX!r} are for answers")
    return value


def _send(params: Params) -> SendTo:
    _only(params, "destination", "topic", "payload", "timeout")
    payload = params["payload"]
    if type(payload) is not bytes or len(payload) > PAYLOAD_BYTES_MAX:
        raise RequestError(f"a payload is binary, at most {PAYLOAD_BYTES_MAX} bytes")
    return SendTo(_destination(params), _topic(params), payload, _timeout_ns(params))


def _payload(params: Params) -> bytes:
    payload = params["payload"]
    if type(payload) is not bytes or len(payload) > PAYLOAD_BYTES_MAX:
        raise RequestError(f"a payload is binary, at most {PAYLOAD_BYTES_MAX} bytes")
    return payload


def _is_reliable(params: Params) -> bool:
    if params["quality"] not in ("reliable", "best-effort"):
        raise RequestError("a quality is reliable or best-effort")
    return bool(params["quality"] == "reliable")


def _broadcast(params: Params) -> BroadcastTo:
    _only(params, "topic", "payload", "quality", "timeout")
    return BroadcastTo(_topic(params), _payload(params), _is_reliable(params), _timeout_ns(params))


def _broadcast_piece(params: Params) -> BroadcastTo:
    _only(params, "topic", "payload", "number", "at", "size", "timeout")
    payload, at, size = _payload(params), params["at"], params["size"]
    number = params["number"]
    if type(number) is not int or not 1 <= number < 2**64:
        raise RequestError("a long broadcast is named by a number of 64 bits above 0")
    if type(at) is not int or type(size) is not int or not payload:
        raise RequestError("a piece has bytes, a place and the size of the whole")
    if not 0 <= at <= at + len(payload) <= size <= LONG_BYTES_MAX:
        raise RequestError(f"a piece that is not within a message of {size} bytes")
    piece = Piece(number, at, size)
    return BroadcastTo(_topic(params), payload, True, _timeout_ns(params), piece)


def _multicast(params: Params) -> MulticastTo:
    _only(params, "destinations", "topic", "payload", "quality", "timeout")
    return MulticastTo(
        _destinations(params),
        _topic(params),
        _payload(params),
        _is_reliable(params),
        _timeout_ns(params),
    )


def _destinations(params: Params) -> int:
    value = params["destinations"]
    if type(value) is not list or not 0 < len(value) <= RANGES_MAX:
        raise RequestError(f"destinations are a list of 1 to {RANGES_MAX} ranges")
    runs: list[tuple[int, int]] = []
    for item in value:
        match item:
            case [int(first), int(last)] if 0 <= first <= last < ID_SET_SPACE:
                runs.append((first, last))
            case _:
                raise RequestError(f"a range is [first, last], ids below {ID_SET_SPACE}")
    return set_of_runs(runs)


def _drain(params: Params) -> Leave:
    _only(params, "timeout")
    return Leave(_timeout_ns(params))


def _register(params: Params) -> Register:
    _only(params, "name")
    name = params["name"]
    if type(name) is not str or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise RequestError(f"a program's name is a text of 1 to {NAME_BYTES_MAX} bytes")
    return Register(name)


def parse_unregister(params: Params) -> tuple[int, Unregister]:
    """Which registration is to end, by the number of its request, and how its program did."""
    _only(params, "registration", "exit")
    number, exit_code = params["registration"], params["exit"]
    if type(number) is not int:
        raise RequestError("a registration is the number of its request")
    if exit_code is not None and (
        type(exit_code) is not int or not -EXIT_MAX <= exit_code <= EXIT_MAX
    ):
        raise RequestError("an exit code is an integer of 64 bits, not the least one, or nil")
    return number, Unregister(exit_code)


def _evict(params: Params) -> Evict:
    _only(params, "destination", "timeout")
    return Evict(_destination(params), _timeout_ns(params))


def _probe(record: bool) -> Callable[[Params], ProbeTo]:
    def parse(params: Params) -> ProbeTo:
        _only(params, "destination", "timeout")
        return ProbeTo(_destination(params), record, _timeout_ns(params))

    return parse


def _subscribe(params: Params) -> Subscribe:
    _only(params, "topic", "credit")
    credit = params["credit"]
    if type(credit) is not int or not 1 <= credit <= CREDIT_MAX:
        raise RequestError(f"a credit is a number of messages in 1..{CREDIT_MAX}")
    return Subscribe(_topic(params), credit)


def _stream(params: Params) -> OpenStream:
    _only(params, "destination", "topic", "priority", "quality")
    best_effort = not _is_reliable(params)
    return OpenStream(_destination(params), _topic(params), _priority(params), best_effort)


def _priority(params: Params) -> int:
    priority = PRIORITIES.get(params["priority"]) if type(params["priority"]) is str else None
    if priority is None:
        raise RequestError(f"a priority is one of {', '.join(PRIORITIES)}")
    return priority


def _number(params: Params, name: str, most: int) -> int:
    value = params[name]
    if type(value) is not int or not 1 <= value <= most:
        raise RequestError(f"{name} is a number in 1..{most}")
    return value


def _inbox(params: Params) -> OpenInbox:
    _only(params, "credit_bytes")
    return OpenInbox(_number(params, "credit_bytes", READ_BYTES_MAX))


def _questions(params: Params) -> OpenQuestions:
    _only(params, "destination", "topic", "priority", "inbox")
    inbox = _number(params, "inbox", INBOX_MAX)
    return OpenQuestions(_destination(params), _topic(params), _priority(params), inbox)


def _answers(params: Params) -> OpenAnswers:
    _only(params, "destination", "incarnation", "inbox", "reader")
    life = Incarnation(_number(params, "incarnation", 2**64 - 1))
    inbox, reader = _number(params, "inbox", INBOX_MAX), _number(params, "reader", SEQUENCE_MAX)
    return OpenAnswers(_destination(params), life, inbox, reader)


def _readers(params: Params) -> FindReaders:
    _only(params, "topic", "timeout")
    return FindReaders(_topic(params), _timeout_ns(params))


def _read(params: Params) -> Subscribe:
    _only(params, "topic", "credit", "credit_bytes")
    credit, credit_bytes = params["credit"], params["credit_bytes"]
    if type(credit) is not int or not 1 <= credit <= READ_CREDIT_MAX:
        raise RequestError(f"a credit is a number of messages in 1..{READ_CREDIT_MAX}")
    if type(credit_bytes) is not int or not 1 <= credit_bytes <= READ_BYTES_MAX:
        raise RequestError(f"a credit in bytes is in 1..{READ_BYTES_MAX}")
    return Subscribe(_topic(params), credit, credit_bytes, takes_long=True)


def describe_delivered(deliver: Deliver) -> dict[str, Any]:
    """A segment, or a piece of a long message, as an item of the stream `read`."""
    item: dict[str, Any] = {
        "source": deliver.source,
        "incarnation": deliver.incarnation,
        "topic": deliver.topic,
        "count": deliver.count,
        "redelivered": deliver.redelivered,
        "body": deliver.body,
    }
    if deliver.inbox:
        item |= {"inbox": deliver.inbox, "question": deliver.question}
    if deliver.long:
        item |= {"long": deliver.long, "size": deliver.size, "last": deliver.last}
    if deliver.aborted:
        item["aborted"] = deliver.aborted
    return item


def answered_in(body: bytes, count: int) -> tuple[int, ...]:
    """The numbers of the questions that a program answers in a segment.

    Args:
        body: so many answers, or the first piece of a long one, where `count` is 0.

    Raises:
        RequestError: they are no answers.
    """
    messages = _unpacked(body, count, "answers") if count else [body]
    heads = [read_head(message) for message in messages]
    if any(kind not in (ANSWER, FAILED) for kind, _ in heads):
        raise RequestError("an answer begins with its kind, 0 or 1, and the number of its question")
    return tuple(question for _, question in heads)


def check_questions(body: bytes, count: int) -> None:
    """Refuse a segment of questions that holds another number of them: each is owed an answer.

    Raises:
        RequestError: it does.
    """
    _unpacked(body, count, "questions")


def _unpacked(body: bytes, count: int, what: str) -> list[bytes]:
    try:
        return unpack_messages(body, count)
    except ProtocolError as error:
        raise RequestError(f"no {what}: {error}") from None


def describe_moved(moved: StreamMoved) -> dict[str, Any]:
    """How far a stream out is, as an item of it."""
    item: dict[str, Any] = {"next": moved.next, "credit": moved.credit}
    if moved.withdrawn or moved.doubted:
        item |= {
            "withdrawn": list(moved.withdrawn),
            "doubted": list(moved.doubted),
            "error": moved.error,
            "detail": moved.detail,
        }
    return item


def _plain(command: Command | None) -> Callable[[Params], Command | None]:
    def parse(params: Params) -> Command | None:
        _only(params)
        return command

    return parse


VERBS: Final[Mapping[str, Callable[[Params], Command | None]]] = {
    "status": _plain(ShowStatus()),
    "members": _plain(ShowMembers()),
    "links": _plain(ShowLinks()),
    "send": _send,
    "broadcast": _broadcast,
    "broadcast_piece": _broadcast_piece,
    "multicast": _multicast,
    "ping": _probe(record=False),
    "trace": _probe(record=True),
    "stream": _stream,
    "questions": _questions,
    "inbox": _inbox,
    "answers": _answers,
    "readers": _readers,
    "subscribe": _subscribe,
    "read": _read,
    "membership": _plain(ShowMembers()),
    "monitor": _plain(None),
    "evict": _evict,
    "register": _register,
    "programs": _plain(ShowPrograms()),
    "drain": _drain,
    "leave": _plain(Leave()),
}
"""How each verb's parameters become a command; None where the core need not be asked."""


def describe_change(change: RecordChanged) -> dict[str, Any]:
    """A changed record as an item of the stream `membership`."""
    record = change.record
    return {
        "id": change.id,
        "status": record.status.name.lower(),
        "incarnation": record.incarnation,
        "version": record.version,
        "address": record.address,
        "revision": change.revision,
    }


def describe_programs(effect: ProgramsChanged) -> dict[str, Any]:
    """Starts and ends as an item of the stream `programs`."""
    changes = []
    for change in effect.changes:
        item = {"id": change.id, "incarnation": change.incarnation, "name": change.name}
        changes.append(item if change.started else item | {"exit": change.exit})
    return {"revision": effect.revision, "changes": changes}


def describe_observed(observed: Observed, at_ns: int) -> dict[str, Any]:
    """An event as an item of the stream `monitor`; `at_ns` is on the monotonic clock."""
    return {
        "event": observed.event,
        "peer": observed.peer,
        "incarnation": observed.incarnation,
        "detail": observed.detail,
        "time": time.time(),
        "at_ns": at_ns,
    }


def describe_change_observed(change: RecordChanged, at_ns: int) -> dict[str, Any]:
    """A changed record as an item of the stream `monitor`; `at_ns` is on the monotonic clock."""
    return {
        "event": "record",
        "peer": change.id,
        "time": time.time(),
        "at_ns": at_ns,
        **describe_change(change),
    }


def describe_announced(effect: Announce | TellMissed) -> dict[str, Any]:
    """A broadcast, or what was missed, as an item of the stream `subscribe`."""
    if isinstance(effect, TellMissed):
        return {
            "missed": {
                "source": effect.source,
                "incarnation": effect.incarnation,
                "first": effect.first,
                "last": effect.last,
            }
        }
    item = {
        "source": effect.source,
        "incarnation": effect.incarnation,
        "topic": effect.topic,
    }
    if effect.piece is not None:
        return item | {
            "sequence": effect.sequence,
            "piece": list(effect.piece),
            "body": effect.payload,
        }
    return item | {"payload": effect.payload, "broadcast": True}
