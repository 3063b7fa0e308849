"""Questions that programs of this node were handed and have not answered.

Theory of operation. A question that comes is owed an answer, by the reader that it was handed to, until

    handed out --an answer to it was put--> answered
               --its reader ends----------> lost, handed     (`QuestionsLost`)
               --too many are owed--------> lost, handed     (the oldest)
    no reader that takes questions -------> lost, not handed

The node tells the asker what is lost, so that it waits for nothing that cannot come. An answer whose time
was over before it was sent makes its question owed again, or lost if its reader has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from bmgd.core.context import Context, QuestionsLost
from bmgd.types import Incarnation, NodeId

OWED_MAX: Final = 65_536
"""Questions owed in all; one more makes the oldest of a reader lost."""


class Asker(NamedTuple):
    """One inbox of one life of a node."""

    source: NodeId
    incarnation: Incarnation
    inbox: int


Question = tuple[Asker, int]
"""Who asked, and the number of the question."""


class Questions:
    """Who owes which answers, in one node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._owed: dict[int, dict[Question, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def handed(self, reader: int, asker: Asker, numbers: Iterable[int]) -> None:
        """A reader has these questions now."""
        owed = self._owed.setdefault(reader, {})
        for number in numbers:
            if self._count >= OWED_MAX:
                self._lose_oldest(owed or max(self._owed.values(), key=len))
            if (asker, number) not in owed:
                owed[asker, number] = None
                self._count += 1

    def _lose_oldest(self, owed: dict[Question, None]) -> None:
        asker, number = next(iter(owed))
        del owed[asker, number]
        self._count -= 1
        self.lost(asker, (number,), handed=True)

    def lost(self, asker: Asker, numbers: tuple[int, ...], *, handed: bool) -> None:
        """Tell that no answer comes to these."""
        self._context.tell(QuestionsLost(*asker, numbers, handed))

    def answered(self, reader: int, asker: Asker, numbers: Iterable[int]) -> tuple[int, ...]:
        """A reader puts an answer to these: those that it owed, and owes no more; each of them once."""
        owed = self._owed.get(reader, {})
        found: list[int] = []
        for number in numbers:
            if (asker, number) in owed:
                del owed[asker, number]
                found.append(number)
        self._count -= len(found)
        return tuple(found)

    def take_back(self, reader: int, asker: Asker, numbers: tuple[int, ...]) -> None:
        """An answer to these was not sent: its reader owes them again, or they are lost with it."""
        if reader in self._owed:
            self.handed(reader, asker, numbers)
        else:
            self.lost(asker, numbers, handed=True)

    def end(self, reader: int) -> None:
        """A reader ends: what it owes is lost."""
        by_asker: dict[Asker, list[int]] = {}
        owed = self._owed.pop(reader, {})
        self._count -= len(owed)
        for asker, number in owed:
            by_asker.setdefault(asker, []).append(number)
        for asker, numbers in by_asker.items():
            self.lost(asker, tuple(numbers), handed=True)

    def forget(self, reader: int, asker: Asker, number: int) -> None:
        """The asker has withdrawn a question."""
        self.answered(reader, asker, (number,))

    def forget_all(self) -> None:
        """This node is another life: nobody waits for what the former one was asked."""
        self._owed.clear()
        self._count = 0

    def owed(self) -> list[tuple[int, Question]]:
        """Every question that is owed, with its reader."""
        return [(reader, question) for reader, owed in self._owed.items() for question in owed]
