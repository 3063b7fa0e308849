"""What a node that leaves still has to do, and what of it is left over when its time is over.

A node is drained when all that its programs sent is confirmed or has failed, their questions have their
outcome, and its readers have finished what it took for them. That a stream is over is not waited for: it
says nothing to anybody whose messages are confirmed. What waits in a topic that nobody reads is
not waited for; it is left over too.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from bmgd.core.broadcast.to_many import ToMany
from bmgd.core.context import Context
from bmgd.core.streams.outbound import Outbound
from bmgd.core.topics.topics import Topics
from bmgd.dataclass import dataclass

ABANDONED: Final = "this node left before"
LEFT_OVER_MAX: Final = 256
"""Streams and topics that are named; the counts are of all."""


@dataclass(frozen=True, slots=True)
class Draining:
    """Looks at the parts that hold something for programs."""

    context: Context
    outbound: Outbound
    topics: Topics
    to_many: ToMany

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left that is waited for."""
        waits = self.outbound.has_unconfirmed or self.outbound.unfinished
        asks = self.topics.inboxes.underway
        return not (waits or asks or self.topics.table.being_read() or self.to_many.undrained)

    def describe(self) -> dict[str, Any]:
        """What is left over now: the counts, and by streams and topics.

        Returns:
            ``{"drained", "unconfirmed", "unread", "left_over": [{"kind", …}, …]}``,
            see `drain` in docs/control-protocol.md.
        """
        unconfirmed, unread = self.outbound.left_over(), self.topics.table.left_over()
        sent, told = self.to_many.source.underway, self.to_many.announcements.being_read()
        rows: list[dict[str, Any]] = [
            {"kind": "unconfirmed", "destination": to, "topic": topic, "messages": count}
            for (to, topic), count in unconfirmed.items()
        ]
        rows += [
            {"kind": "unread", "topic": topic, "messages": count} for topic, count in unread.items()
        ]
        asked = self.topics.inboxes.underway
        if asked:
            rows.append({"kind": "unanswered", "messages": asked})
        if sent:
            rows.append({"kind": "unconfirmed broadcasts", "messages": sent})
        if told:
            rows.append({"kind": "unread broadcasts", "messages": told})
        return {
            "drained": not rows,
            "unconfirmed": sum(unconfirmed.values()) + asked + sent,
            "unread": sum(unread.values()) + told,
            "left_over": list(islice(rows, LEFT_OVER_MAX)),
        }

    def abandon(self) -> None:
        """Give up what is not confirmed: its programs are told, and how much nobody read."""
        self.outbound.answers.abandon(f"{ABANDONED} the confirmation came")
        self.to_many.abandon(f"{ABANDONED} everybody confirmed it")
        lost = self.topics.table.unconsumed
        if lost:
            self.context.observe("left unread", detail=f"{lost} messages that no program consumed")
