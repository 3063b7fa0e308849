"""Daemons of two releases in one cluster: nobody is sent what it does not know, all know who is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.events import Event, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.types import incarnation_tag
from bmgd.wire.features import NEEDS, names_of
from bmgd.wire.messages import RoutedMessage


class OlderAreSpared(Checker):
    """No daemon gets a message of a kind that its release does not know.

    But one for a former life, of a later release: nobody may know yet that an older one followed.
    """

    name: ClassVar[str] = "older-are-spared"
    events: ClassVar[Kinds] = tuple(NEEDS)
    before_events: ClassVar[Kinds] = tuple(NEEDS)

    def before(self, journal: Journal, event: Event) -> None:
        if not isinstance(event, Received):
            return
        tag = event.message.route.destination_tag if isinstance(event.message, RoutedMessage) else 0
        if tag not in (0, incarnation_tag(journal.incarnation)):
            return
        need = NEEDS.get(type(event.message))
        if need is not None and not journal.host.features & need.feature:
            kind = type(event.message).__name__
            self.violate(journal, f"got a {kind}, and has no {need.feature.name}")


class FeaturesAreInCommon(Checker):
    """At rest every daemon uses the features that all who run have, of those it has itself."""

    name: ClassVar[str] = "features-are-in-common"
    events: ClassVar[Kinds] = ()

    def at_rest(self, journals: Sequence[Journal]) -> None:
        in_common = -1
        for journal in journals:
            in_common &= journal.host.features
        for journal in journals:
            used = journal.inside.context.compatibility.common
            expected = in_common & journal.host.features
            if used != expected:
                self.violate(journal, f"uses {names_of(used)}, all have {names_of(expected)}")
