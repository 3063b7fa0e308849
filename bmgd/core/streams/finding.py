"""Who reads a topic: every node is asked, over the overlay, and has a bounded time to answer.

Theory of operation. Nobody keeps a table of other nodes' readers: who wants to know asks. An ask goes
to every node that is not held dead, a few in each step, and again to those that are silent, every
`AGAIN_NS`, until all have answered or are gone, or the time is over. An answer is what was true there
when it was given. A silent node is named as such: it may have a reader or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bmgd.core.commands import FindReaders
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.timers import TimerKey
from bmgd.core.topics.topics import Topics
from bmgd.core.work import Work
from bmgd.errors import RequestError, UnreachableError
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.ask_messages import ReadersAnswer, ReadersAsk
from bmgd.wire.routes import NORMAL_PRIORITY

FIND_TIMER: Final = "find readers"
FINDS_MAX: Final = 16
"""Of all programs at a time: each asks the whole cluster."""
ASKED_MAX: Final = 2**18
"""Ids that one of them may ask."""
AGAIN_NS: Final = 300_000_000
"""Asks wait behind what keeps the cluster together."""


@dataclass(slots=True)
class _Find:
    request: int
    topic: str
    until_ns: int
    silent: dict[NodeId, None]
    readers: list[NodeId] = field(default_factory=list)


class Finding:
    """The questions underway from here; answers those of others."""

    def __init__(
        self, context: Context, forwarding: Forwarding, topics: Topics, work: Work
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._topics = topics
        self._work = work
        self._open: dict[int, _Find] = {}
        self._count = 0

    def start(self, request: int, command: FindReaders) -> None:
        """Ask everybody; one `Reply` follows."""
        context = self._context
        problem = ""
        if len(self._open) >= FINDS_MAX:
            problem = "too many programs ask for readers"
        elif context.membership.known_count > ASKED_MAX:
            problem = f"at most {ASKED_MAX} ids are asked for readers"
        if problem:
            context.emit(Reply(request, error=RequestError(problem)))
            return
        self._count += 1
        membership, until_ns = context.membership, context.now_ns + command.timeout_ns
        others = {
            peer: None
            for peer in membership.known_ids()
            if peer != context.id and not membership.is_gone(peer)
        }
        find = self._open[self._count] = _Find(request, command.topic, until_ns, others)
        if self._topics.has_reader(command.topic):
            find.readers.append(context.id)
        self._ask(self._count)
        self._end_if_done(self._count)

    def _ask(self, number: int) -> None:
        find, context = self._open[number], self._context
        at_ns = min(context.now_ns + AGAIN_NS, find.until_ns)
        context.timers.set((FIND_TIMER, number, 0), at_ns)
        self._work.begin(f"find {number}", self._asks(number))

    def _asks(self, number: int) -> Callable[[], Iterator[None]]:
        def asks() -> Iterator[None]:
            find = self._open.get(number)
            for peer in list(find.silent) if find is not None else ():
                if find is None or self._open.get(number) is not find:
                    return
                if peer in find.silent:
                    route = self._forwarding.route_to(
                        peer, sequence=number, priority=NORMAL_PRIORITY
                    )
                    self._forwarding.originate(ReadersAsk(route, find.topic))
                    yield

        return asks

    def on_timer(self, key: TimerKey) -> None:
        """Ask the silent again, or say who they are."""
        find, membership = self._open[key[1]], self._context.membership
        for peer in [peer for peer in find.silent if membership.is_gone(peer)]:
            del find.silent[peer]
        if self._context.now_ns >= find.until_ns:
            self._end(key[1])
        elif not self._end_if_done(key[1]):
            self._ask(key[1])

    def on_ask(self, ask: ReadersAsk) -> None:
        """Another node asks."""
        route = ask.route
        tag = incarnation_tag(route.source_incarnation)
        back = self._forwarding.route_to(
            route.source, tag=tag, sequence=route.sequence, priority=NORMAL_PRIORITY
        )
        self._forwarding.originate(ReadersAnswer(back, self._topics.has_reader(ask.topic)))

    def on_answer(self, answer: ReadersAnswer) -> None:
        """A node says whether it has one."""
        route = answer.route
        find = self._open.get(route.sequence)
        if find is None or route.destination_tag != self._context.own_tag:
            return
        if route.source not in find.silent:
            return
        del find.silent[route.source]
        if answer.has_reader:
            find.readers.append(route.source)
        self._end_if_done(route.sequence)

    def _end_if_done(self, number: int) -> bool:
        if self._open[number].silent:
            return False
        self._end(number)
        return True

    def _end(self, number: int) -> None:
        find = self._open.pop(number)
        self._context.timers.cancel((FIND_TIMER, number, 0))
        self._work.stop(f"find {number}")
        result = {"readers": sorted(find.readers), "silent": sorted(find.silent)}
        self._context.emit(Reply(find.request, result))

    def abandon(self, why: str) -> None:
        """Give up all that is underway."""
        for number, find in list(self._open.items()):
            del self._open[number]
            self._context.timers.cancel((FIND_TIMER, number, 0))
            self._work.stop(f"find {number}")
            error = UnreachableError(self._context.id, why)
            self._context.emit(Reply(find.request, error=error))
