"""A whole scenario by chance: what the network is like, how daemons are set, what is done to them.

A seed decides all of it (swarm testing): most seeds leave most options alone, so that each option is
met both alone and in company. The result is a fault plan, and replays as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from bmgd.chaos.faults import Kill, Restart
from bmgd.chaos.plan import Plan, Scalar, Step, Workload
from bmgd.chaos.random_plan import random_plan
from bmgd.frameheader import FRAME_BYTES_MAX
from bmgd.profiles import PROFILES
from bmgd.sim.broadcasters import SHARE
from bmgd.sim.courses import (
    THINNED_MIN,
    apart,
    evicted,
    growing,
    halved,
    leaving,
    silent,
    strangers,
    thinned,
    upgraded,
)
from bmgd.sim.workload import BATCH_MAX, BURST_MEAN
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

_POLICIES: Final = ("off", "after:1", "after:2", "after:4", "overhead:4%", "overhead:0")
_READINGS: Final = ((4, 20_000), (1, 200_000), (2, 4_000_000))
"""How many messages a slow program has in its hands, and for how long at most, in microseconds."""
MESSAGES_MAX: Final = 10_000
"""So many are sent in one scenario, about: one that lasts for an hour is for what takes an hour."""
HAPPENINGS_MAX: Final = 10_000
"""So often at most, about, a program looks in one scenario, or sends what nobody can use, or lies."""
FRAMES_PER_SECOND: Final = 1_000.0
"""A share of all messages is for all nodes: many nodes have as much to do with fewer messages."""
_WAITING_POLICIES: Final = (
    *("after:4", "after:100", "overhead:90%", "overhead:9"),
    *("overhead:0", "overhead:1", "overhead:2%", "overhead:10%"),
)
"""Healing policies under which the dead stay in the graph for a while, or until the guard's turn."""
_TIMINGS_MS: Final[dict[str, tuple[int, ...]]] = {
    "ask_ms": (150, 800),
    "dial_ms": (500, 2_000),
    "join_ms": (500, 2_000),
    "start_ms": (5_000, 30_000),
    "backoff_min_ms": (2, 50),
    "backoff_max_ms": (400, 3_000),
    "redial_ms": (1_500, 8_000),
    "leave_ms": (500, 15_000),
}
"""Numbers of detection and dialling beside the profile's."""
_PIPES_BYTES: Final = (2_000, 60_000, 400_000)
_BULK_BYTES: Final = (0, 0, 0, 90_000, 200_000)
"""What an outbox holds at most: a whole segment at least, or it would never pass one."""
_NARROW_BULK_BYTES: Final = (90_000, 200_000)
"""Behind a narrow pipe: what 8 MiB would need to pass is too long for a cluster to come to rest."""
_PASSED_S: Final = 30.0
"""A pipe is wide enough if it passes all that programs send in this time, thrice."""
_FRAME_S: Final = 0.5
"""In this time it passes the longest frame: heartbeats wait behind it, and must not be missed for it."""
_WRITES_MAX: Final = 20_000
"""A write takes so much that about so many suffice for all links: each is four happenings."""
_HOPS: Final = 3
"""Links that a message to one crosses, about."""
_KERNEL_US: Final = 2_000
"""Until a kernel has room again, beside the delays."""
PIECE_BYTES: Final = 20_000
_CONGESTED: Final[dict[str, Scalar]] = {
    "delay_min_us": 20,
    "delay_max_us": 400,
    "streams_percent": 0,
    "bursts_percent": 100,
    "long_percent": 0,
}
"""Short frames that come together: relays pass on runs of them, which narrow pipes take in parts."""
_DELAYS_US: Final = ((50, 50), (20, 400), (100, 5_000), (1_000, 20_000))


FREE_STEPS: Final[dict[str, Scalar]] = {"step_cost_us": 0, "late_us_max": 0}
"""Where bounds are narrow, steps are smaller, so more: if each cost time, nodes would never be done."""


