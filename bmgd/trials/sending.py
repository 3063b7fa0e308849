"""Every kind of message that a program can send, each with its facts: what was sent, what became of it.

A message has a number, which its payload names. One to many has a number for each node, from its first
on. A message has one outcome: acknowledged, or failed with the name of an error; none, when the source's
daemon ended first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from bmgd.chaos.history import Acknowledged, Failed, Sent
from bmgd.chaos.plan import Workload
from bmgd.client import Daemon
from bmgd.errors import BmgdError, DeliveryError, NoDaemonError, PartialError, Report, RequestError
from bmgd.trials.payloads import NUMBER_BYTES, TO_MANY, payload_of
from bmgd.trials.recorder import Recorder
from bmgd.types import Incarnation, NodeId
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

BATCH: Final = 32
"""Messages of a stream between two flushes."""
BATCHES: Final = 4
"""Batches of a stream before it is closed."""
MULTICAST_MAX: Final = 16
NUMBERS_TO_MANY: Final = 1 << 20
"""A message to many has so many numbers: one for every id that there may be."""
JOINERS_MAX: Final = 64
"""So many may join between the moment of a broadcast and its daemon's turn."""
LONG_TIMEOUT_S: Final = 60.0


class Sending:
    """Sends messages for a trial's programs, and writes down what becomes of them.

    Args:
        recorder: where facts go, and whose connections are used.
        workload: how large, how long.
        topic: the trial's own.
        random: chooses sizes and destinations.
    """

    def __init__(self, recorder: Recorder, workload: Workload, topic: str, random: Random) -> None:
        self._recorder = recorder
        self._workload = workload
        self._topic = topic
        self._random = random
        self._last = 0
        """The number given last."""
        self._flows: dict[tuple[Daemon, Incarnation, int, str], int] = {}
        self._kinds: dict[str, Callable[[Daemon, NodeId, int], Awaitable[None]]] = {
            "send": self._send,
            "stream": self._write,
            "request": self._ask,
            "multicast": self._multicast,
            "broadcast": self._broadcast,
            "long": self._send_long,
        }

    def count_of(self, kind: str, size: int) -> int:
        """How many messages one call of `send` sends, about, in a cluster of this size; at least 1."""
        return {
            "stream": BATCH * BATCHES,
            "multicast": max(1, min(size, MULTICAST_MAX) // 2),
            "broadcast": size,
        }.get(kind, 1)

    async def send(self, kind: str, source: NodeId, size: int) -> None:
        """Let a program at a node send a message, or several, to random nodes; wait for the outcome.

        Args:
            kind: of `bmgd.chaos.plan.KINDS`.
            size: how many nodes the cluster has.
        """
        daemon = self._recorder.daemons.get(source)
        if daemon is None:
            return
        try:
            await self._kinds[kind](daemon, source, size)
        except NoDaemonError:
            # The source itself ended, and what was not told ended with it.
            return

    # --- one node ---------------------------------------------------------------------------------

    async def _send(self, daemon: Daemon, source: NodeId, size: int) -> None:
        destination = self._other(source, size)
        flow = self._flow(daemon, source, destination, "send")
        (number,) = self._sent(source, [destination], "send", flow)
        with self._outcome(source, [number]):
            payload = payload_of(number, self._short_bytes())
            timeout_s = self._workload.timeout_s
            await daemon.send(destination, payload, topic=self._topic, timeout=timeout_s)

    async def _send_long(self, daemon: Daemon, source: NodeId, size: int) -> None:
        destination = self._other(source, size)
        (number,) = self._sent(source, [destination], "long")
        most = max(self._workload.payload_bytes_max, 4 * PAYLOAD_BYTES_MAX)
        payload = payload_of(number, self._between(PAYLOAD_BYTES_MAX + 1, most))
        with self._outcome(source, [number]):
            await daemon.send(destination, payload, topic=self._topic, timeout=LONG_TIMEOUT_S)

    async def _ask(self, daemon: Daemon, source: NodeId, size: int) -> None:
        destination = self._other(source, size)
        flow = self._flow(daemon, source, destination, "request")
        (number,) = self._sent(source, [destination], "request", flow)
        try:
            question = payload_of(number, self._short_bytes())
            timeout_s = self._workload.timeout_s
            answer = await daemon.request(
                destination, question, topic=self._topic, timeout=timeout_s
            )
        except BmgdError as error:
            self._failed(source, [number], error)
        else:
            # An answer to another question would be the outcome of that one too.
            self._acknowledged(source, int.from_bytes(answer[:NUMBER_BYTES], "big"))

    async def _write(self, daemon: Daemon, source: NodeId, size: int) -> None:
        destination = self._other(source, size)
        flow = self._new_flow()
        written: list[int] = []
        with self._outcome(source, written):
            async with daemon.stream(destination, self._topic) as stream:
                for _ in range(BATCHES):
                    for _ in range(BATCH):
                        written += self._sent(source, [destination], "stream", flow)
                        await stream.write(payload_of(written[-1], self._short_bytes()))
                    await stream.flush(LONG_TIMEOUT_S)
                    for number in written:
                        self._acknowledged(source, number)
                    written.clear()

    # --- many -------------------------------------------------------------------------------------

    async def _multicast(self, daemon: Daemon, source: NodeId, size: int) -> None:
        count = self._random.randint(1, min(size, MULTICAST_MAX))
        to = [NodeId(node) for node in sorted(self._random.sample(range(size), count))]
        facts = self._sent_to_many(daemon, source, "multicast", size)
        for node in to:
            self._recorder.add(facts[node])
        payload, timeout_s = self._payload_to_many(facts), self._workload.timeout_s
        asked = daemon.multicast(to, payload, topic=self._topic, timeout=timeout_s)
        await self._report(asked, source, {node: facts[node].payload_id for node in to})

    async def _broadcast(self, daemon: Daemon, source: NodeId, size: int) -> None:
        facts = self._sent_to_many(daemon, source, "broadcast", size + JOINERS_MAX)
        for node in range(size):
            self._recorder.add(facts[NodeId(node)])
        payload, timeout_s = self._payload_to_many(facts), self._workload.timeout_s
        asked = daemon.broadcast(payload, topic=self._topic, timeout=timeout_s)
        numbers = {node: fact.payload_id for node, fact in facts.items()}
        report = None
        try:
            report = await self._report(asked, source, numbers, those=size)
        finally:
            # Its audience has who joined between the look at the cluster's size and its daemon's turn.
            for node in range(size, size + JOINERS_MAX):
                if report is None or node in report.confirmed or node in report.failed:
                    self._recorder.add(facts[NodeId(node)])

    def _payload_to_many(self, facts: dict[NodeId, Sent]) -> bytes:
        return payload_of(facts[NodeId(0)].payload_id | TO_MANY, self._short_bytes())

    def _sent_to_many(
        self, daemon: Daemon, source: NodeId, kind: str, size: int
    ) -> dict[NodeId, Sent]:
        """The fact for each node, which is still to be written down; their numbers follow one another."""
        first, self._last = self._last + 1, self._last + NUMBERS_TO_MANY
        nodes = map(NodeId, range(size))
        return {
            node: self._fact_of(
                source, node, first + node, kind, self._flow(daemon, source, node, kind)
            )
            for node in nodes
        }

    async def _report(
        self,
        asked: Awaitable[Report],
        source: NodeId,
        numbers: dict[NodeId, int],
        those: int = 1 << 30,
    ) -> Report | None:
        """Write down what a report says of each node; None when there is no report.

        Args:
            those: of the ids below this one everyone has an outcome.

        Raises:
            NoDaemonError: the source's daemon ended.
        """
        try:
            report = await asked
        except PartialError as error:
            report = error.report
        except BmgdError as error:
            self._failed(source, numbers.values(), error)
            return None
        for node, number in numbers.items():
            if node in report.confirmed:
                self._acknowledged(source, number)
            elif node in report.failed:
                self._failed(source, [number], report.failed[node])
            elif node < those:
                fact = Failed(
                    self._recorder.now_ns(), source, number, number, "NotOfIt", sent=False
                )
                self._recorder.add(fact)
        return report

    # --- facts ------------------------------------------------------------------------------------

    def _sent(
        self, source: NodeId, destinations: Iterable[NodeId], kind: str, flow: int = 0
    ) -> list[int]:
        """Write down that messages are sent; their numbers."""
        numbers = []
        for destination in destinations:
            self._last += 1
            self._recorder.add(self._fact_of(source, destination, self._last, kind, flow))
            numbers.append(self._last)
        return numbers

    def _fact_of(
        self, source: NodeId, destination: NodeId, number: int, kind: str, flow: int
    ) -> Sent:
        life, unknown = self._recorder.lives[source], Incarnation(0)
        now_ns = self._recorder.now_ns()
        return Sent(now_ns, source, life, number, destination, unknown, number, kind, flow)

    @contextmanager
    def _outcome(self, source: NodeId, numbers: list[int]) -> Iterator[None]:
        """All these messages are acknowledged when the block ends, or fail as it does."""
        try:
            yield
        except BmgdError as error:
            # Of many one error does not tell which of them may have come.
            self._failed(source, numbers, error, doubted=len(numbers) > 1)
        else:
            for number in numbers:
                self._acknowledged(source, number)

    def _acknowledged(self, source: NodeId, number: int) -> None:
        self._recorder.add(Acknowledged(self._recorder.now_ns(), source, number, number))

    def _failed(
        self, source: NodeId, numbers: Iterable[int], error: BmgdError, *, doubted: bool = False
    ) -> None:
        """Write down that messages failed.

        Args:
            doubted: each of them may have come, whatever the error says.

        Raises:
            NoDaemonError: the source's daemon ended: they have no outcome.
        """
        if isinstance(error, NoDaemonError):
            raise error
        sent = doubted or not isinstance(error, RequestError)
        if isinstance(error, DeliveryError) and not doubted:
            sent = error.sent
        name = type(error).__name__
        for number in numbers:
            fact = Failed(self._recorder.now_ns(), source, number, number, name, sent=sent)
            self._recorder.add(fact)

    # --- chance -----------------------------------------------------------------------------------

    def _other(self, source: NodeId, size: int) -> NodeId:
        return NodeId((source + self._random.randrange(1, size)) % size)

    def _short_bytes(self) -> int:
        least = self._workload.payload_bytes
        most = min(max(least, self._workload.payload_bytes_max), PAYLOAD_BYTES_MAX)
        return self._between(least, most)

    def _between(self, least: int, most: int) -> int:
        """A size; one of few bytes as often as one of many."""
        return least if least >= most else int(least * (most / least) ** self._random.random())

    def _flow(self, daemon: Daemon, source: NodeId, destination: int, kind: str) -> int:
        """What one life of a daemon sends for one program to one node in one way: read in that order."""
        key = daemon, self._recorder.lives[source], destination, kind
        if key not in self._flows:
            self._flows[key] = self._new_flow()
        return self._flows[key]

    def _new_flow(self) -> int:
        self._last += 1
        return self._last
