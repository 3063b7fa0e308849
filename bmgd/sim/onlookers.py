"""The programs of a simulated cluster that only look: at their own daemon, at others, at ways.

Each has one question, and is gone when it is answered. Which program asks what of whom is chance.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bmgd.core.commands import (
    AskReports,
    Command,
    FindReaders,
    ProbeTo,
    ShowLinks,
    ShowMembers,
    ShowPrograms,
    ShowReport,
    ShowStatus,
    TraceFrom,
)
from bmgd.sim.arrivals import Arrivals
from bmgd.sim.askers import ASKED
from bmgd.sim.network import Network
from bmgd.sim.readers import TOPIC
from bmgd.types import NodeId

TIMEOUTS_NS: Final = (50_000_000, 400_000_000, 3_000_000_000)
_SHOWN: Final = (ShowStatus, ShowMembers, ShowLinks, ShowPrograms, ShowReport)
_NOBODY: Final = 3
"""So many ids above the highest are asked about, too."""


class Onlookers:
    """Programs that look.

    Args:
        network: the cluster.
        random: the programs' own chance.
        per_second: how many questions there are.
    """

    def __init__(self, network: Network, random: Random, per_second: float) -> None:
        self._network = network
        self._random = random
        self._arrivals = Arrivals(network, random, per_second, self._look)
        self._questions: tuple[Callable[[], Command], ...] = (
            ShowStatus,
            ShowMembers,
            ShowLinks,
            ShowPrograms,
            ShowReport,
            self._reports,
            self._probe,
            self._probe,
            self._trace,
            self._trace,
            self._find,
        )

    def start(self, until_ns: int) -> None:
        """Let programs look until then."""
        self._arrivals.start(until_ns)

    def look_at_all(self) -> None:
        """Let a program look at each daemon that runs, at all that it shows of itself."""
        for _, host in sorted(self._network.hosts.items()):
            for command in _SHOWN:
                if host.answers_programs:
                    self._network.issue_as(host, self._network.next_request(), command())

    def _look(self) -> None:
        there = [host for host in self._network.hosts.values() if host.answers_programs]
        if there:
            host = self._random.choice(there)
            command = self._random.choice(self._questions)()
            self._network.issue_as(host, self._network.next_request(), command)

    def _anybody(self) -> NodeId:
        return NodeId(self._random.randrange(max(self._network.hosts) + _NOBODY))

    def _reports(self) -> Command:
        return AskReports(tuple(self._anybody() for _ in range(self._random.randint(1, 4))))

    def _probe(self) -> Command:
        random = self._random
        return ProbeTo(self._anybody(), random.random() < 0.7, random.choice(TIMEOUTS_NS))

    def _trace(self) -> Command:
        return TraceFrom(self._anybody(), self._anybody(), self._random.choice(TIMEOUTS_NS))

    def _find(self) -> Command:
        topic = self._random.choice((TOPIC, ASKED))
        return FindReaders(topic, self._random.choice(TIMEOUTS_NS))
