"""Reports of messages to many, field by field: who confirmed, who did not and why, what was sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from bmgd.core.commands import BroadcastTo, MulticastTo
from bmgd.core.effects import Effect, RecordChanged, Reply, Send
from bmgd.core.events import CommandIssued, DeadlineReached, Event, Received
from bmgd.errors import DeadError, NewLifeError, UnreachableError
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.broadcasts import acknowledged_by, is_taken, source_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId, Status
from bmgd.wire.broadcast_messages import ReliableBroadcast, Watermark

Failure = dict[str, Any]

NOT_SENT: Final = "no room in the window before the deadline"
NOT_CONFIRMED: Final = "sent, not confirmed before the deadline"
NEW_LIFE: Final = "it began a new life before it confirmed"
LEFT: Final = "it was known to have left before it confirmed"


@dataclass(slots=True)
class _Asked:
    """A reliable broadcast that a program waits for a report of.

    Args:
        asked_ns: when, by the host's clock.
        count: the number that its source gave it; 0 before.
        audience: whom it is for.
        lives: those of the audience, as the source knew them then.
        left: who was known to have left before it acknowledged, back or not.
    """

    command: BroadcastTo
    asked_ns: int
    count: int = 0
    audience: int = 0
    lives: dict[NodeId, Incarnation] = field(default_factory=dict)
    left: set[NodeId] = field(default_factory=set)


class ReportsAreTrue(Checker):
    """A report of a broadcast names everybody of its audience once, with what became of it there.

    The audience is who lives when it is numbered. Who failed did not acknowledge it: it is held dead, or
    had left, or led another life, or the deadline came. What is reported as not sent never was, and
    never is. A report comes at once when all who live have acknowledged. At best effort nobody is named.
    """

    name: ClassVar[str] = "reports-are-true"
    events: ClassVar[Kinds] = (CommandIssued, Watermark, DeadlineReached)
    before_events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Reply, ReliableBroadcast, RecordChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[NodeId, dict[int, _Asked]] = {}
        self._unsent: dict[NodeId, set[bytes]] = {}
        self._acknowledged: dict[NodeId, dict[tuple[NodeId, Incarnation], int]] = {}
        self._life: dict[NodeId, Incarnation] = {}
        self._next: dict[NodeId, int] = {}
        """The number that each source would have given next, when it was last looked at."""

    def on_boot(self, journal: Journal) -> None:
        self._asked[journal.place] = {}
        self._begin_life(journal)

    def _begin_life(self, journal: Journal) -> None:
        """What was acknowledged was of a former life; a payload is sent by one process once."""
        self._acknowledged[journal.place] = {}
        self._unsent[journal.place] = set()
        self._life[journal.place] = journal.incarnation
        self._next[journal.place] = 1

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if self._life[journal.place] != journal.incarnation:
            self._begin_life(journal)
        asked = self._asked[journal.place]
        is_acknowledged = False
        match event:
            case CommandIssued(request, BroadcastTo(reliable=True) as command):
                asked[request] = _Asked(command, journal.now_ns)
            case CommandIssued(request, BroadcastTo() | MulticastTo(reliable=False)):
                self._check_best_effort(journal, request, effects)
            case Received(_, Watermark() as watermark):
                is_acknowledged = self._note(journal, watermark)
            case _:
                pass
        changes = [effect for effect in effects if isinstance(effect, RecordChanged)]
        moved = {effect.id for effect in changes}
        self._note_numbers(journal, is_moved=bool(moved))
        for change in changes:
            if change.record.status is Status.LEFT:
                self._note_left(journal, change.id)
        brief = self._numbered_and_settled(journal)
        for effect in effects:
            if isinstance(effect, Reply) and effect.request in asked:
                self._check(journal, asked.pop(effect.request), effect, moved, brief)
            elif isinstance(effect, Send) and isinstance(effect.message, ReliableBroadcast):
                self._check_sent(journal, effect.message)
        if (is_acknowledged or moved) and not journal.exited:
            self._check_open(journal)

    # --- what is written down -----------------------------------------------------------------

    def _note(self, journal: Journal, message: Watermark) -> bool:
        if not is_taken(journal, message):
            return False
        route = message.route
        told, key = self._acknowledged[journal.place], (route.source, route.source_incarnation)
        told[key] = max(told.get(key, 0), acknowledged_by(journal, message))
        return True

    def _note_numbers(self, journal: Journal, *, is_moved: bool) -> None:
        asked = self._asked[journal.place]
        if not asked:
            return
        window = source_of(journal).window
        for sent in reversed(window.unstable):
            known = asked.get(sent.request)
            if known is None or known.count:
                continue
            known.count, known.audience = sent.sequence, ((1 << sent.id_space) - 1)
            known.audience &= ~sent.exceptions
            life_of = journal.inside.membership.incarnation
            known.lives = {NodeId(i): life_of(NodeId(i)) for i in ids_in(known.audience)}
            if not is_moved and known.audience != window.living():
                living = ids_in(known.audience ^ window.living())
                self.violate(journal, f"broadcast {known.count} is not for who lives: {living}")

    def _note_left(self, journal: Journal, node_id: NodeId) -> None:
        for known in self._asked[journal.place].values():
            if known.count and not self._has(journal, node_id, known.count):
                known.left.add(node_id)

    def _numbered_and_settled(self, journal: Journal) -> deque[int]:
        """The numbers that were given since the last look, and are stable already."""
        window = source_of(journal).window
        first, self._next[journal.place] = self._next[journal.place], window.next
        unstable = {sent.sequence for sent in window.unstable}
        return deque(number for number in range(first, window.next) if number not in unstable)

    def _check_sent(self, journal: Journal, message: ReliableBroadcast) -> None:
        if message.route.source != journal.host.id:
            return
        if message.payload in self._unsent[journal.place]:
            self.violate(journal, f"sends {message.route.sequence}, reported as not sent")

    # --- reports ------------------------------------------------------------------------------

    def _check_best_effort(self, journal: Journal, request: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Reply) or effect.request != request:
                continue
            if effect.error is None and effect.result != {"confirmed": [], "failed": []}:
                self.violate(journal, f"reports {effect.result} at best effort")

    def _check(
        self,
        journal: Journal,
        known: _Asked,
        reply: Reply,
        moved: Set[NodeId],
        brief: deque[int],
    ) -> None:
        if reply.error is not None:
            sent = getattr(reply.error, "sent", False)
            if sent != bool(known.count):
                self.violate(journal, f"says sent={sent} of what has the number {known.count}")
            if not known.count:
                self._unsent[journal.place].add(known.command.payload)
            return
        confirmed: list[int] = reply.result["confirmed"]
        failed: list[Failure] = reply.result["failed"]
        named = [*confirmed, *(each["id"] for each in failed)]
        is_over = journal.now_ns >= known.asked_ns + known.command.timeout_ns
        living = source_of(journal).window.living()
        is_brief = not known.count and bool(brief) and journal.host.id in confirmed
        if is_brief:
            # Whoever else it was for is held dead since this step.
            known.count, known.audience = brief.popleft(), living
        elif not known.count:
            self._unsent[journal.place].add(known.command.payload)
            known.audience = living
            if confirmed:
                self.violate(journal, f"reports {confirmed}, who were sent nothing")
            if not is_over:
                self.violate(journal, "gives up what waits before its deadline")
        # Of what was not sent it is who lived when it was given up, which may be before a record moved.
        unsure = moved if is_brief or not known.count else set()
        wanted = [i for i in ids_in(known.audience) if i not in unsure]
        if sorted(i for i in named if i not in unsure) != wanted or len(set(named)) < len(named):
            self.violate(journal, f"reports on {sorted(named)}, it is for {ids_in(known.audience)}")
        for failure in failed:
            is_moved = failure["id"] in moved
            for text in self._untrue(journal, known, failure, is_over=is_over, is_moved=is_moved):
                self.violate(journal, f"reports {failure}: {text}")

    def _untrue(
        self, journal: Journal, known: _Asked, failure: Failure, *, is_over: bool, is_moved: bool
    ) -> Iterator[str]:
        """What does not fit; its record may have changed in this step after the report, or before."""
        node_id, membership = NodeId(failure["id"]), journal.inside.membership
        status = membership.status_of(node_id)
        is_dead = status is not None and status >= Status.DEAD
        if failure["sent"] != bool(known.count):
            yield f"it has the number {known.count}"
        kind, detail = failure["error"], failure["detail"]
        is_renewed, has_left = kind == NewLifeError.__name__, detail == LEFT
        # A new life acknowledges what it skips, and so does who had left and was back.
        is_skipped = is_renewed or node_id in known.left
        if known.count and not is_skipped and self._has(journal, node_id, known.count):
            yield "it has acknowledged it"
        if kind == DeadError.__name__:
            is_so = status is not None and is_dead and detail == f"it is {status.name.lower()}"
            if has_left and node_id not in known.left:
                yield "it had not left before it acknowledged"
            elif has_left and is_dead and not is_moved:
                yield "it is held dead"
            elif not is_so and not is_moved and not has_left:
                yield f"its status is {status}"
        elif is_renewed:
            if detail != NEW_LIFE or not known.count:
                yield "no such thing can be known of it"
            elif membership.incarnation(node_id) == known.lives.get(node_id):
                yield "it leads the same life"
        elif kind == UnreachableError.__name__:
            if is_dead and not is_moved:
                yield "it is held dead"
            if detail != (NOT_CONFIRMED if known.count else NOT_SENT):
                yield "that is another case"
            if not is_over and known.command.piece is None:
                yield "its deadline is not over"
        else:
            yield "that can not happen to a broadcast"

    def _has(self, journal: Journal, node_id: NodeId, count: int) -> bool:
        """Whether a node, in the life that is believed, has acknowledged so far."""
        life = journal.inside.membership.incarnation(node_id)
        return self._acknowledged[journal.place].get((node_id, life), 0) >= count

    def _check_open(self, journal: Journal) -> None:
        """Nobody is waited for who has it, or is held dead."""
        asked = self._asked[journal.place]
        if not asked:
            return
        living = source_of(journal).window.living()
        for request, known in asked.items():
            if not known.count:
                continue
            left = known.audience & living & ~(1 << journal.host.id)
            if all(self._has(journal, NodeId(each), known.count) for each in ids_in(left)):
                self.violate(journal, f"does not answer {request}, which all confirmed")
                break
