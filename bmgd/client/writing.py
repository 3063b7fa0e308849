"""How a program writes: a stream that it holds open, and one message that it waits for.

Both put what they have on an `Outgoing` (`outgoing.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bmgd.client.arguments import Payload, check_timeout, checked_payload
from bmgd.client.backlog import Pending
from bmgd.client.connection import ANSWER_S, GRACE_S
from bmgd.client.deadlines import left_until
from bmgd.client.file_payload import FilePayload
from bmgd.client.outgoing import Outgoing
from bmgd.client.putting import CLOSED, UNCONFIRMED, UNSENT
from bmgd.errors import DeliveryError, RequestError, UnreachableError
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX


class Writer:
    """A stream to one topic of one node; made by `bmgd.Daemon.stream`."""

    def __init__(self, stream: Outgoing, make: Callable[[], Outgoing] | None = None) -> None:
        self._stream = stream
        self._add = stream.add
        self._make = make
        """Makes the stream again after a restart of the daemon; None where that is its end."""
        self._confirmed_before = 0
        """Of the messages of the streams before this one."""
        self._has_lost = False
        """Whether a message of those was lost."""
        self._is_abandoned = False

    @property
    def confirmed(self) -> int:
        """How many of its messages are confirmed, from the first one on to the first that was lost."""
        if self._has_lost:
            return self._confirmed_before
        return self._confirmed_before + self._stream.messages_confirmed

    async def write(self, payload: Payload, *, timeout: float = 0.0) -> None:  # noqa: ASYNC109
        """Send a message: the fast way, without a future for each.

        Waits only while as much waits as goes into a segment, behind those that came before; one that
        is cancelled meanwhile is not sent. Errors show in `flush`, and in the writes after them. While
        the daemon of a connection that reconnects is away, it waits for it, 10 s at most.

        Args:
            payload: its bytes, any number of them.
            timeout: of one longer than 64 KiB, seconds until it must be confirmed; 0 for no bound.

        Raises:
            DeliveryError: this or an earlier message is not confirmed.
            RequestError: not bytes, a bad timeout, or the stream is closed.
            NoDaemonError: the daemon is gone.
        """
        stream = self._stream
        if payload.__class__ is not bytes:
            payload = checked_payload(payload)
        if stream.is_broken or stream.is_left:
            stream = await self._go_on()
        if len(payload) > PAYLOAD_BYTES_MAX:
            if timeout != 0:
                check_timeout(timeout)
            await stream.put_long(payload, timeout)
            return
        if stream.is_crowded:
            await self._until_room(stream, len(payload))
        self._add(payload)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until everything that was written is confirmed.

        Args:
            timeout: seconds, or None to wait until the destination's death or answer.

        Raises:
            DeliveryError: the first error; what was written after it may be sent or not. What is lost
                with a daemon that is restarted is told once, to the first who writes or flushes.
            UnreachableError: not within the timeout; what was written stays on its way.
            RequestError: a bad timeout.
            NoDaemonError: the daemon is gone.
        """
        if timeout is not None:
            check_timeout(timeout)
        if self._make is not None and self._stream.over:
            self._tell_cut()
            self._stream.note_flushed()
            return
        try:
            async with asyncio.timeout(timeout):
                await self._stream.until_confirmed()
        except TimeoutError:
            detail = f"not everything is confirmed within {timeout:g} s"
            raise UnreachableError(self._stream.destination, detail, sent=True) from None

    async def until_failed(self) -> None:
        """Wait until something of the stream has failed: for a program that writes seldom.

        That is told to who writes and flushes as well. Where the daemon of a connection that reconnects
        goes while nothing is underway, the stream is opened by the next one, and has not failed.

        Raises: as `write`; RequestError: the stream is closed.
        """
        while True:
            stream = self._stream
            await stream.until_broken()
            if not (self._may_follow(stream) and stream.is_lossless):
                raise stream.first_error()
            await self._make_again(stream, asyncio.get_running_loop().time() + ANSWER_S)

    def _may_follow(self, stream: Outgoing) -> bool:
        """Whether a stream is over because its daemon is gone, and another one may go on for it."""
        is_cut = stream.over and isinstance(stream.error, UnreachableError)
        return self._make is not None and is_cut

    async def until_open(self) -> None:
        """Wait until the daemon has answered; the next one, where this one goes before.

        Raises: as `write`.
        """
        until = asyncio.get_running_loop().time() + ANSWER_S
        await self._until_open(until)

    async def _until_open(self, until: float) -> None:
        """As `until_open`, until that time of the loop."""
        loop = asyncio.get_running_loop()
        while True:
            stream = self._stream
            await stream.until_answered()
            if not self._may_follow(stream) or stream.was_cut or loop.time() >= until:
                # What other tasks have added meanwhile is lost where it was cut, and that is told.
                stream.check()
                return
            await self._make_again(stream, until)

    async def _go_on(self) -> Outgoing:
        """The stream to write into: another one, where the daemon was restarted."""
        if self._make is None or not self._stream.over:
            self._stream.check()
            return self._not_left()
        self._tell_cut()
        until = asyncio.get_running_loop().time() + ANSWER_S
        await self._make_again(self._stream, until)
        await self._until_open(until)
        return self._not_left()

    def _not_left(self) -> Outgoing:
        if self._stream.is_left:
            raise RequestError(CLOSED)
        return self._stream

    async def _make_again(self, cut: Outgoing, until: float) -> None:
        """Make the stream that follows one whose daemon is gone; waits for the next daemon."""
        try:
            await cut.until_sendable(left_until(until))
        except DeliveryError as error:
            raise cut.as_told(error) from None
        if self._make is None:
            # Another task has closed it meanwhile.
            raise RequestError(CLOSED)
        if self._stream is cut:
            # Else another task has made it, which writes to the same.
            made = self._make()
            made.follow(cut)
            if not self._has_lost:
                self._confirmed_before += cut.messages_confirmed
                self._has_lost = not cut.is_lossless
            self._stream, self._add = made, made.add

    async def _until_room(self, stream: Outgoing, size: int) -> None:
        """Wait until a message may be added; to another stream, where this one is cut meanwhile."""
        while stream.is_crowded:
            await stream.until_room(size)
            if not stream.is_broken:
                return
            stream = await self._go_on()

    def _tell_cut(self) -> None:
        """What was not confirmed when the daemon went away is told once."""
        if self._stream.was_cut:
            self._stream.was_cut = False
            self._stream.check()

    async def close(self) -> None:
        """Let the daemon end the stream once all is confirmed; nothing more, where it was abandoned.

        Raises: as `flush`.
        """
        if self._is_abandoned:
            return
        was_cut = self._make is not None and self._stream.over
        # What is written from now on is refused, and makes no further stream.
        self._make = None
        if was_cut:
            self._tell_cut()
            return
        await self._stream.close()

    def abandon(self) -> None:
        """End it at once: what waits here is not sent, and nobody is told."""
        self._is_abandoned, self._make = True, None
        self._stream.abandon()


