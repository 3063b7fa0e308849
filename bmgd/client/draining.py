"""What a daemon that drained has left over, as programs see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bmgd.errors import ProtocolError

Kind = Literal["unconfirmed", "unanswered", "unread", "unconfirmed broadcasts", "unread broadcasts"]


class LeftOver(NamedTuple):
    """Messages that a daemon had to give up.

    Attributes:
        kind: "unconfirmed" were sent by its programs, and may have been taken; "unanswered" are questions
            of its programs, which count as unconfirmed; "unread" were confirmed to
            their sources, and no program had finished them. The same of "… broadcasts".
        topic: of the messages; "" of questions and broadcasts.
        messages: how many.
        destination: of the unconfirmed; -1 of others.
    """

    kind: Kind
    topic: str
    messages: int
    destination: int = -1


@dataclass(frozen=True, slots=True)
class Drained:
    """How a drain ended.

    Args:
        drained: whether nothing was left over.
        unconfirmed, unread: how many messages were, broadcasts included.
        left_over: by destinations and topics, at most 256 of them.
    """

    drained: bool
    unconfirmed: int
    unread: int
    left_over: tuple[LeftOver, ...] = ()


def drained_of(value: Any) -> Drained:
    """Read the daemon's answer.

    Raises:
        ProtocolError: it is no such answer.
    """
    match value:
        case {
            "drained": bool(drained),
            "unconfirmed": int(unconfirmed),
            "unread": int(unread),
            "left_over": list(rows),
        }:
            return Drained(drained, unconfirmed, unread, tuple(map(_left_over, rows)))
    raise ProtocolError("not an answer to drain")


def _left_over(row: Any) -> LeftOver:
    match row:
        case {"kind": str(kind), "messages": int(messages)}:
            return LeftOver(
                kind,  # type: ignore[arg-type]
                str(row.get("topic", "")),
                messages,
                int(row.get("destination", -1)),
            )
    raise ProtocolError("not an answer to drain")
