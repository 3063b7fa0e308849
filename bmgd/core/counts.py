"""What one core counts: plain integers under names that are all known beforehand.

Nothing here is counted by the part that does the work: effects, observed events and messages pass the
`Context`, and are counted there by what they are. So a new message or effect is counted without a line
more. What does not show there has a name in `PLAIN`, and its part calls ``context.counts.add(name)``.
`bmgd.shell.metrics` gives all of it the names that Prometheus sees.
"""

from __future__ import annotations

from typing import Final, get_args

from bmgd.core.effects import (
    Announce,
    Close,
    Deliver,
    Dial,
    Effect,
    Observed,
    RecordChanged,
    Refuse,
    Send,
)
from bmgd.types import Evidence
from bmgd.wire.hello import Refusal
from bmgd.wire.messages import LinkMessage, Message, RoutedMessage

EVENTS: Final = (
    "assigned",
    "backlog",
    "bad programs",
    "contested",
    "displaced",
    "evicted",
    "expired",
    "flooding",
    "given up",
    "healed",
    "joiner",
    "late",
    "leaving",
    "left unread",
    "link down",
    "link up",
    "claimed",
    "keys changed",
    "links exact",
    "new life",
    "not renewed",
    "older member",
    "quorum lost",
    "quorum regained",
    "ready",
    "refused",
    "refuted",
    "rejected",
    "relayout",
    "renewed link",
    "stale source",
    "suspected",
    "unreachable",
    "untold",
    "verdict",
    "vetoed",
)
"""Every event that a part of the core observes."""

CLOSED: Final = (
    "a former life",
    "a new life begins",
    "a new life is known",
    "another life has this id",
    "another link of this pair stays",
    "broken",
    "declared dead",
    "declared excluded",
    "declared left",
    "granted",
    "its id is retired",
    "leaving",
    "reconstruction",
    "replaced by a new life",
    "silent, another link is heard",
    "too many links",
    "unwanted",
)
"""The reasons for which a core closes links."""

PLAIN: Final = (
    "careful_messages",
    "withheld_messages",
    "flooded_messages",
    "segments_resent",
    "segments_confirmed",
    "stream_silences",
    "streams_failed",
    "reports_sent",
    "reports_refused",
)
"""What parts count themselves: messages passed on in careful mode; those that were not sent since
somebody lacks the feature that they need; those that were not looked at, since their sender floods;
segments of streams that were sent again, or confirmed, how often a stream's acknowledgements failed to
come in time, and streams that ended with an error; reports that were sent to those who asked, or refused
at the bound."""

OTHER: Final = "other"
_COUNTED: Final[frozenset[type[Effect]]] = frozenset(
    {Send, Observed, Deliver, Announce, RecordChanged, Close, Dial, Refuse}
)
"""Effects that are counted; many are not, and would be compared with each of these."""
_MESSAGES: Final = (*get_args(LinkMessage), *get_args(RoutedMessage))
# Each core begins with copies of these: to copy a dict is not to look each key up again.
_NO_PLAIN: Final = dict.fromkeys(PLAIN, 0)
_NO_EVENTS: Final = dict.fromkeys((*EVENTS, OTHER), 0)
_NO_MESSAGES: Final[dict[type[Message], int]] = dict.fromkeys(_MESSAGES, 0)
_NO_CLOSED: Final = dict.fromkeys((*CLOSED, OTHER), 0)
_NO_EVIDENCE: Final = dict.fromkeys(Evidence, 0)
_NO_REFUSALS: Final = dict.fromkeys(Refusal, 0)


class Counts:
    """The counters of one core, since it began. Every key of every table is there from the start.

    Attributes:
        plain: by the names of `PLAIN`.
        events: observed events by name; `OTHER` for names that are not in `EVENTS`.
        sent, received: messages that the core sent, or was handed, by their class.
        closed: links that this node closed, by reason.
        lost: links that ended otherwise, by evidence.
        failed: dials that came to nothing, by evidence.
        refused: hellos that the core refused, by refusal.
        dials, delivered, changes: dials begun, messages handed to programs, records changed.
    """

    __slots__ = (
        "changes",
        "closed",
        "delivered",
        "dials",
        "events",
        "failed",
        "lost",
        "plain",
        "received",
        "refused",
        "sent",
    )

    def __init__(self) -> None:
        self.plain = _NO_PLAIN.copy()
        self.events = _NO_EVENTS.copy()
        self.sent = _NO_MESSAGES.copy()
        self.received = _NO_MESSAGES.copy()
        self.closed = _NO_CLOSED.copy()
        self.lost = _NO_EVIDENCE.copy()
        self.failed = _NO_EVIDENCE.copy()
        self.refused = _NO_REFUSALS.copy()
        self.dials = 0
        self.delivered = 0
        self.changes = 0

    def add(self, name: str, by: int = 1) -> None:
        """Count something of `PLAIN`.

        Raises:
            KeyError: the name is not in it.
        """
        self.plain[name] += by

    def effect(self, effect: Effect) -> None:
        """Count an order to the shell."""
        if type(effect) not in _COUNTED:
            return
        match effect:
            case Send(_, message):
                self.sent[type(message)] += 1
            case Observed(event):
                self.events[event if event in self.events else OTHER] += 1
            case Deliver(count=count, last=last, aborted=aborted):
                # A long message is whole with its last piece.
                self.delivered += count + (last and not aborted)
            case Announce():
                self.delivered += 1
            case RecordChanged():
                self.changes += 1
            case Close(_, reason):
                self.closed[reason if reason in self.closed else OTHER] += 1
            case Dial():
                self.dials += 1
            case Refuse(_, refusal):
                self.refused[refusal] += 1
            case _:
                pass
