"""Detection by the profile's own numbers: nobody is found early, and who is stopped is not found late.

The other checkers of detection compare a core with the numbers that it has; this one with those that
were configured, and from the fault on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Observed, RecordChanged
from bmgd.core.events import Event
from bmgd.sim.checkers.journal import Journal, Suspected
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import Incarnation, NodeId, NodeState

_MS: Final = 1_000_000
LEGS: Final = 5
"""How often a node's own lag stretches what it waits for: once the timeout, four times the answers."""
WAYS: Final = 6
"""So many ways pass until all know: the last bytes, an ask, a ping, two answers, the notice."""


def enough_ns(scene: Scene, journals: Iterable[Journal]) -> int:
    """In what time silence is found by nodes that lag at most as these do (docs/operations.md)."""
    timing = scene.network.config.timing
    silence_ns = (timing.timeout_ms + timing.ask_ms + timing.heartbeat_ms) * _MS
    lag_ns = LEGS * max((journal.longest_lag_ns for journal in journals), default=0)
    return silence_ns + lag_ns + WAYS * scene.network.conditions.delay_max_us * 1_000


@dataclass(slots=True, eq=False)
class _Stopped:
    """A process that was stopped, and who was linked to it then.

    Args:
        since_ns: when, in virtual time.
        victim: its journal.
        life: which life of it.
        watching: the places of those who had a link to this life, and have not held it gone since.
    """

    since_ns: int
    victim: Journal
    life: Incarnation
    watching: set[NodeId]


class DetectionIsInTime(Checker):
    """Silence is a suspicion after the profile's timeout and a verdict after its ask time, never before.

    And where nobody else is disturbed, all who were linked to a process that is stopped hold it gone
    after the timeout, the ask time and one heartbeat more, as docs/operations.md says.
    """

    name: ClassVar[str] = "detection-is-in-time"
    events: ClassVar[Kinds] = (Look,)
    effects: ClassVar[Kinds] = (Observed, RecordChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        timing = scene.network.config.timing
        self._timeout_ns = timing.timeout_ms * _MS
        self._heartbeat_ns = timing.heartbeat_ms * _MS
        self._ask_ns = timing.ask_ms * _MS
        self._stopped: dict[NodeId, _Stopped] = {}
        self._suspected: dict[NodeId, Suspected] = {}

    # --- not early ----------------------------------------------------------------------------

    def before(self, journal: Journal, event: Event) -> None:
        self._suspected = dict(journal.suspected) if journal.suspected else {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Observed) and effect.peer is not None:
                if effect.event == "suspected" and is_deadline(event):
                    self._check_silence(journal, effect.peer)
                elif effect.event == "verdict" and is_deadline(event):
                    self._check_waited(journal, effect.peer)
        if self._stopped:
            self._check_stopped(journal)

    def _check_silence(self, journal: Journal, peer: NodeId) -> None:
        for link in journal.former_links.values():
            if link.peer != peer:
                continue
            silent_ns = journal.now_ns - link.heard_ns
            unechoed_ns = journal.now_ns - link.unechoed[0][1] if link.unechoed else 0
            if silent_ns < self._timeout_ns and unechoed_ns < self._timeout_ns + self._heartbeat_ns:
                text = f"suspects {peer} after a silence of {silent_ns / 1e6:.0f} ms"
                self.violate(journal, f"{text}, the timeout is {self._timeout_ns / 1e6:.0f}")

    def _check_waited(self, journal: Journal, peer: NodeId) -> None:
        suspected = self._suspected.get(peer)
        if suspected is None:
            return
        waited_ns = journal.now_ns - suspected.since_ns
        if waited_ns < self._ask_ns:
            text = f"waited {waited_ns / 1e6:.0f} ms for a veto for {peer}"
            self.violate(journal, f"{text}, not {self._ask_ns / 1e6:.0f}")

    # --- not late -----------------------------------------------------------------------------

    def on_boot(self, journal: Journal) -> None:
        self._stopped.pop(journal.place, None)

    def on_disturbed(self, place: NodeId) -> None:
        victim = self.scene.journals.get(place)
        self._stopped.pop(place, None)
        if victim is None or not victim.host.alive or not victim.host.stopped or victim.exited:
            return
        if victim.host.joiner is not None or victim.host.node.state is not NodeState.READY:
            return
        watching = {
            journal.place
            for journal in self.scene.journals.values()
            if journal is not victim and journal.host.alive and journal.is_linked_to(victim)
        }
        self._stopped[place] = _Stopped(self.scene.now_ns, victim, victim.incarnation, watching)

    def _check_stopped(self, journal: Journal) -> None:
        now_ns = self.scene.now_ns
        for place, stopped in list(self._stopped.items()):
            victim = stopped.victim
            if not victim.host.stopped or self._went_on(stopped):
                del self._stopped[place]
                continue
            if journal.place not in stopped.watching:
                continue
            waited_ns = now_ns - stopped.since_ns
            bound_ns = enough_ns(self.scene, (journal,))
            if waited_ns > bound_ns:
                stopped.watching.discard(journal.place)
                if self._is_healthy(journal, stopped):
                    text = f"{victim.host.id} was stopped {waited_ns / 1e6:.0f} ms ago"
                    bound = f"{bound_ns / 1e6:.0f} ms are enough to find it"
                    self.violate(journal, f"{text}, {bound}")
            elif self._holds_gone(journal, victim):
                stopped.watching.discard(journal.place)

    def _went_on(self, stopped: _Stopped) -> bool:
        """Whether it made a step meanwhile, and was stopped again."""
        victim = stopped.victim
        return victim.now_ns > victim.host.local_ns(stopped.since_ns)

    def _holds_gone(self, journal: Journal, victim: Journal) -> bool:
        return journal.inside.membership.is_gone(victim.host.id)

    def _is_healthy(self, journal: Journal, stopped: _Stopped) -> bool:
        """Whether a node is to find it: all that run are undisturbed since before it was stopped."""
        inside = journal.inside
        if journal.exited or inside.context.state is not NodeState.READY:
            return False
        if inside.context.settings.reconstructs:
            # Another's death closes the link to this one too, and it is dialled anew.
            return False
        settled_ns = stopped.since_ns - self._timeout_ns
        if journal.late_ns > journal.host.local_ns(settled_ns):
            return False
        others = [
            other
            for other in self.scene.journals.values()
            if other.host.alive and other.place not in self._stopped
        ]
        return all(
            not self.scene.disturbances.get(other.place)
            and self.scene.disturbed.get(other.place, 0) < settled_ns
            for other in others
        )