class _Seldom(NamedTuple):
    """An option that is on in a share of the seeds, and in another one where the cluster grows."""

    name: str
    option: str
    values: tuple[int, ...]
    share: float
    share_growing: float


_SELDOM: Final = (
    _Seldom("second readers", "second_reader_percent", (50, 100), 0.3, 0.3),
    _Seldom("older", "older_percent", (5, 50, 95), 0.2, 0.2),
    _Seldom("secrets", "rekeys", (1, 1, 3), 0.15, 0.15),
    _Seldom("looks", "looks_per_s", (2, 20, 60), 0.3, 0.3),
    _Seldom("unusable", "unusable_per_s", (2, 20), 0.25, 0.25),
    _Seldom("lies", "malformed_per_s", (3, 30), 0.25, 0.25),
    _Seldom("forged", "forgeries", (1, 3, 8), 0.15, 0.5),
    _Seldom("floods", "floods", (1, 2), 0.05, 0.05),
    _Seldom("lags", "lags", (2, 6), 0.15, 0.1),
    _Seldom("former lives", "former_lives", (1, 3), 0.3, 0.3),
    _Seldom("legacies", "legacies", (1, 2), 0.4, 0.4),
    _Seldom("second copies", "second_copies_percent", (5, 50), 0.2, 0.2),
    _Seldom("late segments", "late_segments_percent", (3, 20), 0.2, 0.2),
    _Seldom("together", "together_percent", (50, 100), 0.3, 0.3),
    _Seldom("ticks", "tick_us", (100, 1_000, 10_000), 0.08, 0.08),
    # Ids are given up soon only where that bound is narrow.
    _Seldom("narrow", "narrow_percent", (10, 40, 100), 0.25, 0.7),
    _Seldom("refusing", "refusing_percent", (20, 60), 0.3, 0.3),
)


def random_scenario(seed: int, nodes: int, seconds: float) -> Plan:
    """A scenario by chance.

    Args:
        seed: the same one gives the same scenario.
        nodes: the founders.
        seconds: how long faults go on.
    """
    random = Random(f"scenario {seed}")
    plan = random_plan(seed, nodes, seconds)
    settings, workload = _settings(random), _workload(random, nodes, seconds)
    settings |= _timings(Random(f"timings {seed}"))
    if nodes > 2 and (around := _drawn("deaths around", seed, 0.2)):
        settings["healing"] = around.choice(_WAITING_POLICIES)
        plan = replace(plan, steps=_deaths_around(around, nodes, seconds))
    plan, courses = _course(seed, plan, settings)
    simulated = _simulated(random) | _streams(Random(f"streams {seed}"))
    if "leaving" in courses:
        workload = replace(workload, messages_per_second=_per_second(40.0, nodes, seconds))
    workload, pipes = _loaded(seed, workload, simulated, nodes, seconds)
    simulated |= pipes
    # A short queue fills only where programs read more slowly than others send, and who goes away has
    # something in its hands only where it is slow.
    is_often = "queue_messages" in settings or "absent_ms_max" in simulated
    leaves = "leaving" in courses
    if reading := _drawn("reading", seed, 1.0 if leaves else 0.7 if is_often else 0.2):
        messages, us_max = reading.choice(_READINGS[1:] if leaves else _READINGS)
        simulated |= {"reading_messages": messages, "reading_us_max": us_max}
    if courses:
        simulated["start_us_max"] = min(int(simulated["start_us_max"]), 10_000)
    simulated |= _seldom(seed, seconds, grows="growing" in courses)
    if "older_percent" in simulated and not courses and (new := _drawn("upgraded", seed, 0.6)):
        plan = upgraded(new, plan)
    if "narrow_percent" in simulated:
        simulated |= FREE_STEPS
    if "tick_us" in simulated:
        # Clocks that drift show no two equal times; pipes would pass one write at each tick, and hosts
        # take one step.
        simulated |= {"drift_ppm": 0, "pipe_bytes": 0, "write_bytes_max": 0, "step_cost_us": 0}
    if "floods" in simulated:
        # Thousands of messages in small pieces are too much for one seed.
        simulated |= {"step_cost_us": 0, "write_bytes_max": 0}
    return replace(plan, settings=settings, workload=workload, simulated=simulated)


