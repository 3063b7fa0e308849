"""What happens at random moments, so often a second on average: a Poisson process in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bmgd.sim.network import Network

_MICROSECOND_NS: Final = 1_000


class Arrivals:
    """Calls a function again and again, after pauses of an exponential distribution.

    Args:
        network: whose time it is.
        random: draws the pauses.
        per_second: calls on average; 0 for none.
        act: what is called.
    """

    def __init__(
        self, network: Network, random: Random, per_second: float, act: Callable[[], None]
    ) -> None:
        self._network = network
        self._random = random
        self._per_second = per_second
        self._act = act
        self._until_ns = 0

    def start(self, until_ns: int) -> None:
        """Call it until then."""
        self._until_ns = until_ns
        if self._per_second > 0:
            self._plan_next()

    def _plan_next(self) -> None:
        pause_ns = int(self._random.expovariate(self._per_second) * 1e9)
        at_ns = self._network.now_ns + max(pause_ns, _MICROSECOND_NS)
        if at_ns < self._until_ns:
            self._network.timeline.plan(at_ns, self._act_once)

    def _act_once(self) -> None:
        self._act()
        self._plan_next()
