"""What comes to many at best effort is counted, as what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from bmgd.core.commands import BroadcastTo, MulticastTo
from bmgd.core.effects import Effect, Reply
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeState
from bmgd.wire.broadcast_messages import Broadcast, Multicast

_Message = Broadcast | Multicast


class _Counted(NamedTuple):
    """What became of messages that came: all in all, or of one."""

    taken: int = 0
    no_reader: int = 0
    repeated: int = 0
    refused: int = 0


_NONE = _Counted()
_TAKEN, _NO_READER = _Counted(taken=1), _Counted(no_reader=1)
_REPEATED, _REFUSED = _Counted(repeated=1), _Counted(refused=1)


class BestEffortIsCounted(Checker):
    """Each copy at best effort that is for a node is counted there once, as what becomes of it.

    As refused where its source is not known, or another life of it is; as without a reader exactly where
    a broadcast has none. What a program sends counts so at its own node too. A node that leaves takes
    none.
    """

    name: ClassVar[str] = "best-effort-is-counted"
    events: ClassVar[Kinds] = (Broadcast, Multicast, CommandIssued)
    before_events: ClassVar[Kinds] = (Broadcast, Multicast, CommandIssued)
    effects: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._before = _NONE
        self._may_be: tuple[_Counted, ...] = ()

    def before(self, journal: Journal, event: Event) -> None:
        self._may_be = ()
        match event:
            case Received(_, Broadcast() | Multicast() as message):
                if message.route.destination == journal.host.id:
                    self._may_be = _of_one_that_came(journal, message)
            case CommandIssued(_, BroadcastTo(topic, reliable=False)):
                self._may_be = (_at_readers(journal, topic),)
            case CommandIssued(_, MulticastTo(destinations, reliable=False)):
                is_here = destinations >> journal.host.id & 1
                self._may_be = (_TAKEN, _REFUSED) if is_here else (_NONE,)
            case _:
                return
        self._before = _counted(journal)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        may_be, self._may_be = self._may_be, ()
        if not may_be:
            return
        now, before = _counted(journal), self._before
        more = _Counted(*(a - b for a, b in zip(now, before, strict=True)))
        if isinstance(event, CommandIssued) and any(
            isinstance(effect, Reply) and effect.error is not None for effect in effects
        ):
            may_be = (_NONE,)
        if more not in may_be:
            self.violate(journal, f"counts {more} of one at best effort, not one of {may_be}")


def _counted(journal: Journal) -> _Counted:
    tally = journal.inside.to_many.broadcasting.tally
    return _Counted(tally.taken, tally.no_reader, tally.repeated, tally.refused)


def _at_readers(journal: Journal, topic: str) -> _Counted:
    readers = journal.inside.to_many.announcements._readers.values()
    return _TAKEN if any(reader.topic == topic for reader in readers) else _NO_READER


def _of_one_that_came(journal: Journal, message: _Message) -> tuple[_Counted, ...]:
    """What may become of a message, by what records and links have told of its source's life."""
    membership, source = journal.inside.membership, message.route.source
    if source == journal.host.id and message.route.source_incarnation == journal.incarnation:
        # This node lies on the way from one head to another.
        return (_NONE,)
    is_for_me = any(branch.cover >> journal.host.id & 1 for branch in message.branches)
    record = membership.exceptions().get(source)
    told = max(journal.inside.lives().get(source, 0), record.incarnation if record else 0)
    is_known = source != journal.host.id and membership.status_of(source) is not None
    if not is_known or message.route.source_incarnation < told:
        return (_REFUSED,)
    if not is_for_me:
        return (_NONE,)
    if told < message.route.source_incarnation and told:
        return (_REFUSED,)
    if journal.inside.context.state is NodeState.LEAVING:
        # Of a life that nobody told of, another can have been taken for the source's.
        return (_NONE,) if told else (_NONE, _REFUSED)
    if isinstance(message, Multicast):
        return _TAKEN, _REPEATED, _REFUSED
    return _at_readers(journal, message.topic), _REPEATED, _REFUSED