def narrow(plan: Plan, narrow_percent: int, refusing_percent: int) -> Plan:
    """A scenario with so many of its bounds narrow, whatever the seed says (`narrowing.py`)."""
    percents = {"narrow_percent": narrow_percent, "refusing_percent": refusing_percent}
    return replace(plan, simulated={**plan.simulated, **percents, **FREE_STEPS})


def _loaded(
    seed: int, workload: Workload, simulated: dict[str, Scalar], nodes: int, seconds: float
) -> tuple[Workload, dict[str, Scalar]]:
    """What programs send, and how wide the pipes are for that.

    Args:
        simulated: options of what is sent are set in it.

    Returns:
        The workload, and what kernels hold, how much a write takes, and what a step costs.
    """
    congested = _drawn("congested", seed, 0.08)
    if congested:
        workload = replace(workload, messages_per_second=_per_second(200.0, nodes, seconds))
    if workload.messages_per_second:
        workload = _crowded(seed, workload, simulated)
    if congested:
        workload = replace(workload, payload_bytes=64)
        simulated |= _CONGESTED
    sent_bytes = _sent_bytes(workload, simulated, seconds)
    pipes = _pipes(Random(f"pipes {seed}"), simulated, sent_bytes)
    if congested:
        pipes |= {"pipe_bytes": congested.choice(_PIPES_BYTES[:2]), "write_bytes_max": 1_000}
    if pipes["write_bytes_max"]:
        carried_bytes = sent_bytes * _HOPS + _broadcast_bytes(workload, seconds) * nodes
        least_bytes = 2 * int(carried_bytes / _WRITES_MAX)
        pipes["write_bytes_max"] = max(int(pipes["write_bytes_max"]), least_bytes)
    return workload, pipes


def _crowded(seed: int, workload: Workload, simulated: dict[str, Scalar]) -> Workload:
    """A workload with messages that come together, or more than readers take, in some of the seeds.

    Args:
        simulated: the options for it are set in it.
    """
    if stalled := _drawn("stalled", seed, 0.1):
        # So much that a reader which takes nothing is soon behind.
        workload = replace(workload, payload_bytes=PIECE_BYTES)
        simulated["stalled_percent"] = stalled.choice((20, 60))
    if bursts := _drawn("bursts", seed, 0.3):
        simulated["bursts_percent"] = percent = bursts.choice((10, 50))
        # As many in all as without.
        per_second = workload.messages_per_second / (1 + percent / 100 * (BURST_MEAN - 1))
        workload = replace(workload, messages_per_second=per_second)
    return workload


def _drawn(name: str, seed: int, share: float) -> Random | None:
    """What chooses all about something of that name, in this share of the seeds; else None."""
    random = Random(f"{name} {seed}")
    return random if random.random() < share else None


def _seldom(seed: int, seconds: float, *, grows: bool) -> dict[str, Scalar]:
    """What most seeds leave alone."""
    chosen: dict[str, Scalar] = {}
    most_per_s = max(1, int(HAPPENINGS_MAX / max(1.0, seconds)))
    for one in _SELDOM:
        if random := _drawn(one.name, seed, one.share_growing if grows else one.share):
            value, is_rate = random.choice(one.values), one.option.endswith("_per_s")
            chosen[one.option] = min(value, most_per_s) if is_rate else value
    return chosen


