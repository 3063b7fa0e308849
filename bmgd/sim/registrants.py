"""The registered programs of a simulated cluster: they start and end at all daemons, by chance."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from bmgd.chaos.plan import Workload
from bmgd.core.commands import Register, Unregister
from bmgd.core.effects import Effect, Reply
from bmgd.core.events import Event
from bmgd.sim.arrivals import Arrivals
from bmgd.sim.host import Host
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher

SHARE: Final = 0.05
"""Starts and ends, for each message to one."""
PER_SECOND_MAX: Final = 5.0
NAMES: Final = 4
"""So many names: some are taken when they are asked for."""


class Registrants(Watcher):
    """Programs that register, and end.

    Args:
        network: the cluster.
        random: the programs' own chance.
        workload: how much happens.
    """

    def __init__(self, network: Network, random: Random, workload: Workload) -> None:
        self._network = network
        self._random = random
        per_second = min(workload.messages_per_second * SHARE, PER_SECOND_MAX)
        self._arrivals = Arrivals(network, random, per_second, self._do_any)
        self._registered: dict[int, Host] = {}

    def start(self, until_ns: int) -> None:
        """Let programs start and end until then."""
        self._arrivals.start(until_ns)

    def _do_any(self) -> None:
        random, network = self._random, self._network
        there = [host for host in network.hosts.values() if host.joiner is None and host.alive]
        if there:
            host = random.choice(there)
            mine = [request for request, owner in self._registered.items() if owner is host]
            if host.stopped:
                pass
            elif mine and random.random() < 0.5:
                exit_code = random.choice((None, 0, 1, -9))
                request = random.choice(mine)
                del self._registered[request]
                network.issue_as(host, request, Unregister(exit_code))
            else:
                request = network.next_request()
                self._registered[request] = host
                network.issue_as(host, request, Register(f"program {random.randrange(NAMES)}"))

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply) and effect.error is not None:
                self._registered.pop(effect.request, None)

    def ended(self, host: Host) -> None:
        if not host.alive:
            for request in [r for r, owner in self._registered.items() if owner is host]:
                del self._registered[request]
