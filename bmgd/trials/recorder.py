"""What a trial hears: one watcher a daemon, and all that they hear as one history.

Theory of operation. A watcher keeps one connection to its daemon: it asks which life that is, follows
the stream `monitor`, and reads the trial's topic. When the connection ends (the daemon was killed, it
left, or is not there yet) it tries again, quickly, for ever. Times are those that the daemons give
(`at_ns`, on the machine's monotonic clock), so a recorder that is itself late measures all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from bmgd.chaos.history import (
    BecameReady,
    Began,
    Believed,
    DeclaredDead,
    Delivered,
    Fact,
    History,
    LinkedExactly,
    LinkLost,
    LinkOpened,
    Noted,
    Reads,
    Renewed,
    Showed,
    Suspected,
)
from bmgd.client import Daemon, Message, Missed, Stream, connect
from bmgd.errors import BmgdError
from bmgd.trials.cluster import TrialCluster
from bmgd.trials.payloads import NUMBER_BYTES, number_in
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId, Status

AGAIN_S: Final = 0.05
CREDIT: Final = 1024
MISSED: Final = "missed"
"""The `Noted` event of broadcasts that a reader was told it does not get."""


class Recorder:
    """The history of one trial, and a connection to every daemon that runs.

    Args:
        cluster: whose.
        topic: the trial's own.

    Attributes:
        history: what was heard and done, in the order in which it came.
        daemons: connections by node, of daemons that answer.
        lives: the incarnation that each node has, or last had.
    """

    def __init__(self, cluster: TrialCluster, topic: str) -> None:
        self.history = History()
        self.daemons: dict[int, Daemon] = {}
        self.lives: dict[int, Incarnation] = {}
        self._cluster = cluster
        self._topic = topic
        self._began_ns = time.monotonic_ns()
        self._start_ns: dict[int, int] = {}
        self._watchers: dict[int, asyncio.Task[None]] = {}

    def now_ns(self) -> int:
        """The time on the history's clock."""
        return time.monotonic_ns() - self._began_ns

    def add(self, fact: Fact) -> None:
        """Write a fact down."""
        self.history.add(fact)

    def expect_start(self, node: int) -> None:
        """A daemon is being started: its next life began now."""
        self._start_ns[node] = self.now_ns()

    def life_of(self, node: int) -> Incarnation:
        """The life of a node's process; unknown while its latest one has not been heard."""
        return (
            UNKNOWN_INCARNATION
            if node in self._start_ns
            else self.lives.get(node, UNKNOWN_INCARNATION)
        )

    # --- watching -----------------------------------------------------------------------------

    def follow(self) -> None:
        """Watch every daemon that the cluster has by now."""
        for node in range(self._cluster.size):
            if node not in self._watchers:
                self._watchers[node] = asyncio.create_task(self.watch(node))

    async def end(self) -> None:
        """Watch nobody any more."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)

    async def watch(self, node: int) -> None:
        """Hear one daemon, again and again, until cancelled."""
        while True:
            try:
                async with connect(self._cluster.control(node)) as daemon:
                    await self._hear(node, daemon)
            except* BmgdError:
                # It has ended, is not there yet, or cut this reader off: a new connection will tell.
                pass
            finally:
                self.daemons.pop(node, None)
            await asyncio.sleep(AGAIN_S)

    async def _hear(self, node: int, daemon: Daemon) -> None:
        async with (
            daemon.monitor() as events,
            daemon.subscribe(self._topic, credit=CREDIT) as messages,
            asyncio.TaskGroup() as tasks,
        ):
            status = await daemon.status()
            self._on_life(node, Incarnation(status["incarnation"]))
            if is_linked_exactly(status):
                # It may have said so before anybody heard it: joiners are found when they are there.
                self.add(LinkedExactly(self.now_ns(), NodeId(node)))
            self.add(Reads(self.now_ns(), NodeId(node)))
            self.daemons[node] = daemon
            reading = tasks.create_task(self._read(node, messages, tasks))
            async for event in events:
                self._on_event(NodeId(node), event)
            reading.cancel()

    def _on_life(self, node: int, incarnation: Incarnation) -> None:
        if self.lives.get(node) != incarnation:
            self.lives[node] = incarnation
            at_ns = self._start_ns.pop(node, self.now_ns())
            self.add(Began(at_ns, NodeId(node), incarnation))

    async def _read(self, node: int, messages: Stream[Message], tasks: asyncio.TaskGroup) -> None:
        async for message in messages:
            if isinstance(message, Missed):
                text = f"{message.first} to {message.last} of {message.source}"
                self.add(Noted(self.now_ns(), NodeId(node), MISSED, text))
                continue
            number = number_in(message.payload, node)
            life, unknown = self.lives[node], Incarnation(0)
            source = NodeId(message.source)
            self.add(Delivered(self.now_ns(), NodeId(node), life, source, unknown, number))
            if message.is_request:
                tasks.create_task(self._answer(message))

    async def _answer(self, message: Message) -> None:
        try:
            await message.reply(message.payload[:NUMBER_BYTES])
        except BmgdError:
            # Who asked is gone, or no longer waits: its own outcome says so.
            return

    def _on_event(self, node: NodeId, event: dict[str, Any]) -> None:
        fact = fact_of(event["at_ns"] - self._began_ns, node, event)
        if isinstance(fact, Renewed):
            self.lives[node] = fact.incarnation
        self.add(fact)

    # --- looking ------------------------------------------------------------------------------

    async def showed(self, node: int) -> Showed | None:
        """What a daemon shows of itself; None when it does not answer."""
        daemon = self.daemons.get(node)
        if daemon is None:
            return None
        try:
            status = await daemon.status()
        except BmgdError:
            return None
        return Showed(
            self.now_ns(),
            NodeId(node),
            status["state"],
            tuple(map(NodeId, status["alive"])),
            status["layout_size"],
            tuple(map(NodeId, status["neighbors"])),
            tuple(NodeId(link["id"]) for link in status["links"]),
            status["digest"],
        )


def is_linked_exactly(status: dict[str, Any]) -> bool:
    """Whether a daemon's status shows a link to each of its living neighbors, and no other."""
    wanted = [peer for peer in status["neighbors"] if peer in status["alive"]]
    return [link["id"] for link in status["links"]] == wanted


def fact_of(at_ns: int, node: NodeId, event: dict[str, Any]) -> Fact:
    """An item of a daemon's stream `monitor` as a fact."""
    peer = NodeId(-1 if event.get("peer") is None else event["peer"])
    life = Incarnation(event.get("incarnation") or 0)
    detail = str(event.get("detail", ""))
    match event["event"]:
        case "record":
            status = Status[event["status"].upper()]
            record = (event["version"], status, event["address"], event["revision"])
            return Believed(at_ns, node, peer, life, *record)
        case "suspected":
            return Suspected(at_ns, node, peer, detail)
        case "verdict":
            return DeclaredDead(at_ns, node, peer, life, detail)
        case "link up":
            return LinkOpened(at_ns, node, peer, life)
        case "link down":
            return LinkLost(at_ns, node, peer, life, detail)
        case "links exact":
            return LinkedExactly(at_ns, node)
        case "ready":
            return BecameReady(at_ns, node)
        case "new life":
            return Renewed(at_ns, node, life)
        case other:
            return Noted(at_ns, node, str(other), detail)


@asynccontextmanager
async def recording(cluster: TrialCluster, topic: str) -> AsyncIterator[Recorder]:
    """Watch every daemon of a cluster while the block runs."""
    recorder = Recorder(cluster, topic)
    recorder.follow()
    try:
        yield recorder
    finally:
        await recorder.end()
