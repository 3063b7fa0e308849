"""Arbitrary commands: what programs can ask of one node."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from benchmarks.arbitrary.values import MS, U32_MAX, Values
from bmgd.core.commands import (
    BroadcastTo,
    CloseStream,
    Command,
    Evict,
    FindReaders,
    Leave,
    MulticastTo,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    OpenStream,
    ProbeTo,
    PutSegment,
    SendTo,
    ShowLinks,
    ShowMembers,
    ShowReport,
    ShowStatus,
    Subscribe,
    TraceFrom,
    Unsubscribe,
    Withdraw,
)
from bmgd.types import Incarnation
from bmgd.wire.bounds import LONG_BYTES_MAX, TRACE_MS_MAX
from bmgd.wire.segments import packed


class Commands:
    """Invents what programs can ask of one node.

    Args:
        values: what they are made of.

    Attributes:
        inboxes: those that the node has opened lately.
        readers: the requests of those that subscribed lately.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self.inboxes: deque[int] = deque(maxlen=8)
        self.readers: deque[int] = deque(maxlen=8)

    def _timeout_ns(self) -> int:
        return self._values.random.choice((0, 1, MS, 50 * MS, 2000 * MS, 86_400_000 * MS))

    def request(self) -> Command:
        """A command that begins something; its number is new."""
        values = self._values
        destination, topic, timeout_ns = values.id(), values.topic(), self._timeout_ns()
        reliable = values.chance(0.7)
        makers: Sequence[Callable[[], Command]] = (
            ShowStatus,
            ShowMembers,
            ShowLinks,
            ShowReport,
            *[lambda: SendTo(destination, topic, values.payload(), timeout_ns)] * 4,
            *[lambda: BroadcastTo(topic, values.payload(), reliable, timeout_ns)] * 3,
            lambda: MulticastTo(
                values.id_set() or 1, topic, values.payload(), reliable, timeout_ns
            ),
            *[lambda: OpenStream(destination, topic, values.random.randrange(1, 4), not reliable)]
            * 3,
            *[
                lambda: Subscribe(
                    topic,
                    values.random.choice((1, 1, 16, 2**20)),
                    values.random.choice((1, 1 << 20)),
                    values.chance(0.5),
                )
            ]
            * 2,
            lambda: ProbeTo(destination, reliable, timeout_ns),
            lambda: OpenInbox(values.random.choice((1, 1 << 20, 64 << 20))),
            lambda: FindReaders(topic, max(1, timeout_ns)),
            lambda: OpenAnswers(
                destination,
                Incarnation(max(1, values.life())),
                values.number(1, U32_MAX),
                values.random.choice(self.readers or (1,)),
            ),
            *[
                lambda: (
                    OpenQuestions(
                        destination,
                        topic,
                        values.random.randrange(1, 4),
                        values.random.choice(self.inboxes),
                    )
                    if self.inboxes
                    else OpenInbox(1 << 20)
                )
            ]
            * 2,
            lambda: TraceFrom(
                destination, values.id(), max(MS, min(timeout_ns, TRACE_MS_MAX * MS))
            ),
        )
        if values.chance(0.004):
            return Evict(destination, timeout_ns)
        if values.chance(0.0005):
            return Leave()
        return values.random.choice(makers)()

    def follow_up(self) -> Command:
        """A command about a request that was made before, of whatever kind, and over or not."""
        values = self._values
        shape = values.random.randrange(9)
        timeout_ns = self._timeout_ns()
        if shape < 4:
            count = values.random.choice((1, 1, 3))
            answers = tuple(values.number(1) for _ in range(values.random.choice((0, 0, 0, 1, 3))))
            body = packed(values.payload()[:900]) * count
            return PutSegment(count, body, timeout_ns=timeout_ns, answers=answers)
        if shape < 6:
            body = values.payload() or b"x"
            size = values.number(len(body), LONG_BYTES_MAX)
            return PutSegment(0, body, size, values.chance(0.5), values.chance(0.5), timeout_ns)
        if shape == 6:
            return Withdraw(values.number(1, 2**48))
        if shape == 7:
            return CloseStream(abandon=values.chance(0.5))
        return Unsubscribe()
