"""One run of one scenario: a safety phase with faults, then a liveness phase without.

    faults and messages, until `plan.seconds`     nothing forbidden may happen
    all is mended, who is stopped goes on         everybody connected must come to rest
    quiet for a while                             it must stay at rest, and checkers look at all nodes
    a few messages more                           each must arrive

A run is a function of its plan: the plan's seed decides whatever the plan leaves to chance.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bmgd.chaos.checkers import check
from bmgd.chaos.history import Acknowledged, Fact, History, to_line
from bmgd.chaos.plan import Plan
from bmgd.chaos.verdict import Violation
from bmgd.errors import BmgdError, InvariantError
from bmgd.sim.askers import Askers
from bmgd.sim.broadcasters import Broadcasters
from bmgd.sim.conditions import Conditions
from bmgd.sim.corrupt_members import CorruptMembers
from bmgd.sim.disturbances import Disturber
from bmgd.sim.floods import Floods
from bmgd.sim.forging import Forger
from bmgd.sim.former_lives import FormerLives
from bmgd.sim.inside import answers_due_ns, silence_due_ns
from bmgd.sim.lags import Lags
from bmgd.sim.legacies import Legacies
from bmgd.sim.narrowing import narrowed, refusing
from bmgd.sim.network import Network
from bmgd.sim.observing import Watcher
from bmgd.sim.onlookers import Onlookers
from bmgd.sim.recorder import Recorder
from bmgd.sim.registrants import Registrants
from bmgd.sim.rekeying import Rekeying
from bmgd.sim.rest import (
    QUIET_NS,
    cannot_meet,
    comes_to_quiet,
    components,
    holds_majority,
    is_whole,
    meets_by_lot,
    running,
    unrest,
    unsettled,
)
from bmgd.sim.second_copies import SecondCopies, is_at_best_effort, is_of_a_stream
from bmgd.sim.trace import Trace
from bmgd.sim.unusable_requests import UnusableRequests
from bmgd.sim.workload import Programs

REST_LIMIT_S: Final = 120.0
"""A cluster without faults for so long must be at rest."""
BY_LOT_S: Final = 600.0
"""So much longer where sides meet only when a slow dial, by lot, finds the right one."""
QUIET_S: Final = 5.0
SLICE_S: Final = 0.05
BUGS: Final = (
    *(ArithmeticError, AssertionError, AttributeError, BmgdError, LookupError, NameError),
    *(RuntimeError, StopIteration, TypeError, ValueError, struct.error),
)
"""What a core, or what drives it, raises only by mistake: one seed fails, the campaign goes on."""
LAST_MESSAGES: Final = 4
LAST_MESSAGES_S: Final = 12.0


class Inspector(Watcher):
    """A watcher that finds violations: the place where checkers plug in."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def at_rest(self) -> None:
        """The faults ended long enough ago for everything to be in order."""


Inspect = Callable[[Network, History], Inspector]
"""Makes an inspector for a network and its history."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Args:
        violations: empty when it passed.
        digest: of the trace.
        virtual_s, real_s: how long it took, in the cluster's time and in ours.
        rest_s: how long after the last fault the cluster was at rest; None if it never was.
        events: steps of all cores.
        messages, bytes_sent: of all nodes.
        nodes: how many ids there were at the end.
        facts: the history, where it was asked for.
    """

    plan: Plan
    violations: tuple[Violation, ...]
    digest: str
    virtual_s: float
    real_s: float
    rest_s: float | None
    events: int
    messages: int
    bytes_sent: int
    nodes: int
    history: History = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations

    def to_row(self) -> dict[str, object]:
        """For JSON."""
        return {
            "verdict": "pass" if self.passed else "fail",
            "violations": [violation.to_row() for violation in self.violations],
            "digest": self.digest,
            "virtual_s": round(self.virtual_s, 6),
            "real_s": round(self.real_s, 3),
            "rest_s": None if self.rest_s is None else round(self.rest_s, 3),
            "events": self.events,
            "messages_per_node": round(self.messages / max(1, self.nodes), 1),
            "bytes_per_node": round(self.bytes_sent / max(1, self.nodes), 1),
            "seed": self.plan.seed,
            "nodes": self.plan.nodes,
            "options": {
                "settings": dict(self.plan.settings),
                "simulated": dict(self.plan.simulated),
                "steps": len(self.plan.steps),
            },
        }


