"""What programs get: the core's answers to their requests, and what follows in those that go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from bmgd.core.commands import Consumed
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
from bmgd.errors import ProtocolError, SubscriptionError
from bmgd.shell.control_calls import READERS, SNAPSHOTS, WRITERS, Calls, Issue
from bmgd.shell.verbs import (
    describe_announced,
    describe_change,
    describe_change_observed,
    describe_delivered,
    describe_moved,
    describe_observed,
    describe_programs,
)
from bmgd.wire import control
from bmgd.wire.batch import unpack_messages
from bmgd.wire.control_errors import fields_of

ForPrograms = Deliver | StreamMoved | Reply | StreamEnded | Announce | TellMissed | ProgramsChanged
"""What a step of the core has for programs."""
Describe = Callable[[], Mapping[str, object]]


class Answers:
    """Passes on what the core has for programs.

    Args:
        calls: the requests that are open.
        issue: hands a command to the core under a request's number.
        describe: what the shell adds to `status`.
        note: writes a line of log, a warning: an event and a text.
    """

    def __init__(
        self, calls: Calls, issue: Issue, describe: Describe, note: Callable[[str, str], None]
    ) -> None:
        self._calls = calls
        self._issue = issue
        self._describe = describe
        self._note = note
        self._dropped: dict[int, int] = {}

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
        call = self._calls.by_number.get(reply.request)
        if call is None:
            return
        if reply.error is not None:
            self._calls.fail(call, reply.error)
        elif call.verb in READERS or call.verb in WRITERS:
            call.value = reply.result
            self._calls.open(call, reply.result)
        elif call.verb in SNAPSHOTS:
            self._calls.open(call)
            call.revision = reply.result["revision"]
            self._calls.send_item(call, reply.result)
        elif call.verb == "register":
            self._calls.open(call)
        else:
            value = reply.result
            if call.verb == "status":
                value = {**value, **self._describe()}
            self._calls.drop(call)
            call.program.write(control.Result(call.sequence, value))

    def deliver(self, deliver: Deliver) -> None:
        """Pass on a message to the program that reads its topic."""
        call = self._calls.by_number.get(deliver.request)
        if call is None:
            return
        call.unread += deliver.count
        if call.verb in ("read", "inbox"):
            if deliver.long:
                call.unread_pieces += 1
            self._calls.send_item_within_credit(call, describe_delivered(deliver))
            return
        # One item for each message, as programs have it that know nothing of segments.
        try:
            payloads = unpack_messages(deliver.body, deliver.count)
        except ProtocolError as error:
            self._note("control", f"dropped {deliver.count} messages of {deliver.source}: {error}")
            call.unread -= deliver.count
            self._drop(call.number, deliver.count)
            return
        for payload in payloads:
            item = {"source": deliver.source, "topic": deliver.topic, "payload": payload}
            self._calls.send_item_within_credit(call, item)

    def _drop(self, number: int, count: int) -> None:
        """So many messages are nobody's: their reader may have as many others in the next turn.

        If the core handed out the next ones at once, a topic full of such would be one long step.
        """
        if not self._dropped:
            asyncio.get_running_loop().call_soon(self._consume_dropped)
        self._dropped[number] = self._dropped.get(number, 0) + count

    def _consume_dropped(self) -> None:
        dropped, self._dropped = self._dropped, {}
        for number, count in dropped.items():
            if number in self._calls.by_number:
                self._issue(number, Consumed(count))

    def stream_moved(self, moved: StreamMoved) -> None:
        """Tell a program how far its stream out is."""
        call = self._calls.by_number.get(moved.request)
        if call is not None:
            self._calls.send_item(call, describe_moved(moved))

    def stream_ended(self, ended: StreamEnded) -> None:
        """Tell a program that its stream out is over."""
        call = self._calls.by_number.get(ended.request)
        if call is None:
            return
        self._calls.drop(call)
        error = ended.error
        name, text = ("", "") if error is None else (type(error).__name__, str(error))
        fields = {} if error is None else fields_of(error)
        fields |= {"next": ended.next, "unsent": ended.unsent}
        call.program.write(control.End(call.sequence, name, text, fields))

    def announce(self, effect: Announce | TellMissed) -> None:
        """Pass on a broadcast, or that some were missed, to a program that reads its topic."""
        call = self._calls.by_number.get(effect.request)
        if call is not None:
            call.unread_broadcasts += 1
            self._calls.send_item(call, describe_announced(effect))

    def record_changed(self, change: RecordChanged, at_ns: int) -> None:
        """Pass on a changed record to those who watch the membership; `at_ns` is when it changed."""
        if not (self._calls.watchers or self._calls.monitors):
            return
        item = describe_change(change)
        for call in [c for c in self._calls.watchers.values() if c.verb == "membership"]:
            # Until the snapshot is out, it holds the change; after it, revisions have no gap.
            if call.opened and change.revision > call.revision:
                call.revision = change.revision
                self._calls.send_item(call, item)
        if self._calls.monitors:
            event = describe_change_observed(change, at_ns)
            for call in list(self._calls.monitors.values()):
                self._calls.send_item(call, event)

    def programs_changed(self, effect: ProgramsChanged) -> None:
        """Pass on what started and ended to those who watch the programs."""
        watchers = [c for c in self._calls.watchers.values() if c.verb == "programs" and c.opened]
        if not watchers:
            return
        item = describe_programs(effect)
        for call in watchers:
            if effect.revision > call.revision:
                call.revision = effect.revision
                self._calls.send_item(call, item)

    def observed(self, observed: Observed, at_ns: int) -> None:
        """Pass on an event to those who monitor the daemon."""
        if self._calls.monitors:
            item = describe_observed(observed, at_ns)
            for call in list(self._calls.monitors.values()):
                self._calls.send_item(call, item)

    def end_watchers(self, error: SubscriptionError) -> None:
        """End the streams of the membership and of programs: what comes does not follow what they saw."""
        for call in list(self._calls.watchers.values()):
            self._calls.fail(call, error)
