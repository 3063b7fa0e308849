"""Many messages to the body of one segment and back, by one call for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from bmgd.errors import ProtocolError
from bmgd.wire.segments import bin_prefix, only_message

_ARRAY_16 = 0xDC
_NIL = b"\xc0"


def pack_messages(payloads: Sequence[bytes]) -> bytes:
    """The body of a segment with these messages.

    Args:
        payloads: 1 to 65,535 `bytes`, together small enough for a segment.
    """
    packed: bytes = msgpack.packb(payloads)
    return packed[1 if packed[0] != _ARRAY_16 else 3 :]


def segment_parts(payloads: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The same in two parts, one behind the other; a lone message is the second one, uncopied."""
    if len(payloads) == 1:
        return bin_prefix(len(payloads[0])), payloads[0]
    return pack_messages(payloads), b""


def unpack_messages(body: bytes, count: int) -> list[bytes]:
    """The messages in the body of a segment.

    Raises:
        ProtocolError: the body does not hold exactly so many messages.
    """
    if count == 1 and (alone := only_message(body)) is not None:
        return [alone]
    # Whoever sends may be anybody: an array within would make room for as many items as it says.
    unpacker = msgpack.Unpacker(
        max_buffer_size=len(body) + 1, max_array_len=0, max_map_len=0, max_str_len=0, max_ext_len=0
    )
    try:
        # What is added is read as the last one only if the body does not end within a message.
        unpacker.feed(body + _NIL)
        payloads = list(unpacker)
    except (ValueError, RecursionError, OverflowError) as error:
        raise ProtocolError("not the messages of a segment") from error
    if len(payloads) != count + 1 or payloads.pop() is not None:
        raise ProtocolError("a segment of another number of messages")
    if set(map(type, payloads)) - {bytes}:
        raise ProtocolError("a message that is not binary")
    messages: list[bytes] = payloads
    return messages
