"""A daemon without a cluster: the real control server over a core that answers from a table."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from bmgd.core.commands import (
    CloseStream,
    Command,
    Consumed,
    Leave,
    OpenStream,
    ProbeTo,
    PutSegment,
    Register,
    SendTo,
    ShowLinks,
    ShowMembers,
    ShowStatus,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.effects import RecordChanged, Reply, StreamEnded, StreamMoved
from bmgd.errors import BmgdError, DeadError, QueueFullError, RequestError, UnreachableError
from bmgd.shell.control import ControlServer
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.segments import COST_MAX
from tests.unit.segments import delivered

SENDERS: dict[int, BmgdError] = {
    3: DeadError(3, "it is dead"),
    4: UnreachableError(4, "no way was found before the deadline"),
    5: QueueFullError(5, "its queue for that topic is full"),
    6: RequestError("no node has the id 6"),
}
DEADLINE_S = 30.0
CREDIT_BYTES = 1 << 20
SILENT = 7
"""Nothing that is for this node is ever answered."""


class FakeCore:
    """Answers commands at once; one reader a topic; remembers everything that it was told."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:{path}"
        self.told: list[tuple[int, Command]] = []
        self._told_more = asyncio.Event()
        self.revision = 10
        self.waiting: deque[bytes] = deque()
        self.unconsumed: deque[bytes] = deque()
        self.credit = 0
        self.reader: int | None = None
        self.streams: dict[int, list[PutSegment]] = {}
        self.destinations: dict[int, NodeId] = {}
        self.holds_back = False
        self.keeps_closed = False
        self.registered: set[str] = set()
        """Names that other programs have."""
        self.server = ControlServer(self.address, self.issue, lambda: {"pid": 4711})

    def issue(self, request: int, command: Command) -> None:
        """What the daemon would hand to its core."""
        self.told.append((request, command))
        self._told_more.set()
        match command:
            case ShowStatus():
                self.server.answers.reply(Reply(request, {"id": 0, "state": "ready"}))
            case ShowMembers():
                members = [self.member(node_id) for node_id in range(3)]
                self.server.answers.reply(
                    Reply(request, {"revision": self.revision, "members": members})
                )
            case ShowLinks():
                self.server.answers.reply(
                    Reply(request, [{"id": 1, "dialled_by": 1, "state": "up"}])
                )
            case SendTo(destination) | ProbeTo(destination) if destination == SILENT:
                pass
            case SendTo(destination):
                self.server.answers.reply(Reply(request, error=SENDERS.get(destination)))
            case ProbeTo(destination):
                self.server.answers.reply(
                    Reply(request, {"rtt_ns": 1500, "path": [0, destination]})
                )
            case OpenStream(destination):
                self.open_stream(request, destination)
            case PutSegment():
                self.put_segment(request, command)
            case CloseStream(abandon=False) if self.keeps_closed:
                pass
            case CloseStream(abandon):
                numbers = self.streams.pop(request, [])
                if not abandon:
                    following = len(numbers) + 1
                    self.server.answers.stream_ended(StreamEnded(request, following, following))
            case Subscribe(topic, credit):
                self.subscribe(request, topic, credit)
            case Consumed(_, long) if long:
                pass
            case Consumed(count):
                for _ in range(count):
                    self.unconsumed.popleft()
                self.credit += count
                self.hand_out()
            case Unsubscribe():
                self.waiting.extendleft(reversed(self.unconsumed))
                self.unconsumed.clear()
                self.reader = None
            case Register(name):
                self.register(request, name)
            case Leave():
                self.server.answers.reply(Reply(request))

    async def until_told(self, condition: Callable[[], bool]) -> None:
        """Wait until what was told fulfils a condition."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._told_more.clear()
                await self._told_more.wait()

    def member(self, node_id: int) -> dict[str, object]:
        """A member as the core shows it."""
        return {
            "id": node_id,
            "status": "expected",
            "incarnation": 1 << 32,
            "version": 0,
            "address": f"127.0.0.1:{7400 + node_id}",
        }

    def change(self, node_id: int, status: Status) -> None:
        """Let a record change."""
        self.revision += 1
        record = Record(Incarnation(2**64 - 1), 1, status, "127.0.0.1:1")
        self.server.answers.record_changed(RecordChanged(NodeId(node_id), record, self.revision), 7)

    def put(self, *payloads: bytes) -> None:
        """Let messages come."""
        self.waiting.extend(payloads)
        self.hand_out()

    def open_stream(self, request: int, destination: NodeId) -> None:
        """A stream, unless nobody has that id; nothing is told of one to `SILENT`."""
        error = SENDERS.get(destination)
        if isinstance(error, RequestError):
            self.server.answers.reply(Reply(request, error=error))
            return
        self.streams[request] = []
        self.destinations[request] = destination
        self.server.answers.reply(Reply(request, {"credit": CREDIT_BYTES}))

    def put_segment(self, request: int, put: PutSegment) -> None:
        """Confirm it at once, or end the stream with the error of its destination."""
        if request not in self.streams:
            return
        self.streams[request].append(put)
        number, destination = len(self.streams[request]), self.destinations[request]
        error = SENDERS.get(destination)
        if error is not None:
            del self.streams[request]
            self.server.answers.stream_ended(StreamEnded(request, number, number, error))
        elif destination != SILENT and not self.holds_back:
            put_cost = number * COST_MAX
            self.server.answers.stream_moved(
                StreamMoved(request, number + 1, put_cost + CREDIT_BYTES)
            )

    def register(self, request: int, name: str) -> None:
        """A program, unless another one has its name."""
        known = RequestError(f"{name} is registered already") if name in self.registered else None
        self.server.answers.reply(Reply(request, error=known))

    def subscribe(self, request: int, topic: str, credit: int) -> None:
        """One reader at a time."""
        if topic == "taken" or self.reader is not None:
            self.server.answers.reply(Reply(request, error=RequestError("too many subscriptions")))
            return
        self.reader, self.credit = request, credit
        self.server.answers.reply(Reply(request))
        self.hand_out()

    def hand_out(self) -> None:
        """Deliver what the reader's credit allows."""
        while self.reader is not None and self.waiting and self.credit:
            payload = self.waiting.popleft()
            self.unconsumed.append(payload)
            self.credit -= 1
            self.server.answers.deliver(delivered(self.reader, NodeId(9), "jobs", payload))


C = TypeVar("C", bound=FakeCore)


@asynccontextmanager
async def serving(core: C) -> AsyncIterator[C]:
    """A fake daemon of this kind, which listens."""
    await core.server.start()
    try:
        yield core
    finally:
        core.server.close()


def fake_daemon(path: Path) -> AbstractAsyncContextManager[FakeCore]:
    """A fake daemon that listens at a path."""
    return serving(FakeCore(path))
