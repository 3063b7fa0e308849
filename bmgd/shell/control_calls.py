"""The requests of all programs that are open: answered not yet, or going on as a stream.

Theory of operation. Each has a number of this daemon's own, under which the core knows it:

    asked --the core's answer--> gone
      |   --the core's answer, of a stream--> open --item, item …--> ended by either side
      +---cancelled: it stays until its answer, and is ended then

An item that its program has given credit for is always written. Any other is written only while what
waits for the program is short; beyond that all its streams end with SubscriptionError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from bmgd.core.commands import CloseStream, Command, Unregister, Unsubscribe
from bmgd.errors import BmgdError, SubscriptionError
from bmgd.shell.control_connection import PAUSE_BYTES, Call, ProgramConnection
from bmgd.wire import control
from bmgd.wire.control_errors import failure_of

HELD_BYTES_MAX: Final = 64 * 2**20
"""What was read of programs and is not whole yet, and what waits for those that do not read."""
OUTGOING_BYTES_MAX: Final = 4 * 2**20
WAITING_BYTES_MAX: Final = 192 * 2**20
"""More than all programs can have given credit for, and `HELD_BYTES_MAX`: the core hands out 64 MiB of
messages, and as much of broadcasts. What it does not count any more, as pieces of a message that was
given up, waits beside."""
READERS: Final = ("subscribe", "read", "inbox")
"""The verbs that read a topic."""
WRITERS: Final = ("stream", "questions", "answers")
"""The verbs that put segments."""
SNAPSHOTS: Final = ("membership", "programs")
"""The verbs of streams that begin with a snapshot."""
FOLLOWING: Final = (*SNAPSHOTS, "monitor")
"""The verbs of streams to all of which each event is written."""

Issue = Callable[[int, Command], None]


class Calls:
    """The open requests of all programs.

    Args:
        issue: hands a command to the core under a request's number.
        programs: those that are connected, and those whose connections are about to close.

    Attributes:
        by_number: all of them.
        watchers: those that follow the membership or the programs.
        monitors: those that follow what the daemon observes.
    """

    def __init__(self, issue: Issue, programs: Callable[[], Collection[ProgramConnection]]) -> None:
        self.by_number: dict[int, Call] = {}
        self.watchers: dict[int, Call] = {}
        self.monitors: dict[int, Call] = {}
        self._issue = issue
        self._programs = programs
        self._last_number = 0

    def begin(
        self, program: ProgramConnection, request: control.Request, command: Command | None
    ) -> None:
        """A program has asked for something.

        Args:
            command: what the core is asked for; None for the one verb that the shell serves itself.
        """
        self._last_number += 1
        call = Call(program, request.sequence, request.verb, self._last_number)
        self.by_number[call.number] = program.calls[call.sequence] = call
        if request.verb in SNAPSHOTS:
            self.watchers[call.number] = call
        if command is not None:
            self._issue(call.number, command)
        else:
            self.monitors[call.number] = call
            self.open(call)

    @property
    def following(self) -> int:
        """How many streams follow what happens."""
        return len(self.watchers) + len(self.monitors)

    @property
    def held_bytes(self) -> int:
        """What the daemon holds for programs that do not read, and of frames that are not whole."""
        return sum(program.held_bytes for program in self._programs())

    @property
    def hold_too_much(self) -> bool:
        """Whether the daemon holds more than `HELD_BYTES_MAX` for all programs."""
        return self.held_bytes > HELD_BYTES_MAX

    def open(self, call: Call, value: object = None) -> None:
        """Answer a request that goes on."""
        call.opened = True
        call.program.write(control.Result(call.sequence, value))
        if call.forgotten:
            self.end(call)
            call.program.write(control.End(call.sequence))

    def fail(self, call: Call, error: BmgdError) -> None:
        """Answer a request by an error, or end its stream by it."""
        self.drop(call)
        if call.opened:
            call.program.write(control.End(call.sequence, type(error).__name__, str(error)))
        else:
            call.program.write(failure_of(call.sequence, error))

    def end(self, call: Call) -> None:
        """End a request: the core is told where it goes on there."""
        self.drop(call)
        if call.verb in READERS:
            self._issue(call.number, Unsubscribe())
        elif call.verb in WRITERS:
            self._issue(call.number, CloseStream(abandon=True))
        elif call.verb == "register":
            self._issue(call.number, Unregister())

    def drop(self, call: Call) -> None:
        """A request is over, for the core too."""
        self.by_number.pop(call.number, None)
        self.watchers.pop(call.number, None)
        self.monitors.pop(call.number, None)
        call.program.calls.pop(call.sequence, None)

    def send_item(self, call: Call, value: Mapping[str, Any]) -> None:
        """Write an item of a stream; a program that reads too slowly loses its streams."""
        program = call.program
        backlog_bytes = program.backlog_bytes
        is_slow = backlog_bytes > OUTGOING_BYTES_MAX
        if not is_slow and backlog_bytes > PAUSE_BYTES:
            is_slow = self.hold_too_much
        if is_slow:
            self._cut_slow(program)
        else:
            program.write(control.Item(call.sequence, value))

    def send_item_within_credit(self, call: Call, value: Mapping[str, Any]) -> None:
        """Write an item that its program has given credit for: it is not cut off for it.

        But where more waits than all credit is for, who has most waiting is.
        """
        program = call.program
        if program.backlog_bytes > PAUSE_BYTES and self.held_bytes > WAITING_BYTES_MAX:
            slowest = max(self._programs(), key=lambda each: each.backlog_bytes)
            if slowest.calls:
                self._cut_slow(slowest)
            else:
                slowest.cut()
        if call.sequence in program.calls:
            program.write(control.Item(call.sequence, value))

    def _cut_slow(self, program: ProgramConnection) -> None:
        error = SubscriptionError("the program reads too slowly")
        for call in list(program.calls.values()):
            if call.opened:
                self.end(call)
                program.write(control.End(call.sequence, type(error).__name__, str(error)))
        program.finish()
