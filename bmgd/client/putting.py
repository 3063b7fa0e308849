"""What a program sends to one topic of one node: packed into segments, confirmed in batches.

Theory of operation. A message waits in a backlog until the stream may send: its daemon grants credit
in bytes, and one segment may always be underway. What waits then goes into one segment, by one call.
What the daemon does not read waits here, and not in the loop. A lone message leaves at the end of this
turn of the event loop; one that is waited for leaves at once, where the one before it was alone too.
While `CROWDED` segments are underway what follows waits for the next confirmation, or until a segment
is full. So no timer delays anything.

    turns.py --room--> waiting (backlog.py) --in a segment--> underway (underway.py) --> confirmed,
       |                   |                                            not sent, or in doubt
       +-------------------+--timeout, cancelled--> not sent

Messages of `write` have no future each: the first error of the stream is raised by `flush`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from bmgd.client.arguments import Priority, Quality
from bmgd.client.backlog import (
    FULL_BYTES,
    PREFIX_BYTES,
    SEGMENT_BYTES,
    Backlog,
    Pending,
    says_sent,
    with_sent,
)
from bmgd.client.connection import Connection
from bmgd.client.deadlines import left_until
from bmgd.client.turns import Turns
from bmgd.client.underway import Segment, Underway
from bmgd.errors import (
    BmgdError,
    ControlError,
    ProtocolError,
    RequestError,
    UnreachableError,
)
from bmgd.wire import control
from bmgd.wire.batch import segment_parts
from bmgd.wire.control import LAST_PIECE, TIMEOUT_S_MAX
from bmgd.wire.segments import OVERHEAD_BYTES

UNSENT: Final = "its stream could not send it before the deadline"
UNCONFIRMED: Final = "no confirmation before the deadline"
TAKEN_BACK: Final = "withdrawn"
"""The daemon's word for what it was asked to take back."""
CLOSED: Final = "the stream is closed"
CROWDED: Final = 16
"""Segments underway, from which on the next one waits until it is full or one is confirmed."""


