"""Carrying faults out, and taking all of them back.

Whatever happens to a trial, `undo` leaves the cluster without harm of its own making: stopped
processes go on, hogs and strangers end, links are mended. What was killed stays dead: that is for the
verdict to see.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from bmgd.chaos.faults import (
    Continue,
    Crash,
    Cut,
    Evict,
    Fault,
    HalfOpen,
    Hog,
    Join,
    Kill,
    Leave,
    Mend,
    Partition,
    Reset,
    Restart,
    Slow,
    Stop,
    Takeover,
    write_fault,
)
from bmgd.chaos.history import (
    Died,
    Disturbed,
    EvictAsked,
    Exited,
    LeaveAsked,
    Mended,
    Resumed,
    Stopped,
)
from bmgd.errors import BmgdError, ControlError, NoDaemonError
from bmgd.trials.child import Child
from bmgd.trials.cluster import TrialCluster
from bmgd.trials.proxy_control import ProxyControl
from bmgd.trials.recorder import Recorder
from bmgd.types import NodeId

POLL_S: Final = 0.01
ENDED_S: Final = 15.0
"""How long a process may take to end after it left or was evicted."""

BEGUN_S: Final = 3.0
TAKEOVER_S: Final = 0.5
"""So long steps wait for a process to begin, and for a dead one's port."""

STARTS_MAX: Final = 48
"""Processes that are being started at once; a launcher takes 64 requests. One more waits, not begun."""

MISSED_NS: Final = 2_000_000_000
"""A process that no fault has ended is missed for so long: joiners change their ids while they begin."""

Note = Callable[[str], None]