async def outcome_of(
    stream: Outgoing, message: Pending, overdue: str, *, takes_back: bool = True
) -> Any:
    """Wait until a message that was added has its outcome, or its time is over.

    Its task is woken by the outcome itself: a shield and a timeout around it would be two turns of the
    loop more, and half of what a lone message costs its program.

    Args:
        overdue: what the error says when the time of one that was sent is over.
        takes_back: whether the daemon is asked to take back what it has, where nobody waits any more.

    Raises:
        DeliveryError: it has failed, and `sent` says whether it may have been taken.
    """
    loop = asyncio.get_running_loop()
    timer = loop.call_at(message.deadline, _on_deadline, stream, message, overdue)
    try:
        return await message.confirmed
    except asyncio.CancelledError:
        if takes_back or not message.segment:
            stream.withdraw(message)
        raise
    finally:
        timer.cancel()


def end_in_time(
    stream: Outgoing,
    message: Pending,
    then: Callable[[Outgoing], None],
    *,
    takes_back: bool = True,
) -> None:
    """See that a message that was added, and that nobody waits for yet, has its outcome in time.

    Its segment has the time of the one in it that has most; and a daemon that is stopped tells nothing.
    One whose future is cancelled is not sent, where it has not been.

    Args:
        then: called with the stream when it has.
        takes_back: see `outcome_of`.
    """
    loop = asyncio.get_running_loop()
    timer = loop.call_at(message.deadline, _on_deadline, stream, message, UNCONFIRMED)

    def on_outcome(confirmed: asyncio.Future[None]) -> None:
        timer.cancel()
        if confirmed.cancelled() and (takes_back or not message.segment):
            stream.withdraw(message)
        then(stream)

    message.confirmed.add_done_callback(on_outcome)


def _on_deadline(stream: Outgoing, message: Pending, overdue: str) -> None:
    """The time of a message is over; of one that was sent the daemon tells in a moment what became."""
    if message.confirmed.done():
        return
    if stream.withdraw(message):
        error = UnreachableError(stream.destination, UNSENT, sent=False)
        message.confirmed.set_exception(error)
        return
    error = UnreachableError(stream.destination, overdue, sent=True)
    grace_s = GRACE_S if stream.is_alone(message) else 0.0
    asyncio.get_running_loop().call_later(grace_s, _give_up, message, error)


def _give_up(message: Pending, error: UnreachableError) -> None:
    if not message.confirmed.done():
        message.confirmed.set_exception(error)


async def send_and_wait(stream: Outgoing, message: Pending, *, takes_back: bool = True) -> None:
    """Wait until a message that was added is confirmed.

    Args:
        takes_back: see `outcome_of`.

    Raises:
        DeliveryError: it is not, and `sent` says whether it may have been taken.
    """
    await outcome_of(stream, message, UNCONFIRMED, takes_back=takes_back)


async def send_long(
    stream: Outgoing,
    payload: Payload | FilePayload,
    timeout: float,  # noqa: ASYNC109
    overdue: str,
    *,
    takes_back: bool = True,
) -> None:
    """Send one long message over a stream of its own, which ends with it.

    Args:
        stream: just made.
        payload: the whole.
        timeout: seconds until the whole must be confirmed.
        overdue: what the error says when it is not.
        takes_back: see `outcome_of`.

    Raises:
        DeliveryError: it is not confirmed; `sent` says whether it may have been taken.
        RequestError: its file cannot be read to its end.
    """
    is_confirmed = False
    try:
        async with asyncio.timeout(timeout):
            await stream.until_open()
            await stream.put_long(payload, timeout)
            await stream.until_confirmed()
        is_confirmed = True
    except TimeoutError:
        raise UnreachableError(stream.destination, overdue, sent=stream.has_put) from None
    finally:
        if is_confirmed:
            stream.finish()
        else:
            if takes_back:
                stream.withdraw_long()
            stream.abandon()
