"""Processes that stand still until they are just as late as makes a difference, or a little later.

A core that reaches a deadline more than 25 ms late is more patient, and one that finds itself more than
400 ms late hears all others anew. Pauses by chance end nearly never at such a moment. Some begin
before a process has reached its first deadline, when it hears nobody yet.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bmgd.chaos.history import Fact, Resumed, Stopped
from bmgd.sim.host import Host
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher

_LAGS_NS: Final = (25_000_000, 400_000_000)
_BEYOND_NS: Final = (0, 0, 1, 1_000_000)
_AT_BOOT: Final = 0.2
"""So often a process stands still as it begins."""
_AT_BOOT_NS: Final = 450_000_000


class Lags(Watcher):
    """Who stands still, and for how long.

    Args:
        network: the cluster.
        random: chooses.
        count: how many pauses there are, beside those of processes that begin.
        note: takes the truth for the history.
    """

    def __init__(
        self, network: Network, random: Random, count: int, note: Callable[[Fact], None]
    ) -> None:
        self._network = network
        self._random = random
        self._count = count
        self._note = note
        self._until_ns = 0

    def start(self, until_ns: int) -> None:
        """Let processes stand still until then."""
        self._until_ns = until_ns
        for _ in range(self._count):
            self._network.timeline.plan(self._random.randrange(max(1, until_ns)), self._begin)

    def boot(self, host: Host) -> None:
        if not self._count or self._network.now_ns >= self._until_ns or host.stopped:
            return
        if self._random.random() < _AT_BOOT:
            # When all that begins it has been done.
            now_ns = self._network.now_ns
            self._stand_still(host, now_ns + _AT_BOOT_NS)

    def _begin(self) -> None:
        able = [host for host in self._network.members() if host.core.deadline_ns is not None]
        if not able:
            return
        host = self._random.choice(able)
        due_ns = host.core.deadline_ns
        assert due_ns is not None
        lag_ns = self._random.choice(_LAGS_NS) + self._random.choice(_BEYOND_NS)
        self._stand_still(host, max(self._network.now_ns, host.virtual_ns(due_ns + lag_ns)))

    def _stand_still(self, host: Host, until_ns: int) -> None:
        network = self._network
        host.stopped = True
        self._note(Stopped(network.now_ns, host.id))
        for watcher in network.watchers:
            watcher.disturb(host.where)
        network.timeline.plan(until_ns, self._go_on, host)

    def _go_on(self, host: Host) -> None:
        network = self._network
        for watcher in network.watchers:
            watcher.disturb(host.where, over=True)
        if host.stopped and host.alive and network.hosts.get(host.where) is host:
            self._note(Resumed(network.now_ns, host.id))
            network.resume(host.where)
