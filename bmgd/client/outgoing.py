"""The program's end of one stream: what `putting.py` puts, and whoever waits for it.

Waited for are the turn of a message, the room of each piece of a long one, the daemon, and confirmations.
A long message has the stream to itself: nothing else comes between its pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bmgd.client.arguments import Payload
from bmgd.client.backlog import with_sent
from bmgd.client.connection import ANSWER_S
from bmgd.client.deadlines import left_until
from bmgd.client.file_payload import FilePayload
from bmgd.client.putting import CLOSED, UNSENT, Putting
from bmgd.errors import BmgdError, RequestError, SilentDaemonError, UnreachableError
from bmgd.wire import control
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from bmgd.wire.control import FIRST_PIECE, LAST_PIECE
from bmgd.wire.segments import OVERHEAD_BYTES

_NO_ROOM: Final = "no room for the whole before the deadline"


class Outgoing(Putting):
    """The program's end of one stream; made as a `Putting`."""

    _flushed_segments = 0
    """How many had been confirmed when all was, the last time that somebody waited for it."""
    is_left = False
    """Whether its block is left: nothing more is added, and what waits here is sent if nothing fails."""
    _follows_confirmed = False
    """Whether anything of the streams before this one is confirmed since the last flush."""

    # --- long messages ------------------------------------------------------------------------

    async def put_long(self, payload: Payload | FilePayload, timeout: float) -> None:  # noqa: ASYNC109
        """Send a long message in pieces; returns when its last piece is on its way.

        Args:
            timeout: seconds until the last piece must be confirmed; 0 for no bound.

        Raises: as `check`; RequestError: its file cannot be read to its end.
        """
        self._connection.check_loop()
        if isinstance(payload, FilePayload):
            await self._put_pieces(len(payload), payload.piece, timeout)
            return
        with memoryview(payload) as whole:
            view = whole.cast("B")

            def piece(at: int, size: int) -> bytes | memoryview:
                found = view[at : at + size]
                # The owner of any other may write into it as soon as this returns.
                return found if type(payload) is bytes else bytes(found)

            await self._put_pieces(whole.nbytes, piece, timeout)

    async def _put_pieces(
        self,
        size: int,
        piece_at: Callable[[int, int], bytes | memoryview],
        timeout: float,  # noqa: ASYNC109
    ) -> None:
        until = self._loop.time() + timeout if timeout else 0.0
        begun = False
        await self._until_turn(size, until)
        try:
            for at in range(0, size, PAYLOAD_BYTES_MAX):
                piece = piece_at(at, PAYLOAD_BYTES_MAX)
                await self._until_may_put(len(piece) + OVERHEAD_BYTES, until, is_begun=begun)
                last = at + len(piece) == size
                flags = (0 if at else FIRST_PIECE) | (LAST_PIECE if last else 0)
                left = left_until(until) if until else 0.0
                self._put(b"", 0, [], left, size, flags, piece)
                self._connection.long_bytes += len(piece)
                begun = not last
        finally:
            self._in_long = False
            if begun:
                # Cancelled, out of time, or it cannot be read: what was sent of it is of no use.
                self._connection.write(control.Withdraw(self._sequence, 0))
            self._pump()

    def withdraw_long(self) -> None:
        """Ask the daemon to give up a long message that was put, whole, as if its time were over."""
        if not self._over and self._underway:
            self._connection.write(control.Withdraw(self._sequence, self._underway.last_number))

    async def _until_turn(self, size: int, until: float) -> None:
        """Wait until all that waited before is put; what is added from then on waits."""
        if self._writers.count or self._backlog.payloads or self._in_long:
            await self.until_room(size, until, _NO_ROOM)
        self.check()
        self._in_long = True
        self._tell_change()

    async def _until_may_put(self, cost: int, until: float, *, is_begun: bool) -> None:
        while not self._may_put(cost):
            self.check()
            if until and self._loop.time() >= until:
                sent = is_begun or bool(self._underway)
                raise UnreachableError(self.destination, _NO_ROOM, sent=sent)
            await self.until_changed(until)
        self.check()

    # --- waiting ------------------------------------------------------------------------------

    async def until_room(self, size: int, until: float = 0.0, late: str = UNSENT) -> None:
        """Wait for the turn of a message, which the caller adds at once unless the stream `is_broken`.

        Args:
            size: in bytes.
            until: a time of the loop; 0 for no bound.
            late: what the error says when that time is over.
        """
        self._connection.check_loop()
        is_called = False
        try:
            async with asyncio.timeout_at(until or None):
                await self._writers.wait(size)
            is_called = True
        except TimeoutError:
            raise UnreachableError(self.destination, late, sent=False) from None
        finally:
            if not is_called:
                self._tell_change()

    @property
    def _has_confirmed(self) -> bool:
        """Whether anything that was put since the last flush is confirmed."""
        has_more = self._underway.segments_confirmed > self._flushed_segments
        return has_more or self._follows_confirmed

    def follow(self, cut: Outgoing) -> None:
        """This one takes the place of a stream whose daemon is gone."""
        self._follows_confirmed = cut._has_confirmed

    def note_flushed(self) -> None:
        """Somebody knows that all is confirmed up to here."""
        self._flushed_segments = self._underway.segments_confirmed
        self._follows_confirmed = False

    def first_error(self) -> BmgdError:
        """The first error of a stream that is broken, which says *sent* where `check` would."""
        if self._error is None:
            return RequestError(CLOSED)
        self._error = self.as_told(self._error)
        return self._error.with_traceback(None)

    def as_told(self, error: BmgdError) -> BmgdError:
        """An error as it is for all that was written since the last flush: whether any of it is sent.

        What waits here is sent later, unless the stream is over, or its block is left by an error.
        """
        will_be_sent = bool(self._backlog.payloads) and not (self._over or self.is_left)
        is_sent = self._has_confirmed or self.is_in_doubt or will_be_sent
        return with_sent(error, sent=True) if is_sent else error

    def check(self) -> None:
        """Raise the first error of the stream, if there is one.

        Nobody can tell which message it is of. A program that repeats all that it wrote since the last
        flush would send some of it twice, where another message of it is confirmed, underway or still
        waits. So the error says *sent* then, though the message that failed was not.

        Raises:
            BmgdError: a message failed, or the stream is over.
        """
        if self._error is not None:
            self._is_told, self.was_cut = True, False
            raise self.first_error()
        if self._over or self._closing:
            raise RequestError(CLOSED)

    async def until_changed(self, until: float = 0.0) -> None:
        """Wait until something changes, or until that time of the loop."""
        self._connection.check_loop()
        self._changed.clear()
        if not until:
            await self._changed.wait()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def until_sendable(self, within_s: float) -> None:
        """Wait until the daemon is there.

        Raises: as `bmgd.client.connection.Connection.until_sendable`.
        """
        await self._connection.until_sendable(self.destination, within_s)

    async def until_answered(self) -> None:
        """Wait until the daemon has answered, or is gone.

        Raises:
            SilentDaemonError: it does not answer.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                while not self._is_open and self._error is None and not self._over:
                    await self.until_changed()
        except TimeoutError:
            silent = SilentDaemonError(f"no answer to 'stream' for {ANSWER_S:g} s")
            raise self.as_told(silent) from None

    async def until_open(self) -> None:
        """Wait until the daemon has answered that it is open.

        Raises: as `check` and `until_answered`.
        """
        await self.until_answered()
        self.check()

    async def until_broken(self) -> None:
        """Wait until the stream has an error, or is closed."""
        while not self.is_broken:
            await self.until_changed()

    async def until_confirmed(self) -> None:
        """Wait until nothing waits or is underway of what was written before.

        Raises: as `check`.
        """
        last = await self._until_put(lambda: self._over or not self._is_lossless)
        while self._underway.has_up_to(last) and not self._over and self._is_lossless:
            await self.until_changed()
        if self._error is not None and not self._is_lossless:
            self.check()
        if self.is_idle:
            self.note_flushed()

    async def until_settled(self) -> None:
        """Wait until what was written before has its outcome, or nobody waits for it, or it is over."""
        last = await self._until_put(lambda: self._over)
        while not self._underway.are_settled(last) and not self._over:
            await self.until_changed()

    async def _until_put(self, is_vain: Callable[[], bool]) -> int:
        """Wait until what was written before is put; what comes later is not waited for.

        Args:
            is_vain: whether it need not be waited for any more.

        Returns:
            The number of the segment put last.
        """
        self._connection.check_loop()
        self._pump_all()
        place = self._writers.following
        while self._writers.has_before(place) and not is_vain():
            await self.until_changed()
        place = self._backlog.following
        while self._backlog.has_before(place) and not is_vain():
            await self.until_changed()
        return self._underway.last_number

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits or is underway, or the stream is over."""
        waits = self._writers.count or self._backlog.payloads or not self._underway.all_settled
        return self._over or not waits

    async def close(self) -> None:
        """Let the daemon end the stream once all is confirmed; what waits here is sent first.

        Where that fails, or is cancelled, it is abandoned: nobody is left to end it.

        Raises: as `check`.
        """
        is_confirmed = False
        self.is_left = True
        try:
            await self.until_confirmed()
            is_confirmed = True
        finally:
            if is_confirmed:
                self.finish()
            else:
                self.abandon()
