"""Bounds of the core and the link layer made narrow for one run, so that short runs come to them.

A bound of thousands is never reached in seconds, nor is a time of minutes. What is done there, and in
what pieces long work is done, would not be tried. So in some seeds some bounds are small, some times
short. At those in `NARROW` nothing is refused to programs, and nobody is given up who is there: a cluster
with narrow bounds must do all that others do. At those in `REFUSING` something is. They are narrow while
faults go on; then they are as ever, and all must come to rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from random import Random
from typing import Final

Bound = tuple[tuple[str, ...], str, int]
NARROW: Final[tuple[Bound, ...]] = (
    (("core.deadlines",), "DEADLINES_PER_STEP", 2),
    (("core.work",), "PIECES_PER_STEP", 1),
    (("core.membership.notices", "core.membership.membership"), "RECORDS_PER_NOTICE_MAX", 2),
    (("core.membership.membership",), "LOOKED_AT_MAX", 2),
    (("core.membership.retirement",), "LEFT_NS", 1_500_000_000),
    (("core.membership.retirement",), "AT_ONCE_MAX", 1),
    (("core.neighbors.greeting",), "HELD_MAX", 1),
    (("core.forwarding.visited",), "BITMAP_SPACE_MAX", 0),
    (("core.forwarding.flood",), "SENDERS_MAX", 2),
    (("core.joining.growth",), "JOINS_OPEN_MAX", 1),
    (("core.streams.acknowledging",), "ACKS_PER_STEP", 1),
    (("core.streams.acknowledging",), "FLOW_BEGIN", 1),
    (("core.streams.inbound",), "KEPT_MAX", 2),
    (("core.streams.sending",), "CLOSING_MAX", 2),
    (("core.topics.handing_out",), "HAND_OUT_MAX", 1),
    (("core.streams.inbound", "core.streams.table"), "SPAN", 8),
    (("core.streams.granting",), "ACTIVE_MAX", 1),
    (("core.streams.granting",), "TOLD_OF_ROOM", 1),
    (("core.streams.stream_out",), "UNDERWAY_MAX", 2),
    (("core.streams.sending",), "BURST", 1),
    (("core.streams.asking",), "LOSSES_PER_SEGMENT", 1),
    (("core.forwarding.branching",), "BRANCHES_MAX", 1),
    (("core.forwarding.branching", "core.broadcast.multicasting"), "CAREFUL_MAX", 1),
    (("core.broadcast.source",), "SENT_PER_STEP_MAX", 1),
    (("core.broadcast.source",), "RESENT_PER_STEP_MAX", 1),
    (("core.broadcast.window",), "UNSTABLE_MAX", 2),
    (("core.broadcast.retention",), "AHEAD_MAX", 2),
    (("core.broadcast.delivery",), "SKIPS_KEPT_MAX", 1),
    (("core.broadcast.orphans",), "PULLED_MAX", 1),
    (("core.broadcast.orphans",), "TOLD_MAX", 1),
    (("core.broadcast.programs",), "ASKED_PER_STEP_MAX", 1),
    (("linklayer.outbox", "sim.modellink"), "BULK_TURN_BYTES", 7 * 512),
    (("linklayer.outbox",), "GATHER_MAX", 1),
    (("linklayer.contract",), "KNOWN_NOTICES_MAX", 1),
    (("core.membership.membership",), "LISTED_SPACE_MAX", 2),
    (("core.neighbors.watched_links",), "WATCH_ALL_MAX", 4),
    (("core.neighbors.watched_links",), "EXPONENTS", 3),
    (("core.topics.topic_table",), "HELD_BYTES_MAX", 300_000),
    (("core.topics.topic_table",), "QUEUE_BYTES_MAX", 70_000),
    (("core.streams.table",), "PUT_BYTES_MAX", 150_000),
    (("core.streams.granting",), "GRANTED_MAX", 200_000),
    (("core.streams.granting",), "GRANT_MAX", 70_000),
    (("core.streams.stream_out",), "WINDOW_MAX", 131_072),
    (("core.streams.inbound",), "ADVANCE_MAX", 1),
    (("core.broadcast.retention",), "FORMER_MAX", 1),
    (("core.broadcast.source",), "SINGLY_MAX", 0),
    (("core.broadcast.source",), "RESENT_BYTES_PER_STEP_MAX", 100),
    (("core.broadcast.orphans",), "GAPS_MAX", 1),
    (("core.membership.contests",), "CONTESTS_MAX", 1),
    (("core.membership.retirement",), "LEFT_MAX", 1),
    (("core.membership.retirement",), "GONE_MAX", 1),
    (("core.broadcast.broadcasting",), "SOURCES_MAX", 2),
    (("core.neighbors.observer",), "ASKS_OPEN_MAX", 1),
    (("core.membership.retirement",), "GONE_NS", 2_000_000_000),
    (("core.membership.retirement",), "LOOK_AGAIN_NS", 100_000_000),
    (("core.membership.comparison",), "FETCH_NS", 1_000_000_000),
    (("core.lifecycle",), "LIVES_NS", 1_000_000_000),
    (("core.streams.sending", "core.streams.outbound"), "ABANDONED_NS", 500_000_000),
    (("core.broadcast.orphans",), "ORPHAN_NS", 3_000_000_000),
    (("core.broadcast.orphans",), "PULLS_MAX", 1),
    (("core.broadcast.delivery",), "REFUTED_NS", 1_000_000_000),
    (("core.broadcast.delivery",), "PIECE_TOPICS_MAX", 1),
    (("core.broadcast.announcements",), "TOPICS_MAX", 1),
    (("core.broadcast.announcements",), "QUEUE_MAX", 2),
    (("core.broadcast.announcements",), "QUEUE_BYTES_MAX", 70_000),
    (("core.broadcast.announcements",), "HELD_BYTES_MAX", 150_000),
    (("core.broadcast.announcements",), "BEHIND_BYTES", 1_500),
    (("core.broadcast.announcements",), "CREDIT", 1),
    (("core.broadcast.watermarks",), "WINDOW_MIN_BYTES", 1_290),
    (("core.broadcast.watermarks",), "WINDOW_ALL_BYTES", 1),
)
"""The modules that have a bound, its name there, and what it is where it is narrow."""
SCARCE: Final[tuple[Bound, ...]] = (
    (("core.broadcast.copies",), "HELD_BYTES_MAX", 600),
    (("core.broadcast.window",), "WINDOW_ALL_BYTES", 1),
    (("core.broadcast.window",), "WINDOW_MIN_BYTES", 1),
    (("core.broadcast.reserve",), "RESERVE_BYTES", 1_000_000),
    (("core.broadcast.reserve",), "STUCK_NS", 300_000_000),
    (("core.broadcast.reserve",), "AGAIN_NS", 2_000_000_000),
    (("core.broadcast.reserve",), "FIRST_MAX", 2),
)
"""As `NARROW`, of the room for copies of broadcasts: all of them, or none. The reserve holds many
windows, as it does where thousands of sources fill a node. Where it is as slow as ever, a cluster with so
little room would not come to rest in its time."""
FORGETFUL: Final[tuple[Bound, ...]] = (
    (("core.streams.inbound",), "GONE_NS", 1_000_000_000),
    (("core.streams.sending",), "RESTED_NS", 400_000_000),
)
"""As `SCARCE`, of the streams of a source that is gone. Who has not sent for half of the time after which
they are forgotten begins with a new one."""
BACKLOGGED: Final[tuple[Bound, ...]] = (
    (("linklayer.contract",), "BACKLOG_HIGH_BYTES", 8_000),
    (("linklayer.contract", "core.streams.held_bulk"), "BACKLOG_LOW_BYTES", 2_000),
)
"""As `SCARCE`, of links that have much to write, or little again: bulk waits for them."""
REFUSING: Final[tuple[Bound, ...]] = (
    (("core.streams.outbound",), "STREAMS_MAX", 3),
    (("core.streams.outbound",), "SHARED_MAX", 2),
    (("core.streams.outbound",), "SENT_MAX", 4),
    (("core.streams.outbound", "core.topics.inboxes"), "QUESTIONS_MAX", 6),
    (("core.streams.inbound",), "STREAMS_MAX", 3),
    (("core.streams.inbound",), "SOURCES_MAX", 2),
    (("core.streams.asking",), "TELLING_MAX", 4),
    (("core.streams.finding",), "FINDS_MAX", 1),
    (("core.topics.long_messages",), "LONGS_MAX", 1),
    (("core.broadcast.programs",), "KNOWN_MAX", 2),
    (("core.broadcast.programs",), "REGISTERED_MAX", 2),
    (("core.broadcast.programs",), "UNTOLD_MAX", 2),
    (("core.broadcast.retention",), "LIVES_MAX", 3),
    (("core.broadcast.window",), "WAITING_BYTES_MAX", 30_000),
)
"""As `NARROW`: bounds at which programs or peers are told that something is not done."""
ALL: Final = (*NARROW, *SCARCE, *FORGETFUL, *BACKLOGGED, *REFUSING)


def narrowed(seed: int, percent: int) -> AbstractContextManager[None]:
    """Some bounds are narrow inside.

    Args:
        seed: decides which.
        percent: how many of them.
    """
    random = Random(f"narrow bounds {seed}")
    chosen = _chosen(NARROW, random, percent)
    for group in (SCARCE, FORGETFUL, BACKLOGGED):
        chosen += group if random.random() * 100 < percent else ()
    return _narrowed(chosen)


def refusing(seed: int, percent: int) -> AbstractContextManager[None]:
    """As `narrowed`, with some bounds at which something is refused."""
    return _narrowed(_chosen(REFUSING, Random(f"refusing bounds {seed}"), percent))


def _chosen(bounds: Sequence[Bound], random: Random, percent: int) -> list[Bound]:
    return [bound for bound in bounds if random.random() * 100 < percent]


@contextmanager
def _narrowed(chosen: Sequence[Bound]) -> Iterator[None]:
    before: list[tuple[object, str, int]] = []
    try:
        for modules, name, narrow in chosen:
            for module in map(import_module, (f"bmgd.{module}" for module in modules)):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, narrow)
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
