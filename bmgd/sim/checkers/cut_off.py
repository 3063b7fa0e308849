"""Who is cut off from everybody is found in the profile's time, as who is stopped is (`in_time.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bmgd.core.effects import Effect, RecordChanged
from bmgd.core.events import Event
from bmgd.sim.checkers.in_time import enough_ns
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene
from bmgd.types import NodeId, NodeState


@dataclass(slots=True, eq=False)
class _CutOff:
    """A process that nobody hears, nor it anybody, and who was linked to it then.

    Args:
        since_ns: when, in virtual time.
        ways: the revision of the blockade that did it.
        watching: the places of those who had a link to it, and have not held it gone since.
    """

    since_ns: int
    ways: int
    victim: Journal
    watching: set[NodeId]


class CutOffIsFound(Checker):
    """Where nothing else disturbs, all who were linked to a node that is cut off hold it gone in time.

    The time is that of a stopped process. Any other fault meanwhile, and any other way that opens or
    closes, ends the watch.
    """

    name: ClassVar[str] = "cut-off-is-found"
    events: ClassVar[Kinds] = (Look,)
    effects: ClassVar[Kinds] = (RecordChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._timeout_ns = scene.network.config.timing.timeout_ms * 1_000_000
        self._cut_off: list[_CutOff] = []
        self._disturbed_ns: int | None = None

    def on_disturbed(self, place: NodeId) -> None:
        # Of one fault every place is told: who is cut off can be seen when all are.
        self._disturbed_ns = self.scene.now_ns
        self._cut_off.clear()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if self._disturbed_ns is not None:
            self._look_around(self._disturbed_ns)
            self._disturbed_ns = None
        for cut_off in list(self._cut_off):
            self._check(journal, cut_off)

    # --- who is cut off -----------------------------------------------------------------------

    def _look_around(self, since_ns: int) -> None:
        blockade = self.scene.network.blockade
        if not blockade.any_blocked:
            return
        running = [j for j in self.scene.journals.values() if j.host.alive and not j.exited]
        victims = [j for j in running if all(self._are_apart(j, o) for o in running if o is not j)]
        others = [j for j in running if j not in victims]
        if not others or not all(self._was_calm(j, since_ns) for j in running):
            return
        for victim in victims:
            if victim.host.joiner is None and victim.host.node.state is NodeState.READY:
                watching = {other.place for other in others if other.is_linked_to(victim)}
                self._cut_off.append(_CutOff(since_ns, blockade.revision, victim, watching))

    def _are_apart(self, one: Journal, other: Journal) -> bool:
        blocks = self.scene.network.blockade.blocks
        return blocks(one.place, other.place) and blocks(other.place, one.place)

    def _was_calm(self, journal: Journal, since_ns: int) -> bool:
        """Whether nothing had happened to a process for a timeout before this fault."""
        if journal.host.stopped:
            return False
        disturbed_ns = self.scene.disturbed.get(journal.place, 0)
        if disturbed_ns == since_ns:
            return self.scene.calm_ns.get(journal.place, 0) > self._timeout_ns
        is_over = not self.scene.disturbances.get(journal.place)
        return is_over and since_ns - disturbed_ns > self._timeout_ns

    # --- who finds it -------------------------------------------------------------------------

    def _check(self, journal: Journal, cut_off: _CutOff) -> None:
        victim = cut_off.victim
        if self.scene.network.blockade.revision != cut_off.ways:
            self._cut_off.remove(cut_off)
            return
        if journal.place not in cut_off.watching:
            return
        if journal.inside.membership.is_gone(victim.host.id):
            cut_off.watching.discard(journal.place)
            return
        waited_ns = self.scene.now_ns - cut_off.since_ns
        bound_ns = enough_ns(self.scene, self.scene.journals.values())
        if waited_ns > bound_ns:
            cut_off.watching.discard(journal.place)
            if self._is_healthy(journal, cut_off):
                text = f"{victim.host.id} was cut off {waited_ns / 1e6:.0f} ms ago"
                self.violate(journal, f"{text}, {bound_ns / 1e6:.0f} ms are enough to find it")

    def _is_healthy(self, journal: Journal, cut_off: _CutOff) -> bool:
        settled_ns = journal.host.local_ns(cut_off.since_ns - self._timeout_ns)
        context = journal.inside.context
        is_ready = not journal.exited and context.state is NodeState.READY
        # Where others' deaths close all links, the one to this node is dialled anew.
        return is_ready and journal.late_ns <= settled_ns and not context.settings.reconstructs
