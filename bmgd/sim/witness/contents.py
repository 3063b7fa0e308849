"""What stands within frames, read once more: the messages of a segment, and news of programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bmgd.sim.witness.packed import Reader, Unreadable, packed

News = tuple[int | str | None, ...]
_HEAD_BYTES: Final = 10
_END_BYTES: Final = 25
_UNKNOWN: Final = -(2**63)


def messages_in(body: bytes) -> list[tuple[bytes, int]]:
    """The messages of a segment, each a msgpack `bin` in any of its forms, and where each ends.

    Raises:
        Unreadable: something else stands there.
    """
    reader, found = Reader(body), []
    while not reader.is_at_end:
        value = reader.value()
        if type(value) is not bytes:
            raise Unreadable("not a message")
        found.append((value, reader.at))
    return found


def ends_in(body: bytes) -> list[int]:
    """Where the messages end that stand in front of anything else, each behind the other; 0 first."""
    reader, ends = Reader(body), [0]
    try:
        while not reader.is_at_end and type(reader.value()) is bytes:
            ends.append(reader.at)
    except Unreadable:
        pass
    return ends


def body_of(messages: Iterable[bytes]) -> bytes:
    """The body of a segment with these messages."""
    return b"".join(map(packed, messages))


def news_in(body: bytes) -> list[News]:
    """Starts (revision, name) and ends (revision, started, exit) of programs.

    Raises:
        Unreadable: something else stands there.
    """
    found: list[News] = []
    while body:
        revision = int.from_bytes(body[1:9], "big")
        if body[0] == 1 and len(body) > _HEAD_BYTES:
            end = _HEAD_BYTES + body[9]
            name = body[_HEAD_BYTES:end]
            if not 0 < len(name) == body[9]:
                raise Unreadable("a name that is cut short")
            found.append((revision, _text(name)))
        elif body[0] == 2 and len(body) >= _END_BYTES:
            end = _END_BYTES
            code = int.from_bytes(body[17:end], "big", signed=True)
            started = int.from_bytes(body[9:17], "big")
            found.append((revision, started, None if code == _UNKNOWN else code))
        else:
            raise Unreadable("neither a start nor an end")
        body = body[end:]
    return found


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise Unreadable("not a name") from None
