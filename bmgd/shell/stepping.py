"""The queue of events of one daemon, the core's steps, and when the core is woken.

Theory of operation. Everything that happens becomes an event in one queue. One place takes events
out, steps the core and carries out the effects, in order; so the core is never re-entered, whoever
calls. Outboxes are written when the queue is empty, so all frames of one wake-up leave together; then
programs are told, for a neighbor waits longer for what it gets next than a program beside it. When
the core's deadline comes, the sockets are read first: no peer is judged silent while its bytes wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from bmgd.core.effects import Effect
from bmgd.core.events import DeadlineReached, Event
from bmgd.core.node import Node
from bmgd.errors import ConfigError, InvariantError
from bmgd.shell.ending import Ending
from bmgd.shell.flight import Flight, Note
from bmgd.shell.telling import Telling
from bmgd.shell.transport import Transport
from bmgd.shell.vitals import Vitals


class Stepping:
    """Steps the core of one daemon.

    Args:
        telling: told when neighbors have got what is for them.
        ending: says when the core takes no event, and is told of a step that fails.
        vitals: counts the steps.
        carry_out: carries out one effect; a ConfigError ends the daemon.
    """

    def __init__(
        self,
        telling: Telling,
        ending: Ending,
        vitals: Vitals,
        carry_out: Callable[[Effect], None],
    ) -> None:
        self._telling = telling
        self._ending = ending
        self._vitals = vitals
        self._carry_out = carry_out
        self._events: deque[Event] = deque()
        self._stepping = False
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at_ns = 0

    def begin(self, node: Node, transport: Transport, flight: Flight, note: Note | None) -> None:
        """Step this core from now on.

        Args:
            transport: its links.
            flight: told of a step that fails.
            note: keeps each step; None where nothing is recorded.
        """
        self._node = node
        self._transport = transport
        self._flight = flight
        self._note = note

    def stop(self) -> None:
        """Wake this core no more; the next one is woken when it has stepped."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def emit(self, event: Event) -> None:
        """Hand an event to the core; what follows from it is done when this returns, or soon after."""
        self.emit_all((event,))

    def emit_all(self, events: Iterable[Event]) -> None:
        """Hand some events to the core, in order; without any, write what waits to be written."""
        self._events.extend(events)
        if self._stepping:
            return
        self._stepping = True
        telling = self._telling
        if self._events:
            self._events.extendleft(self._transport.links.absorbed())
        try:
            while True:
                while self._events:
                    self._step(self._events.popleft())
                # Without an event too: relayed frames wait to be written.
                self._transport.links.flush()
                if telling.untold:
                    telling.tell_programs()
                if telling.happened:
                    telling.show_what_happened()
                if not self._events:
                    break
        except (InvariantError, MemoryError, ConfigError) as error:
            self._ending.on_failure(error)
        finally:
            # Where a step has failed, what came of those before it.
            if telling.untold:
                telling.tell_programs()
            self._stepping = False
        self._plan_wake()

    def _step(self, event: Event) -> None:
        if self._ending.is_over:
            return
        began_ns = time.monotonic_ns()
        try:
            effects = self._node.step(began_ns, event)
        except InvariantError:
            self._flight.note_failure(began_ns, event)
            raise
        if self._note is not None:
            try:
                self._note(began_ns, event, effects)
            except MemoryError as error:
                # What the recorder holds can be spared.
                self._note = None
                self._flight.give_up(error)
        for effect in effects:
            self._carry_out(effect)
        self._vitals.steps.observe(time.monotonic_ns() - began_ns)

    # --- waking -------------------------------------------------------------------------------

    def _plan_wake(self) -> None:
        deadline_ns = self._node.deadline_ns
        if deadline_ns is None or self._ending.is_over:
            return
        if self._wake is not None:
            if self._wake_at_ns <= deadline_ns:
                return
            self._wake.cancel()
        self._wake_at_ns = deadline_ns
        # Whole milliseconds, rounded up: uvloop rounds to them, and too early would be again and again.
        delay_ms = -(-max(0, deadline_ns - time.monotonic_ns()) // 1_000_000)
        self._wake = asyncio.get_running_loop().call_later(delay_ms / 1e3, self._on_wake)

    def _on_wake(self) -> None:
        self._vitals.lag.observe(max(0, time.monotonic_ns() - self._wake_at_ns))
        # Until all that is due is done nothing is planned: it would be a further wake-up for nothing.
        self._wake_at_ns = 0
        if self._is_due():
            self._transport.drain()
            # What came may have put the deadline off.
            if self._is_due():
                self.emit(DeadlineReached())
        self._wake = None
        self._plan_wake()

    def _is_due(self) -> bool:
        deadline_ns = self._node.deadline_ns
        return deadline_ns is not None and deadline_ns <= time.monotonic_ns()
