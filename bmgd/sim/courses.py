"""Plans for what a plan by chance seldom comes to.

By chance there are seldom joiners for long enough that anything becomes of them. Where they are nearly
all that happens, ids above the founders are given out, given up, and contested. Seldom are two sides
of a partition equally large for so long that each holds the other one dead. Seldom are as many dead as
one node has neighbors, and spread so that the graph need not heal. Seldom is a node evicted
that cannot hear of it, and comes back in the same life. Seldom are founders apart from the first moment
until they no longer wait for each other. Seldom does a node leave while its readers are slow. Seldom
are founders of an older release started again as newer ones. And seldom
does nothing happen but that one or two nodes are silent, each for itself, until they are found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Final

from bmgd.chaos.faults import (
    Continue,
    Evict,
    Fault,
    Join,
    Kill,
    Leave,
    Mend,
    Partition,
    Restart,
    Stop,
)
from bmgd.chaos.plan import Plan, Scalar, Step
from bmgd.errors import PlanError
from bmgd.profiles import DEFAULT_PROFILE, PROFILES
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId

_BEGIN_S: Final = 0.3
"""When the founders are linked, and something may happen."""


def growing(random: Random, plan: Plan, settings: Mapping[str, Scalar]) -> Plan:
    """A plan with joiners instead of the steps of another plan.

    Args:
        random: chooses.
        plan: whose number of nodes it has; it lasts at least as long.
        settings: of the daemons, for the times of detection.
    """
    if plan.nodes > 1 and random.random() < 0.5:
        steps = _given_twice(random, plan.nodes, _detection_s(settings))
    elif plan.nodes > 1 and random.random() < 0.5:
        steps = _given_up(random, plan.nodes, _detection_s(settings))
    else:
        steps = _coming_and_going(random, plan.nodes)
    seconds = max(plan.seconds, steps[-1].at_s + 0.5)
    return replace(plan, steps=tuple(steps), seconds=round(seconds, 6))


def halved(random: Random, plan: Plan, settings: Mapping[str, Scalar]) -> Plan:
    """A plan with a partition in two equal halves, for an even number of nodes; else the plan."""
    if plan.nodes % 2:
        return plan
    ids = [NodeId(node) for node in range(plan.nodes)]
    random.shuffle(ids)
    half = plan.nodes // 2
    parted = Partition((tuple(sorted(ids[:half])), tuple(sorted(ids[half:]))))
    mend_s = round(_BEGIN_S + 2 * _detection_s(settings), 6)
    steps = Step(_BEGIN_S, parted), Step(mend_s, Mend())
    return replace(plan, steps=steps, seconds=max(plan.seconds, mend_s))


def evicted(random: Random, plan: Plan, settings: Mapping[str, Scalar]) -> Plan:
    """A plan in which a node is out of reach, is evicted meanwhile, and comes back in the same life.

    Args:
        random: chooses.
        plan: of at least two nodes; it lasts at least as long.
        settings: of the daemons, for the times of detection.
    """
    victim, by = random.sample([NodeId(node) for node in range(plan.nodes)], 2)
    away = random.choice((Stop((victim,)), _cut_off((victim,), plan.nodes)))
    back: Fault = Continue((victim,)) if isinstance(away, Stop) else Mend()
    away_s = _BEGIN_S + random.random()
    # Before it is held dead, and after: the record of an eviction outranks both.
    evict_s = away_s + random.choice((0.01, 2 * _detection_s(settings)))
    back_s = evict_s + random.choice((0.1, 2 * _detection_s(settings)))
    moments = (away_s, away), (evict_s, Evict((victim,), by)), (back_s, back)
    steps = tuple(Step(round(at_s, 6), fault) for at_s, fault in moments)
    return replace(plan, steps=steps, seconds=round(max(plan.seconds, back_s + 0.5), 6))


def strangers(random: Random, plan: Plan, start_ms: int) -> Plan:
    """A plan in which founders are cut off from the first moment until they are ready without others.

    Args:
        random: chooses who is with whom.
        plan: whose number of nodes it has; it lasts at least as long.
        start_ms: how long founders wait for others.
    """
    ids = [NodeId(node) for node in range(plan.nodes)]
    random.shuffle(ids)
    bounds = sorted(random.sample(range(1, plan.nodes), random.randint(1, plan.nodes - 1)))
    groups = tuple(tuple(sorted(ids[low:high])) for low, high in pairwise([0, *bounds, plan.nodes]))
    mend_s = round(start_ms / 1000 + random.choice((0.05, 1.0)), 6)
    steps = Step(0.0, Partition(groups)), Step(mend_s, Mend())
    return replace(plan, steps=steps, seconds=max(plan.seconds, round(mend_s + 0.5, 6)))


def leaving(random: Random, plan: Plan) -> Plan:
    """A plan in which nodes leave one after the other, and may be started again; one stays."""
    ids = [NodeId(node) for node in range(plan.nodes)]
    leavers = random.sample(ids, random.randint(1, min(3, plan.nodes - 1)))
    # By then something is in the hands of readers.
    steps, at_s = [], _BEGIN_S + 0.5 + 2 * random.random()
    for leaver in leavers:
        steps.append(Step(round(at_s, 6), Leave((leaver,))))
        if random.random() < 0.3:
            steps.append(Step(round(at_s + 5.0, 6), Restart((leaver,))))
        at_s += random.choice((0.0, 0.05, 1.0))
    steps.sort(key=lambda step: step.at_s)
    # So long are programs slow: what a leaver waits for takes seconds.
    seconds = max(plan.seconds, steps[-1].at_s + 1.5)
    return replace(plan, steps=tuple(steps), seconds=round(seconds, 6))


def upgraded(random: Random, plan: Plan) -> Plan:
    """A plan in which founders are started again beside what else happens, as for a new release.

    One after the other, or some at a time; those of which the plan has no other end or beginning. A plan
    that needs one of them meanwhile stays as it is.
    """
    named = {node for step in plan.steps for node in getattr(step.fault, "nodes", ())}
    ids = [NodeId(node) for node in range(plan.nodes) if node not in named]
    chosen = random.sample(ids, min(len(ids), random.randint(1, max(1, min(4, plan.nodes - 1)))))
    steps, at_s = list(plan.steps), _BEGIN_S + random.random()
    for node in chosen:
        end: Fault = random.choice((Kill((node,)), Kill((node,)), Leave((node,))))
        steps.append(Step(round(at_s, 6), end))
        back_s = at_s + random.choice((0.05, 0.6))
        back = Restart((node,), keeps_state=random.random() < 0.7)
        steps.append(Step(round(back_s, 6), back))
        at_s += random.choice((0.02, 0.3))
    steps.sort(key=lambda step: step.at_s)
    last_s = steps[-1].at_s if steps else 0.0
    seconds = round(max(plan.seconds, last_s + 0.5), 6)
    grown = replace(plan, steps=tuple(steps), seconds=seconds)
    try:
        grown.check()
    except PlanError:
        return plan
    return grown


def thinned(random: Random, plan: Plan) -> Plan:
    """A plan in which many die, but nearly all neighbors of nobody who lives; then others move.

    Somebody joins and leaves again, one of the dead comes back, or one more dies.

    Args:
        random: chooses.
        plan: of at least `THINNED_MIN` nodes; it lasts at least as long.
    """
    dead = _spread(random, plan.nodes)
    living = [NodeId(i) for i in range(plan.nodes) if i not in dead]
    at_s, steps = _BEGIN_S, [Step(_BEGIN_S, Kill(tuple(sorted(dead))))]
    guest = (NodeId(plan.nodes),)
    faults: list[tuple[Fault, ...]] = [
        (Restart((random.choice(dead),)),),
        (Join(1), Leave(guest)),
        (Kill((random.choice(living),)),),
    ]
    random.shuffle(faults)
    for fault in (one for several in faults[: random.randint(2, 3)] for one in several):
        at_s += random.choice((0.4, 0.7))
        steps.append(Step(round(at_s, 6), fault))
    return replace(plan, steps=tuple(steps), seconds=round(max(plan.seconds, at_s + 0.5), 6))


THINNED_MIN: Final = 8
"""In smaller graphs there is hardly anybody who is nobody's neighbor."""
_TRIES: Final = 50


