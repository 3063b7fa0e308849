"""The numbers of detection and dialling, and named sets of them for kinds of networks.

What each set gives is in docs/operations.md: when a stopped node is found, and what rest costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bmgd.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """The numbers of detection and dialling, in milliseconds; the defaults are the profile `lan`.

    Args:
        heartbeat_ms: how often a watched link carries a heartbeat.
        timeout_ms: silence after which a neighbor is suspected.
        ask_ms: how long a suspecting node waits for a veto.
        dial_ms: how long a dial may take until the hello is answered.
        join_ms: after this, a wanted link is dialled by either end.
        start_ms: after this, a node is ready without the founders that never came.
        backoff_min_ms: the first pause between two dials, before jitter.
        backoff_max_ms: the longest pause between two dials, before jitter.
        redial_ms: how often one of the dead is dialled, before jitter.
        leave_ms: how long a node that leaves waits for confirmations and for its readers.
        relayout_ms: how long changes of the layout are gathered before links follow.
    """

    heartbeat_ms: int = 500
    timeout_ms: int = 1500
    ask_ms: int = 400
    dial_ms: int = 1000
    join_ms: int = 1000
    start_ms: int = 15_000
    backoff_min_ms: int = 8
    backoff_max_ms: int = 1000
    redial_ms: int = 4000
    leave_ms: int = 5000
    relayout_ms: int = 1


DEFAULT_PROFILE: Final = "lan"

PROFILES: Final[Mapping[str, Timing]] = {
    # One machine with cores to spare: nothing is lost there, so silence means much, soon.
    "local": Timing(
        heartbeat_ms=300,
        timeout_ms=900,
        ask_ms=300,
        dial_ms=500,
        join_ms=500,
        start_ms=10_000,
        backoff_min_ms=4,
        backoff_max_ms=500,
        redial_ms=2000,
    ),
    "lan": Timing(),
    # Round trips to 300 ms, and links that pause for a second or two.
    "wan": Timing(
        heartbeat_ms=1000,
        timeout_ms=5000,
        ask_ms=1500,
        dial_ms=4000,
        join_ms=4000,
        start_ms=60_000,
        backoff_min_ms=50,
        backoff_max_ms=5000,
        redial_ms=5000,
        relayout_ms=50,
    ),
    # More daemons or other work than cores: a process may not run for a second.
    "oversubscribed": Timing(
        heartbeat_ms=1000,
        timeout_ms=3500,
        ask_ms=900,
        dial_ms=3000,
        join_ms=3000,
        start_ms=60_000,
        backoff_min_ms=20,
        backoff_max_ms=2000,
        redial_ms=4000,
        relayout_ms=10,
    ),
}
"""Named sets of numbers; single ones can be set over them."""
