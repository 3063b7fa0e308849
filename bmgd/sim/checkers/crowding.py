"""When the dead leave the graph: before a node has none but dead neighbors, and as the policy says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Observed, RecordChanged
from bmgd.core.events import DeadlineReached, DialFailed, Event
from bmgd.core.neighbors.healing_policy import HEAL_TIMER
from bmgd.policy import HealingPolicy, HealingTrigger
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.memberships import binomial_neighbors
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene
from bmgd.types import NodeId, NodeState, Status
from bmgd.wire.ask_messages import Answer

HEALED_WITHIN_NS: Final = 1_000_000_000
"""Nobody waits longer than 225 ms for somebody else to heal; the rest is for the slow."""
_BY_HOPS: Final = (HealingTrigger.AVERAGE_HOPS, HealingTrigger.LONGEST_WAY)
COUNTED_NS: Final = 500_000_000
"""Of the time between two looks, so that a process that stood still or a clock that leapt
counts little."""


class HealsInTime(Checker):
    """The dead leave the graph before anybody has none but dead neighbors, and as the policy says.

    After K deaths everybody sees to it; where ways around the dead have become too long, the lowest id
    that lives does, for only that one need compute them.
    Counted are each node's own records: what it holds dead in its layout. Where healing is due it must
    have been done, by this node or another, within `HEALED_WITHIN_NS` of the time in which it ran. Who
    declares somebody dead sees to it in the same step, and nobody heals where it is not due. Who looks
    whether it is has counted the dead neighbors of each as they are.
    """

    name: ClassVar[str] = "heals-in-time"
    events: ClassVar[Kinds] = (Look,)
    effects: ClassVar[Kinds] = (RecordChanged,)
    before_events: ClassVar[Kinds] = (DeadlineReached, DialFailed, Answer)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._had_quorum = False
        self._looks = False
        """Whether in this step a node looks, after its pause, whether to heal."""
        self._due: dict[NodeId, tuple[int, int]] = {}
        self._looked: dict[NodeId, tuple[int, bool, str]] = {}
        self._far: dict[tuple[tuple[int, ...], frozenset[int], HealingPolicy], str] = {}

    def on_boot(self, journal: Journal) -> None:
        self._due.pop(journal.place, None)
        self._looked.pop(journal.place, None)

    def before(self, journal: Journal, event: Event) -> None:
        self._had_quorum = journal.inside.context.has_quorum
        due_ns = journal.inside.context.timers.due_ns((HEAL_TIMER, 0, 0))
        self._looks = due_ns is not None and due_ns <= journal.now_ns

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        looks, self._looks = self._looks, False
        if effects:
            self._check_step(journal, effects)
        if looks and not any(isinstance(effect, RecordChanged) for effect in effects):
            self._check_counts(journal)
        reason = self._why_due(journal)
        if not reason:
            self._due.pop(journal.place, None)
            return
        last_ns, waited_ns = self._due.get(journal.place, (journal.now_ns, 0))
        waited_ns += min(journal.now_ns - last_ns, COUNTED_NS)
        self._due[journal.place] = journal.now_ns, waited_ns
        if waited_ns > HEALED_WITHIN_NS:
            self.violate(journal, f"not healed for {waited_ns / 1e6:.0f} ms: {reason}")

    def _check_step(self, journal: Journal, effects: Sequence[Effect]) -> None:
        """What was healed in this step had to be, and what a verdict makes due was healed."""
        told = [effect for effect in effects if isinstance(effect, Observed)]
        declared = {line.peer for line in told if line.event == "verdict" and line.peer is not None}
        healed = [line for line in told if line.event == "healed"]
        changed = {e.id: e.record.status for e in effects if isinstance(e, RecordChanged)}
        if not declared and not healed:
            return
        excluded = {i for i, status in changed.items() if status is Status.EXCLUDED}
        alive = {i for i, status in changed.items() if status < Status.DEAD}
        if alive or changed.keys() - declared - excluded:
            # Something else has changed who is in the layout, or who lives, before or after: also that a
            # later life of who is declared dead came at once.
            return
        membership, policy = journal.inside.membership, journal.inside.context.settings.healing
        layout = [i for i in range(membership.id_space) if membership.in_layout(NodeId(i))]
        if healed:
            count = int(healed[0].detail.split()[0])
            before = sorted({*layout, *excluded})
            is_whole = len(healed) == 1 and count == len(excluded)
            if policy.trigger is HealingTrigger.AVERAGE_HOPS:
                # It is a core's own rounding that decides on what is exactly the threshold.
                policy = HealingPolicy(policy.trigger, policy.threshold - 1)
            if is_whole and not self._why(before, frozenset(excluded), policy, by_hops=True):
                self.violate(journal, f"heals {sorted(excluded)}, which need not leave the graph")
        elif (
            # Of several verdicts the first may take it.
            self._had_quorum
            and journal.inside.context.has_quorum
            and policy.trigger is not HealingTrigger.OFF
        ):
            dead = {i for i in layout if membership.status_of(NodeId(i)) is Status.DEAD}
            reason = self._why(layout, frozenset(dead), policy, by_hops=True) if dead else ""
            if reason:
                self.violate(journal, f"declares {sorted(declared)} dead, does not heal: {reason}")

    def _check_counts(self, journal: Journal) -> None:
        """What a node that has just looked counts, where so many are dead that it has to count."""
        inside, policy = journal.inside, journal.inside.context.settings.healing
        due_ns = inside.context.timers.due_ns((HEAL_TIMER, 0, 0))
        if due_ns is not None and due_ns <= journal.now_ns:
            # Of many deadlines that are due some are reached in the next step.
            return
        if policy.trigger in (HealingTrigger.OFF, HealingTrigger.EVERY_DEATH):
            return
        membership = inside.membership
        layout = [i for i in range(membership.id_space) if membership.in_layout(NodeId(i))]
        dead = [i for i in layout if membership.status_of(NodeId(i)) is Status.DEAD]
        degree = len(binomial_neighbors(layout, layout[0])) if layout else 0
        if not self._had_quorum or not inside.context.has_quorum or len(dead) < max(1, degree - 1):
            return
        there: Counter[int] = Counter()
        for number in dead:
            there.update(binomial_neighbors(layout, number))
        counted = +inside.healing._dead_neighbors
        if counted != there:
            self.violate(journal, f"counts the dead neighbors {counted}, there are {there}")

    def _why_due(self, journal: Journal) -> str:
        """Why the dead of this node's layout must leave it; "" where they may stay."""
        context, membership = journal.inside.context, journal.inside.membership
        if journal.exited or context.state is not NodeState.READY or not membership.dead:
            return ""
        known = self._looked.get(journal.place)
        key = membership.revision, context.has_quorum
        if known is None or known[:2] != key:
            known = *key, self._reason(journal)
            self._looked[journal.place] = known
        return known[2]

    def _reason(self, journal: Journal) -> str:
        context, membership = journal.inside.context, journal.inside.membership
        policy = context.settings.healing
        if policy.trigger is HealingTrigger.OFF or not context.has_quorum:
            return ""
        layout = [i for i in range(membership.id_space) if membership.in_layout(NodeId(i))]
        dead = {i for i in layout if membership.status_of(NodeId(i)) is Status.DEAD}
        return self._why(layout, frozenset(dead), policy, by_hops=self._is_lowest(journal))

    def _why(
        self, layout: Sequence[int], dead: frozenset[int], policy: HealingPolicy, *, by_hops: bool
    ) -> str:
        if policy.trigger is HealingTrigger.EVERY_DEATH:
            return "each death is reason enough"
        if policy.trigger is HealingTrigger.DEATHS and len(dead) >= policy.threshold:
            return f"{len(dead)} are dead, {policy} is asked for"
        if by_hops and policy.trigger in _BY_HOPS:
            far = self._why_far(tuple(layout), dead, policy)
            if far:
                return far
        for node_id in layout:
            neighbors = binomial_neighbors(layout, node_id)
            if node_id in dead or not dead.intersection(neighbors):
                continue
            living = len(set(neighbors) - dead)
            if living <= 1:
                return f"node {node_id} has {living} living of {len(neighbors)} neighbors"
        return ""

    def _is_lowest(self, journal: Journal) -> bool:
        return journal.host.id == next(iter(journal.inside.membership.living()), None)

    def _why_far(self, layout: tuple[int, ...], dead: frozenset[int], policy: HealingPolicy) -> str:
        key = layout, dead, policy
        if key not in self._far:
            self._far[key] = why_far(layout, dead, policy)
        return self._far[key]