class Simulation:
    """One run.

    Args:
        plan: the scenario, already checked.
        inspects: make the checkers that watch it.
        traces: whether to hash every step; without it the digest covers the history only.

    Raises:
        PlanError: settings or options that cannot be.
    """

    def __init__(
        self, plan: Plan, inspects: Sequence[Inspect] = (), *, traces: bool = True
    ) -> None:
        self.plan = plan
        self.violations: list[Violation] = []
        self.network = Network(
            plan.nodes,
            plan.seed,
            start=False,
            conditions=Conditions.of(plan.simulated),
            configured=plan.settings,
            keeps_all=False,
        )
        network = self.network
        self._recorder = Recorder(network.timeline)
        self._programs = Programs(
            network, Random(f"programs {plan.seed}"), plan.workload, self._note
        )
        self._broadcasters = Broadcasters(network, Random(f"broadcasts {plan.seed}"), plan.workload)
        self._registrants = Registrants(network, Random(f"programs of {plan.seed}"), plan.workload)
        self._askers = Askers(network, Random(f"requests {plan.seed}"), plan.workload)
        per_second = network.conditions.looks_per_s
        self._onlookers = Onlookers(network, Random(f"looks {plan.seed}"), per_second)
        per_second = network.conditions.unusable_per_s
        self._unusable = UnusableRequests(network, Random(f"unusable {plan.seed}"), per_second)
        per_second = network.conditions.malformed_per_s
        self._corrupt_members = CorruptMembers(network, Random(f"lies of {plan.seed}"), per_second)
        rekeys = network.conditions.rekeys
        self._rekeying = Rekeying(network, Random(f"secrets {plan.seed}"), rekeys)
        lies = network.conditions.forgeries
        self._forger = Forger(network, Random(f"forgeries {plan.seed}"), lies, self._note)
        floods = network.conditions.floods
        self._floods = Floods(network, Random(f"floods of {plan.seed}"), floods)
        lags = network.conditions.lags
        self._lags = Lags(network, Random(f"lags {plan.seed}"), lags, self._note)
        count = network.conditions.former_lives
        self._former_lives = FormerLives(
            network, Random(f"former lives {plan.seed}"), count, self._programs.send
        )
        count = network.conditions.legacies
        self._legacies = Legacies(network, Random(f"legacies {plan.seed}"), count)
        percent = network.conditions.second_copies_percent
        self._second_copies = SecondCopies(
            network, Random(f"copies {plan.seed}"), percent, is_at_best_effort
        )
        percent = network.conditions.late_segments_percent
        random = Random(f"late segments {plan.seed}")
        self._late_segments = SecondCopies(network, random, percent, is_of_a_stream)
        self._disturber = Disturber(network, Random(f"faults {plan.seed}"), self._note)
        self._limit_ns = self._by_lot_ns = 0
        """Until when all must be at rest, and how long that may be put off."""
        self._trace = Trace(network.timeline)
        self._inspectors = [inspect(network, self._recorder.history) for inspect in inspects]
        network.watchers += [
            self._recorder,
            self._programs,
            self._broadcasters,
            self._registrants,
            self._askers,
            self._former_lives,
            self._second_copies,
            self._late_segments,
        ]
        if traces:
            network.watchers.append(self._trace)
            network.wires.on_chunk = self._trace.on_chunk
        network.watchers += self._inspectors
        # Last: others have to know of a process that begins before it stands still.
        network.watchers.append(self._lags)

    def _note(self, fact: Fact) -> None:
        self._recorder.history.add(fact)

    def run(self) -> Outcome:
        """Run it to its end, or to the first violation."""
        began = time.perf_counter()
        rest_s = None
        try:
            with narrowed(self.plan.seed, self.network.conditions.narrow_percent):
                with refusing(self.plan.seed, self.network.conditions.refusing_percent):
                    self._safety_phase()
                if not self._has_failed():
                    rest_s = self._liveness_phase()
        except InvariantError as error:
            self._violate("no-bug-is-met", str(error))
        except BUGS as error:
            self._violate("no-bug-is-met", repr(error))
        return self._outcome(time.perf_counter() - began, rest_s)

    # --- phases -------------------------------------------------------------------------------

    def _safety_phase(self) -> None:
        plan, network, timeline = self.plan, self.network, self.network.timeline
        spread_us = network.conditions.start_us_max
        starts = Random(f"starts {plan.seed}")
        for number in range(plan.nodes):
            at_ns = starts.randrange(spread_us * 1_000) if spread_us else 0
            timeline.plan(at_ns, self._start, number)
        for step in plan.steps:
            timeline.plan(int(step.at_s * 1e9), self._disturber.carry_out, step.fault)
        until_ns = int(plan.seconds * 1e9)
        self._programs.start(until_ns)
        self._broadcasters.start(until_ns)
        self._registrants.start(until_ns)
        self._askers.start(until_ns)
        self._onlookers.start(until_ns)
        self._unusable.start(until_ns)
        self._corrupt_members.start(until_ns)
        self._rekeying.start(until_ns)
        self._forger.start(until_ns)
        self._floods.start(until_ns)
        self._lags.start(until_ns)
        self._former_lives.start(until_ns)
        self._legacies.start(until_ns)
        self._second_copies.start(until_ns)
        self._late_segments.start(until_ns)
        self._run_until(until_ns)

    def _start(self, number: int) -> None:
        """A founder starts, unless a restart was quicker."""
        if number not in self.network.hosts:
            self.network.boot(number)

    def _liveness_phase(self) -> float | None:
        network = self.network
        self._run_until(max(network.now_ns, network.conditions.start_us_max * 1_000))
        self._disturber.end()
        rest_s = self._rests()
        if rest_s is not None and not self._has_failed():
            self._onlookers.look_at_all()
            reason = unrest(network)
            if reason:
                self._violate("stays-at-rest", f"after {rest_s:g} s of rest: {reason}")
            if comes_to_quiet(network):
                for inspector in self._inspectors:
                    inspector.at_rest()
            self.violations += check(self._recorder.history)
        if not self._has_failed():
            self._send_last_messages()
        return rest_s

    def _rests(self) -> float | None:
        """Wait until all is at rest, and has been for a while; returns how long it took to come to rest.

        Parts that nothing in the graph connects are at rest each for itself, and dial the others seldom.
        When one is reached they become one, and that has to come to rest. So has a part that lost a
        member at that: who is told there that it was declared dead may end.
        """
        network = self.network
        began_ns = network.now_ns
        self._limit_ns = began_ns + int(REST_LIMIT_S * 1e9)
        self._by_lot_ns = self._limit_ns + int(BY_LOT_S * 1e9)
        while True:
            if not self._comes_to(lambda: unrest(network) or self._unanswered()):
                return None
            rest_s, was_whole = (network.now_ns - began_ns) / 1e9, is_whole(network)
            who = running(network)
            self._comes_to(lambda: unsettled(network))
            self._let_readers_return()
            self._run_until(network.now_ns + self._quiet_ns())
            if self._has_failed() or was_whole:
                return rest_s
            if not is_whole(network) and running(network) == who:
                return rest_s

    def _let_readers_return(self) -> None:
        """Who comes back makes room, which is told: there is no quiet before."""
        network = self.network
        until_ns = network.now_ns + network.conditions.absent_ms_max * 1_000_000
        while self._programs.is_a_reader_away and network.now_ns < until_ns:
            if self._has_failed():
                return
            self._run_until(network.now_ns + int(SLICE_S * 1e9))

    def _comes_to(self, unrest_of: Callable[[], str]) -> bool:
        """Let time pass until nothing keeps the cluster from rest; whether that was in time."""
        network = self.network
        while (reason := unrest_of()) and not self._has_failed():
            if network.now_ns >= self._limit_ns:
                if network.now_ns < self._by_lot_ns and meets_by_lot(network):
                    self._limit_ns = network.now_ns + int(REST_LIMIT_S * 1e9)
                    continue
                if not cannot_meet(network):
                    self._violate("comes-to-rest", f"not within {REST_LIMIT_S:g} s: {reason}")
                return False
            self._run_until(network.now_ns + int(SLICE_S * 1e9))
        return True

    def _quiet_ns(self) -> int:
        """Long enough for what began before the rest to have shown, and for some quiet after it.

        A link that a fault broke can look well until its timeout, and a search visits everybody.
        """
        network = self.network
        settings = network.settings
        silent_ns = max(
            (
                silence_due_ns(host.node)
                - host.local_ns(network.now_ns)
                + answers_due_ns(host.node)
                for host in running(network)
            ),
            default=settings.timeout_ns,
        )
        late_ns = silent_ns + settings.heartbeat_ns
        way_ns = network.conditions.delay_max_us * 1_000
        return max(int(QUIET_S * 1e9), late_ns + QUIET_NS) + 2 * len(network.hosts) * way_ns

    def _unanswered(self) -> str:
        count = self._programs.underway + self._broadcasters.underway + self._askers.underway
        return f"{count} messages are not answered" if count else ""

    def _send_last_messages(self) -> None:
        network, chance = self.network, Random(f"last {self.plan.seed}")
        parts = components(running(network))
        if self.plan.settings.get("quorum") == "majority":
            # Who stands aside refuses what programs send.
            parts = [part for part in parts if holds_majority(part)]
        if not parts or not self.plan.workload.messages_per_second:
            return
        sent: dict[int | None, None] = {}
        for _ in range(LAST_MESSAGES):
            part = chance.choice(parts)
            sent[self._programs.send(chance.choice(part), chance.choice(part).id)] = None
        limit_ns = network.now_ns + int(LAST_MESSAGES_S * 1e9)
        while self._programs.underway and network.now_ns < limit_ns and not self._has_failed():
            self._run_until(network.now_ns + int(SLICE_S * 1e9))
        taken = {fact.payload_id for fact in self._recorder.history.of(Acknowledged)}
        lost = [number for number in sent if number not in taken]
        if lost and self.plan.settings.get("queue_messages", 1024) == 1024:
            self._violate(
                "delivers-at-rest", f"{len(lost)} of {len(sent)} messages came to nothing"
            )

    # --- time and violations ------------------------------------------------------------------

    def _run_until(self, until_ns: int) -> None:
        timeline = self.network.timeline
        slice_ns = int(SLICE_S * 1e9)
        while timeline.now_ns < until_ns and not self._has_failed():
            timeline.run_until(min(until_ns, timeline.now_ns + slice_ns))

    def _has_failed(self) -> bool:
        return bool(self.violations) or any(i.violations for i in self._inspectors)

    def _violate(self, checker: str, text: str) -> None:
        self.violations.append(Violation(checker, self.network.now_ns, None, text))

    def _outcome(self, real_s: float, rest_s: float | None) -> Outcome:
        network, history = self.network, self._recorder.history
        for fact in history:
            self._trace.add(to_line(fact))
        found = [*self.violations, *(v for i in self._inspectors for v in i.violations)]
        hosts = network.hosts.values()
        return Outcome(
            plan=self.plan,
            violations=tuple(found),
            digest=self._trace.digest(),
            virtual_s=network.now_ns / 1e9,
            real_s=real_s,
            rest_s=rest_s,
            events=self._trace.steps,
            messages=sum(host.messages for host in hosts),
            bytes_sent=sum(host.bytes for host in hosts),
            nodes=len(network.hosts),
            history=history,
        )
