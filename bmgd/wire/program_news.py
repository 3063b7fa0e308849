"""What daemons tell each other of registered programs: starts and ends, packed into bytes.

    start: 1, revision u64, name length u8, name
    end:   2, revision u64, started u64, exit i64, or its lowest value where it is not known

Integers are big-endian. A broadcast about programs is one of these; a list of programs is the starts of
those that run, by their revisions. The contract is docs/wire-protocol.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from bmgd.dataclass import dataclass
from bmgd.errors import ProtocolError

NAME_BYTES_MAX: Final = 255
EXIT_MAX: Final = 2**63 - 1
_UNKNOWN_EXIT: Final = -(2**63)
_START: Final = struct.Struct(">BQB")
_END: Final = struct.Struct(">BQQq")


@dataclass(frozen=True, slots=True)
class Started:
    """A program began.

    Args:
        revision: counts the starts and ends at its daemon's life, from 1; numbers the program too.
        name: 1 to 255 bytes.
    """

    revision: int
    name: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A program ended.

    Args:
        revision: as above.
        started: of the program's start.
        exit: -2^63 + 1 to 2^63 - 1; None where it is not known.
    """

    revision: int
    started: int
    exit: int | None


def pack_news(news: Started | Ended) -> bytes:
    """The bytes of one start or end."""
    if isinstance(news, Started):
        name = news.name.encode()
        return _START.pack(1, news.revision, len(name)) + name
    exit_code = _UNKNOWN_EXIT if news.exit is None else news.exit
    return _END.pack(2, news.revision, news.started, exit_code)


def pack_starts(starts: Iterable[Started], bytes_max: int) -> tuple[bytes, bool]:
    """The bytes of some starts, as many as fit, and whether those are all."""
    packed = bytearray()
    for start in starts:
        one = pack_news(start)
        if len(packed) + len(one) > bytes_max:
            return bytes(packed), False
        packed += one
    return bytes(packed), True


def unpack_news(body: bytes) -> list[Started | Ended]:
    """Read starts and ends.

    Raises:
        ProtocolError: the bytes are something else.
    """
    found: list[Started | Ended] = []
    at = 0
    try:
        while at < len(body):
            if body[at] == 1:
                _, revision, length = _START.unpack_from(body, at)
                at += _START.size
                name = body[at : at + length]
                if not length or len(name) < length:
                    raise ProtocolError("a name that is cut short")
                at += length
                found.append(Started(revision, name.decode()))
            elif body[at] == 2:
                _, revision, started, exit_code = _END.unpack_from(body, at)
                at += _END.size
                found.append(
                    Ended(revision, started, None if exit_code == _UNKNOWN_EXIT else exit_code)
                )
            else:
                raise ProtocolError("neither a start nor an end of a program")
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError("not starts and ends of programs") from error
    return found
