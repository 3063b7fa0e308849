"""What an operator is told of an eviction: what the id was, and whether its daemon has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from bmgd.core.commands import Evict
from bmgd.core.effects import Effect, Exit, Observed, RecordChanged, Reply
from bmgd.core.events import CommandIssued, DialFailed, Event
from bmgd.errors import BmgdError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Evidence, Incarnation, NodeId, NodeState, Status


class _Asked:
    """An eviction that an operator asked for, and which life of its target was written as left."""

    def __init__(self, command: Evict, since_ns: int, was: Status | None) -> None:
        self.command = command
        self.since_ns = since_ns
        self.was = was
        self.life = Incarnation(0)
        self.is_written = False
        self.is_refused = False
        self.is_told = False


class EvictionsAreTold(Checker):
    """An eviction is answered with what the id was, and with whether its daemon has ended: truly.

    *Ended* is never said of a process that runs, but where somebody lied that a later one has its id,
    and *not ended* only when the time is over. Once its address has refused a dial it is said at once.
    Refused is only the eviction of an id that is nobody's
    or the own one, or is being evicted.
    """

    name: ClassVar[str] = "evictions-are-told"
    events: ClassVar[Kinds] = (CommandIssued, DialFailed)
    effects: ClassVar[Kinds] = (Reply, RecordChanged, Observed)
    before_events: ClassVar[Kinds] = (CommandIssued,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[NodeId, dict[int, _Asked]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._asked[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        if isinstance(event, CommandIssued) and isinstance(event.command, Evict):
            command, asked = event.command, self._asked[journal.place]
            was = journal.inside.membership.status_of(command.id)
            new = _Asked(command, journal.now_ns, was)
            new.is_refused = was is None or command.id == journal.host.id
            new.is_refused |= any(other.command.id == command.id for other in asked.values())
            asked[event.request] = new

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        asked = self._asked[journal.place]
        if not asked:
            return
        is_over = journal.inside.context.state is NodeState.LEAVING
        is_over |= any(isinstance(effect, Exit) for effect in effects)
        for effect in effects:
            match effect:
                case RecordChanged(node_id, record) if record.status is Status.LEFT:
                    for one in asked.values():
                        if one.command.id == node_id:
                            one.life, one.is_written = record.incarnation, True
                case Reply(request, result, error) if request in asked:
                    one = asked.pop(request)
                    self._check(journal, one, result, error, is_over=is_over)
                case Observed("evicted", target):
                    for one in asked.values():
                        one.is_told |= one.command.id == target
                case _:
                    pass
        if isinstance(event, DialFailed) and event.evidence is Evidence.REFUSED and not is_over:
            for one in asked.values():
                if one.is_told and one.command.id == event.peer and not one.is_refused:
                    self.violate(journal, f"finds that {event.peer} has ended, and does not say it")

    def _check(
        self,
        journal: Journal,
        asked: _Asked,
        result: Any,
        error: BmgdError | None,
        *,
        is_over: bool,
    ) -> None:
        target, was = asked.command.id, asked.was
        if error is not None or asked.is_refused:
            if (error is not None) != asked.is_refused and not is_over:
                self.violate(journal, f"answers the eviction of {target} with {error}")
            return
        assert was is not None
        if (result["id"], result["was"]) != (target, was.name.lower()):
            self.violate(journal, f"says {result} of the eviction of {target}, which was {was}")
        if result["ended"]:
            self._check_ended(journal, asked)
        elif journal.now_ns - asked.since_ns < asked.command.timeout_ns or was >= Status.DEAD:
            self.violate(journal, f"says too early that {target} has not ended")
        if not asked.is_written and was is not Status.LEFT:
            self.violate(journal, f"has not written that {target} left")

    def _check_ended(self, journal: Journal, asked: _Asked) -> None:
        if asked.was is not None and asked.was >= Status.DEAD:
            # It was held to have ended before: that is all that is known.
            return
        target = asked.command.id
        known = journal.inside.membership.incarnation(target)
        if known > asked.life and target in self.scene.network.lied_about:
            return
        for other in self.scene.journals.values():
            runs = other.host.alive and other.host.joiner is None and not other.exited
            if runs and other.host.id == target and other.incarnation == asked.life:
                self.violate(journal, f"says that {target} has ended, which runs")
