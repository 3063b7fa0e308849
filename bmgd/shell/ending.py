"""How a daemon ends, and how it loses its id: why no event reaches its core any more.

Theory of operation. A daemon ends once: by its core, by an error of its core or of its loop, or because
something that it needs cannot be used. The first reason counts, and is the last line of its log. After
a bug the recording of what led to it is written before. When another node has its id, the core takes no
event either, until the daemon has the next one; an end that comes meanwhile stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from bmgd.core.effects import Displaced
from bmgd.errors import ConfigError
from bmgd.linkevents import OWN_LACK
from bmgd.shell.advice import advice_on
from bmgd.shell.flight import Flight
from bmgd.shell.telling import Telling

Outcome = TypeVar("Outcome")


class Ending:
    """The end of one daemon.

    Args:
        telling: told of it.

    Attributes:
        exit_code: of the process; None while the daemon does not end.
        displaced: why it needs another id; None while it has its own.
        is_over: whether either of them is so: the core takes no event.
        ended: set then, until the daemon has done what was left to do for a lost id.
        flight: writes what led to a bug.
    """

    def __init__(self, telling: Telling) -> None:
        self.exit_code: int | None = None
        self.displaced: Displaced | None = None
        self.is_over = False
        self.ended = asyncio.Event()
        self.flight: Flight | None = None
        self._telling = telling

    def lose_id(self, displaced: Displaced) -> None:
        """Another node has this id."""
        self.displaced = displaced
        self.is_over = True
        self.ended.set()

    def await_id(self) -> bool:
        """All is done that was left to do for a lost id; whether the daemon is to have the next one."""
        if self.exit_code is not None:
            return False
        self.ended.clear()
        return True

    async def unless_ended(self, work: Coroutine[Any, Any, Outcome]) -> Outcome | None:
        """What comes of work; None where the daemon ends meanwhile, and the work is cancelled."""
        end = asyncio.ensure_future(self.ended.wait())
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((end, task), return_when=asyncio.FIRST_COMPLETED)
            return None if end.done() else task.result()
        finally:
            end.cancel()
            task.cancel()
            await asyncio.gather(end, task, return_exceptions=True)

    def take_id(self) -> None:
        """The daemon has an id again."""
        self.displaced = None
        self.is_over = self.exit_code is not None

    def end(self, code: int, reason: str) -> None:
        """End the daemon, unless it ends already."""
        if self.exit_code is None:
            self.exit_code = code
            self.is_over = True
            if code:
                # What led to it stands before it.
                self._telling.show_what_happened()
                advice = advice_on(reason.rpartition(": ")[2], self._telling.config)
                reason = f"{reason}: {advice}" if advice else reason
            self._telling.log.end(reason, logging.ERROR if code else logging.INFO)
            self._telling.report("ending", code=code, detail=reason)
            self.ended.set()

    def on_failure(self, error: BaseException) -> None:
        """A step has failed."""
        if isinstance(error, ConfigError):
            self.end(1, str(error))
        else:
            self._end_loudly(error)

    def on_stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop has caught what nobody else did."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in OWN_LACK:
            # The loop could not accept a program, and tries again in a second; uvloop says nothing.
            self._telling.warn("accept", f"programs wait: {error.strerror}")
            return
        if self.exit_code is not None and isinstance(error, OSError | ValueError):
            # asyncio tries so too when the socket has been closed meanwhile.
            self._telling.warn("exit", f"while ending: {error!r}")
            return
        self._end_loudly(error)

    def _end_loudly(self, error: BaseException | None) -> None:
        if isinstance(error, MemoryError):
            self.end(1, "no memory is left: this daemon cannot go on")
            return
        logging.getLogger("bmgd").critical("a bug in bmgd ends this daemon", exc_info=error)
        try:
            if self.exit_code is None:
                self._write_what_led_to_it()
        finally:
            # Also where the recorder has a bug of its own: this one is the reason.
            self.end(1, f"a bug in bmgd: {error!r}")

    def _write_what_led_to_it(self) -> None:
        path = "" if self.flight is None else self.flight.write_now("bug")
        if path:
            text = f"what led to it is in {path}: bmgd replay"
            self._telling.log.line("recording", text, logging.ERROR)