def _spread(random: Random, nodes: int) -> list[NodeId]:
    """As many as one node has neighbors; each survivor still has two of its own, if it can be."""
    ids = [NodeId(node) for node in range(nodes)]
    graph = BinomialGraph(nodes)
    count = min(graph.degree, nodes - 3)
    dead = random.sample(ids, count)
    for _ in range(_TRIES):
        survivors = [node for node in ids if node not in dead]
        if all(len(set(graph.neighbors(node)).difference(dead)) > 1 for node in survivors):
            break
        dead = random.sample(ids, count)
    return dead


def silent(random: Random, plan: Plan, settings: Mapping[str, Scalar]) -> Plan:
    """A plan in which nothing happens but that one or two nodes stop, for as long as it lasts."""
    return _alone(random, plan, settings, lambda victims, _: Stop(victims))


def apart(random: Random, plan: Plan, settings: Mapping[str, Scalar]) -> Plan:
    """A plan in which nothing happens but that one or two nodes are cut off, each from everybody."""
    return _alone(random, plan, settings, _cut_off)


def _cut_off(victims: tuple[NodeId, ...], nodes: int) -> Fault:
    others = tuple(NodeId(i) for i in range(nodes) if i not in victims)
    return Partition((others, *((victim,) for victim in victims)))


