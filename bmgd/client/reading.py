"""What a program reads of a topic: messages one by one or many at a time, and long ones in parts.

The daemon hands out whole segments, as many as the credit allows; one call unpacks all messages of one.
Credit goes back in batches: for what was taken before the message that the program now works on. So
what a program has not finished when it goes away comes again, to the next reader, as redelivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, cast

from bmgd.client.broadcast_credit import BroadcastCredit
from bmgd.client.connection import Connection
from bmgd.client.items import Stream
from bmgd.client.long_broadcasts import GivenUp, LongBroadcasts
from bmgd.client.long_messages import LongMessages
from bmgd.client.message import (
    BroadcastMessage,
    LongMessage,
    Message,
    Pieces,
    ShortQuestion,
    Whole,
)
from bmgd.client.replying import Asker, Question, Replies
from bmgd.client.to_many import Missed, missed_of
from bmgd.errors import BmgdError, ProtocolError, RequestError
from bmgd.wire import control
from bmgd.wire.batch import unpack_messages
from bmgd.wire.segments import OVERHEAD_BYTES

_REPORT_MAX = 256
"""So many messages are taken at most before the daemon hears of it."""
LIVES_MAX: Final = 16
"""Of so many lives of its daemon a program can have messages that it has not taken."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An item of a subscription that lives through a restart: its daemon was away.

    What the daemon had confirmed to its senders, and no program had taken, is lost with it; reliable
    broadcasts of meanwhile did not come. Restarts between which nothing came are one.
    """


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Messages that could not be read, where they came: what waits before them is taken first."""

    count: int


