"""Malformed frames end their own link, or are dropped; malformed hellos come to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Final

from bmgd.core.effects import Effect
from bmgd.core.events import Event, LinkDown
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.doorstep import Doorstep
from bmgd.sim.gonewrong import Listener
from bmgd.sim.odd_contacts import OddContact
from bmgd.sim.witness.frames import KINDS, LINK_KINDS
from bmgd.types import Evidence

KNOCKS: Final = 10
"""So many hellos strangers say to each process."""
CONTACTS: Final = 5
"""So many joiners beside each process have a contact gone wrong."""
HEARD: Final = 8
"""So many frames a neighbor gone wrong says to each process."""
ALL_OF_A_KIND: Final = 3
"""To so many processes it says all that can be wrong with the frames of one kind."""
_LINK_KINDS: Final = tuple(number for number in KINDS if number in LINK_KINDS)
_ROUTED_KINDS: Final = tuple(number for number in KINDS if number not in LINK_KINDS)


class BadHellosAreRefused(Checker):
    """A stranger's hello is closed, refused or taken as the page says, and answered to the byte."""

    name: ClassVar[str] = "bad-hellos-are-refused"
    events: ClassVar[Kinds] = ()

    def on_boot(self, journal: Journal) -> None:
        random = Random(f"strangers before {journal.host.node.incarnation}")
        doorstep = Doorstep(random, lambda text: self.violate(journal, text))
        for _ in range(KNOCKS):
            doorstep.knock()
        for _ in range(CONTACTS):
            OddContact(random, lambda text: self.violate(journal, text)).talk()


class BadInputEndsItsOwnLink(Checker):
    """What cannot be read ends its own link, or is dropped and counted, and nothing else."""

    name: ClassVar[str] = "bad-input-ends-its-own-link"
    events: ClassVar[Kinds] = (LinkDown,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._processes = 0
        self._malformed = scene.network.malformed
        self._malformed.on_read = self._on_read

    def _on_read(self, body: bytes) -> None:
        self.violate(None, f"reads what no daemon may say: {body[:80]!r}")

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not isinstance(event, LinkDown) or event.evidence is not Evidence.PROTOCOL_ERROR:
            return
        if self._malformed.doomed.pop((journal.host, event.link), None) is None:
            self.violate(journal, f"link {event.link} ended without a malformed frame on it")

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for (host, link), body in self._malformed.doomed.items():
            if host.alive and link in host.ends and host.ends[link].up:
                journal = self.scene.journals.get(host.where)
                self.violate(journal, f"link {link} is up, though {body[:80]!r} was said on it")

    def on_boot(self, journal: Journal) -> None:
        random = Random(f"gone wrong beside {journal.host.node.incarnation}")
        listener = Listener(random, lambda text: self.violate(journal, text))
        for _ in range(HEARD):
            listener.hear()
        self._processes += 1
        if self._processes <= ALL_OF_A_KIND:
            kinds = _LINK_KINDS if self._processes == 1 else _ROUTED_KINDS
            listener.hear_all(random.choice(kinds))
