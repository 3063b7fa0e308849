"""The daemon's side of the control protocol: a Unix socket through which programs use it.

Every request of a program becomes one command of the core, under a number of this server's own; what
the core has for programs comes back through `answers`. All of it happens in callbacks of the event
loop: no task, so a daemon without programs pays nothing.

    control.py         who connects, and what programs ask for
    control_calls      the requests that are open
    control_answers    what programs get
    control_progress   what they tell of requests that go on

What is bounded, and what happens there:

    programs connected          `PROGRAMS_MAX`       one more is told so and closed
    bytes of all programs       `HELD_BYTES_MAX`     who connects is told so and closed; of those that do
                                                     not read, whose stream has more loses its streams
    requests of one program     `CALLS_MAX`          one more is answered with RequestError
    that follow what happens    `FOLLOWING_MAX`      the same, of all programs: each gets each event
    time for all programs       `TURN_NS`            what they ask waits for the loop's next turn
    bytes for a slow program    `PAUSE_BYTES`        its further requests wait in its socket
    ... of a stream             `OUTGOING_BYTES_MAX` its streams end with SubscriptionError
    ... of messages             its credit           they wait in their topic
    ... and what was given up   `WAITING_BYTES_MAX`  of all programs: the streams of who has most waiting
                                                     end with SubscriptionError; then its connection
    a program that never reads  `LINGER_S`           its connection is cut
    ... or says no more         `LINGER_S`           the same; its streams end at once
    ... that is finished        `LINGERING_MAX`      one more is closed at once; it may read a broken
                                                     connection where it was told why
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from bmgd.core.commands import Command, OpenAnswers, OpenQuestions
from bmgd.errors import BmgdError, ProtocolError, RequestError, VersionError
from bmgd.shell.access import READ_ONLY, Access, Level, Peer
from bmgd.shell.control_answers import Answers, Describe
from bmgd.shell.control_calls import FOLLOWING, HELD_BYTES_MAX, Calls, Issue
from bmgd.shell.control_connection import ProgramConnection
from bmgd.shell.control_hello import answer_hello
from bmgd.shell.control_progress import Progress, command_of
from bmgd.shell.control_socket import bind_control_socket, remove_control_socket
from bmgd.shell.turns import Turns
from bmgd.shell.verbs import VERBS, parse_unregister
from bmgd.wire import control
from bmgd.wire.control import Frame
from bmgd.wire.control_errors import failed_end, failure_of
from bmgd.wire.control_reader import ReadBuffer

PROGRAMS_MAX: Final = 1024
CALLS_MAX: Final = 1024
FOLLOWING_MAX: Final = 1024


class ControlServer:
    """Serves the programs of one daemon.

    Args:
        address: ``unix:PATH``.
        issue: hands a command to the core under a request number.
        describe: what the shell adds to `status`.
        own_verbs: what the shell answers itself: the answers by verb, without parameters; each may
            raise an error of the tree instead.
        access: who may do what; by default the daemon's user and root everything.
        note: writes a line of log, a warning: an event and a text.

    Attributes:
        answers: passes on what the core has for programs.
    """

    def __init__(
        self,
        address: str,
        issue: Issue,
        describe: Describe,
        own_verbs: Mapping[str, Describe] = MappingProxyType({}),
        access: Access | None = None,
        note: Callable[[str, str], None] = lambda event, text: None,
    ) -> None:
        self._address = address
        self._issue = issue
        self._own_verbs = own_verbs
        self._access = access or Access(os.geteuid())
        self._note = note
        self._server: asyncio.AbstractServer | None = None
        self.read_buffer = ReadBuffer()
        self.turns = Turns()
        self.lingering: set[ProgramConnection] = set()
        self._programs: dict[ProgramConnection, None] = {}
        self._calls = Calls(issue, lambda: {*self._programs, *self.lingering})
        self.answers = Answers(self._calls, issue, describe, note)
        self._inode = 0

    async def start(self) -> None:
        """Bind the socket, mode 0600 unless groups may use it, and listen.

        Raises:
            ConfigError: the path is too long, not writable, or another daemon listens there.
        """
        sock, self._inode = bind_control_socket(
            self._address, self._access.mode, self._access.owner
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: ProgramConnection(self), sock=sock, backlog=PROGRAMS_MAX
        )

    def close(self) -> None:
        """Stop listening, remove the socket, and close every program once its answers are out."""
        if self._server is not None:
            self._server.close()
            self._server = None
            remove_control_socket(self._address, self._inode)
        for program in [*self._programs, *self.lingering]:
            program.close()

    # --- from programs ------------------------------------------------------------------------

    def admit(self, program: ProgramConnection, peer: Peer) -> Level:
        """Count a new connection in, and say what it may do.

        Raises:
            RequestError: nothing, or there are too many.
        """
        level = self._access.level(peer)
        if level is Level.NOTHING:
            self._note("control", f"refused a program of {peer}: it may not use this daemon")
            raise RequestError(f"uid {peer.uid} may not use this daemon")
        if len(self._programs) >= PROGRAMS_MAX:
            raise RequestError(f"more than {PROGRAMS_MAX} programs at a time")
        if self._calls.hold_too_much:
            raise RequestError(
                f"programs that do not read hold more than {HELD_BYTES_MAX >> 20} MiB of this daemon"
            )
        self._programs[program] = None
        return level

    def _check_allowed(self, program: ProgramConnection, verb: str) -> None:
        if program.level is not Level.EVERYTHING and verb not in READ_ONLY:
            self._note("control", f"refused {verb!r} of {program.peer}: it may only look")
            raise RequestError(f"uid {program.peer.uid} may only look, not {verb}")

    def on_frame(self, program: ProgramConnection, frame: Frame) -> None:
        """Do what a program asks.

        Raises:
            ProtocolError: the program broke the protocol; close it.
        """
        match frame:
            case control.Request():
                self._on_request(program, frame)
            case (
                control.Consumed()
                | control.ConsumedBroadcasts()
                | control.ConsumedPieces()
                | control.Settled()
                | control.PutSegment()
                | control.Withdraw()
                | control.Close()
            ):
                self._on_progress(program, frame)
            case control.Cancel():
                self._on_cancel(program, frame)
            case _:
                raise ProtocolError("that frame is the daemon's to send")

    def _on_request(self, program: ProgramConnection, request: control.Request) -> None:
        if request.sequence in program.calls or request.sequence == 0:
            raise ProtocolError(f"request number {request.sequence} is in use")
        is_first, program.has_asked = not program.has_asked, True
        try:
            self._check_allowed(program, request.verb)
        except RequestError as error:
            program.write(failure_of(request.sequence, error))
            return
        if request.verb == "hello":
            self._on_hello(program, request, is_first=is_first)
            return
        if request.verb == "unregister":
            self._on_unregister(program, request)
            return
        if request.verb in self._own_verbs:
            self._answer(program, request)
            return
        parse = VERBS.get(request.verb)
        try:
            if parse is None:
                raise RequestError(f"unknown verb {request.verb!r}")
            if len(program.calls) >= CALLS_MAX:
                raise RequestError(f"more than {CALLS_MAX} requests at a time")
            if request.verb in FOLLOWING and self._calls.following >= FOLLOWING_MAX:
                verbs = ", ".join(FOLLOWING)
                raise RequestError(f"more than {FOLLOWING_MAX} of all programs at a time: {verbs}")
            command = _among(program, parse(request.params))
        except RequestError as error:
            program.write(failure_of(request.sequence, error))
            return
        self._calls.begin(program, request, command)

    def _on_hello(
        self, program: ProgramConnection, request: control.Request, *, is_first: bool
    ) -> None:
        try:
            if not is_first:
                raise RequestError("hello is the first request of a connection")
            answer = control.Result(request.sequence, answer_hello(request.params))
        except VersionError as error:
            program.write(failure_of(request.sequence, error))
            program.finish()
        except RequestError as error:
            program.write(failure_of(request.sequence, error))
        else:
            program.write(answer)

    def _on_unregister(self, program: ProgramConnection, request: control.Request) -> None:
        """A program ends its registration, and says how."""
        try:
            number, command = parse_unregister(request.params)
            call = program.calls.get(number)
            if call is None or call.verb != "register" or not call.opened:
                raise RequestError(f"request {number} is no registration")
        except RequestError as error:
            program.write(failure_of(request.sequence, error))
            return
        self._calls.drop(call)
        self._issue(call.number, command)
        program.write(control.End(call.sequence))
        program.write(control.Result(request.sequence))

    def _answer(self, program: ProgramConnection, request: control.Request) -> None:
        """Answer what the core is not asked for."""
        try:
            if request.params:
                raise RequestError("wrong parameters: needed are none")
            answer = control.Result(request.sequence, self._own_verbs[request.verb]())
        except BmgdError as error:
            program.write(failure_of(request.sequence, error))
        else:
            program.write(answer)

    def _on_progress(self, program: ProgramConnection, frame: Progress) -> None:
        call = program.calls.get(frame.sequence)
        if call is None:
            # It has ended meanwhile.
            return
        try:
            command = command_of(call, frame)
        except RequestError as error:
            self._calls.end(call)
            program.write(failed_end(call.sequence, error))
            return
        if command is not None:
            self._issue(call.number, command)

    def _on_cancel(self, program: ProgramConnection, cancel: control.Cancel) -> None:
        call = program.calls.get(cancel.sequence)
        if call is None:
            return
        if call.opened:
            self._calls.end(call)
            program.write(control.End(call.sequence))
        else:
            # The answer goes out all the same: until then the number is in use.
            call.forgotten = True

    def forget(self, program: ProgramConnection) -> None:
        """A program is gone: end its subscriptions, drop the answers it waits for."""
        self._programs.pop(program, None)
        for call in list(program.calls.values()):
            self._calls.end(call)

    @property
    def held_bytes(self) -> int:
        """What the daemon holds for programs that do not read, and of frames that are not whole."""
        return self._calls.held_bytes


def _among(program: ProgramConnection, command: Command | None) -> Command | None:
    """A command that names another request of its program, with what that is for the core.

    Raises:
        RequestError: the program has no such request.
    """
    match command:
        case OpenQuestions(inbox=inbox):
            values = [c.value for c in program.calls.values() if c.verb == "inbox" and c.opened]
            if {"inbox": inbox} not in values:
                raise RequestError(f"the inbox {inbox} is not of this connection")
        case OpenAnswers(reader=sequence):
            reader = program.calls.get(sequence)
            if reader is None or reader.verb != "read":
                raise RequestError(f"no stream of messages has the number {sequence}")
            return replace(command, reader=reader.number)
    return command
