"""Messages to bytes and back: a 4-byte length, then one msgpack array that begins with the header.

The bytes are a contract, written down in docs/wire-protocol.md and pinned by tests/golden/. Which fields
follow the header, the tables of `link_formats.py`, `stream_formats.py`, `ask_formats.py` and
`broadcast_formats.py` say for every kind; reading checks each of them, because what comes from a peer is
data, not trust.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack

from bmgd.errors import ProtocolError
from bmgd.frameheader import (
    BODY_BYTES_MIN,
    FLAG_CAREFUL,
    FLAG_RECORD,
    FRAME_BYTES_MAX,
    HEADER,
    HEADER_BYTES,
)
from bmgd.types import Incarnation
from bmgd.wire import ask_formats, broadcast_formats, link_formats, stream_formats
from bmgd.wire.bounds import SEARCH_BYTES_MAX, SEGMENT_BYTES_MAX
from bmgd.wire.fields import Format, read_array, read_bytes, read_id, read_int, read_runs
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.messages import Message
from bmgd.wire.routes import VISITED_RUN_BYTES, Route, Search, Visited
from bmgd.wire.segments import bin_prefix
from bmgd.wire.stream_formats import SHARED_SEGMENT
from bmgd.wire.unpacking import unpack_one

LENGTH = struct.Struct(">I")
LENGTH_BYTES = LENGTH.size

_HEARTBEAT = 0x01
_HEARTBEAT_ITEMS = 5
_SHORT_BYTES = 4096
_SHORT_ARRAY_MAX = 15
"""Values in an array whose length stands in its first byte."""
_RESTARTS_MAX = 255

_FORMATS: dict[int, Format] = {
    **link_formats.FORMATS,
    **stream_formats.FORMATS,
    **ask_formats.FORMATS,
    **broadcast_formats.FORMATS,
}
_KIND_OF: dict[type[Message], int] = {form.message: kind for kind, form in _FORMATS.items()}
_ROUTED_KIND_MIN = 0x40


def encode(message: Message) -> bytes:
    """A whole frame, length prefix included.

    Complexity: O(size of the message).
    """
    kind = _KIND_OF[type(message)]
    fields = _FORMATS[kind].write(message)
    if kind < _ROUTED_KIND_MIN:
        return _frame((_LINK_HEADERS[kind], *fields))
    return _frame(_routed_values(kind, message.route, fields))  # type: ignore[union-attr]


def _frame(values: tuple[object, ...]) -> bytes:
    """A frame with these values, the header first."""
    last = values[-1]
    if (
        type(last) is bytes
        and _SHORT_BYTES < len(last) <= SEGMENT_BYTES_MAX
        and len(values) <= _SHORT_ARRAY_MAX
    ):
        # The same bytes by one copy of what is long in place of three.
        packed = msgpack.packb(values[:-1])
        prefix = bin_prefix(len(last))
        length = len(packed) + len(prefix) + len(last)
        head = LENGTH.pack(length) + bytes((packed[0] + 1,))
        return b"".join((head, packed[1:], prefix, last))
    body: bytes = msgpack.packb(values)
    return b"".join((LENGTH.pack(len(body)), body))


def decode(body: bytes) -> Message:
    """Read the body of one frame.

    Args:
        body: what follows the length prefix.

    Raises:
        ProtocolError: the bytes are not a message of this protocol.
    """
    if not BODY_BYTES_MIN <= len(body) <= FRAME_BYTES_MAX:
        raise ProtocolError("frame of a wrong length")
    try:
        items = unpack_one(body, use_list=False)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not one msgpack array") from error
    if type(items) is not tuple or type(items[0]) is not bytes or len(items[0]) != HEADER_BYTES:
        raise ProtocolError("frame without a routing header")
    header = items[0]
    if header[0] == _HEARTBEAT and len(items) == _HEARTBEAT_ITEMS:
        heartbeat = _read_heartbeat(items)
        if heartbeat is not None:
            return heartbeat
    form = _FORMATS.get(header[0])
    if form is None:
        raise ProtocolError(f"unknown kind {header[0]:#x}")
    careful = bool(header[1] & FLAG_CAREFUL) and header[0] >= _ROUTED_KIND_MIN
    if careful and header[0] == SHARED_SEGMENT:
        raise ProtocolError("a shared segment in careful mode")
    if len(items) != 1 + form.fields + careful:
        raise ProtocolError(f"a {form.message.__name__} of a wrong number of fields")
    fields = form.read(items[1:])
    if header[0] < _ROUTED_KIND_MIN:
        return _message(form, *fields)
    route = _read_route(header, items[-1] if careful else None)
    return _message(form, route, *fields)


def _read_heartbeat(items: tuple[Any, ...]) -> Heartbeat | None:
    """A heartbeat, as most frames of an idle link are, without a call for each field; None if bad."""
    _, sequence, echo, digest, answer = items
    are_numbers = type(sequence) is int and sequence >= 1 and type(echo) is int and echo >= 0
    if are_numbers and type(digest) is bytes and len(digest) == 16 and type(answer) is bool:
        return Heartbeat(sequence, echo, int.from_bytes(digest, "big"), answer)
    return None


def kinds() -> dict[int, tuple[type[Message], int]]:
    """Every kind: its class, and how many fields it has behind the header."""
    return {kind: (form.message, form.fields) for kind, form in _FORMATS.items()}


def kind_of_message(message_class: type[Message]) -> int:
    """The number of a class of messages in the header."""
    return _KIND_OF[message_class]


def _message(form: Format, *fields: object) -> Message:
    message: Message = form.message(*fields)
    return message


def encode_header(
    kind: int,
    *,
    flags: int = 0,
    priority: int = 0,
    hop_budget: int = 0,
    destination: int = 0,
    source: int = 0,
    source_incarnation: int = 0,
    destination_tag: int = 0,
    sequence: int = 0,
) -> bytes:
    """The 32 bytes of a routing header; see docs/wire-protocol.md for each field."""
    header: bytes = HEADER.pack(
        kind,
        flags,
        priority,
        hop_budget,
        destination,
        source,
        source_incarnation,
        destination_tag,
        sequence,
    )
    return header


_LINK_HEADERS = {kind: encode_header(kind) for kind in _FORMATS if kind < _ROUTED_KIND_MIN}


def _routed_values(kind: int, route: Route, fields: tuple[object, ...]) -> tuple[object, ...]:
    search = route.search
    flags = (FLAG_RECORD if route.record else 0) | (FLAG_CAREFUL if search is not None else 0)
    header = encode_header(
        kind,
        flags=flags,
        priority=route.priority,
        hop_budget=route.hop_budget,
        destination=route.destination,
        source=route.source,
        source_incarnation=route.source_incarnation,
        destination_tag=route.destination_tag,
        sequence=route.sequence,
    )
    if search is None:
        return (header, *fields)
    stack = b"".join(LENGTH.pack(node_id) for node_id in search.stack)
    return (header, *fields, (search.visited, stack, search.restarts))


def _read_route(header: bytes, search: object) -> Route:
    _, flags, priority, budget, destination, source, incarnation, tag, sequence = HEADER.unpack(
        header
    )
    return Route(
        destination=read_id(destination),
        source=read_id(source),
        source_incarnation=Incarnation(incarnation),
        destination_tag=tag,
        sequence=sequence,
        hop_budget=budget,
        priority=priority,
        record=bool(flags & FLAG_RECORD),
        search=_read_search(search) if flags & FLAG_CAREFUL else None,
    )


def _read_visited(value: object) -> tuple[Visited, int]:
    if type(value) is bytes:
        return value, len(value)
    runs = read_runs(value, SEARCH_BYTES_MAX // VISITED_RUN_BYTES)
    return runs, len(runs) * VISITED_RUN_BYTES


def _read_search(value: object) -> Search:
    fields = read_array(value, 3)
    if len(fields) != 3:
        raise ProtocolError("not the state of a search")
    visited, size = _read_visited(fields[0])
    packed = read_bytes(fields[1], SEARCH_BYTES_MAX)
    if len(packed) % LENGTH_BYTES or size + len(packed) > SEARCH_BYTES_MAX:
        raise ProtocolError("the state of a search has a wrong length")
    stack = tuple(read_id(item) for (item,) in LENGTH.iter_unpack(packed))
    return Search(visited, stack, read_int(fields[2], 0, _RESTARTS_MAX))
