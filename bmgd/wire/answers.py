"""What comes to an inbox: messages that begin with a kind and the number of their question.

    kind, 1 byte    number, 8 bytes    then
    0 ANSWER        of the question    the answer
    1 FAILED                           why there is no answer, a text
    2 READER LOST                      nothing: the program that was handed the question went away
    3 NO READER                        nothing: nobody was there to be handed it

Programs write the first two, daemons the others. The number is that of the source's daemon.
"""

from __future__ import annotations

import struct
from typing import Final

ANSWER: Final = 0
FAILED: Final = 1
READER_LOST: Final = 2
NO_READER: Final = 3

_HEAD = struct.Struct(">BQ")
ANSWER_HEAD_BYTES: Final = _HEAD.size


def answer_head(kind: int, question: int) -> bytes:
    """The beginning of a message to an inbox."""
    return _HEAD.pack(kind, question)


def read_head(message: bytes) -> tuple[int, int]:
    """The kind, and the number of the question; kind -1 of a message that is too short to be one."""
    if len(message) < ANSWER_HEAD_BYTES:
        return -1, 0
    kind, question = _HEAD.unpack_from(message)
    return kind, question
