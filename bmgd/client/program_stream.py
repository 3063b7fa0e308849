"""Starts and ends of all registered programs, as one program follows them through its daemon's restarts.

Theory of operation. The daemon tells a snapshot first, then every start and end. A connection that lives
through restarts gets a second snapshot from the daemon that was started again, which is not whole: a
daemon that joins asks the others for their programs, and each answers when it can. So a program that the
second snapshot lacks is *in doubt*:

    it starts again, in the same life of its daemon        it never ended; nothing is told
    it ends                                                told, with its exit code
    a program of another life of that daemon starts        its own life is over: its end is told first
    nothing of these for `DOUBT_S`                         its end is told, with an unknown exit

A further restart begins the time anew: what was in doubt before still is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from bmgd.client.connection import Connection
from bmgd.client.items import Stream
from bmgd.client.programs import Program, ProgramEnd, read_programs
from bmgd.errors import BmgdError, SubscriptionError
from bmgd.wire import control

DOUBT_S: Final = 5.0
"""How long a daemon that was started again has to hear of all programs: it asks for a list at once, and
twice more within this time."""

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class ProgramStream:
    """What one open request `programs` has told; the sink of its items.

    Args:
        bound: how many starts and ends may wait for the program.
        call_later: as that of the event loop; None for that of the running one.
        on_overflow: called where it ends here, because the program reads too slowly.
    """

    def __init__(
        self,
        bound: int,
        call_later: CallLater | None = None,
        on_overflow: Callable[[], None] = lambda: None,
    ) -> None:
        self.items: Stream[Program | ProgramEnd] = Stream(bound)
        self.sequence = 0
        self._call_later = call_later
        self._on_overflow = on_overflow
        self._running: dict[Program, None] = {}
        self._in_doubt: dict[Program, None] = {}
        self._has_begun = False
        self._timer: asyncio.TimerHandle | None = None

    def on_item(self, value: Any) -> None:
        """A snapshot, or starts and ends.

        Raises:
            ProtocolError: it is no such item.
            SubscriptionError: the program reads too slowly.
        """
        if self.items.over:
            return
        found = read_programs(value)
        if "programs" in value and self._has_begun:
            self._doubt({each for each in found if isinstance(each, Program)})
        self._has_begun = True
        told = self._told(found)
        if told:
            self.items.add(told)

    def on_end(self, error: BmgdError | None, _fields: Mapping[str, Any]) -> None:
        """No further item comes."""
        self._stop_timer()
        self.items.finish(error)

    def interrupt(self) -> None:
        """The daemon is gone, and may come back: until then nobody can say what has ended."""
        self._stop_timer()

    def finish_taken(self) -> None:
        """The program reads no more."""
        self._stop_timer()

    def _told(self, found: list[Program | ProgramEnd]) -> list[Program | ProgramEnd]:
        """What is news to the program, in order."""
        told: list[Program | ProgramEnd] = []
        for each in found:
            if isinstance(each, ProgramEnd):
                program = Program(*each[:3])
                self._in_doubt.pop(program, None)
                if program in self._running:
                    del self._running[program]
                    told.append(each)
                continue
            self._in_doubt.pop(each, None)
            if each in self._running:
                continue
            told += self._end([p for p in self._in_doubt if _is_former_life(p, each)])
            self._running[each] = None
            told.append(each)
        return told

    def _end(self, programs: list[Program]) -> list[ProgramEnd]:
        """Those are over, nobody knows how."""
        for each in programs:
            del self._in_doubt[each]
            del self._running[each]
        return [ProgramEnd(*each, None) for each in programs]

    # --- doubt --------------------------------------------------------------------------------

    def _doubt(self, snapshot: set[Program]) -> None:
        """A daemon that was started again knows of these."""
        self._in_doubt = dict.fromkeys(each for each in self._running if each not in snapshot)
        self._stop_timer()
        if self._in_doubt:
            call_later = self._call_later or asyncio.get_running_loop().call_later
            self._timer = call_later(DOUBT_S, self._end_doubt)

    def _end_doubt(self) -> None:
        """The daemon had its time: what it does not know of has ended."""
        self._timer = None
        ends = self._end(list(self._in_doubt))
        if ends and not self.items.over:
            try:
                self.items.add([*ends])
            except SubscriptionError as error:
                self.items.finish(error)
                self._on_overflow()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_former_life(program: Program, started: Program) -> bool:
    return program.id == started.id and program.incarnation != started.incarnation


@asynccontextmanager
async def followed(
    connection: Connection, bound: int
) -> AsyncIterator[Stream[Program | ProgramEnd]]:
    """See `bmgd.Daemon.programs`."""

    def cancel() -> None:
        connection.write(control.Cancel(stream.sequence))

    stream = ProgramStream(bound, on_overflow=cancel)
    async with connection.reading("programs", {}, stream):
        yield stream.items
