"""The cores' steps in virtual time, and when they are woken.

As in the daemon (`bmgd.shell.stepping`): events wait in one queue for each host, what a core's effects
cause at once waits for its turn, and outboxes are written when the queue is empty. A step may take time;
meanwhile, and while the host is stopped, everything else waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from bmgd.core.effects import Effect
from bmgd.core.events import DeadlineReached, Event
from bmgd.errors import InvariantError
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import Happening, Host
from bmgd.sim.observing import Watcher
from bmgd.sim.timeline import Timeline
from bmgd.sim.wires import Wires

WAKES_MAX: Final = 300_000
"""Hosts are woken so often at one moment; work that goes on in the next steps takes some thousands."""


class Stepping:
    """Steps the cores of all hosts.

    Args:
        timeline: virtual time.
        random: for how late a host wakes, and what it has written when it crashes.
        conditions: what the network is like.
        watchers: told of each step of a member.
        carry_out: carries out one effect of a host's core.
        crash: ends a host's process at once.
    """

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        conditions: Conditions,
        watchers: Sequence[Watcher],
        carry_out: Callable[[Host, Effect], None],
        crash: Callable[[Host], None],
    ) -> None:
        self._timeline = timeline
        self._random = random
        self._conditions = conditions
        self._watchers = watchers
        self._carry_out = carry_out
        self._crash = crash
        self._woken_ns = -1
        self._wakes = 0
        self._wires: Wires

    def begin(self, wires: Wires) -> None:
        """These are the connections of all hosts."""
        self._wires = wires

    def step_all(self, host: Host, events: Iterable[Event]) -> None:
        """Hand events to a core, and what its links have to tell; then write, as the daemon does.

        What the core's effects cause at once waits for its turn, and so does everything while the
        host is stopped or a step takes its time.
        """
        host.events.extend(events)
        if host.stepping:
            return
        host.stepping = True
        try:
            wires, waiting = self._wires, host.events
            while host.alive and host.exit is None and not (host.stopped or host.busy):
                waiting.extend(wires.happened(host))
                if waiting:
                    waiting.extendleft(wires.absorbed(host))
                    self._step_once(host, waiting.popleft())
                elif not wires.flush(host):
                    break
        finally:
            host.stepping = False
        if not host.alive or host.exit is not None:
            host.events.clear()
        self.plan_wake(host)

    def _take_time(self, host: Host, effects: int) -> None:
        """A step keeps its host busy."""
        cost_us = self._conditions.step_cost_us
        if cost_us:
            host.busy = True
            at_ns = self._timeline.now_ns + cost_us * (50 + effects) * 20
            self._timeline.plan(at_ns, self._be_idle, host)

    def _be_idle(self, host: Host) -> None:
        host.busy = False
        if host.alive and not host.stopped:
            self.go_on(host)

    def _step_once(self, host: Host, event: Event) -> None:
        now_ns = host.local_ns(self._timeline.now_ns)
        if host.joiner is None:
            for watcher in self._watchers:
                if watcher.looks_before:
                    watcher.before(host, event)
            effects = host.node.step(now_ns, event)
            for watcher in self._watchers:
                watcher.after(host, event, effects)
        else:
            effects = host.joiner.step(now_ns, event)
        for effect in effects:
            if host.crash_after is not None:
                if host.crash_after <= 0:
                    # It may die while it writes: some links have got their bytes, others have not.
                    self._wires.flush(host, self._random.randrange(8))
                    self._crash(host)
                    return
                host.crash_after -= 1
            self._carry_out(host, effect)
        self._take_time(host, len(effects))

    def go_on(self, host: Host) -> None:
        """Let a host do what waits, until it pauses again."""
        self.step_all(host, ())
        while host.held_back and not host.pauses:
            if self._is_polled_together():
                self._poll_together(host)
            self._act(host)
        host.wake_planned_ns = None
        self.plan_wake(host)

    def _act(self, host: Host) -> None:
        """Let the first thing that was held back happen, if there is one."""
        if host.held_back and not host.pauses:
            action, args = host.held_back.popleft()
            if host.alive:
                action(*args)

    def _is_polled_together(self) -> bool:
        percent = self._conditions.together_percent
        return bool(percent) and self._random.random() * 100 < percent

    def _poll_together(self, host: Host) -> None:
        """All that came over links is read, a link at a time in any order; then the core is told."""
        held_back = host.held_back
        of_link: dict[object, list[Happening]] = {}
        while held_back and self._wires.may_wait_for_poll(held_back[0][0]):
            action, args = held_back.popleft()
            of_link.setdefault(args[0], []).append((action, args))
        others, links = len(held_back), list(of_link.values())
        self._random.shuffle(links)
        for happenings in links:
            held_back.extendleft(reversed(happenings))
        # As if a step went on: what the links have to tell waits until it is over.
        host.stepping = True
        try:
            while len(held_back) > others:
                self._act(host)
        finally:
            host.stepping = False
        self.step_all(host, ())

    # --- deadlines ----------------------------------------------------------------------------

    def plan_wake(self, host: Host) -> None:
        """Wake a host at its core's deadline, or somewhat later."""
        if not host.alive or host.stopped or host.busy:
            return
        deadline_ns = host.core.deadline_ns
        if deadline_ns is None:
            return
        at_ns = host.virtual_ns(deadline_ns)
        if at_ns < self._timeline.now_ns:
            at_ns = self._timeline.now_ns
        if host.wake_planned_ns is not None and host.wake_planned_ns <= at_ns:
            return
        host.wake_planned_ns = at_ns
        late_us = self._conditions.late_us_max
        late_ns = int(self._random.random() * late_us * 1_000) if late_us else 0
        self._timeline.plan(at_ns + late_ns, self._wake, host, at_ns)

    def _wake(self, host: Host, planned_ns: int) -> None:
        if not host.alive or host.pauses or host.wake_planned_ns != planned_ns:
            return
        if self._timeline.now_ns != self._woken_ns:
            self._woken_ns, self._wakes = self._timeline.now_ns, 0
        self._wakes += 1
        if self._wakes > WAKES_MAX:
            raise InvariantError(
                f"node {host.id} has a deadline again and again, and no time passes"
            )
        host.wake_planned_ns = None
        due_ns = host.core.deadline_ns
        if due_ns is not None and due_ns <= host.local_ns(self._timeline.now_ns):
            self.step_all(host, (*self._wires.heard(host), DeadlineReached()))
        else:
            self.plan_wake(host)
