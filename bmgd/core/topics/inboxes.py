"""Where answers to this node's questions go, and the room that is kept for them.

Theory of operation. An inbox is a topic of its own with one reader, the program that asks; it ends with
it, and then whatever comes for it is refused. Its number is never used again in this node's life. Each
question reserves `ANSWER_BYTES` from being put until its program says that it has its outcome. What an
inbox holds counts against that first: so answers are taken when all other room is used up, and two
nodes whose queues are full of each other's questions go on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

TOPIC_PREFIX: Final = "_inbox."
"""Topics that begin so are inboxes, and nothing else."""
ANSWER_BYTES: Final = 4096
"""Of cost, reserved for the answer to one question; a longer one takes what there is beyond."""
QUESTIONS_MAX: Final = 8192
"""Questions of all programs of one node that have no outcome yet."""


def topic_of(inbox: int) -> str:
    """The topic that the answers for an inbox are sent to."""
    return f"{TOPIC_PREFIX}{inbox}"


def inbox_of(topic: str) -> int:
    """The number of the inbox that a topic is; 0 for none."""
    number = topic.removeprefix(TOPIC_PREFIX)
    return int(number) if is_inbox(topic) and number.isdecimal() else 0


def is_inbox(topic: str) -> bool:
    """Whether a topic is an inbox."""
    return topic.startswith(TOPIC_PREFIX)


@dataclass(slots=True, eq=False)
class Inbox:
    """One of them.

    Args:
        request: the subscription that reads it.
        underway: the numbers of the questions without an outcome.
        held_bytes: cost of the answers that its program has not taken.
        covered_bytes: what it holds of the room that is reserved.
    """

    number: int
    request: int
    underway: dict[int, None] = field(default_factory=dict)
    held_bytes: int = 0
    covered_bytes: int = 0

    @property
    def reserved_bytes(self) -> int:
        """What is kept for its answers."""
        return len(self.underway) * ANSWER_BYTES


class Inboxes:
    """The inboxes of one node."""

    def __init__(self) -> None:
        self._by_request: dict[int, Inbox] = {}
        self._by_topic: dict[str, Inbox] = {}
        self._last_number = 0
        self._underway = 0
        self.covered_bytes = 0
        """Of all answers held, what the reserved room covers."""

    def __len__(self) -> int:
        return len(self._by_request)

    @property
    def underway(self) -> int:
        """Questions of all programs without an outcome."""
        return self._underway

    def open(self, request: int) -> Inbox:
        """Make one."""
        self._last_number += 1
        inbox = self._by_request[request] = Inbox(self._last_number, request)
        self._by_topic[topic_of(inbox.number)] = inbox
        return inbox

    def close(self, request: int) -> None:
        """Its program is gone: what was reserved is given back."""
        inbox = self._by_request.pop(request, None)
        if inbox is not None:
            del self._by_topic[topic_of(inbox.number)]
            self._underway -= len(inbox.underway)
            self.covered_bytes -= inbox.covered_bytes

    def of(self, topic: str) -> Inbox | None:
        """The inbox that is open under a topic."""
        return self._by_topic.get(topic)

    def has(self, number: int) -> bool:
        """Whether an inbox is open."""
        return topic_of(number) in self._by_topic

    def reserve(self, number: int, questions: Collection[int]) -> bool:
        """Keep room for the answers to these questions; False where too many are underway."""
        inbox = self._by_topic.get(topic_of(number))
        if inbox is None or self._underway + len(questions) > QUESTIONS_MAX:
            return False
        inbox.underway.update(dict.fromkeys(questions))
        self._underway += len(questions)
        self._cover(inbox)
        return True

    def settle(self, request: int, questions: Collection[int]) -> None:
        """These questions have their outcome; numbers that are not underway tell nothing."""
        inbox = self._by_request.get(request)
        if inbox is None:
            return
        underway = len(inbox.underway)
        for question in questions:
            inbox.underway.pop(question, None)
        self._underway += len(inbox.underway) - underway
        self._cover(inbox)

    def hold(self, topic: str, cost: int) -> None:
        """An inbox holds so many bytes of cost more, or less."""
        inbox = self._by_topic.get(topic)
        if inbox is not None:
            inbox.held_bytes += cost
            self._cover(inbox)

    def _cover(self, inbox: Inbox) -> None:
        """Count anew what its reserved room covers."""
        before = inbox.covered_bytes
        inbox.covered_bytes = min(inbox.held_bytes, len(inbox.underway) * ANSWER_BYTES)
        self.covered_bytes += inbox.covered_bytes - before

    def inboxes(self) -> list[Inbox]:
        """All that are open, oldest first."""
        return list(self._by_request.values())
