"""Bounds of the core made narrow for one run, so that short runs come to them.

A bound of thousands is never reached in seconds. What is done there, and in what pieces long work is
done, would not be tried. So in some seeds some bounds are small. At those in `NARROW` nothing is refused
to programs and nobody is given up: a cluster with narrow bounds must do all that others do. At those in
`REFUSING` something is. They are narrow while faults go on; then they are as ever, and all must come to
rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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
    (("streams.sending",), "CLOSING_MAX", 2),
    (("topics.handing_out",), "HAND_OUT_MAX", 1),
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
REFUSING: Final[tuple[tuple[tuple[str, ...], str, int], ...]] = (
    (("streams.outbound",), "STREAMS_MAX", 3),
    (("streams.outbound",), "SHARED_MAX", 2),
    (("streams.outbound",), "SENT_MAX", 4),
    (("streams.outbound", "topics.inboxes"), "QUESTIONS_MAX", 6),
    (("streams.inbound",), "STREAMS_MAX", 3),
    (("streams.inbound",), "SOURCES_MAX", 2),
    (("streams.asking",), "TELLING_MAX", 4),
    (("streams.finding",), "FINDS_MAX", 1),
    (("topics.long_messages",), "LONGS_MAX", 1),
)
"""As `NARROW`: bounds at which programs or peers are told that something is not done."""


def narrowed(seed: int, percent: int) -> AbstractContextManager[None]:
    """Some bounds are narrow inside.

    Args:
        seed: decides which.
        percent: how many of them.
    """
    return _narrowed(NARROW, Random(f"narrow bounds {seed}"), percent)


def refusing(seed: int, percent: int) -> AbstractContextManager[None]:
    """As `narrowed`, with some bounds at which something is refused."""
    return _narrowed(REFUSING, Random(f"refusing bounds {seed}"), percent)


@contextmanager
def _narrowed(
    bounds: tuple[tuple[tuple[str, ...], str, int], ...], random: Random, percent: int
) -> Iterator[None]:
    chosen = [bound for bound in bounds if random.random() * 100 < percent]
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
