"""The control protocol: what programs and their daemon say to each other over a Unix socket.

Frames look like those between daemons (a 4-byte length, one msgpack array, the 32-byte header
first); there is no hello, because the socket's mode lets only its owner in. The contract, enough to
write a client in another language, is docs/control-protocol.md.

    program                        daemon
    REQUEST n verb params  ->      <- RESULT n value     or   ERROR n name message fields
                                   <- ITEM n value       a verb that opens a stream: any number
    CONSUMED n count       ->                            gives back credit (subscribe)
    CONSUMED_BROADCASTS n count  ->                      the same, for broadcasts
    SEGMENT n … body       ->                            some messages of a stream out (stream)
    WITHDRAW n number      ->                            one of them is no longer wanted
    CLOSE n                ->                            no further one comes
    CONSUMED_PIECES n …    ->                            pieces of a long message (read)
    SETTLED n …            ->                            answers taken, questions done (inbox)
    CANCEL n               ->      <- END n name message the stream is over; "" is no error

This module is bytes and values only: frames, and how each becomes bytes and is read again. What came in
pieces is put together in `control_reader.py`, errors are in `control_errors.py`; the server is
`bmgd.shell.control`, the client `bmgd.client`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast

import msgpack

from bmgd.dataclass import dataclass
from bmgd.errors import ProtocolError
from bmgd.frameheader import FRAME_BYTES_MAX, HEADER, HEADER_BYTES
from bmgd.wire.segments import bin_prefix
from bmgd.wire.unpacking import unpack_one

VERSIONS: Final = frozenset({1})
"""The versions of this protocol."""

FEATURES: Final = frozenset({"drain", "programs", "requests"})
"""What may be used beyond the verbs of version 1, where `hello` has told that the daemon has it."""

REQUEST_BYTES_MAX: Final = FRAME_BYTES_MAX
"""The longest body that a daemon reads from a program."""

ANSWER_BYTES_MAX: Final = 16 * 2**20
"""The longest body that a program must be ready to read from its daemon."""

SEQUENCE_MAX: Final = 2**64 - 1
CREDIT_MAX: Final = 1024
"""The most messages of a subscription that can be on their way to a program."""

READ_CREDIT_MAX: Final = 2**20
READ_BYTES_MAX: Final = 64 * 2**20
"""The same for `read`: messages, and bytes."""

BROADCASTS_MAX: Final = 64
"""The most broadcasts of a subscription that can be on their way to a program."""

TIMEOUT_S_MAX: Final = 86_400.0

COUNT_MAX: Final = 2**48
"""Numbers of segments, counts and sizes in frames."""

_VERB_BYTES_MAX = 64
_LENGTH = struct.Struct(">I")

SHORT_BODY_BYTES: Final = 4096
"""The body of a segment up to this length is copied into its frame; a longer one stands behind it."""
_VALUE_AT = 1 + 2 + HEADER_BYTES
_ITEM_FIELDS_MAX = 15
_BODY_KEY = msgpack.packb("body")

Parts = tuple[bytes | memoryview, ...]
"""A frame, to be written one behind the other."""


@dataclass(frozen=True, slots=True)
class Request:
    """Asks the daemon for something.

    Args:
        sequence: the program's own number for it, not used by a request that still runs.
        verb: what is asked; docs/control-protocol.md has the list.
        params: the verb's parameters by name.
    """

    sequence: int
    verb: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Answers the request `sequence`; for a stream, says that it is open."""

    sequence: int
    value: Any = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Answers the request `sequence` with an error; sequence 0 speaks of the connection.

    Args:
        name: a class of the error tree.
        message: the error's text.
        fields: what the class has beyond the text.
    """

    sequence: int
    name: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the stream that the request `sequence` opened."""

    sequence: int
    value: Any


@dataclass(frozen=True, slots=True)
class End:
    """The stream is over; `name` is a class of the error tree, or "" where nothing is wrong.

    Args:
        fields: what the class has beyond the text, and what is known of a stream out; left out of the
            frame where there is nothing.
    """

    sequence: int
    name: str = ""
    message: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Consumed:
    """The program has taken `count` more items of a subscription."""

    sequence: int
    count: int


