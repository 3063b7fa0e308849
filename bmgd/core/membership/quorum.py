"""Which side of a partition goes on: the one with the majority, if the configuration asks for one.

Theory of operation. Counted are all ids but those that have left, the dead included: a side *holds the
quorum* if it holds more than half of them to live, or just half and the lowest of them (founders that
nobody has met yet count as living). Every node counts for itself, from its membership, so equal
memberships mean equal answers. Where the quorum is lost, a node *stands aside* until it is back:

    programs     sends are refused with `NoQuorumError`; status and monitor say why
    verdicts     are written as dead, never as excluded: the layout is that of the majority's return
    joiners      are given no ids

It listens, relays, answers, and dials the dead as always; when the sides meet, the dead refute, and the
quorum is back by itself. While they meet, each hears for a moment that the other held it dead: so
programs are told of a loss only when it has lasted for `ask_ms`. `evict` works on both sides: ids that
have left do not count, so an operator who knows that the others are gone for good can let a minority
go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.context import Context, RecordMoved
from bmgd.core.timers import TimerKey
from bmgd.types import Record, Status

QUORUM_TIMER = "quorum"


@dataclass(slots=True)
class Quorum:
    """Counts the living and the dead of one node's membership.

    Attributes:
        living: ids held to live, this node's included.
        counted: all ids but those that have left.
    """

    context: Context
    living: int = 0
    counted: int = 0
    _held: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        membership = self.context.membership
        self.living = self.counted = membership.founding_size
        for node_id, record in membership.exceptions().items():
            is_founder = node_id < membership.founding_size
            self._count(Status.EXPECTED if is_founder else None, record)
        self._look()

    def on_record_moved(self, moved: RecordMoved) -> None:
        """Count anew."""
        self._count(None if moved.before is None else moved.before.status, moved.after)
        self._look()

    def _look(self) -> None:
        if self.context.settings.quorum:
            self.context.has_quorum = self._holds()

    def settle(self) -> None:
        """At the end of a step: tell when the quorum is regained, and soon that it is lost.

        Not after each record: of a page of them the first may give the quorum back, and the next take it.
        """
        context = self.context
        if context.has_quorum == self._held:
            return
        self._held = context.has_quorum
        if not self._held:
            context.timers.set((QUORUM_TIMER, 0, 0), context.now_ns + context.settings.ask_ns)
            return
        context.timers.cancel((QUORUM_TIMER, 0, 0))
        if context.stands_aside:
            context.stands_aside = False
            self._tell("quorum regained")

    def on_timer(self, key: TimerKey) -> None:
        """The quorum is still lost."""
        self.context.stands_aside = True
        self._tell("quorum lost")

    def _tell(self, event: str) -> None:
        self.context.observe(event, detail=f"{self.living} of {self.counted} live")

    def _count(self, before: Status | None, after: Record) -> None:
        was_counted = before is not None and before is not Status.LEFT
        was_living = before is not None and before < Status.DEAD
        self.counted += (after.status is not Status.LEFT) - was_counted
        self.living += (after.status < Status.DEAD) - was_living

    def _holds(self) -> bool:
        if 2 * self.living != self.counted:
            return 2 * self.living > self.counted
        membership = self.context.membership
        for node_id in membership.known_ids():
            status = membership.status_of(node_id)
            if status is not None and status is not Status.LEFT:
                return status < Status.DEAD
        return True

    def show(self) -> dict[str, object]:
        """What `status` shows."""
        context = self.context
        return {
            "policy": "majority" if context.settings.quorum else "off",
            "holds": not context.stands_aside,
            "living": self.living,
            "of": self.counted,
        }