def why_far(layout: Sequence[int], dead: frozenset[int], policy: HealingPolicy) -> str:
    """Why ways around the dead are longer than a policy allows; "" where they are not."""
    living = [node_id for node_id in layout if node_id not in dead]
    ways, healed = _hops(layout, living), _hops(living, living)
    pairs = len(living) * (len(living) - 1)
    if pairs == 0:
        return ""
    if len(ways) < pairs:
        return f"{len(dead)} dead part those who live"
    if policy.trigger is HealingTrigger.LONGEST_WAY:
        more = max(ways) - max(healed)
        return f"the longest way is {more} hops too long" if more > policy.threshold else ""
    # In integers, as a share that is exactly the threshold is none too many.
    more = 100 * (sum(ways) - sum(healed))
    is_far = more > policy.threshold * sum(healed)
    return f"ways are {more / sum(healed):.1f} % too long" if is_far else ""


def _hops(layout: Sequence[int], living: Sequence[int]) -> list[int]:
    """The hops of each way between two that live, over those that do, in the graph over a layout."""
    alive = set(living)
    near = {node_id: alive.intersection(binomial_neighbors(layout, node_id)) for node_id in living}
    found = []
    for source in living:
        hops = 0
        reached, frontier = {source}, {source}
        while frontier:
            frontier = set().union(*(near[node_id] for node_id in frontier)) - reached
            reached |= frontier
            hops += 1
            found += [hops] * len(frontier)
    return found