def _course(seed: int, plan: Plan, settings: dict[str, Scalar]) -> tuple[Plan, frozenset[str]]:
    """A plan for what a plan by chance seldom comes to, or that plan; and for what.

    Args:
        settings: what the course needs is set in them.
    """
    courses = set()
    if plan.nodes > 2 and (alone := _drawn("silent", seed, 0.08)):
        courses.add("silent")
        plan = silent(alone, plan, settings)
    if plan.nodes > 2 and (cut := _drawn("apart", seed, 0.05)):
        courses.add("apart")
        plan = apart(cut, plan, settings)
    if plan.nodes > 1 and (thrown_out := _drawn("evicted", seed, 0.04)):
        courses.add("evicted")
        plan = evicted(thrown_out, plan, settings)
    if plan.nodes > 1 and (unmet := _drawn("strangers", seed, 0.04)):
        courses.add("strangers")
        settings |= {"start_ms": unmet.choice((1_000, 3_000))}
        plan = strangers(unmet, plan, int(settings["start_ms"]))
    if plan.nodes > 1 and (left := _drawn("leaving", seed, 0.06)):
        courses.add("leaving")
        plan = leaving(left, plan)
        if left.random() < 0.5:
            # In so little time not all is drained.
            settings |= {"leave_ms": left.choice((30, 150))}
    if grown := _drawn("growing", seed, 0.12):
        courses.add("growing")
        plan = growing(grown, plan, settings)
    if parted := _drawn("halves", seed, 0.03):
        courses.add("halves")
        settings |= {"quorum": "majority", "healing": parted.choice(("off", "after:1"))}
        plan = halved(parted, plan, settings)
    if not courses and plan.nodes >= THINNED_MIN and (thin := _drawn("thinned", seed, 0.2)):
        courses.add("thinned")
        settings |= {"quorum": "off", "healing": "after:100"}
        plan = thinned(thin, plan)
    return plan, frozenset(courses)


def _deaths_around(random: Random, nodes: int, seconds: float) -> tuple[Step, ...]:
    """All neighbors of one node but one die, one after another; some of them come back later."""
    center = random.randrange(nodes)
    victims = [NodeId(rank) for rank in BinomialGraph(nodes).neighbors(center)]
    random.shuffle(victims)
    del victims[max(1, len(victims) - 1) :]
    pause_s = random.choice((0.0, 0.01, 0.3, 1.2))
    moments = [min(0.3 * seconds + number * pause_s, seconds) for number in range(len(victims))]
    steps = [
        Step(round(at_s, 6), Kill((victim,))) for at_s, victim in zip(moments, victims, strict=True)
    ]
    if random.random() < 0.5:
        back = tuple(sorted(random.sample(victims, random.randint(1, len(victims)))))
        steps.append(Step(round(max(0.8 * seconds, moments[-1]), 6), Restart(back)))
    return tuple(steps)


def _simulated(random: Random) -> dict[str, Scalar]:
    low_us, high_us = random.choice(_DELAYS_US)
    return {
        "delay_min_us": low_us,
        "delay_max_us": high_us,
        "hello_trips": random.choice((1, 5)),
        "loses_suffix": random.random() < 0.8,
        "torn": random.choice((0, 0, 10_000, 300_000)),
        "linger_us_max": random.choice((0, 0, 3_000, 50_000)),
        "proxied_percent": random.choice((0, 0, 0, 0, 20, 100)),
        "stale_us_max": random.choice((0, 0, 1_000, 20_000)),
        "late_us_max": random.choice((0, 0, 500, 20_000)),
        "retry_us_max": random.choice((0, 200_000, 1_000_000)),
        "user_timeout_ms": random.choice((0, 5_000)),
        "drift_ppm": random.choice((0, 200)),
        "skewed": random.random() < 0.7,
        "start_us_max": random.choice((0, 0, 10_000, 3_000_000)),
    }


