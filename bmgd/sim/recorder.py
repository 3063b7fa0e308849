"""Writes the history of a simulation: what was done to it, and what its cores showed."""

from __future__ import annotations

from collections.abc import Sequence

from bmgd.chaos.history import (
    BecameReady,
    Began,
    Believed,
    DeclaredDead,
    Died,
    Exited,
    Fact,
    History,
    LinkedExactly,
    LinkLost,
    LinkOpened,
    Noted,
    Renewed,
    Suspected,
)
from bmgd.core import effects as of_core
from bmgd.core.effects import Effect, Observed, RecordChanged, Send
from bmgd.core.events import Event
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.sim.timeline import Timeline
from bmgd.types import UNKNOWN_INCARNATION, NodeId


class Recorder(Watcher):
    """Turns boots, ends and effects into facts.

    Args:
        timeline: where the time is.
        keeps_reports: whether what cores showed is kept; without it only the truth is.
    """

    def __init__(self, timeline: Timeline, *, keeps_reports: bool = True) -> None:
        self.history = History()
        self._timeline = timeline
        self._keeps_reports = keeps_reports

    def boot(self, host: Host) -> None:
        self.history.add(Began(self._timeline.now_ns, host.id, host.node.incarnation))

    def ended(self, host: Host) -> None:
        now_ns, life = self._timeline.now_ns, host.node.incarnation
        if host.exit is None:
            self.history.add(Died(now_ns, host.id, life))
        else:
            self.history.add(Exited(now_ns, host.id, life, host.exit.code, host.exit.reason))

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        if not self._keeps_reports:
            return
        for effect in effects:
            fact = None if isinstance(effect, Send) else self._fact_of(host, effect)
            if fact is not None:
                self.history.add(fact)

    def _fact_of(self, host: Host, effect: Effect) -> Fact | None:
        now_ns = self._timeline.now_ns
        match effect:
            case Observed():
                return observed_fact(now_ns, host.id, effect)
            case RecordChanged(about, record, revision):
                return Believed(
                    now_ns,
                    host.id,
                    about,
                    record.incarnation,
                    record.version,
                    record.status,
                    record.address,
                    revision,
                )
            case of_core.Renewed(incarnation):
                return Renewed(now_ns, host.id, incarnation)
            case _:
                return None


def observed_fact(at_ns: int, node: NodeId, observed: Observed) -> Fact:
    """What an observation of a core says, as a fact."""
    peer = observed.peer
    life = observed.incarnation or UNKNOWN_INCARNATION
    if peer is not None:
        match observed.event:
            case "suspected":
                return Suspected(at_ns, node, peer, observed.detail)
            case "verdict":
                return DeclaredDead(at_ns, node, peer, life, observed.detail)
            case "link up":
                return LinkOpened(at_ns, node, peer, life)
            case "link down":
                return LinkLost(at_ns, node, peer, life, observed.detail)
    if observed.event == "links exact":
        return LinkedExactly(at_ns, node)
    if observed.event == "ready":
        return BecameReady(at_ns, node)
    about = "" if peer is None else f"{peer} "
    return Noted(at_ns, node, observed.event, f"{about}{observed.detail}")
