"""Copies that a node skips itself, and is asked for: it asks others, and passes on what comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.broadcast.copy_relay import ASK_NS
from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.broadcasts import LifeKey, life_of, retention_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId
from bmgd.wire.broadcast_messages import ReliableBroadcast
from bmgd.wire.link_messages import Pull


class WhoIsAskedInVainAsksOthers(Checker):
    """Who is asked for copies that it does not have asks another, and passes on what comes.

    It asks one at a time: another one when that has not answered for a while. Copies that come and are
    not kept go to all linked neighbors that asked for them since they last got one.
    """

    name: ClassVar[str] = "asked-in-vain-asks-others"
    events: ClassVar[Kinds] = (Pull, ReliableBroadcast)
    before_events: ClassVar[Kinds] = (ReliableBroadcast,)
    effects: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked_ns: dict[NodeId, dict[LifeKey, int]] = {}
        self._wanted: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._asked_ns[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        self._wanted = {}
        message = event.message if isinstance(event, Received) else None
        if isinstance(message, ReliableBroadcast) and message.route.destination == journal.host.id:
            heard = retention_of(journal).lives.get(life_of(message))
            if heard is not None and heard.key in journal.inside.to_many.orphans._orphans:
                self._wanted = dict(heard.wanted)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not isinstance(event, Received) or journal.exited:
            return
        message, sent = event.message, [each for each in effects if isinstance(each, Send)]
        if isinstance(message, Pull):
            link = journal.former_links.get(event.link)
            if link is not None:
                self._check_asking(journal, link.peer, message, sent)
        elif isinstance(message, ReliableBroadcast) and self._wanted:
            self._check_passing_on(journal, message, sent)

    def _check_asking(
        self, journal: Journal, peer: NodeId, pull: Pull, sent: Sequence[Send]
    ) -> None:
        key = pull.source, pull.incarnation
        heard = retention_of(journal).lives.get(key)
        if heard is None or key not in journal.inside.to_many.orphans._orphans:
            return
        if any(count >= pull.first for count in heard.copies):
            return
        linked = {link.peer for link in journal.links.values()} - {peer}
        others = {p for p, (_, top) in heard.told.items() if p in linked and top >= pull.first}
        asked = [each for each in sent if each.message == pull]
        since_ns = self._asked_ns[journal.place].get(key, -ASK_NS)
        if asked:
            self._asked_ns[journal.place][key] = journal.now_ns
        elif others and journal.now_ns - since_ns >= ASK_NS:
            text = (
                f"is asked by {peer} for {pull.first} of {key}, and asks none of {sorted(others)}"
            )
            self.violate(journal, text)
        if heard.wanted.get(peer) != pull.first:
            self.violate(journal, f"does not note that {peer} asks for {pull.first} of {key}")

    def _check_passing_on(
        self, journal: Journal, message: ReliableBroadcast, sent: Sequence[Send]
    ) -> None:
        key, count = life_of(message), message.route.sequence
        heard = retention_of(journal).lives.get(key)
        if heard is None or count in heard.copies:
            return
        to = {
            journal.links[each.link].peer
            for each in sent
            if each.link in journal.links and isinstance(each.message, ReliableBroadcast)
        }
        links = journal.inside.links.by_peer
        linked = {p for p in self._wanted if p in links and links[p][0].knows(type(message))}
        for peer in linked - to:
            if self._wanted[peer] <= count:
                self.violate(journal, f"does not pass {count} of {key} on to {peer}")