def _sent_bytes(workload: Workload, simulated: Mapping[str, Scalar], seconds: float) -> float:
    """About how much programs send in all."""
    streams = float(simulated["streams_percent"]) / 100
    longs = float(simulated.get("long_percent", 0)) / 100
    payload = workload.payload_bytes
    segment = min(BATCH_MAX / 2 * payload, PAYLOAD_BYTES_MAX)
    piece = float(simulated.get("long_bytes_max", 0)) / 2
    of_a_stream = (1 - longs) * segment + longs * piece
    each = (1 - streams) * payload + streams * of_a_stream
    # Broadcasts go over about as many links as there are nodes, so one counts as one message.
    return workload.messages_per_second * seconds * each + _broadcast_bytes(workload, seconds)


def _broadcast_bytes(workload: Workload, seconds: float) -> float:
    """About how much programs broadcast, of what they send."""
    return workload.messages_per_second * seconds * 2 * SHARE * workload.payload_bytes


def _pipes(random: Random, simulated: Mapping[str, Scalar], sent_bytes: float) -> dict[str, Scalar]:
    """What kernels hold, how much a write takes, and what a step costs."""
    trip_s = (2 * float(simulated["delay_max_us"]) + _KERNEL_US) / 1e6
    least_bytes = trip_s * max(3 * sent_bytes / _PASSED_S, FRAME_BYTES_MAX / _FRAME_S)
    wide = [size for size in _PIPES_BYTES if size >= least_bytes]
    pipe_bytes = random.choice((0, 0, *wide))
    is_narrow = 0 < pipe_bytes <= _PIPES_BYTES[1]
    return {
        "pipe_bytes": pipe_bytes,
        "write_bytes_max": random.choice((0, 0, 0, 500, 30_000)),
        "bulk_bytes_max": random.choice(_NARROW_BULK_BYTES if is_narrow else _BULK_BYTES),
        "step_cost_us": random.choice((0, 0, 0, 20, 200)),
    }


def _streams(random: Random) -> dict[str, Scalar]:
    """What programs send beyond single messages, and how their readers are."""
    options: dict[str, Scalar] = {"streams_percent": random.choice((0, 50, 100))}
    if random.random() < 0.5:
        options["long_percent"] = random.choice((5, 30))
        options["long_bytes_max"] = random.choice((3_000, 100_000, 400_000))
    if random.random() < 0.4:
        options["absent_ms_max"] = random.choice((100, 1_200, 5_000))
    if random.random() < 0.3:
        options["reading_bytes"] = random.choice((2_000, 70_000))
    return options


def _settings(random: Random) -> dict[str, Scalar]:
    settings: dict[str, Scalar] = {}
    if random.random() < 0.35:
        settings["healing"] = random.choice(_POLICIES)
    if random.random() < 0.1:
        settings["reconstruction"] = "naive"
    if random.random() < 0.15:
        settings["quorum"] = "majority"
    if random.random() < 0.1:
        settings["on_declared_dead"] = "exit"
    if random.random() < 0.1:
        settings["profile"] = random.choice(tuple(PROFILES))
    if random.random() < 0.2:
        settings["queue_messages"] = random.choice((1, 8))
    if random.random() < 0.2:
        settings |= {"heartbeat_ms": 200, "timeout_ms": 1000}
    if random.random() < 0.2:
        settings["relayout_ms"] = random.choice((0, 50))
    return settings


def _timings(random: Random) -> dict[str, Scalar]:
    chosen = {key: random.choice(_TIMINGS_MS[key]) for key in _TIMINGS_MS if random.random() < 0.08}
    return dict(chosen)


def _workload(random: Random, nodes: int, seconds: float) -> Workload:
    per_second = random.choice((0.0, 5.0, 40.0, 200.0))
    return Workload(
        messages_per_second=_per_second(per_second, nodes, seconds),
        payload_bytes=random.choice((8, 64, 1_000, 20_000)),
        timeout_s=random.choice((0.5, 10.0)),
    )


def _per_second(wanted: float, nodes: int, seconds: float) -> float:
    """So many messages a second, or as many as a scenario may have."""
    return min(wanted, MESSAGES_MAX / max(1.0, seconds), FRAMES_PER_SECOND / nodes)