class Messages(Stream[Message]):
    """The messages of a topic, in order; read with ``async for`` or `take`, by one reader at a time.

    Taking is safe against cancellation: a message is either returned, or still there.

    An item can be a `bmgd.Missed` too: some reliable broadcasts did not come, and will not.

    Raises (from ``async for`` and `take`):
        NoDaemonError: the daemon is gone.
    """

    def __init__(
        self, connection: Connection, credit: int, credit_bytes: int, max_message: int
    ) -> None:
        self._replies = Replies(connection)
        super().__init__(credit)
        self._connection = connection
        self._credit, self._credit_bytes = credit, credit_bytes
        self._report_at = 1
        self._taken: list[Message] = []
        """Short messages taken that the daemon has not heard of."""
        self._special: Message | None = None
        self._is_left = False
        self._interruptions = 0
        """Those that the program has not been shown."""
        self._longs = LongMessages(
            max_message, credit_bytes, self._give, self._piece_consumer, self._question_of
        )
        self._credit_of_broadcasts = BroadcastCredit(self._consume_broadcasts)
        self._broadcasts = LongBroadcasts(
            max_message, self._give, self._credit_of_broadcasts, self._for_this_daemon
        )
        self.malformed = 0
        """Messages that could not be read."""

    @property
    def items(self) -> Stream[Any]:
        """This stream."""
        return self

    @property
    def sequence(self) -> int:
        """The number of the request that opened it."""
        return self._replies.reader

    @sequence.setter
    def sequence(self, sequence: int) -> None:
        self._replies.reader = sequence

    async def finish_replies(self) -> None:
        """What was answered is sent before the subscription ends."""
        await self._replies.close()

    # --- taking -------------------------------------------------------------------------------

    async def __anext__(self) -> Message:
        while True:
            if len(self._taken) >= self._report_at or self._special is not None:
                self._report()
            while not self._items:
                self._report()
                await self._more()
            item = self._items.popleft()
            if item.__class__ in _SHORT:
                self._taken.append(item)
                return item
            if not isinstance(item, _Unreadable):
                self._special = item
                return item
            self._skip(item)

    async def take(self, most: int = 1) -> list[Message]:
        """Some messages at once: at least one, and at most so many. One await for all of them.

        Args:
            most: 1 or more.

        Returns:
            Nothing only where the subscription is over, and everything is taken.
        """
        if not isinstance(most, int) or isinstance(most, bool):
            raise RequestError(f"a number of messages is whole, not {most!r}")
        if most < 1:
            raise RequestError(f"at least one message is taken, not {most}")
        self._report()
        items = self._items
        while not items or items[0].__class__ not in _SHORT:
            if not items:
                if self._over and self._error is None:
                    return []
                await self._more()
                continue
            first = items.popleft()
            if not isinstance(first, _Unreadable):
                self._special = first
                return [first]
            self._skip(first)
        if self._plain and len(items) <= most:
            taken = list(items)
            items.clear()
        else:
            taken = []
            while items and len(taken) < most and items[0].__class__ in _SHORT:
                taken.append(items.popleft())
        self._taken += taken
        return taken

    def put_back(self) -> None:
        """What was taken last is not finished: it comes again next, or goes to the next reader.

        That is all that `take` returned last; with ``async for`` it can be some messages more.
        Broadcasts do not come again, nor does a long message: its sender is told that it is not
        confirmed, when the subscription ends, unless all of it was read by `parts`. Of what a daemon
        brought that is gone by now, nothing comes again from there.
        """
        special, self._special = self._special, None
        if isinstance(special, Interrupted):
            # One that the program has taken is shown; what it took before was the former daemon's.
            self._interruptions -= 1
            self._taken = []
        elif isinstance(special, LongMessage) and special.broadcast:
            special._pieces.drop()
        elif isinstance(special, Whole):
            if not self._interruptions:
                self._longs.on_finished(special.long)
        elif special is None or isinstance(special, LongMessage | GivenUp):
            pass
        elif not self._interruptions:
            self._credit_of_broadcasts.finished(1)
        self._items.extendleft(reversed(self._taken))
        self._taken = []

    _plain = True
    """Whether nothing but short messages waits."""

    def _skip(self, unreadable: _Unreadable) -> None:
        """Its credit goes back, after that of what came before it."""
        self._report()
        if not self._interruptions and not self._over:
            self._connection.write(control.Consumed(self.sequence, unreadable.count))

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._over:
            raise StopAsyncIteration
        self._plain = True
        await self._until_changed()

    def interrupt(self) -> None:
        """The daemon is gone for now: what is here can be taken, and none of it is reported."""
        # One that the program has taken is shown.
        self._interruptions -= isinstance(self._special, Interrupted)
        # The program still reads what it has taken last.
        for item in (self._special, *self._items):
            if isinstance(item, LongMessage):
                item._pieces.cut_off()
        self._longs.cut_off()
        self._broadcasts.cut_off()
        self._credit_of_broadcasts.begin_anew()
        self._taken, self._special = [], None
        # The askers of what is here know that no answer comes.
        self._replies.end()
        self._replies = Replies(self._connection)
        self._plain = False
        while self._interruptions >= LIVES_MAX and not isinstance(self._items[-1], Interrupted):
            # It does not read while daemons come and go: what is lost with this one is shown as such.
            self._items.pop()
        if not self._items or not isinstance(self._items[-1], Interrupted):
            self._interruptions += 1
            self._items.append(cast(Message, Interrupted()))
        self._changed.set()

    def _report(self) -> None:
        """Tell the daemon what was finished: all that was taken."""
        if self._interruptions:
            # It is another daemon's, up to where the last interruption is shown.
            self._interruptions -= isinstance(self._special, Interrupted)
            self._taken, self._special = [], None
            return
        if self._taken and not self._over:
            self._connection.write(control.Consumed(self.sequence, len(self._taken)))
        self._taken = []
        special, self._special = self._special, None
        if special is None or self._over:
            return
        if isinstance(special, Whole):
            self._consume_piece(special.long, 1)
            self._longs.on_finished(special.long)
        elif isinstance(special, LongMessage):
            # What the program did not read of it is not kept for it.
            special._pieces.drop()
        elif not isinstance(special, GivenUp):
            # Broadcasts, and what was missed of them, have a credit of their own.
            self._credit_of_broadcasts.finished(1)

    # --- what comes ---------------------------------------------------------------------------

    def on_item(self, value: Any) -> None:
        """A segment, a piece, a broadcast, or that some were missed."""
        if self._is_left:
            return
        match value:
            case {"long": int(long)}:
                self._longs.on_piece(long, value)
            case {
                "source": int(source),
                "incarnation": int(incarnation),
                "topic": str(topic),
                "count": int(count),
                "redelivered": bool(redelivered),
                "body": bytes(body),
            }:
                try:
                    payloads = unpack_messages(body, count)
                except ProtocolError:
                    # Its program wrote something else than it said; there is nothing to be read.
                    self.malformed += count
                    self._give(_Unreadable(count))
                    return
                self._pace(count, len(body))
                if "inbox" in value:
                    self._add_questions(value, payloads)
                    self._changed.set()
                    return
                rows = zip(
                    repeat(source),
                    repeat(topic),
                    payloads,
                    repeat(False),
                    repeat(incarnation),
                    repeat(redelivered),
                    strict=False,
                )
                self._items.extend(map(_new_message, repeat(Message), rows))
            case {"missed": _}:
                missed = missed_of(value)
                assert missed is not None
                self._credit_of_broadcasts.came(0)
                self._broadcasts.on_missed(missed)
            case {
                "source": int(),
                "incarnation": int(),
                "topic": str(),
                "sequence": int(),
                "piece": [int(), int(), int()],
                "body": bytes(body),
            }:
                self._credit_of_broadcasts.came(len(body))
                self._broadcasts.on_piece(value)
            case {
                "source": int(source),
                "incarnation": int(incarnation),
                "topic": str(topic),
                "payload": bytes(payload),
                "broadcast": True,
            }:
                self._credit_of_broadcasts.came(len(payload))
                self._give(BroadcastMessage(source, topic, payload, True, incarnation))
            case _:
                raise ProtocolError("not a message")
        self._changed.set()

    def _give(self, item: Message | Missed | _Unreadable) -> None:
        """Something else than short messages can be taken."""
        self._plain = False
        self._items.append(cast(Message, item))
        self._changed.set()

    def _add_questions(self, value: Mapping[str, Any], payloads: list[bytes]) -> None:
        source, topic, life = value["source"], value["topic"], value["incarnation"]
        asker, number = Asker(source, life, value["inbox"]), value["question"]
        for at, payload in enumerate(payloads):
            message = ShortQuestion(source, topic, payload, False, life)
            message._asks = Question(self._replies, asker, number + at)
            self._items.append(message)

    def _pace(self, count: int, body_bytes: int) -> None:
        """Give credit back in batches of an eighth of it, but seldom enough."""
        each = (body_bytes + OVERHEAD_BYTES) // count
        within = min(self._credit, self._credit_bytes // each) // 8
        self._report_at = max(1, min(within, _REPORT_MAX))

    def on_end(self, error: BmgdError | None, fields: Mapping[str, Any]) -> None:
        """Nothing more comes; what is here can still be taken."""
        self.finish(error)
        self._replies.end()
        over = error or RequestError("the subscription is over")
        self._longs.end(over)
        self._broadcasts.end(over)

    # --- credit -------------------------------------------------------------------------------

    def _consume_broadcasts(self, count: int) -> None:
        while count > 0 and not self._over:
            part = min(count, control.CREDIT_MAX)
            self._connection.write(control.ConsumedBroadcasts(self.sequence, part))
            count -= part

    def _question_of(self, pieces: Pieces) -> Question | None:
        if not pieces.inbox:
            return None
        asker = Asker(pieces.source, pieces.incarnation, pieces.inbox)
        return Question(self._replies, asker, pieces.question)

    def _for_this_daemon(self, consume: Callable[[int], None]) -> Callable[[int], None]:
        """Credit goes back to the daemon that gave it: a later one counts anew."""
        sequence = self.sequence

        def to_its_daemon(count: int) -> None:
            if self.sequence == sequence:
                consume(count)

        return to_its_daemon

    def _piece_consumer(self, long: int) -> Callable[[int], None]:
        return self._for_this_daemon(lambda count: self._consume_piece(long, count))

    def _consume_piece(self, long: int, count: int) -> None:
        if count and not self._over:
            self._connection.write(control.ConsumedPieces(self.sequence, count, long))

    def finish_taken(self) -> None:
        """The program ends the subscription: what it has taken it has finished.

        But for a long message of which it has not read all: to its source that is not confirmed.
        """
        if isinstance(self._special, LongMessage) and not self._special._pieces.is_read:
            self._special._pieces.leave()
            self._special = None
        self._report()
        if not self._over:
            # What waits here comes again, to the next reader.
            self._is_left = True
            self._items.clear()


_new_message = tuple.__new__
_SHORT: Final = frozenset({Message, ShortQuestion})
"""Classes of messages that count against the credit as such."""
