"""Bounds of the core made narrow for one run, so that short runs come to them.

A bound of thousands is never reached in seconds. What is done there, and in what pieces long work is
done, would not be tried. So in some seeds some bounds are small. Only such bounds are here at which
nothing is refused to programs and nobody is given up: a cluster with narrow bounds must do all that
others do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from random import Random
from typing import Final

_CORE: Final = "bmgd.core"

NARROW: Final[tuple[tuple[tuple[str, ...], str, int], ...]] = (
    (("deadlines",), "DEADLINES_PER_STEP", 2),
    (("work",), "PIECES_PER_STEP", 1),
    (("membership.notices", "membership.membership"), "RECORDS_PER_NOTICE_MAX", 2),
    (("membership.membership",), "LOOKED_AT_MAX", 2),
    (("membership.retirement",), "LEFT_NS", 1_500_000_000),
    (("membership.retirement",), "AT_ONCE_MAX", 1),
    (("neighbors.greeting",), "HELD_MAX", 1),
    (("forwarding.visited",), "BITMAP_SPACE_MAX", 0),
    (("streams.acknowledging",), "ACKS_PER_STEP", 1),
    (("streams.acknowledging",), "FLOW_BEGIN", 1),
    (("streams.inbound",), "KEPT_MAX", 2),
    (("streams.inbound", "streams.table"), "SPAN", 8),
    (("streams.granting",), "ACTIVE_MAX", 1),
    (("streams.granting",), "TOLD_OF_ROOM", 1),
    (("streams.stream_out",), "UNDERWAY_MAX", 2),
    (("streams.sending",), "BURST", 1),
    (("streams.asking",), "LOSSES_PER_SEGMENT", 1),
    (("forwarding.branching",), "BRANCHES_MAX", 1),
    (("forwarding.branching", "broadcast.multicasting"), "CAREFUL_MAX", 1),
    (("broadcast.source",), "SENT_PER_STEP_MAX", 1),
    (("broadcast.source",), "RESENT_PER_STEP_MAX", 1),
    (("broadcast.window",), "UNSTABLE_MAX", 2),
    (("broadcast.retention",), "AHEAD_MAX", 2),
    (("broadcast.delivery",), "SKIPS_KEPT_MAX", 1),
    (("broadcast.orphans",), "PULLED_MAX", 1),
    (("broadcast.orphans",), "TOLD_MAX", 1),
    (("broadcast.programs",), "ASKED_PER_STEP_MAX", 1),
)
"""The modules of the core that have a bound, its name there, and what it is where it is narrow."""


@contextmanager
def narrowed(seed: int, percent: int) -> Iterator[None]:
    """Some bounds are narrow inside.

    Args:
        seed: decides which.
        percent: how many of them.
    """
    random = Random(f"narrow bounds {seed}")
    chosen = [bound for bound in NARROW if random.random() * 100 < percent]
    before: list[tuple[object, str, int]] = []
    try:
        for modules, name, narrow in chosen:
            for module in map(import_module, (f"{_CORE}.{module}" for module in modules)):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, narrow)
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
