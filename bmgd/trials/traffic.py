"""Messages between all while faults go on: when, from whom, and of which kind."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from bmgd.chaos.plan import Workload
from bmgd.trials.cluster import TrialCluster
from bmgd.trials.recorder import Recorder
from bmgd.trials.sending import Sending
from bmgd.types import NodeId

UNDERWAY_MAX: Final = 2000
"""Messages without an outcome, about; at this bound no further one is sent until some have."""


class Traffic:
    """The workload of one trial.

    Args:
        recorder: where facts go, and whose connections are used.
        workload: how many, how large, how long.
        topic: the trial's own.
        random: chooses sources, destinations, sizes and pauses.
    """

    def __init__(self, recorder: Recorder, workload: Workload, topic: str, random: Random) -> None:
        self._recorder = recorder
        self._workload = workload
        self._random = random
        self._sending = Sending(recorder, workload, topic, random)
        self._ended = False
        self.underway = 0

    async def run(self, cluster: TrialCluster) -> None:
        """Send until `end`, to nodes that run and to nodes that do not; wait for the last outcome."""
        workload, random = self._workload, self._random
        kinds, weights = list(workload.kinds), list(workload.kinds.values())
        rate = workload.messages_per_second
        async with asyncio.TaskGroup() as tasks:
            while not self._ended and rate > 0:
                sources, size = sorted(self._recorder.daemons), cluster.size
                (kind,) = random.choices(kinds, weights)
                count = self._sending.count_of(kind, size)
                if sources and size > 1 and self.underway < UNDERWAY_MAX:
                    source = NodeId(random.choice(sources))
                    tasks.create_task(self._send(kind, source, size, count))
                await asyncio.sleep(random.expovariate(rate / count))

    def end(self) -> None:
        """Send nothing more."""
        self._ended = True

    async def _send(self, kind: str, source: NodeId, size: int, count: int) -> None:
        self.underway += count
        try:
            await self._sending.send(kind, source, size)
        finally:
            self.underway -= count
