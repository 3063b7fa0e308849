"""Growth: joiners ask any member, the lowest live id gives out ids, in batches.

Theory of operation. A joiner asks one member, its *contact*. The contact asks the lowest live id, again
and again until it is answered, whoever the lowest one is by then:

    JoinAsked --an id that it had before-----------------------------------> Grant
    JoinAsked --JoinRequest--> lowest live id --JoinGrant--> contact -------> Grant
                                     |
                                     `-- gathers for `GATHER_NS`, then writes one record for each joiner

Behind the `Grant` the joiner asks for all records, page by page, and closes.
The record (the joiner's life, alive, its address) *is* the assignment: it is told to everybody like any
other, so it needs no consensus. Two nodes that both believe to be the lowest may give out one id twice.
Then the records are joined, the greater life has the id, and the other one is told so and asks for a
new id (`lifecycle.py`). A request repeated, also to another assigner, is known by the joiner's life.

A node gives out ids only while it is ready, and has seen on half of its links that its membership equals
the other's: one that has just been restarted knows nothing of the ids that were given before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bmgd.core.context import Context, RecordMoved
from bmgd.core.effects import Close, Grant, Refuse
from bmgd.core.events import JoinAsked
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.links import Links
from bmgd.core.membership.comparison import Comparison
from bmgd.core.membership.membership import JOINED_MAX
from bmgd.core.membership.notices import Notices
from bmgd.core.timers import TimerKey
from bmgd.core.work import Work
from bmgd.types import (
    NODE_ID_MAX,
    UNKNOWN_INCARNATION,
    Incarnation,
    LinkId,
    NodeId,
    NodeState,
    Record,
    Status,
)
from bmgd.wire.ask_messages import JoinGrant, JoinRequest
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import PageAsk

JOIN_ASK_TIMER = "join ask"
ASSIGN_TIMER = "assign"
GRANT_TIMER = "grant"
JOINS_OPEN_MAX = 1024
"""Joiners that wait at one contact, and requests that one assigner gathers."""
GATHER_NS = 10_000_000
ASK_MIN_NS = 200_000_000
ASK_MAX_NS = 800_000_000
ASK_EACH_NS = 2_000_000
"""A contact asks again at this pace at most, so that many joiners that are given no id make no flood."""
PATIENCE_NS = 2_500_000_000
PAGE_PATIENCE_NS = 10_000_000_000
"""A joiner that asks for no page for so long is let go of."""
GIVEN_MAX = 8192
"""So many ids that were given last are known by the life that they were given to."""


@dataclass(slots=True)
class _Open:
    link: LinkId
    address: str
    number: int
    until_ns: int
    asked: int = 0


@dataclass(slots=True)
class _Wish:
    address: str
    floor: int
    asker: NodeId


@dataclass(slots=True)
class Growth:
    """The joiners that this node is the contact of, and those that it gives ids to."""

    context: Context
    links: Links
    notices: Notices
    comparison: Comparison
    forwarding: Forwarding
    work: Work
    _granted: set[LinkId] = field(default_factory=set)
    _given: dict[tuple[Incarnation, str], NodeId] = field(default_factory=dict)
    _open: dict[Incarnation, _Open] = field(default_factory=dict)
    _by_number: dict[int, Incarnation] = field(default_factory=dict)
    _wishes: dict[Incarnation, _Wish] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        membership = self.context.membership
        for node_id, record in sorted(membership.exceptions().items())[-GIVEN_MAX:]:
            self._note_given(node_id, record)

    def on_record_moved(self, moved: RecordMoved) -> None:
        """Somebody may have been given an id."""
        self._note_given(moved.id, moved.after)

    def _note_given(self, node_id: NodeId, record: Record) -> None:
        if node_id < self.context.membership.founding_size or record.status is not Status.ALIVE:
            return
        self._given[record.incarnation, record.address] = node_id
        if len(self._given) > GIVEN_MAX:
            del self._given[next(iter(self._given))]

    # --- the contact --------------------------------------------------------------------------

    def on_join_asked(self, asked: JoinAsked) -> None:
        """A joiner asks to become a member."""
        refusal = self._refusal(asked)
        if refusal is not None:
            self._refuse(asked.link, refusal)
        elif asked.claimed is not None:
            self._grant(asked.link, asked.claimed)
        else:
            self._drop(asked.incarnation)
            self._count += 1
            until_ns = self.context.now_ns + PATIENCE_NS
            self._by_number[self._count] = asked.incarnation
            self._open[asked.incarnation] = _Open(asked.link, asked.address, self._count, until_ns)
            self._ask(asked.incarnation)

    def _refusal(self, asked: JoinAsked) -> Refusal | None:
        if self.context.state is NodeState.LEAVING:
            return Refusal.BUSY
        if asked.claimed is not None:
            if asked.claimed in self.context.membership.retired:
                return Refusal.RETIRED
            can_be = self.context.membership.can_be(asked.claimed)
            return None if can_be and asked.claimed != self.context.id else Refusal.WRONG_ID
        is_full = len(self._open) >= JOINS_OPEN_MAX and asked.incarnation not in self._open
        is_full = is_full or len(self._granted) >= JOINS_OPEN_MAX
        return Refusal.BUSY if is_full else None

    def _ask(self, incarnation: Incarnation) -> None:
        """Ask whoever is the lowest live id now; again until it answers."""
        context, entry = self.context, self._open[incarnation]
        lowest = self._lowest_live()
        floor = context.membership.id_space
        pause_ns = min(ASK_MIN_NS << min(entry.asked, 8), ASK_MAX_NS)
        pause_ns = max(pause_ns, len(self._open) * ASK_EACH_NS)
        entry.asked += 1
        at_ns = min(context.now_ns + context.jitter(pause_ns), entry.until_ns)
        context.timers.set((JOIN_ASK_TIMER, entry.number, 0), at_ns)
        if lowest == context.id:
            self._wish(incarnation, _Wish(entry.address, floor, lowest))
        else:
            route = self.forwarding.route_to(lowest)
            self.forwarding.originate(JoinRequest(route, incarnation, entry.address, floor))

    def _lowest_live(self) -> NodeId:
        return next(self.context.membership.living(), self.context.id)

    def on_ask_timer(self, key: TimerKey) -> None:
        """No answer yet."""
        incarnation = self._by_number[key[1]]
        entry = self._open[incarnation]
        if self.context.now_ns < entry.until_ns:
            self._ask(incarnation)
        else:
            self._drop(incarnation)
            self._refuse(entry.link, Refusal.BUSY)

    def on_gone(self) -> None:
        """A death is known: it may be that of the assigner."""
        if self._open:
            self.work.begin("join requests", self._asks)

    def _asks(self) -> Iterator[None]:
        for incarnation in list(self._open):
            if incarnation in self._open:
                self._ask(incarnation)
                yield

    def on_link_lost(self, link: LinkId) -> None:
        """A connection ended: perhaps that of a joiner, which then asks again, here or elsewhere."""
        self._end_grant(link)
        for incarnation, entry in list(self._open.items()):
            if entry.link == link:
                self._drop(incarnation)

    def on_grant(self, incarnation: Incarnation, node_id: NodeId) -> None:
        """The lowest live id has given an id to one of this contact's joiners."""
        entry = self._open.get(incarnation)
        if entry is None:
            return
        self._drop(incarnation)
        # The news may not have come yet, and the joiner is to know of itself.
        self.notices.publish(node_id, Record(incarnation, 0, Status.ALIVE, entry.address))
        self._grant(entry.link, node_id)

    def _grant(self, link: LinkId, node_id: NodeId) -> None:
        self.context.observe("joiner", node_id)
        self._granted.add(link)
        self._wait_for_page(link)
        self.context.emit(Grant(link, node_id))

    def _wait_for_page(self, link: LinkId) -> None:
        at_ns = self.context.now_ns + PAGE_PATIENCE_NS
        self.context.timers.set((GRANT_TIMER, link, 0), at_ns)

    def on_page_ask(self, link: LinkId, ask: PageAsk) -> None:
        """A joiner that has its id asks what a member must know."""
        if link in self._granted:
            self._wait_for_page(link)
            self.context.send(link, self.comparison.page(ask))

    def on_grant_timer(self, key: TimerKey) -> None:
        """A joiner that has its id asks no more."""
        link = LinkId(key[1])
        self._end_grant(link)
        self.context.emit(Close(link, "granted"))

    def _end_grant(self, link: LinkId) -> None:
        if link in self._granted:
            self._granted.discard(link)
            self.context.timers.cancel((GRANT_TIMER, link, 0))

    def _refuse(self, link: LinkId, refusal: Refusal) -> None:
        self.context.observe("refused", detail=f"a joiner: {refusal.text}")
        self.context.emit(Refuse(link, refusal, UNKNOWN_INCARNATION))

    def _drop(self, incarnation: Incarnation) -> None:
        entry = self._open.pop(incarnation, None)
        if entry is not None:
            del self._by_number[entry.number]
            self.context.timers.cancel((JOIN_ASK_TIMER, entry.number, 0))

    # --- the assigner -------------------------------------------------------------------------

    def on_request(self, request: JoinRequest) -> None:
        """A contact holds this node to be the lowest live one."""
        wish = _Wish(request.address, request.floor, request.route.source)
        self._wish(request.incarnation, wish)

    def _wish(self, incarnation: Incarnation, wish: _Wish) -> None:
        if len(self._wishes) >= JOINS_OPEN_MAX or not self._may_assign():
            return
        self._wishes[incarnation] = wish
        if (ASSIGN_TIMER, 0, 0) not in self.context.timers:
            self.context.timers.set((ASSIGN_TIMER, 0, 0), self.context.now_ns + GATHER_NS)

    def _may_assign(self) -> bool:
        context = self.context
        if not context.has_quorum:
            return False
        if context.state is not NodeState.READY or self._lowest_live() != context.id:
            return False
        links = self.links.table.values()
        return 2 * sum(link.agreed for link in links) >= len(links)

    def on_assign_timer(self, key: TimerKey) -> None:
        """Give out ids to all that have gathered: one record each, one notice."""
        wishes, self._wishes = self._wishes, {}
        for incarnation, wish in wishes.items():
            node_id = self._given.get((incarnation, wish.address))
            if node_id is None:
                node_id = self._assign(incarnation, wish)
            if node_id is None:
                continue
            if wish.asker == self.context.id:
                self.on_grant(incarnation, node_id)
            else:
                route = self.forwarding.route_to(wish.asker)
                self.forwarding.originate(JoinGrant(route, incarnation, node_id))

    def _assign(self, incarnation: Incarnation, wish: _Wish) -> NodeId | None:
        """The next id; None where there is none, or too many below it are unknown here."""
        membership = self.context.membership
        node_id = NodeId(max(membership.id_space, wish.floor))
        if membership.joined_count >= JOINED_MAX:
            return None
        record = Record(incarnation, 0, Status.ALIVE, wish.address)
        if node_id > NODE_ID_MAX or not self.notices.publish(node_id, record):
            return None
        self.context.observe("assigned", node_id, incarnation)
        return node_id
