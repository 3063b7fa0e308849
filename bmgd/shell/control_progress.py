"""What a program tells of a request that goes on: what it has taken, what it sends, that it is done.

Each frame becomes a command of the core. The account of what was delivered and not taken is kept here
too, in the `Call`: a program cannot give back more than it has got.
"""

from __future__ import annotations

from bmgd.core.commands import (
    CloseStream,
    Command,
    Consumed,
    ConsumedAnnouncements,
    PutSegment,
    Settled,
    Withdraw,
)
from bmgd.errors import ProtocolError
from bmgd.shell.control_calls import READERS, WRITERS
from bmgd.shell.control_connection import Call
from bmgd.shell.verbs import answered_in, check_questions
from bmgd.wire import control

Progress = (
    control.Consumed
    | control.ConsumedBroadcasts
    | control.ConsumedPieces
    | control.Settled
    | control.PutSegment
    | control.Withdraw
    | control.Close
)


def command_of(call: Call, frame: Progress) -> Command | None:
    """What a frame of a program is for the core; None where it is not for such a request.

    Raises:
        ProtocolError: the program gives back what it has not got.
        RequestError: what it sends cannot be sent; its stream is over.
    """
    match frame:
        case control.Consumed(_, count) if call.verb in READERS:
            if count > call.unread:
                raise ProtocolError("consumed more than was delivered")
            call.unread -= count
            return Consumed(count)
        case control.ConsumedBroadcasts(_, count) if call.verb in READERS:
            if count > call.unread_broadcasts:
                raise ProtocolError("consumed more broadcasts than were delivered")
            call.unread_broadcasts -= count
            return ConsumedAnnouncements(count)
        case control.ConsumedPieces(_, count, long) if call.verb in ("read", "inbox"):
            if count > call.unread_pieces:
                raise ProtocolError("consumed more pieces than were delivered")
            call.unread_pieces -= count
            return Consumed(count, long)
        case control.Settled(_, count, questions) if call.verb == "inbox":
            if count > call.unread:
                raise ProtocolError("settled more answers than were delivered")
            call.unread -= count
            return Settled(count, tuple(questions))
        case control.PutSegment() if call.verb in WRITERS:
            return _put(call, frame)
        case control.Withdraw(_, number) if call.verb in WRITERS:
            return Withdraw(number)
        case control.Close() if call.verb in WRITERS:
            return CloseStream()
    return None


def _put(call: Call, frame: control.PutSegment) -> PutSegment:
    first = bool(frame.flags & control.FIRST_PIECE)
    last = bool(frame.flags & control.LAST_PIECE)
    timeout_ns = int(frame.timeout * 1e9)
    answers: tuple[int, ...] = ()
    if call.verb == "answers" and (first or not frame.size):
        answers = answered_in(frame.body, frame.count)
    if call.verb == "questions" and frame.count:
        check_questions(frame.body, frame.count)
    return PutSegment(frame.count, frame.body, frame.size, first, last, timeout_ns, answers)
