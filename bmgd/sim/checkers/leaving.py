"""A graceful leave drains: what programs had sent, and readers had not finished, is not given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.commands import (
    Consumed,
    ConsumedAnnouncements,
    Leave,
    PutSegment,
    SendTo,
    Settled,
    Unsubscribe,
)
from bmgd.core.draining import ABANDONED
from bmgd.core.effects import (
    Announce,
    Deliver,
    Effect,
    Exit,
    Reply,
    StreamEnded,
    StreamMoved,
    TellMissed,
)
from bmgd.core.events import CommandIssued, Event
from bmgd.core.streams.outbound import OWN_LEAVING
from bmgd.errors import BmgdError, LeavingError, UnreachableError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId

LEFT_OVER_MAX: Final = 256
"""Streams and topics that are named."""
_KINDS: Final = (
    ("unconfirmed", ("unconfirmed", "unanswered", "unconfirmed broadcasts")),
    ("unread", ("unread", "unread broadcasts")),
)
"""What a leave counts, and of which kinds."""


class _Programs:
    """What the programs of one process have underway, written down from commands and effects alone."""

    def __init__(self) -> None:
        self.put: dict[int, int] = {}
        self.withdrawn: dict[int, set[int]] = {}
        self.sent: set[int] = set()
        self.unfinished: dict[int, int] = {}
        self.unread: dict[int, int] = {}
        self.by_ns = 0
        self.leaves: set[int] = set()


class LeavingDrains(Checker):
    """A leave that has time left ends with nothing of its programs given up; until then it goes on.

    Nothing: each message sent before has its outcome, each reader has finished what was handed to it, and
    nothing waits in a topic that is read. A put that is refused takes nothing of its stream with it.
    """

    name: ClassVar[str] = "leaving-drains"
    events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (
        Deliver,
        Announce,
        TellMissed,
        Reply,
        StreamMoved,
        StreamEnded,
        Exit,
    )

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._programs: dict[NodeId, _Programs] = {}

    def on_boot(self, journal: Journal) -> None:
        self._programs[journal.place] = _Programs()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        programs = self._programs[journal.place]
        if isinstance(event, CommandIssued):
            self._note_command(journal, programs, event)
        ends = any(isinstance(effect, Exit) and not effect.code for effect in effects)
        in_time = journal.now_ns < programs.by_ns
        for effect in effects:
            if isinstance(effect, Reply) and effect.request in programs.leaves:
                self._check_left_over(journal, effect, in_time=in_time)
        for effect in effects:
            lost = self._note_effect(programs, effect)
            if lost and (in_time or not ends):
                self.violate(journal, f"leaves, and gives up {lost}")
        if ends and in_time and programs.by_ns:
            self._check_readers(journal, programs)

    @staticmethod
    def _note_command(journal: Journal, programs: _Programs, issued: CommandIssued) -> None:
        request = issued.request
        match issued.command:
            case Leave(timeout_ns):
                span_ns = journal.inside.settings.leave_ns if timeout_ns is None else timeout_ns
                by_ns = journal.now_ns + span_ns
                programs.leaves.add(request)
                programs.by_ns = min(by_ns, programs.by_ns or by_ns)
            case PutSegment():
                programs.put[request] = programs.put.get(request, 0) + 1
            case SendTo():
                programs.sent.add(request)
            case Consumed(count, 0):
                programs.unfinished[request] = programs.unfinished.get(request, 0) - count
            case Settled(count):
                programs.unfinished[request] = programs.unfinished.get(request, 0) - count
            case ConsumedAnnouncements(count):
                programs.unread[request] = programs.unread.get(request, 0) - count
            case Unsubscribe():
                programs.unfinished.pop(request, None)
                programs.unread.pop(request, None)

    @staticmethod
    def _note_effect(programs: _Programs, effect: Effect) -> str:
        """Write an effect down; what is given up by it, if anything is."""
        match effect:
            case Deliver(request, count=count):
                programs.unfinished[request] = programs.unfinished.get(request, 0) + count
            case Announce(request) | TellMissed(request):
                programs.unread[request] = programs.unread.get(request, 0) + 1
            case Reply(request, error=error) if request in programs.sent:
                programs.sent.discard(request)
                return f"message {request}" if _is_left(error) else ""
            case StreamMoved(request):
                programs.withdrawn.setdefault(request, set()).update(effect.withdrawn)
            case StreamEnded(request):
                put = programs.put.pop(request, 0)
                withdrawn = programs.withdrawn.pop(request, set())
                if isinstance(effect.error, LeavingError) and effect.error.detail == OWN_LEAVING:
                    # The one that was refused is the last.
                    put -= 1
                elif not _is_left(effect.error):
                    return ""
                # What was withdrawn has its outcome, though the mark in its place is not confirmed.
                if any(number not in withdrawn for number in range(effect.next, put + 1)):
                    return f"segments {effect.next}..{put} of stream {request}"
            case _:
                pass
        return ""

    def _check_left_over(self, journal: Journal, answer: Reply, *, in_time: bool) -> None:
        """What is left over is counted, by kind; in time nothing is but what nobody reads."""
        if answer.error is not None:
            return
        told, rows = answer.result, answer.result["left_over"]
        counts = {key: sum(r["messages"] for r in rows if r["kind"] in of) for key, of in _KINDS}
        problem = ""
        if told["drained"] != (not rows) or not all(row["messages"] > 0 for row in rows):
            problem = "is or is not drained"
        elif {row["kind"] for row in rows} - {kind for _, of in _KINDS for kind in of}:
            problem = "has kinds that there are not"
        elif any(counts[key] != told[key] for key, _ in _KINDS) and len(rows) < LEFT_OVER_MAX:
            problem = f"counts to {counts}"
        elif in_time and any(r["kind"] != "unread" for r in rows):
            problem = "came in time"
        if problem:
            self.violate(journal, f"says what is left over, which {problem}: {told}")

    def _check_readers(self, journal: Journal, programs: _Programs) -> None:
        left = sum(count for count in programs.unfinished.values() if count > 0)
        left += sum(count for count in programs.unread.values() if count > 0)
        if left:
            self.violate(journal, f"leaves, and {left} messages are not finished by their readers")
        waiting = journal.inside.awaited_messages()
        if waiting:
            self.violate(journal, f"leaves, and {waiting} messages wait for their readers")


def _is_left(error: BmgdError | None) -> bool:
    """Whether something was given up because its node left, and not for another reason."""
    return isinstance(error, UnreachableError) and ABANDONED in error.detail
