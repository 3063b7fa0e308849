"""What a program tells of a request that goes on, as commands of the core."""

from __future__ import annotations

from typing import Any

import pytest

from bmgd.core.commands import (
    CloseStream,
    Command,
    Consumed,
    ConsumedAnnouncements,
    PutSegment,
    Settled,
    Withdraw,
)
from bmgd.errors import ProtocolError, RequestError
from bmgd.shell.control_connection import Call
from bmgd.shell.control_progress import Progress, command_of
from bmgd.wire import control
from bmgd.wire.batch import pack_messages
from bmgd.wire.control import FIRST_PIECE

PUT = control.PutSegment(1, 1, FIRST_PIECE, 9, 1.5, b"body")


def call(verb: str) -> Call:
    """A request that was given two of everything."""
    program: Any = None
    made = Call(program, 1, verb, 7)
    made.unread = made.unread_broadcasts = made.unread_pieces = 2
    return made


@pytest.mark.parametrize(
    ("verb", "frame", "command"),
    [
        ("read", control.Consumed(1, 2), Consumed(2)),
        ("subscribe", control.ConsumedBroadcasts(1, 2), ConsumedAnnouncements(2)),
        ("inbox", control.ConsumedPieces(1, 2, 5), Consumed(2, 5)),
        ("inbox", control.Settled(1, 2, [3, 4]), Settled(2, (3, 4))),
        ("stream", PUT, PutSegment(1, b"body", 9, True, False, 1_500_000_000, ())),
        ("questions", control.Withdraw(1, 3), Withdraw(3)),
        ("answers", control.Close(1), CloseStream()),
    ],
)
def test_progress_becomes_a_command(verb: str, frame: Progress, command: Command) -> None:
    assert command_of(call(verb), frame) == command
    # Of a request of another kind it says nothing.
    assert command_of(call("monitor"), frame) is None


@pytest.mark.parametrize(
    "frame",
    [
        control.Consumed(1, 2),
        control.ConsumedBroadcasts(1, 2),
        control.ConsumedPieces(1, 2, 5),
        control.Settled(1, 2, []),
    ],
)
def test_progress_gives_back_no_more_than_was_delivered(frame: Progress) -> None:
    inbox = call("inbox")
    command_of(inbox, frame)
    with pytest.raises(ProtocolError, match="more"):
        command_of(inbox, frame)


@pytest.mark.parametrize("count", [1, 3])
def test_questions_are_as_many_as_their_segment_says(count: int) -> None:
    """Each question that is numbered is owed an answer."""
    body = pack_messages([b"one", b"two"])
    assert command_of(call("questions"), control.PutSegment(1, 2, 0, 0, 0.0, body)) == (
        PutSegment(2, body)
    )
    with pytest.raises(RequestError, match="no questions"):
        command_of(call("questions"), control.PutSegment(1, count, 0, 0, 0.0, body))
