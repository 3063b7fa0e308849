"""Daemons of two releases in one cluster: nobody is sent what it does not know, all know who is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from bmgd.core.effects import Effect, RecordChanged, Send, Welcome
from bmgd.core.events import Event, LinkUp, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import EVERY, Checker, Kinds, Scene
from bmgd.types import Incarnation, LinkId, NodeId, Status, incarnation_tag
from bmgd.wire.features import NEEDS, Feature, Scope, names_of
from bmgd.wire.link_messages import MemberFeatures, OlderMembers
from bmgd.wire.messages import RoutedMessage


class OlderAreSpared(Checker):
    """No daemon is sent a message of a kind that its release does not know, by whoever can know it.

    What the other end of a link must know never comes to an end that does not know it, but for a former
    life, of a later release. What every member must know a source does not begin to send once it was
    told of a member that does not know it: by the hello of a link, or by another node. What it sent
    before may still come to an older daemon, which drops it (ADR 51).
    """

    name: ClassVar[str] = "older-are-spared"
    events: ClassVar[Kinds] = (*NEEDS, LinkUp)
    before_events: ClassVar[Kinds] = EVERY
    effects: ClassVar[Kinds] = (*NEEDS, Welcome)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._told: dict[NodeId, dict[NodeId, tuple[Incarnation, int]]] = {}
        self._common = -1

    def on_boot(self, journal: Journal) -> None:
        self._told[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        self._common = self._common_of(journal)
        if not isinstance(event, Received):
            return
        message = event.message
        tag = message.route.destination_tag if isinstance(message, RoutedMessage) else 0
        if tag not in (0, incarnation_tag(journal.incarnation)):
            return
        if isinstance(message, RoutedMessage) and _is_back(journal, message):
            return
        need = NEEDS.get(type(message))
        if need is None or need.scope is not Scope.NEIGHBOR:
            return
        if not journal.host.features & need.feature:
            text = f"got a {type(message).__name__}, and has no {need.feature.name}"
            self.violate(journal, text)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        came = event.message if isinstance(event, Received) else None
        route = came.route if isinstance(came, RoutedMessage) else None
        if route is None or route.source != journal.host.id:
            # What comes back to its source was sent before.
            self._check_sent(journal, effects)
        if isinstance(event, Received) and isinstance(came, OlderMembers):
            # What comes behind the end of a link, one of a former life at its beginning, is not heard.
            if event.link in journal.former_links:
                self._learn(journal, came.members)
        elif isinstance(event, LinkUp) or any(isinstance(e, Welcome) for e in effects):
            links = journal.links.values()
            hellos = [MemberFeatures(i.peer, i.incarnation, i.features) for i in links]
            own = journal.host.features
            # Of a life that was only met no record tells that it is over: a later one's hello does.
            told = self._told[journal.place]
            self._learn(journal, [i for i in hellos if own & ~i.features or i.id in told])

    def _check_sent(self, journal: Journal, effects: Sequence[Effect]) -> None:
        # A member that is told of, or begins to count, in the same step may come later in it.
        common = self._common | self._common_of(journal)
        for effect in effects:
            message = effect.message if isinstance(effect, Send) else None
            need = NEEDS.get(type(message)) if message is not None else None
            if need is None or need.scope is not Scope.CLUSTER or common & need.feature:
                continue
            assert isinstance(message, RoutedMessage)
            if message.route.source == journal.host.id:
                text = f"sends a {type(message).__name__}, and knows who has no {need.feature.name}"
                self.violate(journal, text)

    # --- who is older -------------------------------------------------------------------------

    def _learn(self, journal: Journal, members: Iterable[MemberFeatures]) -> None:
        told = self._told[journal.place]
        for node_id, life, features in members:
            if node_id == journal.host.id or not journal.inside.membership.can_be(node_id):
                continue
            if node_id not in told or told[node_id][0] < life:
                told[node_id] = life, features

    def _common_of(self, journal: Journal) -> int:
        """The features that this process has, and every member that it was told of and that lives."""
        common, membership = journal.host.features, journal.inside.membership
        for node_id, (life, features) in self._told[journal.place].items():
            record = membership.get(node_id)
            is_over = record is None or record.incarnation > life or membership.is_gone(node_id)
            if not is_over:
                common &= features
        return common


def _is_back(journal: Journal, message: RoutedMessage) -> bool:
    """Whether a process has its own message, for another, back from a link that closed."""
    route = message.route
    own = journal.host.id, journal.incarnation
    return (route.source, route.source_incarnation) == own and route.destination != own[0]


class OlderAreTold(Checker):
    """Who learns of an older member tells its other neighbors; nothing is kept of a life that is over.

    Of a life that is over a record tells: of a later one, or that this one has left. Neighbors that do
    not know the kind of message are told nothing.
    """

    name: ClassVar[str] = "older-are-told"
    events: ClassVar[Kinds] = (OlderMembers, LinkUp)
    before_events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Welcome, RecordChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._known: dict[NodeId, dict[NodeId, Incarnation]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._known[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        before, members = self._known[journal.place], journal.inside.context.compatibility.known()
        if not before and not members:
            return
        self._known[journal.place] = {member.id: member.incarnation for member in members}
        for member in members:
            self._check_life(journal, member)
        opened = [i for i in journal.links if i not in journal.former_links]
        came_on = event.link if isinstance(event, Received | LinkUp) else None
        if isinstance(event, Received) != (not opened) or len(opened) > 1:
            # One that waited for something else is welcomed in the midst of it.
            return
        news = [each for each in members if before.get(each.id, 0) < each.incarnation]
        told: set[tuple[LinkId, MemberFeatures]] = set()
        for effect in effects if news else ():
            if isinstance(effect, Send) and isinstance(effect.message, OlderMembers):
                told |= {(effect.link, member) for member in effect.message.members}
        exempt = {came_on, *opened}
        for link in journal.links.values():
            if link.id in exempt or not link.features & Feature.OLDER_MEMBERS:
                continue
            for member in news:
                if (link.id, member) not in told:
                    self.violate(journal, f"does not tell {link.peer} what {member.id} lacks")

    def _check_life(self, journal: Journal, member: MemberFeatures) -> None:
        record = journal.inside.membership.exceptions().get(member.id)
        if record is None:
            return
        has_left = record.status is Status.LEFT and record.incarnation == member.incarnation
        if record.incarnation > member.incarnation or has_left:
            self.violate(journal, f"keeps what a life of {member.id} lacked that is over")


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
