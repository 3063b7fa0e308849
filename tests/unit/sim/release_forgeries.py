"""Forgeries about daemons of two releases, for `test_checkers.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bmgd.core.effects import RecordChanged, Send
from bmgd.core.events import Received
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.ask_messages import ReadersAsk
from bmgd.wire.link_messages import MemberFeatures, OlderMembers


def told_what_it_does_not_know(forger: Any) -> None:
    """The process is of an older release, and gets a message of a newer kind."""
    forger.host.features = 0
    forger.step(Received(forger.link, OlderMembers(())))


def asked_though_an_older_member_is_known(forger: Any) -> None:
    """It is told of an older member, and asks everybody for readers all the same."""
    older = MemberFeatures(NodeId(2), forger.scene.journals[NodeId(2)].incarnation, 0)
    forger.step(Received(forger.link, OlderMembers((older,))))
    forger.deadline(Send(forger.link, ReadersAsk(forger.route(), "t")))


def unknown_older_member(forger: Any) -> None:
    """One holds a neighbor for older that is not."""
    member = MemberFeatures(forger.journal.to(4)[0].peer, forger.life, 0)
    forger.inside.context.compatibility.learn(member)
    forger.scene.at_rest()


def older_member_that_is_not_passed_on(forger: Any) -> None:
    """It is told of an older member, and tells nobody."""
    older = MemberFeatures(NodeId(2), forger.scene.journals[NodeId(2)].incarnation, 0)
    forger.inside.context.compatibility.learn(older)
    forger.step(Received(forger.link, OlderMembers((older,))))


def older_member_whose_life_is_over(forger: Any) -> None:
    """A later life of an older member is known, and what the former one lacked is kept."""
    older = MemberFeatures(NodeId(2), forger.scene.journals[NodeId(2)].incarnation, 0)
    forger.inside.context.compatibility.learn(older)
    later = Record(Incarnation(older.incarnation + 1), 0, Status.ALIVE, "sim2:7400")
    membership = forger.inside.membership
    membership.join(NodeId(2), later)
    forger.deadline(RecordChanged(NodeId(2), later, membership.revision))


FORGERIES_OF_RELEASES: Final[list[tuple[str, Callable[[Any], None]]]] = [
    ("older-are-spared", told_what_it_does_not_know),
    ("older-are-spared", asked_though_an_older_member_is_known),
    ("older-are-told", older_member_that_is_not_passed_on),
    ("older-are-told", older_member_whose_life_is_over),
    ("features-are-in-common", unknown_older_member),
]
