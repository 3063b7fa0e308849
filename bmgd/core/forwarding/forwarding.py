"""The way of one message: the published snapshot's next hop, else careful mode.

Theory of operation. The data plane relays what it can from the snapshot, without the core. Here are
the messages that this node writes itself, and those that the data plane left: no live optimal next
hop, no hop budget left, a destination without a rank, a route to be recorded, or a search under way.

Careful mode (ISPA07 §5.1) is a depth-first search whose state travels in the message: the set of
the ids that have had it, and the stack of ids from the search's start to the sender. A node passes
the message to its linked peer nearest to the destination that has not had it; without one, back to
the top of the stack; where that way is gone the search starts anew here, at most `RESTARTS_MAX`
times. While links hold still every connected live node is found, in at most 2(N-1) hops.

Who relays by the snapshot needs the header only. A search, and the last hop, go to nobody who does not
know the kind of message (`wire/features.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from bmgd.core.context import Context, Link
from bmgd.core.effects import ForwardingChanged
from bmgd.core.forwarding.search_room import has_room_for_search
from bmgd.core.forwarding.visited import is_visited, nothing_visited, visited_bytes, with_visited
from bmgd.core.links import Links
from bmgd.frameheader import flow_of
from bmgd.routing import Snapshot, hop_count, rank_of
from bmgd.topology import diameter_bound
from bmgd.types import LinkId, NodeId
from bmgd.wire.ask_messages import Probe
from bmgd.wire.bounds import ROUTE_IDS_MAX, SEARCH_BYTES_MAX
from bmgd.wire.features import NEEDS, Scope
from bmgd.wire.messages import RoutedMessage
from bmgd.wire.routes import Route, Search, Visited
from bmgd.wire.stream_messages import Segment, Unreachable

RESTARTS_MAX = 3
_FAR = 1 << 20
_BEHIND_ROUTE: Final[dict[type[RoutedMessage], Callable[[RoutedMessage], Sequence[Any]]]] = {}
_BUDGET_MAX = 255


class Forwarding:
    """Chooses next hops for this node's messages and for those that the data plane left.

    Attributes:
        has_news: a snapshot was published, and those who wait for a way have not heard of it.
    """

    def __init__(self, context: Context, links: Links) -> None:
        self._context = context
        self._links = links
        self.has_news = False
        self._generation = 0
        self._hop_budget = 0
        self._snapshot = self._take_snapshot()

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot published last."""
        return self._snapshot

    def publish(self) -> None:
        """Take a new snapshot of layout and links, and publish it."""
        self._generation += 1
        self._snapshot = self._take_snapshot()
        self._links.forwarding_stale = False
        self.has_news = True
        self._context.emit(ForwardingChanged(self._snapshot))

    def rebuild(self) -> None:
        """Take the snapshot that was published last once more: at the end of a step it is up to date."""
        self._snapshot = self._take_snapshot()

    def _take_snapshot(self) -> Snapshot:
        membership = self._context.membership
        budget = 2 * diameter_bound(max(1, membership.layout_size)) + 4
        self._hop_budget = min(budget, _BUDGET_MAX)
        rows = [(peer, links[0].id) for peer, links in self._links.by_peer.items()]
        return Snapshot(
            self._generation,
            self._context.id,
            membership.id_space,
            membership.outside_runs(),
            rows,
        )

    def route_to(
        self,
        destination: NodeId,
        *,
        tag: int = 0,
        sequence: int = 0,
        priority: int = 0,
        record: bool = False,
    ) -> Route:
        """A fresh routing header from this node."""
        return Route(
            destination=destination,
            source=self._context.id,
            source_incarnation=self._context.incarnation,
            destination_tag=tag,
            sequence=sequence,
            hop_budget=self._hop_budget,
            priority=priority,
            record=record,
        )

    def has_link(self, link: LinkId) -> bool:
        """Whether a link is up."""
        return self._links.get(link) is not None

    def way_to(self, destination: NodeId) -> LinkId | None:
        """The link that a message of this node's own leaves by now; None for a search, or no way."""
        direct = self._links.to(destination)
        if direct is not None:
            return direct.id
        flow = flow_of(self._context.id, destination)
        link_id = LinkId(self._snapshot.next_hop(destination, -1, flow))
        return link_id if link_id > 0 else None

    def first_link_to(self, destination: NodeId) -> LinkId | None:
        """As `way_to`, and of a search the link by which it begins; None for no way."""
        way = self.way_to(destination)
        if way is not None or not self._context.membership.in_layout(destination):
            return way
        begun = with_visited(self._nothing(), self._context.id)
        onward = self._nearest_unvisited(destination, begun, Segment)
        link = None if onward is None else self._links.to(onward)
        return None if link is None else link.id

    def originate(self, message: RoutedMessage, *, avoiding: int = -1) -> bool:
        """Send a message of this node's own to another node; False when there is no way now.

        Nor when its kind needs a feature that somebody lacks who must have it.

        Args:
            avoiding: an id that it does not leave by, where another shortest way is.
        """
        if not self._is_met(type(message), message.route.destination):
            self._context.counts.add("withheld_messages")
            return False
        return self._forward(message, came_from=avoiding)

    def _is_met(self, kind: type[RoutedMessage], destination: NodeId) -> bool:
        """Whether those who must have a feature for a kind of message have it."""
        need = NEEDS.get(kind)
        if need is None:
            return True
        if need.scope is Scope.CLUSTER:
            return bool(self._context.compatibility.common & need.feature)
        direct = self._links.to(destination)
        return direct is not None and direct.knows(kind)

    def relay(self, message: RoutedMessage, came_from: NodeId | None) -> bool:
        """Pass on a message that the data plane left to the core; False when there is no way now."""
        if self._forward(message, -1 if came_from is None else came_from):
            return True
        if message.route.source != self._context.id:
            self._report_unreachable(message)
        return False

    def _forward(self, message: RoutedMessage, came_from: int) -> bool:
        route = message.route
        if isinstance(message, Probe) and route.record:
            if len(message.passed) >= ROUTE_IDS_MAX:
                return False
            if message.passed[-1:] != (self._context.id,):
                message = replace(message, passed=(*message.passed, self._context.id))
        if route.search is not None:
            return self._search(message, route.search)
        direct = self._links.to(route.destination)
        if direct is not None:
            return self._give(direct, message)
        if self._links.forwarding_stale:
            # A link that closed in this very step is no way any more.
            self.publish()
        flow = flow_of(route.source, route.destination)
        link_id = LinkId(self._snapshot.next_hop(route.destination, came_from, flow))
        if link_id > 0 and route.hop_budget:
            self._context.send(link_id, _with_route(message, _one_hop_on(route)))
            return True
        if not self._context.membership.in_layout(route.destination):
            return False
        return self._search(message, Search(self._nothing(), ()))

    def _nothing(self) -> Visited:
        return nothing_visited(self._context.membership.id_space)

    def _search(self, message: RoutedMessage, search: Search) -> bool:
        me = self._context.id
        visited = with_visited(search.visited, me)
        if search.stack[-1:] == (me,):
            # A link that ended gave it back: it has not gone on from here.
            search = replace(search, stack=search.stack[:-1])
        direct = self._links.to(message.route.destination)
        if direct is not None:
            return self._pass_on(message, direct.peer, Search(visited, (*search.stack, me)))
        onward = self._nearest_unvisited(message.route.destination, visited, type(message))
        if onward is not None:
            found = Search(visited, (*search.stack, me), search.restarts)
            return self._pass_on(message, onward, found)
        if not search.stack:
            return False
        back = search.stack[-1]
        link = self._links.to(back)
        if link is not None and link.knows(type(message)):
            return self._pass_on(message, back, Search(visited, search.stack[:-1], search.restarts))
        if search.restarts >= RESTARTS_MAX:
            return False
        return self._search(message, Search(self._nothing(), (), search.restarts + 1))

    def _pass_on(self, message: RoutedMessage, peer: NodeId, search: Search) -> bool:
        size = visited_bytes(search.visited) + 4 * len(search.stack)
        if size > SEARCH_BYTES_MAX or not has_room_for_search(message, size):
            return False
        link = self._links.to(peer)
        assert link is not None
        self._context.counts.add("careful_messages")
        return self._give(link, _with_route(message, replace(message.route, search=search)))

    def _give(self, link: Link, message: RoutedMessage) -> bool:
        """Send over a link; False where its other end must look into the message and does not know it."""
        if not link.knows(type(message)):
            self._context.counts.add("withheld_messages")
            return False
        self._context.send(link.id, message)
        return True

    def _nearest_unvisited(
        self, destination: NodeId, visited: Visited, kind: type[RoutedMessage]
    ) -> NodeId | None:
        """The linked peer that a search goes on to: nobody who does not know its kind of message."""
        membership = self._context.membership
        size, outside = membership.layout_size, membership.outside
        target = membership.rank(destination)

        def distance(peer: NodeId) -> tuple[int, NodeId]:
            if target is None or not membership.in_layout(peer):
                return _FAR, peer
            return hop_count(size, (target - rank_of(peer, outside)) % size), peer

        candidates = [
            peer
            for peer, links in self._links.by_peer.items()
            if not is_visited(visited, peer) and links[0].knows(kind)
        ]
        return min(candidates, key=distance, default=None)

    def _report_unreachable(self, message: RoutedMessage) -> None:
        if not isinstance(message, Segment):
            return
        route = message.route
        self._context.observe("unreachable", route.destination, detail=f"from {route.source}")
        back = self.route_to(route.source, sequence=route.sequence)
        self.originate(Unreachable(back, route.destination))


def _one_hop_on(route: Route) -> Route:
    return Route(
        route.destination,
        route.source,
        route.source_incarnation,
        route.destination_tag,
        route.sequence,
        route.hop_budget - 1,
        route.priority,
        route.record,
        route.search,
    )


def _with_route(message: RoutedMessage, route: Route) -> RoutedMessage:
    """The message under another route; as `replace` makes it, in a quarter of the time."""
    kind = type(message)
    behind = _BEHIND_ROUTE.get(kind)
    if behind is None:
        behind = _BEHIND_ROUTE[kind] = _behind_route(kind)
    make: Callable[..., RoutedMessage] = kind
    return make(route, *behind(message))


def _behind_route(kind: type[RoutedMessage]) -> Callable[[RoutedMessage], Sequence[Any]]:
    """What gives the fields of a kind of message behind its first one, the route."""
    first, *names = (each.name for each in fields(kind) if each.init)
    assert first == "route"
    if len(names) < 2:
        return lambda message: [getattr(message, name) for name in names]
    return attrgetter(*names)
