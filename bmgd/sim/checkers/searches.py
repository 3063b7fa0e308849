"""The searches of careful mode: each node once, and counted when they begin anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, get_args

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.types import NodeId
from bmgd.wire.features import NEEDS
from bmgd.wire.messages import RoutedMessage
from bmgd.wire.routes import Search, Visited

RESTARTS_MAX = 3
BUDGET_MAX = 255


class SearchesVisitOnce(Checker):
    """A search never hands a message to a node that had it, but the way back, and counts its restarts.

    Going on marks this node, and puts it on the stack; going back takes the top off; only where neither
    is possible it begins anew, three times at most. It goes to nobody whose release does not know its
    kind of message.
    """

    name: ClassVar[str] = "searches-visit-once"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = get_args(RoutedMessage)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        came = event.message if isinstance(event, Received) else None
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, RoutedMessage):
                self._check(journal, came, effect)

    def _check(self, journal: Journal, came: object, send: Send) -> None:
        message = send.message
        assert isinstance(message, RoutedMessage)
        relayed = isinstance(came, RoutedMessage) and _same(came, message)
        route = message.route
        if not 0 <= route.hop_budget <= BUDGET_MAX:
            self.violate(journal, f"a hop budget of {route.hop_budget}")
        link = journal.links.get(send.link)
        if link is None:
            return
        if route.search is None:
            if isinstance(came, RoutedMessage) and relayed:
                direct = link.peer == route.destination
                if came.route.search is not None:
                    self.violate(journal, "a search lost its state")
                elif not direct and route.hop_budget >= came.route.hop_budget:
                    self.violate(journal, "passed on with a hop budget that does not fall")
            return
        before = came.route.search if isinstance(came, RoutedMessage) and relayed else None
        able = _who_know(journal, type(message)) - {journal.host.id}
        self._check_search(journal, before, route.search, link.peer, able)

    def _check_search(
        self,
        journal: Journal,
        before: Search | None,
        now: Search,
        peer: NodeId,
        able: set[NodeId],
    ) -> None:
        me = journal.host.id
        restarted = before is not None and now.restarts > before.restarts
        if now.restarts > RESTARTS_MAX:
            self.violate(journal, f"a search that began anew {now.restarts} times")
        had = frozenset[int]() if before is None or restarted else _marked(before.visited)
        stack = () if before is None or restarted else before.stack
        if stack[-1:] == (me,):
            # A link that ended gave it back: it has not gone on from here.
            stack = stack[:-1]
        marked = _marked(now.visited)
        if marked != had | {me}:
            self.violate(journal, f"a search marks {sorted(marked)}, had {sorted(had)}")
        if now.stack == (*stack, me):
            if peer in had:
                self.violate(journal, f"a search visits {peer} twice")
        elif stack and now.stack == stack[:-1]:
            if peer != stack[-1]:
                self.violate(journal, f"a search goes back to {peer}, it came from {stack[-1]}")
            left = able - had
            if left:
                self.violate(journal, f"a search goes back, and has not tried {sorted(left)}")
        else:
            self.violate(journal, f"a search's stack is {now.stack} after {stack}")
        # Where two processes have one id, the way back can lead to the other one.
        is_twice = len(set(now.stack)) < len(now.stack)
        if is_twice and self.scene.given_twice.isdisjoint(now.stack):
            self.violate(journal, f"a search's stack has a node twice: {now.stack}")


def _who_know(journal: Journal, kind: type[RoutedMessage]) -> set[NodeId]:
    """The linked peers that know a kind of message, as all their hellos said."""
    need = NEEDS.get(kind)
    links = journal.links.values()
    unable = {link.peer for link in links if need is not None and not link.features & need.feature}
    return {link.peer for link in links} - unable


def _same(came: RoutedMessage, sent: RoutedMessage) -> bool:
    """Whether what is sent is what came, passed on."""
    a, b = came.route, sent.route
    return type(came) is type(sent) and (a.source, a.destination, a.sequence) == (
        b.source,
        b.destination,
        b.sequence,
    )


def _marked(visited: Visited) -> frozenset[int]:
    if isinstance(visited, tuple):
        return frozenset(i for first, last in visited for i in range(first, last + 1))
    return frozenset(ids_in(int.from_bytes(visited, "little")))
