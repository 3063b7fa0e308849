"""The daemon's side of the control protocol: a Unix socket through which programs use it.

Every request of a program becomes one command of the core, under a number of this server's own; the
core's effects come back through `tell`, `record_changed` and `observed`. All of it
happens in callbacks of the event loop: no task, so a daemon without programs pays nothing.

What is bounded, and what happens there:

    programs connected          `PROGRAMS_MAX`       one more is told so and closed
    bytes of all programs       `HELD_BYTES_MAX`     who connects is told so and closed; of those that do
                                                     not read, whose stream has more loses its streams
    requests of one program     `CALLS_MAX`          one more is answered with RequestError
    bytes for a slow program    `PAUSE_BYTES`        its further requests wait in its socket
    ... of a stream             `OUTGOING_BYTES_MAX` its streams end with SubscriptionError
    ... of messages             its credit           they wait in their topic
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
from typing import Any, Final

from bmgd.core.commands import (
    CloseStream,
    Command,
    Consumed,
    ConsumedAnnouncements,
    OpenAnswers,
    OpenQuestions,
    PutSegment,
    Settled,
    Unregister,
    Unsubscribe,
    Withdraw,
)
from bmgd.core.effects import (
    Announce,
    Deliver,
    Observed,
    ProgramsChanged,
    RecordChanged,
    Reply,
    StreamEnded,
    StreamMoved,
    TellMissed,
)
from bmgd.errors import (
    BmgdError,
    ProtocolError,
    RequestError,
    SubscriptionError,
    VersionError,
)
from bmgd.shell.access import READ_ONLY, Access, Level, Peer
from bmgd.shell.control_connection import PAUSE_BYTES, Call, ProgramConnection
from bmgd.shell.control_hello import answer_hello
from bmgd.shell.control_socket import bind_control_socket, remove_control_socket
from bmgd.shell.verbs import (
    VERBS,
    answered_in,
    describe_announced,
    describe_change,
    describe_delivered,
    describe_moved,
    describe_observed,
    describe_programs,
    parse_unregister,
)
from bmgd.wire import control
from bmgd.wire.batch import unpack_messages
from bmgd.wire.control import Frame

PROGRAMS_MAX: Final = 1024
HELD_BYTES_MAX: Final = 64 * 2**20
"""What was read of programs and is not whole yet, and what waits for those that do not read."""
CALLS_MAX: Final = 1024
OUTGOING_BYTES_MAX: Final = 4 * 2**20
READERS: Final = ("subscribe", "read", "inbox")
"""The verbs that read a topic."""
WRITERS: Final = ("stream", "questions", "answers")
"""The verbs that put segments."""
SNAPSHOTS: Final = ("membership", "programs")
"""The verbs of streams that begin with a snapshot."""

ForPrograms = Deliver | StreamMoved | Reply | StreamEnded | Announce | TellMissed | ProgramsChanged
"""What a step of the core has for programs."""
Issue = Callable[[int, Command], None]
Describe = Callable[[], Mapping[str, object]]


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
        self._issue_command = issue
        self._describe = describe
        self._own_verbs = own_verbs
        self._access = access or Access(os.geteuid())
        self._note = note
        self._server: asyncio.AbstractServer | None = None
        self.read_buffer = control.ReadBuffer()
        self.lingering: set[ProgramConnection] = set()
        self._programs: dict[ProgramConnection, None] = {}
        self._calls: dict[int, Call] = {}
        self._watchers: dict[int, Call] = {}
        self._monitors: dict[int, Call] = {}
        self._last_number = 0
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

    # --- from the core ------------------------------------------------------------------------

    def tell(self, effect: ForPrograms) -> None:
        """Pass on what a step of the core has for a program."""
        match effect:
            case Deliver():
                self.deliver(effect)
            case StreamMoved():
                self.stream_moved(effect)
            case Reply():
                self.reply(effect)
            case StreamEnded():
                self.stream_ended(effect)
            case Announce() | TellMissed():
                self.announce(effect)
            case ProgramsChanged():
                self.programs_changed(effect)

    def reply(self, reply: Reply) -> None:
        """Pass on the core's answer to a request."""
        call = self._calls.get(reply.request)
        if call is None:
            return
        if reply.error is not None:
            self._fail(call, reply.error)
        elif call.verb in READERS or call.verb in WRITERS:
            call.value = reply.result
            self._open(call, reply.result)
        elif call.verb in SNAPSHOTS:
            self._open(call)
            call.revision = reply.result["revision"]
            self._item(call, reply.result)
        elif call.verb == "register":
            self._open(call)
        else:
            value = reply.result
            if call.verb == "status":
                value = {**value, **self._describe()}
            self._drop(call)
            call.program.write(control.Result(call.sequence, value))

    def deliver(self, deliver: Deliver) -> None:
        """Pass on a message to the program that reads its topic."""
        call = self._calls.get(deliver.request)
        if call is None:
            return
        call.unread += deliver.count
        if call.verb in ("read", "inbox"):
            if deliver.long:
                call.unread_pieces += 1
            self._item_within_credit(call, describe_delivered(deliver))
            return
        # One item for each message, as programs have it that know nothing of segments.
        try:
            payloads = unpack_messages(deliver.body, deliver.count)
        except ProtocolError as error:
            self._note("control", f"dropped {deliver.count} messages of {deliver.source}: {error}")
            call.unread -= deliver.count
            self._issue_command(call.number, Consumed(deliver.count))
            return
        for payload in payloads:
            item = {"source": deliver.source, "topic": deliver.topic, "payload": payload}
            self._item_within_credit(call, item)

    def stream_moved(self, moved: StreamMoved) -> None:
        """Tell a program how far its stream out is."""
        call = self._calls.get(moved.request)
        if call is not None:
            self._item(call, describe_moved(moved))

    def stream_ended(self, ended: StreamEnded) -> None:
        """Tell a program that its stream out is over."""
        call = self._calls.get(ended.request)
        if call is None:
            return
        self._drop(call)
        error = ended.error
        name, text = ("", "") if error is None else (type(error).__name__, str(error))
        fields = {} if error is None else control.fields_of(error)
        fields |= {"next": ended.next, "unsent": ended.unsent}
        call.program.write(control.End(call.sequence, name, text, fields))

    def announce(self, effect: Announce | TellMissed) -> None:
        """Pass on a broadcast, or that some were missed, to a program that reads its topic."""
        call = self._calls.get(effect.request)
        if call is not None:
            call.unread_broadcasts += 1
            self._item(call, describe_announced(effect))

    def record_changed(self, change: RecordChanged, at_ns: int) -> None:
        """Pass on a changed record to those who watch the membership; `at_ns` is when it changed."""
        if not (self._watchers or self._monitors):
            return
        item = describe_change(change)
        for call in [c for c in self._watchers.values() if c.verb == "membership"]:
            # Until the snapshot is out, it holds the change; after it, revisions have no gap.
            if call.opened and change.revision > call.revision:
                call.revision = change.revision
                self._item(call, item)
        for call in list(self._monitors.values()):
            self._item(call, {"event": "record", "peer": change.id, "at_ns": at_ns, **item})

    def programs_changed(self, effect: ProgramsChanged) -> None:
        """Pass on what started and ended to those who watch the programs."""
        watchers = [c for c in self._watchers.values() if c.verb == "programs" and c.opened]
        if not watchers:
            return
        item = describe_programs(effect)
        for call in watchers:
            if effect.revision > call.revision:
                call.revision = effect.revision
                self._item(call, item)

    def observed(self, observed: Observed, at_ns: int) -> None:
        """Pass on an event to those who monitor the daemon."""
        if self._monitors:
            item = describe_observed(observed, at_ns)
            for call in list(self._monitors.values()):
                self._item(call, item)

    def end_watchers(self, error: SubscriptionError) -> None:
        """End the streams of the membership and of programs: what comes does not follow what they saw."""
        for call in list(self._watchers.values()):
            self._fail(call, error)

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
        if self.held_bytes > HELD_BYTES_MAX:
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
            case control.Consumed():
                self._on_consumed(program, frame)
            case control.ConsumedBroadcasts():
                self._on_consumed_broadcasts(program, frame)
            case control.ConsumedPieces():
                self._on_consumed_pieces(program, frame)
            case control.Settled():
                self._on_settled(program, frame)
            case control.PutSegment() | control.Withdraw() | control.Close():
                self._on_stream_frame(program, frame)
            case control.Cancel():
                self._on_cancel(program, frame)
            case _:
                raise ProtocolError("that frame is the daemon's to send")

    def _on_request(self, program: ProgramConnection, request: control.Request) -> None:
        if request.sequence in program.calls or request.sequence == 0:
            raise ProtocolError(f"request number {request.sequence} is in use")
        try:
            self._check_allowed(program, request.verb)
        except RequestError as error:
            program.write(control.failure_of(request.sequence, error))
            return
        is_first, program.has_asked = not program.has_asked, True
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
            command = _among(program, parse(request.params))
        except RequestError as error:
            program.write(control.failure_of(request.sequence, error))
            return
        self._last_number += 1
        call = Call(program, request.sequence, request.verb, self._last_number)
        self._calls[call.number] = program.calls[call.sequence] = call
        if request.verb in SNAPSHOTS:
            self._watchers[call.number] = call
        if command is not None:
            self._issue_command(call.number, command)
        else:
            self._monitors[call.number] = call
            self._open(call)

    def _on_hello(
        self, program: ProgramConnection, request: control.Request, *, is_first: bool
    ) -> None:
        try:
            if not is_first:
                raise RequestError("hello is the first request of a connection")
            answer = control.Result(request.sequence, answer_hello(request.params))
        except VersionError as error:
            program.write(control.failure_of(request.sequence, error))
            program.finish()
        except RequestError as error:
            program.write(control.failure_of(request.sequence, error))
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
            program.write(control.failure_of(request.sequence, error))
            return
        self._drop(call)
        self._issue_command(call.number, command)
        program.write(control.End(call.sequence))
        program.write(control.Result(request.sequence))

    def _answer(self, program: ProgramConnection, request: control.Request) -> None:
        """Answer what the core is not asked for."""
        try:
            if request.params:
                raise RequestError("wrong parameters: needed are none")
            answer = control.Result(request.sequence, self._own_verbs[request.verb]())
        except BmgdError as error:
            program.write(control.failure_of(request.sequence, error))
        else:
            program.write(answer)

    def _on_consumed(self, program: ProgramConnection, consumed: control.Consumed) -> None:
        call = program.calls.get(consumed.sequence)
        if call is None or call.verb not in READERS:
            return
        if consumed.count > call.unread:
            raise ProtocolError("consumed more than was delivered")
        call.unread -= consumed.count
        self._issue_command(call.number, Consumed(consumed.count))

    def _on_consumed_broadcasts(
        self, program: ProgramConnection, consumed: control.ConsumedBroadcasts
    ) -> None:
        call = program.calls.get(consumed.sequence)
        if call is None or call.verb not in READERS:
            return
        if consumed.count > call.unread_broadcasts:
            raise ProtocolError("consumed more broadcasts than were delivered")
        call.unread_broadcasts -= consumed.count
        self._issue_command(call.number, ConsumedAnnouncements(consumed.count))

    def _on_consumed_pieces(
        self, program: ProgramConnection, consumed: control.ConsumedPieces
    ) -> None:
        call = program.calls.get(consumed.sequence)
        if call is None or call.verb not in ("read", "inbox"):
            return
        if consumed.count > call.unread_pieces:
            raise ProtocolError("consumed more pieces than were delivered")
        call.unread_pieces -= consumed.count
        self._issue_command(call.number, Consumed(consumed.count, consumed.long))

    def _on_settled(self, program: ProgramConnection, settled: control.Settled) -> None:
        call = program.calls.get(settled.sequence)
        if call is None or call.verb != "inbox":
            return
        if settled.count > call.unread:
            raise ProtocolError("settled more answers than were delivered")
        call.unread -= settled.count
        self._issue_command(call.number, Settled(settled.count, tuple(settled.questions)))

    def _on_stream_frame(
        self,
        program: ProgramConnection,
        frame: control.PutSegment | control.Withdraw | control.Close,
    ) -> None:
        call = program.calls.get(frame.sequence)
        if call is None or call.verb not in WRITERS:
            # It has ended meanwhile.
            return
        match frame:
            case control.PutSegment(_, count, flags, size, timeout, body):
                first = bool(flags & control.FIRST_PIECE)
                last = bool(flags & control.LAST_PIECE)
                timeout_ns = int(timeout * 1e9)
                answers: tuple[int, ...] = ()
                if call.verb == "answers" and (first or not size):
                    try:
                        answers = answered_in(body, count)
                    except RequestError as error:
                        self._end_stream(call)
                        program.write(control.failed_end(call.sequence, error))
                        return
                command: Command = PutSegment(count, body, size, first, last, timeout_ns, answers)
            case control.Withdraw(_, number):
                command = Withdraw(number)
            case control.Close():
                command = CloseStream()
        self._issue_command(call.number, command)

    def _on_cancel(self, program: ProgramConnection, cancel: control.Cancel) -> None:
        call = program.calls.get(cancel.sequence)
        if call is None:
            return
        if call.opened:
            self._end_stream(call)
            program.write(control.End(call.sequence))
        else:
            # The answer goes out all the same: until then the number is in use.
            call.forgotten = True

    def forget(self, program: ProgramConnection) -> None:
        """A program is gone: end its subscriptions, drop the answers it waits for."""
        self._programs.pop(program, None)
        for call in list(program.calls.values()):
            self._end_stream(call)

    # --- calls --------------------------------------------------------------------------------

    def _open(self, call: Call, value: object = None) -> None:
        call.opened = True
        call.program.write(control.Result(call.sequence, value))
        if call.forgotten:
            self._end_stream(call)
            call.program.write(control.End(call.sequence))

    def _fail(self, call: Call, error: BmgdError) -> None:
        self._drop(call)
        if call.opened:
            call.program.write(control.End(call.sequence, type(error).__name__, str(error)))
        else:
            call.program.write(control.failure_of(call.sequence, error))

    def _end_stream(self, call: Call) -> None:
        self._drop(call)
        if call.verb in READERS:
            self._issue_command(call.number, Unsubscribe())
        elif call.verb in WRITERS:
            self._issue_command(call.number, CloseStream(abandon=True))
        elif call.verb == "register":
            self._issue_command(call.number, Unregister())

    def _drop(self, call: Call) -> None:
        self._calls.pop(call.number, None)
        self._watchers.pop(call.number, None)
        self._monitors.pop(call.number, None)
        call.program.calls.pop(call.sequence, None)

    @property
    def held_bytes(self) -> int:
        """What the daemon holds for programs that do not read, and of frames that are not whole."""
        return sum(program.held_bytes for program in {*self._programs, *self.lingering})

    def _item(self, call: Call, value: Mapping[str, Any]) -> None:
        program = call.program
        backlog_bytes = program.backlog_bytes
        is_slow = backlog_bytes > OUTGOING_BYTES_MAX
        if not is_slow and backlog_bytes > PAUSE_BYTES:
            is_slow = self.held_bytes > HELD_BYTES_MAX
        if is_slow:
            self._cut_slow(program)
        else:
            program.write(control.Item(call.sequence, value))

    def _item_within_credit(self, call: Call, value: Mapping[str, Any]) -> None:
        """What the program has given credit for it is not cut off for."""
        call.program.write(control.Item(call.sequence, value))

    def _cut_slow(self, program: ProgramConnection) -> None:
        error = SubscriptionError("the program reads too slowly")
        for call in list(program.calls.values()):
            if call.opened:
                self._end_stream(call)
                program.write(control.End(call.sequence, type(error).__name__, str(error)))
        program.finish()


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