class Putting:
    """The part of an `Outgoing` that waits for nothing: each call puts what may be put, and returns.

    Args:
        connection: to the daemon.
        destination: a node id.
        topic: 1 to 255 bytes.
        priority, quality: see `bmgd.Daemon.stream`.
        opens: the verb and parameters of another kind of stream than that.
    """

    unconfirmed = UNCONFIRMED
    """What the error of a message says whose time was over when it was underway."""

    def __init__(
        self,
        connection: Connection,
        destination: int,
        topic: str,
        priority: Priority,
        quality: Quality,
        opens: tuple[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.destination = destination
        self.topic = topic
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        params: Mapping[str, Any] = {
            "destination": destination,
            "topic": topic,
            "priority": priority,
            "quality": quality,
        }
        verb, params = opens or ("stream", params)
        self._sequence, self._answer = connection.open(verb, params, self)
        self._answer.add_done_callback(self._on_opened)
        self._is_open = False
        self._credit = 0
        self._backlog = Backlog()
        self._writers = Turns()
        self._underway = Underway(self._settle)
        self._in_long = False
        """Whether a long message is put in part: nothing else may come between its pieces."""
        self._scheduled = False
        self._goes_alone = True
        """Whether the segment put last held one message only: others do not come at the same time."""
        self._given_up: set[int] = set()
        """The segments of which the daemon is to be asked at the end of this turn to take them back."""
        self._changed = asyncio.Event()
        self._error: BmgdError | None = None
        self._is_lossless = True
        """Whether all that was written is confirmed, or may still be. A stream whose destination dies
        when all of it is confirmed ends with an error that is of no message."""
        self._over = False
        self._closing = False
        self._is_told = False
        """Whether the program has been told of the error."""
        self.was_cut = False
        """Whether something of it was not confirmed when it ended, and nobody was told."""

    # --- its state ----------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether nothing can be sent on it any more."""
        return self._over

    @property
    def error(self) -> BmgdError | None:
        """The first error of a message, or why it is over; None for none."""
        return self._error

    @property
    def is_broken(self) -> bool:
        """Whether it is over or left, or has an error that `flush` has yet to raise."""
        return self._over or self._closing or self._error is not None

    @property
    def has_put(self) -> bool:
        """Whether anything of it was ever handed to the daemon."""
        return self._underway.last_number > 0

    @property
    def messages_confirmed(self) -> int:
        """How many messages of it are confirmed, of those before the first that was lost."""
        return self._underway.messages_confirmed

    @property
    def is_lossless(self) -> bool:
        """Whether all that was written without a future is confirmed, or may still be."""
        return self._is_lossless

    @property
    def is_in_doubt(self) -> bool:
        """Whether something of it was handed to the daemon, and is not confirmed."""
        return len(self._underway) > 0 or (self._in_long and self.has_put)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it waits or is underway."""
        return not self._backlog.payloads and not self._underway

    @property
    def is_unused(self) -> bool:
        """Whether it can be closed, because nobody waits for anything of it."""
        return self.is_idle

    @property
    def is_full(self) -> bool:
        """Whether as much waits as goes into a segment."""
        return self._backlog.is_full

    @property
    def has_line(self) -> bool:
        """Whether writers wait for their turn."""
        return self._writers.count > 0

    @property
    def is_crowded(self) -> bool:
        """Whether a writer has to wait for its turn."""
        return self._backlog.size_bytes >= FULL_BYTES or self._writers.count > 0

    def _on_opened(self, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if isinstance(error, BmgdError):
            self._fail(error, 0)
        elif error is None:
            self._is_open = True
            self._credit = int(answer.result()["credit"])
            self._begin(answer.result())
            self._pump()

    def _begin(self, value: Mapping[str, Any]) -> None:
        """The daemon has opened it."""

    # --- putting ------------------------------------------------------------------------------

    def add(self, payload: bytes, waited: Pending | None = None) -> None:
        """Let a message wait for its segment; the caller has waited while the stream was full."""
        # This runs once for every message: nothing is called but for what is waited for.
        backlog = self._backlog
        goes_alone = False
        if waited is not None:
            goes_alone = self._goes_alone and not self._scheduled and self.is_unused
            backlog.wait_for(waited)
        backlog.payloads.append(payload)
        backlog.size_bytes += len(payload) + PREFIX_BYTES
        if goes_alone or backlog.size_bytes >= FULL_BYTES:
            self._pump()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._scheduled = False
        self._pump()

    def _may_put(self, cost: int) -> bool:
        has_credit = self._underway.put_cost + cost <= self._credit or self._underway.is_all_done
        return self._is_open and has_credit and self._connection.may_write(self)

    def on_writable(self) -> None:
        """The daemon has read some of what this connection wrote."""
        if not self._over:
            self._pump()

    def _pump(self) -> None:
        """Send what waits, as far as it may be."""
        backlog = self._backlog
        while backlog.payloads and not self._over and not self._in_long:
            if not backlog.is_full and len(self._underway) >= CROWDED:
                break
            cost = min(backlog.size_bytes, SEGMENT_BYTES) + OVERHEAD_BYTES
            if not self._may_put(cost):
                break
            self._send_segment()
        self._tell_change()

    def _tell_change(self) -> None:
        self._changed.set()
        if not self._writers.count:
            return
        if self.is_broken:
            self._writers.call_all()
        else:
            room = FULL_BYTES - self._backlog.size_bytes
            self._writers.call(room, may_begin_long=not self._in_long)

    def _send_segment(self) -> None:
        payloads, waited = self._backlog.take()
        timeout = 0.0
        if len(waited) == len(payloads):
            latest = max(message.deadline for message in waited)
            timeout = min(left_until(latest), TIMEOUT_S_MAX)
        body, more = segment_parts(payloads)
        self._goes_alone = len(payloads) == 1
        self._put(body, len(payloads), waited, timeout, more=more)

    def _put(
        self,
        body: bytes,
        count: int,
        waited: list[Pending],
        timeout: float,
        size: int = 0,
        flags: int = 0,
        more: bytes | memoryview = b"",
    ) -> int:
        ends = count or int(flags & LAST_PIECE != 0)
        number = self._underway.put(len(body) + len(more) + OVERHEAD_BYTES, count, ends, waited)
        self._connection.write(
            control.PutSegment(self._sequence, count, flags, size, timeout, body, more)
        )
        return number

    def _pump_all(self) -> None:
        """What waits goes now, full or not."""
        waits = self._backlog.payloads and not self._over and not self._in_long
        if waits and self._may_put(self._backlog.size_bytes + OVERHEAD_BYTES):
            self._send_segment()
        self._pump()

    # --- taking back --------------------------------------------------------------------------

    def withdraw(self, message: Pending) -> bool:
        """Nobody waits for a message any more; whether it was still here, and is not sent.

        The daemon is asked to take back a segment of which nobody waits for any message.
        """
        message.given_up = True
        self._changed.set()
        if not message.segment:
            self._backlog.drop(message)
            self._tell_change()
            return True
        if self._underway.is_given_up(message):
            if not self._given_up:
                self._loop.call_soon(self._take_back)
            self._given_up.add(message.segment)
        return False

    def _take_back(self) -> None:
        """Ask for what was given up in a turn, the last first: each makes room for the one after it."""
        given_up, self._given_up = self._given_up, set()
        if not self._over:
            for number in sorted(given_up, reverse=True):
                self._connection.write(control.Withdraw(self._sequence, number))

    def is_alone(self, message: Pending) -> bool:
        """Whether it is underway in a segment of its own, of which the daemon tells in time."""
        return self._underway.is_alone(message)

    # --- what the daemon tells ----------------------------------------------------------------

    def on_item(self, value: Any) -> None:
        """How far the stream is, and what became of segments that were not confirmed."""
        match value:
            case {"next": int(following), "credit": int(credit)}:
                if len(value) > 2:
                    self._underway.lose(self.destination, value)
                self._credit = credit
                self._underway.confirm(following)
                self._pump()
            case _:
                raise ProtocolError("not the state of a stream")

    def _settle(self, segment: Segment, error: BmgdError | None) -> None:
        for message in segment.waited:
            if message.confirmed.done():
                continue
            if error is None:
                message.confirmed.set_result(None)
            else:
                message.confirmed.set_exception(self._overdue(error) if message.given_up else error)
        if error is not None and len(segment.waited) < max(1, segment.count):
            first = self._error or error
            # The first error is told: of all, so it says *sent* where a later one does.
            self._error = with_sent(first, sent=True) if says_sent(error) else first
            self._is_lossless = False

    def _overdue(self, error: BmgdError) -> BmgdError:
        """What the daemon says of a message that it was asked to take back when its time was over."""
        if not isinstance(error, UnreachableError) or error.detail != TAKEN_BACK:
            return error
        detail = self.unconfirmed if error.sent else UNSENT
        return UnreachableError(self.destination, detail, sent=error.sent)

    def on_end(self, error: BmgdError | None, fields: Mapping[str, Any]) -> None:
        """The stream is over."""
        if self._over:
            return
        self._underway.confirm(int(fields.get("next", 0)))
        self._fail(error, int(fields.get("unsent", self._underway.last_number + 1)))

    def _fail(self, error: BmgdError | None, unsent: int) -> None:
        """What is not confirmed has failed; from `unsent` on it was not taken, and will not be."""
        if not self._over:
            self.was_cut = not self.is_idle or (self._error is not None and not self._is_told)
        self._over = True
        self._connection.forget(self._sequence)
        if isinstance(error, ControlError):
            error = with_sent(error, sent=self.is_in_doubt)
        if error is not None:
            self._error = self._error or error
        self._is_lossless = self._is_lossless and self.is_idle and not self._in_long
        over = error or RequestError(CLOSED)
        self._underway.fail(over, unsent)
        self._backlog.fail(over)
        self._tell_change()

    # --- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let the daemon end the stream once all that was put is confirmed; what waits is not sent."""
        if not self._over:
            self._closing = True
            closed = RequestError(CLOSED)
            if self._backlog.payloads:
                self._error = self._error or closed
                self._is_lossless = False
            self._backlog.fail(closed)
            self._connection.write(control.Close(self._sequence))
            self._tell_change()

    def abandon(self) -> None:
        """End it at once: what waits here is not sent, and nobody is told."""
        if not self._over:
            self._connection.write(control.Cancel(self._sequence))
            self._fail(RequestError("the stream was abandoned"), self._underway.last_number + 1)
        self.was_cut = False