class Harm:
    """The hand that harms one cluster.

    Args:
        cluster: which.
        recorder: where truths are written down.
        proxy: the control of its fault proxy; None without one.
        tasks: runs what a fault leaves to be waited for.
        note: is told what could not be done.

    Attributes:
        ended: nodes whose process has ended, by a fault or by itself.
    """

    def __init__(
        self,
        cluster: TrialCluster,
        recorder: Recorder,
        proxy: ProxyControl | None,
        tasks: asyncio.TaskGroup,
        note: Note,
    ) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._proxy = proxy
        self._tasks = tasks
        self._note = note
        self._stopped: set[NodeId] = set()
        self._hogs: list[Child] = []
        self._strangers: dict[NodeId, Child] = {}
        self._growing = 0
        self._starting: set[NodeId] = set()
        self._pending: Counter[NodeId] = Counter()
        self._starts = asyncio.Semaphore(STARTS_MAX)
        self._one_start: defaultdict[NodeId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._expected: dict[NodeId, tuple[int, str]] = {}
        self._missed: dict[NodeId, int] = {}
        self.ended: set[NodeId] = set()

    async def carry_out(self, fault: Fault) -> None:
        """Do it now. What cannot be done any more, because a node ended meanwhile, is left out."""
        if not isinstance(fault, Takeover):
            self._disturb(fault)
        match fault:
            case Kill(nodes) | Crash(nodes):
                await self._begun(nodes)
                self._each(nodes, self._kill)
            case Stop(nodes):
                await self._begun(nodes)
                self._each(nodes, self._stop)
            case Continue(nodes):
                self._each(nodes, self._resume)
            case Restart(nodes):
                for node in nodes:
                    await self._restart(node)
            case Leave(nodes):
                for node in nodes:
                    self._expected[node] = (0, "left")
                    self._tasks.create_task(self._leave(node))
            case Evict(nodes, by):
                for node in nodes:
                    self._expected[node] = (1, "evicted")
                    self._tasks.create_task(self._evict(node, by))
            case Join(count):
                self._growing += 1
                self._tasks.create_task(self._grow(count))
            case Hog(count, seconds):
                self._hogs += [await Child.start("hog", f"{seconds}") for _ in range(count)]
            case Takeover(nodes, answers):
                for node in nodes:
                    await self._take_over(node, answers)
            case _:
                await self._harm_links(fault)

    async def _begun(self, nodes: tuple[NodeId, ...]) -> None:
        """Wait, with a bound, until those of the nodes that are being started have a process."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGUN_S):
                while any(self._has_no_process_yet(node) for node in nodes):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)

    def _has_no_process_yet(self, node: NodeId) -> bool:
        return self._pending[node] > 0 and not self._cluster.is_running(node)

    def _disturb(self, fault: Fault) -> None:
        self._recorder.add(Disturbed(self._recorder.now_ns(), json.dumps(write_fault(fault))))

    def _each(self, nodes: tuple[NodeId, ...], harm: Callable[[NodeId], None]) -> None:
        for node in nodes:
            try:
                harm(node)
            except NoDaemonError as error:
                self._note(f"left out: {error}")

    # --- processes ----------------------------------------------------------------------------

    def _kill(self, node: NodeId) -> None:
        at_ns = self._recorder.now_ns()
        self._cluster.send(node, signal.SIGKILL)
        self._recorder.add(Died(at_ns, node, self._recorder.life_of(node)))
        self._stopped.discard(node)
        self.ended.add(node)

    def _stop(self, node: NodeId) -> None:
        at_ns = self._recorder.now_ns()
        self._cluster.send(node, signal.SIGSTOP)
        self._stopped.add(node)
        self._recorder.add(Stopped(at_ns, node))

    def _resume(self, node: NodeId) -> None:
        self._stopped.discard(node)
        self._cluster.send(node, signal.SIGCONT)
        self._recorder.add(Resumed(self._recorder.now_ns(), node))

    async def _restart(self, node: NodeId) -> None:
        stranger = self._strangers.pop(node, None)
        if stranger is not None:
            await stranger.end()
        self._pending[node] += 1
        self._tasks.create_task(self._start(node))

    async def _start(self, node: NodeId) -> None:
        # A start that was killed is answered late: the next one waits for that.
        try:
            async with self._one_start[node], self._starts:
                await self._start_alone(node)
        finally:
            self._pending[node] -= 1

    async def _start_alone(self, node: NodeId) -> None:
        if not await self._has_ended(node):
            self._note(f"left out: node {node} has not ended and cannot start again")
            return
        self.see_ends()
        self._recorder.expect_start(node)
        self._expected.pop(node, None)
        self.ended.discard(node)
        self._starting.add(node)
        try:
            await self._cluster.restart(node)
        except ControlError as error:
            # Killed, stopped or cut off again before it had joined: the verdict is about the end.
            self._note(f"node {node} was not seen to join: {error}")
        finally:
            self._starting.discard(node)
        self.see_ends()

    async def _grow(self, count: int) -> None:
        try:
            await self._cluster.grow(count)
        except ControlError as error:
            self._cluster.refresh()
            self._note(f"not all of {count} joiners were seen to join: {error}")
        finally:
            self._growing -= 1
        self._recorder.follow()

    async def _leave(self, node: NodeId) -> None:
        daemon = self._recorder.daemons.get(node)
        if daemon is None:
            self._expected.pop(node, None)
            self._note(f"left out: node {node} does not answer and cannot be told to leave")
            return
        self._recorder.add(LeaveAsked(self._recorder.now_ns(), node))
        try:
            await daemon.leave()
        except BmgdError as error:
            self._note(f"node {node} did not say that it leaves: {error}")
        await self._has_ended(node)
        self.see_ends()

    async def _evict(self, node: NodeId, by: NodeId) -> None:
        daemon = self._recorder.daemons.get(by)
        if daemon is None:
            self._expected.pop(node, None)
            self._note(f"left out: node {by} does not answer and cannot evict")
            return
        self._recorder.add(EvictAsked(self._recorder.now_ns(), node, by))
        try:
            await daemon.evict(node)
        except BmgdError as error:
            self._note(f"node {by} has not confirmed that {node} is evicted: {error}")
        await self._has_ended(node)
        self.see_ends()

    async def _has_ended(self, node: NodeId, within_s: float = ENDED_S) -> bool:
        """Wait for a process to be gone, with a bound."""
        try:
            async with asyncio.timeout(within_s):
                while not self._cluster.has_ended(node):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    async def _take_over(self, node: NodeId, answers: bool) -> None:
        place = self._cluster.place(node) if node < self._cluster.size else None
        is_free = node not in self._strangers and not self._pending[node]
        if place is None or not is_free or not await self._has_ended(node, TAKEOVER_S):
            self._note(f"left out: nothing can take over the port of node {node}")
            return
        try:
            how = "stranger" if answers else "mute"
            self._strangers[node] = await Child.start(how, place)
            self._disturb(Takeover((node,), answers))
        except NoDaemonError as error:
            self._note(f"left out: {error}")

    @property
    def is_starting_any(self) -> bool:
        """Whether the outcome of a restart or of a growth is not known yet."""
        return self._growing > 0 or any(self._pending.values())

    def see_ends(self) -> None:
        """Write down which daemons have ended, by a fault that asked for it or by themselves."""
        at_ns = self._recorder.now_ns()
        for node in map(NodeId, range(self._cluster.size)):
            if node in self.ended or node in self._starting or not self._cluster.has_ended(node):
                self._missed.pop(node, None)
                continue
            missed_ns = self._missed.setdefault(node, at_ns)
            if node not in self._expected and at_ns - missed_ns < MISSED_NS:
                continue
            self.ended.add(node)
            life = self._recorder.life_of(node)
            unexpected = (1, self._cluster.last_words(node) or "not by any fault")
            code, why = self._expected.get(node, unexpected)
            self._recorder.add(Exited(at_ns, node, life, code, why))

    # --- links --------------------------------------------------------------------------------

    async def _harm_links(self, fault: Fault) -> None:
        if isinstance(fault, Mend) and fault.links is None:
            await self._end_strangers()
        proxy = self._proxy
        if proxy is None:
            return
        match fault:
            case Cut(links, one_way):
                await proxy.cut(links, one_way=one_way)
            case Partition(groups, one_way):
                await proxy.part(groups, one_way=one_way)
            case Slow(links, nodes, delay_ms, rate):
                await proxy.slow(links, nodes, delay_ms, rate)
            case HalfOpen(links):
                await proxy.half_open(links)
            case Reset(links):
                await proxy.reset(links)
            case Mend(links):
                await proxy.mend(links)

    # --- the end ------------------------------------------------------------------------------

    async def undo(self) -> None:
        """Take everything back; what fails is told and does not keep the rest from being done."""
        for node in sorted(self._stopped):
            try:
                self._resume(node)
            except BmgdError as error:
                self._note(f"node {node} may still be stopped: {error}")
        if self._proxy is not None:
            try:
                await self._proxy.mend()
            except BmgdError as error:
                self._note(f"links may not be mended: {error}")
        await self._end_strangers()
        hogs, self._hogs = self._hogs, []
        async with AsyncExitStack() as ends:
            for hog in hogs:
                ends.push_async_callback(hog.end)
        self._recorder.add(Mended(self._recorder.now_ns()))

    async def _end_strangers(self) -> None:
        strangers = list(self._strangers.values())
        self._strangers.clear()
        async with AsyncExitStack() as ends:
            for stranger in strangers:
                ends.push_async_callback(stranger.end)
