"""What of a stream is underway: its segments, from when they are put until their outcome is known.

underway --next above it--> confirmed
   |--withdrawn--> not sent (UnreachableError, QueueFullError)
   |--doubted--> in doubt (`sent` is true)
   +--stream over--> its error; sent by what the daemon says
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bmgd.client.backlog import Pending, told_error, with_sent
from bmgd.errors import BmgdError


class Segment:
    """Some messages underway to the daemon and beyond.

    Attributes:
        count: of the messages in it; 0 of a piece of a long one.
        ends: how many messages end in it, long ones too.
        waited: those that somebody waits for.
    """

    __slots__ = ("count", "ends", "waited")

    def __init__(self, count: int, ends: int, waited: list[Pending]) -> None:
        self.count = count
        self.ends = ends
        self.waited = waited

    @property
    def is_settled(self) -> bool:
        """Whether nobody waits for what becomes of it."""
        waited = self.waited
        return bool(waited) and len(waited) == self.count and all(m.given_up for m in waited)


class Underway:
    """The segments of one stream without an outcome, in the order of their numbers.

    Args:
        settle: told of the outcome of those that may matter to somebody: None where it is confirmed.

    Attributes:
        last_number: of the segment put last, from 1.
        put_cost: what all that were put have cost of the stream's credit, in bytes.
        segments_confirmed: how many of them are confirmed.
        messages_confirmed: how many messages are, of those before the first that was lost.
        done_below: the daemon is done with all below that number, and with those of them in doubt.
    """

    def __init__(self, settle: Callable[[Segment, BmgdError | None], None]) -> None:
        self.last_number = 0
        self.put_cost = self.segments_confirmed = self.messages_confirmed = 0
        self.done_below = 1
        self._settle = settle
        self._first_lost = 0
        """The lowest number of those that were lost; 0 while none was."""
        self._segments: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def is_all_done(self) -> bool:
        """Whether the daemon has nothing more to do with any, so that it takes one more of any size."""
        return self.done_below > self.last_number

    @property
    def all_settled(self) -> bool:
        """Whether nobody waits for what becomes of any."""
        return all(segment.is_settled for segment in self._segments.values())

    def has_up_to(self, last: int) -> bool:
        """Whether one has that number, or a lower one."""
        return bool(self._segments) and next(iter(self._segments)) <= last

    def are_settled(self, last: int) -> bool:
        """Whether nobody waits for what becomes of any up to that number."""
        for number, segment in self._segments.items():
            if number > last:
                return True
            if not segment.is_settled:
                return False
        return True

    def put(self, cost: int, count: int, ends: int, waited: list[Pending]) -> int:
        """A segment is put; returns its number."""
        self.last_number = number = self.last_number + 1
        self.put_cost += cost
        self._segments[number] = Segment(count, ends, waited)
        for message in waited:
            message.segment = number
        return number

    def is_given_up(self, message: Pending) -> bool:
        """Whether nobody waits for any message of the segment that a message is underway in."""
        segment = self._segments.get(message.segment)
        return segment is not None and segment.is_settled

    def is_alone(self, message: Pending) -> bool:
        """Whether a message is underway in a segment of its own, of which the daemon tells in time."""
        segment = self._segments.get(message.segment)
        return segment is not None and segment.count == 1

    def confirm(self, following: int) -> None:
        """All below that number are confirmed."""
        self.done_below = max(self.done_below, following)
        segments = self._segments
        while segments:
            number = next(iter(segments))
            if number >= following:
                return
            segment = segments.pop(number)
            self.segments_confirmed += 1
            if not self._first_lost or number < self._first_lost:
                self.messages_confirmed += segment.ends
            if segment.waited:
                self._settle(segment, None)

    def lose(self, destination: int, lost: Mapping[str, Any]) -> None:
        """The daemon has taken some back, or does not know what became of them.

        Args:
            lost: their numbers, ``withdrawn`` and ``doubted``, and the ``error`` and its ``detail``.
        """
        for name, sent in (("withdrawn", False), ("doubted", True)):
            for number in lost[name]:
                segment = self._segments.pop(number, None)
                self._first_lost = min(self._first_lost or number, number)
                detail = str(lost["detail"])
                fields = {"destination": destination, "detail": detail, "sent": sent}
                error = told_error(str(lost["error"]), detail, fields)
                if segment is not None:
                    self._settle(segment, error)

    def fail(self, over: BmgdError, unsent: int) -> None:
        """The stream is over; what has that number or a higher one was not taken, and will not be."""
        segments, self._segments = self._segments, {}
        for number, segment in segments.items():
            self._settle(segment, with_sent(over, sent=number < unsent))