@dataclass(frozen=True, slots=True)
class ConsumedBroadcasts:
    """The program has taken `count` more broadcasts, or tellings of missed ones, of a subscription."""

    sequence: int
    count: int


@dataclass(frozen=True, slots=True)
class ConsumedPieces:
    """The program has taken `count` more pieces of a long message of a subscription."""

    sequence: int
    count: int
    long: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The program has taken `count` more answers of its inbox, and these questions have an outcome."""

    sequence: int
    count: int
    questions: Sequence[int]


@dataclass(frozen=True, slots=True)
class PutSegment:
    """The next segment of a stream out; numbered from 1 by both sides.

    Args:
        count: whole messages in it; 0 of a piece of a long message.
        flags: of a piece, 1 for the first, 2 for the last; else 0.
        size: of a piece, the length of the whole message; else 0.
        timeout: seconds for which it may be sent; 0 for ever.
        body: see `bmgd.wire.segments`.
        more: the rest of a body that is written in two parts, so that this one needs no copy.
    """

    sequence: int
    count: int
    flags: int
    size: int
    timeout: float
    body: bytes = field(repr=False)
    more: bytes | memoryview = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The program waits no longer for a segment of a stream out; 0: for the unfinished long message."""

    sequence: int
    number: int


@dataclass(frozen=True, slots=True)
class Close:
    """No further segment of a stream out comes; END follows when all are confirmed."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """The program does not want the answer or the stream any more."""

    sequence: int


Frame = (
    Request
    | Result
    | Failure
    | Item
    | End
    | Consumed
    | ConsumedBroadcasts
    | ConsumedPieces
    | Settled
    | PutSegment
    | Withdraw
    | Close
    | Cancel
)
FIRST_PIECE: Final = 1
LAST_PIECE: Final = 2

_KINDS: Final[dict[type[Frame], int]] = {
    Request: 0x80,
    Result: 0x81,
    Failure: 0x82,
    Item: 0x83,
    End: 0x84,
    Consumed: 0x85,
    Cancel: 0x86,
    PutSegment: 0x87,
    Withdraw: 0x88,
    Close: 0x89,
    ConsumedPieces: 0x8A,
    Settled: 0x8B,
    ConsumedBroadcasts: 0x8E,
}


# --- writing --------------------------------------------------------------------------------------


def encode(frame: Frame, body_bytes_max: int = ANSWER_BYTES_MAX) -> bytes:
    """A whole frame, length prefix included.

    Args:
        frame: what to say; values are None, bool, int, float, str, bytes, list and dict.
        body_bytes_max: the bound of the direction that it goes in.

    Raises:
        ProtocolError: the frame is longer than that, or holds a value that msgpack has no form for.
    """
    return b"".join(encode_parts(frame, body_bytes_max))


def encode_parts(frame: Frame, body_bytes_max: int = ANSWER_BYTES_MAX) -> Parts:
    """The same in parts, to be written one behind the other: a long body is the last one, uncopied.

    Raises: as `encode`.
    """
    header = HEADER.pack(_KINDS[type(frame)], 0, 0, 0, 0, 0, 0, 0, frame.sequence)
    behind: Parts = ()
    try:
        if type(frame) is PutSegment and len(frame.more) > SHORT_BODY_BYTES:
            fields = (header, frame.count, frame.flags, frame.size, frame.timeout)
            size = len(frame.body) + len(frame.more)
            body = _one_more(msgpack.packb(fields), 0) + bin_prefix(size) + frame.body
            behind = (frame.more,)
        elif type(frame) is Item and (found := _long_body(frame.value)) is not None:
            others = {name: value for name, value in frame.value.items() if name != "body"}
            # Behind the header and what says how many values there are.
            packed = _one_more(msgpack.packb((header, others)), _VALUE_AT)
            body = packed + _BODY_KEY + bin_prefix(len(found))
            behind = (found,)
        else:
            body = msgpack.packb((header, *_fields(frame)))
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"no frame holds it: {error}") from None
    length = len(body) + sum(map(len, behind))
    if length > body_bytes_max:
        raise ProtocolError(f"{length} bytes, at most {body_bytes_max} fit into a frame")
    return (_LENGTH.pack(length) + body, *behind)


def _one_more(packed: bytes, at: int) -> bytes:
    """The packed value with an array or a map of less than 15 items in it that says one item more."""
    return packed[:at] + bytes((packed[at] + 1,)) + packed[at + 1 :]


def _long_body(value: Any) -> bytes | None:
    """The body of a segment that is long, and worth no copy."""
    if type(value) is not dict or len(value) > _ITEM_FIELDS_MAX:
        return None
    body = value.get("body")
    return body if type(body) is bytes and len(body) > SHORT_BODY_BYTES else None


def _fields(frame: Frame) -> tuple[object, ...]:
    match frame:
        case Request():
            return frame.verb, frame.params
        case Result() | Item():
            return (frame.value,)
        case Failure():
            return frame.name, frame.message, frame.fields
        case End():
            if frame.fields:
                return frame.name, frame.message, frame.fields
            return frame.name, frame.message
        case Consumed() | ConsumedBroadcasts():
            return (frame.count,)
        case ConsumedPieces():
            return frame.count, frame.long
        case Settled():
            return frame.count, frame.questions
        case PutSegment():
            body = b"".join((frame.body, frame.more))
            return frame.count, frame.flags, frame.size, frame.timeout, body
        case Withdraw():
            return (frame.number,)
        case Cancel() | Close():
            return ()


# --- reading --------------------------------------------------------------------------------------


def decode(body: bytes | memoryview) -> Frame:
    """Read what follows the length of one frame.

    Raises:
        ProtocolError: the bytes are not a frame of the control protocol.
    """
    try:
        items = unpack_one(body, use_list=True)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a control frame that is not one msgpack value") from error
    if type(items) is not list or not items or type(items[0]) is not bytes:
        raise ProtocolError("a control frame without a header")
    if len(items[0]) != HEADER_BYTES:
        raise ProtocolError("a control frame with a wrong header")
    kind, *_, sequence = HEADER.unpack(items[0])
    return _read(kind, sequence, items[1:])


def _read(kind: int, sequence: int, items: list[Any]) -> Frame:
    match kind, items:
        # First what comes most.
        case 0x83, [value]:
            return Item(sequence, value)
        case 0x87, [count, flags, size, int(timeout) | float(timeout), bytes(body)] if (
            _is_count(count) and _is_count(flags) and _is_count(size) and _is_timeout(timeout)
        ):
            return PutSegment(sequence, count, flags, size, timeout, body)
        case 0x85, [count] if _is_count(count) and count:
            return Consumed(sequence, count)
        case 0x80, [str(verb), dict(params)] if len(verb) <= _VERB_BYTES_MAX and _is_named(params):
            return Request(sequence, verb, params)
        case 0x81, [value]:
            return Result(sequence, value)
        case 0x82, [str(name), str(message), dict(fields)] if _is_named(fields):
            return Failure(sequence, name, message, fields)
        case 0x84, [str(name), str(message)]:
            return End(sequence, name, message)
        case 0x84, [str(name), str(message), dict(fields)] if _is_named(fields):
            return End(sequence, name, message, fields)
        case 0x88, [number] if _is_count(number):
            return Withdraw(sequence, number)
        case 0x89, []:
            return Close(sequence)
        case 0x8A, [count, long] if _is_count(count) and count and _is_count(long) and long:
            return ConsumedPieces(sequence, count, long)
        case 0x8B, [count, list(questions)] if _is_count(count) and _are_numbers(questions):
            return Settled(sequence, count, questions)
        case 0x8E, [int(count)] if type(count) is int and 1 <= count <= CREDIT_MAX:
            return ConsumedBroadcasts(sequence, count)
        case 0x86, []:
            return Cancel(sequence)
    raise ProtocolError(f"a control frame of kind {kind:#x} with wrong fields")


def _is_named(values: dict[Any, Any]) -> bool:
    """Whether all keys of a map are texts: msgpack takes bytes for strict keys, too."""
    return all(type(name) is str for name in values)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= COUNT_MAX


def _are_numbers(values: list[object]) -> bool:
    return all(type(value) is int and value >= 1 for value in values)


def _is_timeout(value: object) -> bool:
    return type(value) in (int, float) and 0 <= cast(float, value) <= TIMEOUT_S_MAX
