"""One trial: a plan carried out on a cluster that runs, everything undone, and a verdict.

Theory of operation. Before anything is harmed the plan is checked, and the cluster must be whole and at
rest. Then, in one task group: a watcher for each daemon, traffic, and the steps at their times. At the
plan's end (and whenever anything goes wrong on the way) everything is undone; the cluster has
`REST_S` to come to rest; traffic ends and its last outcomes are waited for. What was heard then goes to
the checkers.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bmgd.chaos.faults import NAME_OF, write_fault
from bmgd.chaos.history import History, Showed
from bmgd.chaos.plan import Plan
from bmgd.errors import ControlError, Ungrouped
from bmgd.trials.cluster import TrialCluster
from bmgd.trials.feasible import check_feasible
from bmgd.trials.harm import Harm
from bmgd.trials.proxy_control import ProxyControl, controlling
from bmgd.trials.recorder import Recorder, recording
from bmgd.trials.traffic import Traffic
from bmgd.types import NodeId

REST_S: Final = 75.0
"""Longer than `start_ms` of any profile: who was started last may wait so long for one that is down."""

BEGIN_S: Final = 30.0
POLL_S: Final = 0.05
LATE_S: Final = 1.0
"""Processes cannot be harmed as fast as a plan may ask; steps this late behind its end are left out."""

COMPLAINTS_SHOWN: Final = 5
_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Show = Callable[[str], None]
"""Is told a line of progress."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one trial.

    Args:
        plan: what was carried out.
        history: everything that was done and heard.
        rest_s: from the undoing of all to the cluster at rest; None when it did not come to rest.
        notes: what was left out, and other things worth knowing.
        down: nodes that stay down: ``{"id":…, "restart": the command that starts it again}``.
    """

    plan: Plan
    history: History
    rest_s: float | None
    notes: list[str]
    down: list[dict[str, Any]] = field(default_factory=list)


async def run_trial(
    cluster: TrialCluster, plan: Plan, show: Show, *, rest_within_s: float = REST_S
) -> Outcome:
    """Carry out a plan.

    Args:
        cluster: whole and at rest.
        show: is told a line of progress.
        rest_within_s: how long the cluster may take to come to rest in the end.

    Raises:
        PlanError: this cluster cannot suffer the plan; nothing was harmed.
        ControlError: the cluster is not whole and at rest, or could not be harmed on the way.
        CancelledError: a signal asked for the end; everything was undone.
    """
    check_feasible(plan, cluster)
    check_whole(cluster)
    with Ungrouped(), _interruptible():
        return await _run(cluster, plan, show, rest_within_s)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the signals that end a program cancel this task once, and be deaf to the next ones."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancelled = False

    def cancel() -> None:
        nonlocal cancelled
        if not cancelled:
            cancelled = True
            task.cancel()

    for number in _ENDING_SIGNALS:
        loop.add_signal_handler(number, cancel)
    try:
        yield
    finally:
        for number in _ENDING_SIGNALS:
            loop.remove_signal_handler(number)


async def _run(cluster: TrialCluster, plan: Plan, show: Show, rest_within_s: float) -> Outcome:
    topic = f"trial-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        recorder = await stack.enter_async_context(recording(cluster, topic))
        trial = _Trial(cluster, plan, recorder, topic, show, rest_within_s)
        if await trial.rest(BEGIN_S) is None:
            complaints = "; ".join(trial.complaints[:COMPLAINTS_SHOWN])
            raise ControlError(f"the cluster is not at rest, nothing was harmed: {complaints}")
        proxy = None
        if cluster.proxy_path is not None:
            proxy = await stack.enter_async_context(controlling(cluster.proxy_path))
        rest_s = await trial.run(proxy)
    recorder.history.sort()
    down = [{"id": n, "restart": cluster.restart_command(n)} for n in trial.ended]
    return Outcome(plan, recorder.history, rest_s, trial.notes, down)


def check_whole(cluster: TrialCluster) -> None:
    """Refuse a cluster of which a daemon does not run or is stopped.

    Raises:
        ControlError: which.
    """
    for node in range(cluster.size):
        if not cluster.is_running(node):
            raise ControlError(f"node {node} does not run: start it before a trial")
        if cluster.is_stopped(node):
            raise ControlError(f"node {node} is stopped: let it go on before a trial")


class _Trial:
    """The parts of one run."""

    def __init__(
        self,
        cluster: TrialCluster,
        plan: Plan,
        recorder: Recorder,
        topic: str,
        show: Show,
        rest_within_s: float,
    ) -> None:
        self._cluster, self._plan, self._recorder = cluster, plan, recorder
        self._topic, self._show, self._rest_within_s = topic, show, rest_within_s
        self._last: dict[int, Showed] = {}
        self.complaints: list[str] = []
        self.notes: list[str] = []
        self.ended: list[int] = []

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._say(text)

    def _say(self, text: str) -> None:
        self._show(f"{self._recorder.now_ns() / 1e9:9.3f} s  {text}")

    async def run(self, proxy: ProxyControl | None) -> float | None:
        """Harm, undo, wait; returns the seconds until rest."""
        plan = self._plan
        traffic = Traffic(self._recorder, plan.workload, self._topic, Random(plan.seed))
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(traffic.run(self._cluster))
            async with self._harming(tasks, proxy) as harm:
                await self._steps(harm)
            rest_s = await self._come_to_rest(harm)
            traffic.end()
            await sending
            self.ended = sorted(harm.ended)
        for fact in self._last.values():
            self._recorder.add(fact)
        return rest_s

    @asynccontextmanager
    async def _harming(
        self, tasks: asyncio.TaskGroup, proxy: ProxyControl | None
    ) -> AsyncIterator[Harm]:
        harm = Harm(self._cluster, self._recorder, proxy, tasks, self._note)
        try:
            yield harm
        finally:
            # Shielded: who interrupts a trial still gets the cluster back.
            await asyncio.shield(harm.undo())
            self._say("everything is undone")

    async def _steps(self, harm: Harm) -> None:
        began_s = self._recorder.now_ns() / 1e9
        ends_s, steps = began_s + self._plan.seconds, self._plan.steps
        for number, step in enumerate(steps, 1):
            await self._sleep_until(began_s + step.at_s, harm)
            if self._recorder.now_ns() / 1e9 > ends_s + LATE_S:
                self._note(f"left out: steps {number} to {len(steps)}, their time is over")
                break
            row = {k: v for k, v in write_fault(step.fault).items() if k != "fault"}
            rest = " ".join(f"{key}={value}" for key, value in row.items())
            name = NAME_OF[type(step.fault)]
            self._say(f"step {number} of {len(steps)}: {name} {_short(rest)}")
            await harm.carry_out(step.fault)
        await self._sleep_until(ends_s, harm)

    async def _sleep_until(self, until_s: float, harm: Harm) -> None:
        while (left_s := until_s - self._recorder.now_ns() / 1e9) > 0:
            await asyncio.sleep(min(left_s, 1.0))
            harm.see_ends()

    async def _come_to_rest(self, harm: Harm) -> float | None:
        harm.see_ends()
        rest_s = await self.rest(self._rest_within_s, harm)
        if rest_s is not None:
            self._say(f"at rest after {rest_s:.3f} s")
            return rest_s
        self._note(f"not at rest within {self._rest_within_s:g} s")
        for complaint in self.complaints[:COMPLAINTS_SHOWN]:
            self._note(complaint)
        return None

    async def rest(self, within_s: float, harm: Harm | None = None) -> float | None:
        """Wait until all nodes that run agree on who does and have exactly the links of the graph.

        Returns:
            Seconds, or None when it took longer than `within_s`; then `complaints` says why.
        """
        began_ns = self._recorder.now_ns()
        while True:
            if harm is not None:
                harm.see_ends()
            running = set(range(self._cluster.size)) - (harm.ended if harm is not None else set())
            self.complaints = await self._complaints(sorted(running))
            took_s = (self._recorder.now_ns() - began_ns) / 1e9
            if harm is not None and harm.is_starting_any:
                self.complaints.append("a restart or a growth is under way")
            if not self.complaints:
                return took_s
            if took_s > within_s:
                return None
            await asyncio.sleep(POLL_S)

    async def _complaints(self, running: list[int]) -> list[str]:
        found = await asyncio.gather(*(self._recorder.showed(node) for node in running))
        self._last = {node: fact for node, fact in zip(running, found, strict=True) if fact}
        complaints = [f"node {n} does not answer" for n in running if n not in self._last]
        alive = tuple(map(NodeId, running))
        for node, fact in self._last.items():
            wanted = tuple(peer for peer in fact.neighbors if peer in alive)
            if fact.state != "ready":
                complaints.append(f"node {node} is {fact.state}")
            if fact.alive != alive:
                wrong = sorted(set(fact.alive) ^ set(alive))
                complaints.append(f"node {node} is wrong about {wrong}")
            if fact.links != wanted:
                complaints.append(f"node {node} has links {fact.links}, wanted are {wanted}")
        if len({fact.digest for fact in self._last.values()}) > 1:
            complaints.append("memberships differ")
        return complaints


def _short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
