"""What the launcher and its zygote tell each other.

launcher -> zygote    `Plan` once, then `Spawn`, `SpawnJoiners` and `Signal`
zygote -> launcher    `Spawned`, `Ended`
"""

from __future__ import annotations

import os
from typing import Final

from bmgd.dataclass import dataclass
from bmgd.launcher.plan import Joiner, Plan

JOINERS_MAX: Final = 512
"""Of one order, which then has a third of `ORDER_BYTES_MAX` at most."""

ORDER_BYTES_MAX: Final = 1 << 17
NOT_FORKED: Final = os.EX_OSERR
"""The code of a daemon for which the host had no process, or no memory."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Fork these founders."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SpawnJoiners:
    """Fork these joiners, which ask these members."""

    joiners: tuple[Joiner, ...]
    contacts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to every daemon that runs."""

    number: int


@dataclass(frozen=True, slots=True)
class Spawned:
    """Daemons began: (a founder's id or a joiner's number, pid)."""

    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Daemons ended and were reaped: (id or number, pid, exit code, or minus the number of a signal).

    One that could not be forked has pid 0 and code `NOT_FORKED`, and its log says why.
    """

    rows: tuple[tuple[int, int, int], ...]


Order = Plan | Spawn | SpawnJoiners | Signal
News = Spawned | Ended