def _alone(
    random: Random,
    plan: Plan,
    settings: Mapping[str, Scalar],
    fault_of: Callable[[tuple[NodeId, ...], int], Fault],
) -> Plan:
    """A fault of one or two, for longer than the profile needs to find them."""
    timeout_s, heartbeat_s, ask_s = _times_s(settings)
    # Since all began, a timeout has gone by; a node is looked at once in a few heartbeats.
    at_s = round(timeout_s + random.choice((0.1, 0.5)) + heartbeat_s * random.random(), 6)
    seconds = max(plan.seconds, at_s + timeout_s + ask_s + 6 * heartbeat_s)
    count = random.choice((1, 1, 2)) if plan.nodes > 4 else 1
    victims = tuple(sorted(random.sample([NodeId(i) for i in range(plan.nodes)], count)))
    return replace(plan, steps=(Step(at_s, fault_of(victims, plan.nodes)),), seconds=seconds)


def _detection_s(settings: Mapping[str, Scalar]) -> float:
    """In this time a side of a partition holds the other one dead."""
    timeout_s, heartbeat_s, ask_s = _times_s(settings)
    return 2 * timeout_s + ask_s + 2 * heartbeat_s


def _times_s(settings: Mapping[str, Scalar]) -> tuple[float, float, float]:
    """A link's timeout, the time between heartbeats, and how long an answer is waited for."""
    timing = PROFILES[str(settings.get("profile", DEFAULT_PROFILE))]
    timeout_s = float(settings.get("timeout_ms", timing.timeout_ms)) / 1e3
    heartbeat_s = float(settings.get("heartbeat_ms", timing.heartbeat_ms)) / 1e3
    ask_s = float(settings.get("ask_ms", timing.ask_ms)) / 1e3
    return timeout_s, heartbeat_s, ask_s


def _coming_and_going(random: Random, nodes: int) -> list[Step]:
    """Some join; each then leaves, is killed or evicted, and may be started again."""
    count = random.randint(1, 4)
    steps = [Step(_BEGIN_S, Join(count))]
    for place in map(NodeId, range(nodes, nodes + count)):
        at_s = _BEGIN_S + 0.5 + random.random()
        one = (place,)
        end: Fault = random.choice((Leave(one), Leave(one), Kill(one), Evict(one, NodeId(0))))
        steps.append(Step(round(at_s, 6), end))
        if random.random() < 0.7:
            back_s = at_s + random.choice((0.1, 1.0, 2.5))
            back = Restart(one, keeps_state=random.random() < 0.7)
            steps.append(Step(round(back_s, 6), back))
    return sorted(steps, key=lambda step: step.at_s)


def _given_up(random: Random, nodes: int, detection_s: float) -> list[Step]:
    """Each second of some joiners leaves or is evicted, while a founder is away that then comes back.

    Where ids are given up soon it has to be told of several runs of them.
    """
    count, founder = random.randint(3, 5), random.choice([NodeId(i) for i in range(nodes)])
    places = [NodeId(place) for place in range(nodes, nodes + count)]
    away_s = _BEGIN_S + 0.5 + random.random()
    leave_s = away_s + random.choice((0.05, detection_s))
    back_s = leave_s + random.choice((0.5, 2.0, 3.0))
    by = NodeId((founder + 1) % nodes)
    leavers = tuple(places[::2])
    end: Fault = random.choice((Leave(leavers), Leave(leavers), Evict(leavers, by)))
    away: Fault = Kill((founder,))
    back: Fault = Restart((founder,), keeps_state=random.random() < 0.5)
    if random.random() < 0.5:
        others = tuple(sorted({*map(NodeId, range(nodes + count))} - {founder}))
        away, back = Partition((others, (founder,))), Mend()
    steps = (_BEGIN_S, Join(count)), (away_s, away), (leave_s, end), (back_s, back)
    return [Step(round(at_s, 6), fault) for at_s, fault in steps]


def _given_twice(random: Random, nodes: int, detection_s: float) -> list[Step]:
    """Somebody joins each side of a partition: both are given the same id, until the sides meet."""
    ids = [NodeId(node) for node in range(nodes)]
    random.shuffle(ids)
    middle = random.randint(1, nodes - 1)
    sides = tuple(sorted(ids[:middle])), tuple(sorted(ids[middle:]))
    join_s = round(_BEGIN_S + detection_s, 6)
    joins = [Join(1, random.choice(side)) for side in sides]
    grown = (*sides[0], NodeId(nodes)), (*sides[1], NodeId(nodes + 1))
    mend_s = round(join_s + random.choice((0.3, 1.0)), 6)
    return [
        Step(_BEGIN_S, Partition(sides)),
        *(Step(join_s, join) for join in joins),
        Step(join_s, Partition(grown)),
        Step(mend_s, Mend()),
    ]
