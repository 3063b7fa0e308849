"""Messages between all while faults go on: from random nodes to random others, each with its number."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from bmgd.chaos.history import Acknowledged, Failed, Sent
from bmgd.chaos.plan import Workload
from bmgd.client import Daemon
from bmgd.errors import BmgdError, NoDaemonError
from bmgd.trials.cluster import TrialCluster
from bmgd.trials.recorder import NUMBER_BYTES, Recorder
from bmgd.types import Incarnation, NodeId

UNDERWAY_MAX: Final = 2000
"""Messages without an outcome; at this bound no further one is sent until some have."""


class Traffic:
    """The workload of one trial.

    Args:
        recorder: where facts go, and whose connections are used.
        workload: how many, how large, how long.
        topic: the trial's own.
        random: chooses sources, destinations and pauses.
    """

    def __init__(self, recorder: Recorder, workload: Workload, topic: str, random: Random) -> None:
        self._recorder = recorder
        self._workload = workload
        self._topic = topic
        self._random = random
        self._count = 0
        self._ended = False
        self.underway = 0

    async def run(self, cluster: TrialCluster) -> None:
        """Send until `end`, to nodes that run and to nodes that do not; wait for the last outcome."""
        rate = self._workload.messages_per_second
        async with asyncio.TaskGroup() as tasks:
            while not self._ended and rate > 0:
                sources = sorted(self._recorder.daemons)
                destinations = cluster.size
                if sources and destinations > 1 and self.underway < UNDERWAY_MAX:
                    source = self._random.choice(sources)
                    destination = self._random.randrange(destinations)
                    if destination != source:
                        tasks.create_task(self._send(NodeId(source), NodeId(destination)))
                await asyncio.sleep(self._random.expovariate(rate))

    def end(self) -> None:
        """Send nothing more."""
        self._ended = True

    async def _send(self, source: NodeId, destination: NodeId) -> None:
        recorder = self._recorder
        daemon = recorder.daemons.get(source)
        if daemon is None:
            return
        self._count += 1
        number, life = self._count, recorder.lives[source]
        sent = Sent(recorder.now_ns(), source, life, number, destination, Incarnation(0), number)
        recorder.add(sent)
        self.underway += 1
        try:
            await self._ask(daemon, destination, number)
            recorder.add(Acknowledged(recorder.now_ns(), source, number, number))
        except NoDaemonError:
            # The source itself ended, and its outcome with it.
            return
        except BmgdError as error:
            name = type(error).__name__
            recorder.add(Failed(recorder.now_ns(), source, number, number, name))
        finally:
            self.underway -= 1

    async def _ask(self, daemon: Daemon, destination: NodeId, number: int) -> None:
        payload = number.to_bytes(NUMBER_BYTES, "big").ljust(self._workload.payload_bytes, b"\0")
        timeout_s = self._workload.timeout_s
        await daemon.send(destination, payload, topic=self._topic, timeout=timeout_s)
