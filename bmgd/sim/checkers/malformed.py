"""Malformed frames end their own link, or are dropped, and nothing else happens."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Final

from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.sim.gonewrong import Listener

HEARD: Final = 8
"""So many frames a neighbor gone wrong says to each process."""


class BadInputEndsItsOwnLink(Checker):
    """What cannot be read ends its own link, or is dropped and counted, and nothing else."""

    name: ClassVar[str] = "bad-input-ends-its-own-link"
    events: ClassVar[Kinds] = ()

    def on_boot(self, journal: Journal) -> None:
        random = Random(f"gone wrong beside {journal.host.node.incarnation}")
        listener = Listener(random, lambda text: self.violate(journal, text))
        for _ in range(HEARD):
            listener.hear()
