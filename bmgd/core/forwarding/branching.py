"""A message of several branches on its way: to heads that are linked, around those that are dead.

Theory of operation. A frame carries branches (`routing/branches.py`). What this node is the head of it
splits by the tree, or in a multicast by shortest ways; what others head it passes on. So every node
that a frame passes regroups what goes on together:

    the head is linked        over that link
    the head is dead          its children take its place (ISPA07 §5.3)
    the head is alive, far    over a neighbor that begins a shortest way and takes most others along
                              (ISPA07 §5.2); alone, as a unicast that relays need no core for
    no neighbor begins one    as a unicast in careful mode

Each copy has a hop budget. Where two layouts disagree it can run out: then each id that is left gets a
unicast in careful mode, `CAREFUL_MAX` of them; best effort loses the others, a reliable source finds
them missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from bmgd.core.context import Context
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.links import Links
from bmgd.routing import first_hops, hop_count, id_of, rank_of
from bmgd.routing.branches import Branch, Splitter, branch_cost, shared_next_hops
from bmgd.routing.id_sets import ID_SET_SPACE, id_set, ids_in, set_bytes, without
from bmgd.topology.broadcast import Order
from bmgd.types import NodeId
from bmgd.wire.bounds import (
    BRANCH_BYTES_MAX,
    BRANCH_FRAME_BYTES,
    BRANCHES_MAX,
    COVERS_BYTES_MAX,
)
from bmgd.wire.broadcast_messages import Broadcast, Multicast, ReliableBroadcast, Stable
from bmgd.wire.id_sets import id_set_bytes
from bmgd.wire.routes import Route

Branched = Broadcast | Multicast | ReliableBroadcast | Stable
TREES: tuple[Order, ...] = ("closest-last", "closest-first")
CAREFUL_MAX = 64
BUDGET_MAX = 255


class Branching:
    """Sends messages of several branches on their ways.

    Attributes:
        lost: how many ids were left out, for want of a way or beyond a bound.
    """

    def __init__(self, context: Context, links: Links, forwarding: Forwarding) -> None:
        self._context = context
        self._links = links
        self._forwarding = forwarding
        self._splitters: dict[Order, tuple[int, Splitter]] = {}
        self.lost = 0

    def hop_budget(self) -> int:
        """Of a fresh message: twice the steps of the tree, and some for detours."""
        steps = (max(1, self._context.membership.layout_size) - 1).bit_length()
        return min(2 * steps + 4, BUDGET_MAX)

    def fresh(self, route: Route) -> Route:
        """A route with the hop budget of a message to many."""
        return replace(route, hop_budget=self.hop_budget())

    def send(self, message: Branched, branches: Iterable[Branch]) -> None:
        """Send copies of a message so that every branch gets one; the copies carry a lower budget.

        Args:
            message: whose own branches do not count.
            branches: with this node or any other as head.
        """
        if not message.route.hop_budget:
            self._send_carefully(message, branches)
            return
        tree = None if isinstance(message, Multicast) else TREES[message.tree]
        linked: dict[NodeId, list[Branch]] = {}
        distant: list[Branch] = []
        for branch in self._placed(_apart(branches), tree):
            if branch.head in self._links.by_peer:
                linked.setdefault(branch.head, []).append(branch)
            else:
                distant.append(branch)
        alone = self._share_ways(linked, distant)
        groups: list[tuple[NodeId, list[Branch], bool]] = []
        for peer, group in linked.items():
            if len(group) == 1 and group[0].head != peer:
                alone += group
            else:
                groups.append((peer, group, True))
        groups += [(branch.head, [branch], False) for branch in alone]
        groups.sort(key=self._cost_of if tree else self._hops_of)
        for peer, group, is_linked in groups:
            self._send_group(message, peer, group, is_linked=is_linked)

    def ways(self, ids: Iterable[NodeId]) -> tuple[list[tuple[NodeId, list[NodeId]]], list[NodeId]]:
        """The neighbors that begin shortest ways to some nodes, as few as can be.

        Returns:
            Each neighbor with the nodes that it is or leads to, sorted, the one with most hops before
            it first; and the nodes that no linked neighbor begins a shortest way to.

        O(nodes * hops) for each neighbor that is chosen. Source: ISPA07 §5.2.
        """
        linked: dict[NodeId, list[Branch]] = {}
        distant: list[Branch] = []
        for each in ids:
            # Nothing is covered: only where the head is matters, and it may be any number.
            branch = Branch(each, 0)
            if each in self._links.by_peer:
                linked[each] = [branch]
            else:
                distant.append(branch)
        without = self._share_ways(linked, distant)
        groups = sorted(((peer, group, True) for peer, group in linked.items()), key=self._hops_of)
        found = [(peer, sorted(each.head for each in group)) for peer, group, _ in groups]
        return found, [branch.head for branch in without]

    # --- who gets it next ---------------------------------------------------------------------

    def _placed(self, branches: Iterable[Branch], tree: Order | None) -> list[Branch]:
        """The branches, with heads that are not this node and not known to be dead."""
        me, membership = self._context.id, self._context.membership
        found: list[Branch] = []
        queue = deque(branches)
        while queue:
            head, cover = queue.popleft()
            if head == me:
                queue.extend(self._split(me, without(cover, me), tree))
            elif head in self._links.by_peer or not membership.is_gone(head):
                found.append(Branch(head, cover))
            elif without(cover, head):
                from_head = head if membership.in_layout(head) else me
                queue.extend(self._split(from_head, without(cover, head), tree))
            else:
                self.lost += 1
        return found

    def _split(self, head: NodeId, cover: int, tree: Order | None) -> list[Branch]:
        membership = self._context.membership
        if tree is None or not membership.in_layout(head):
            alone = cover & self._reachable()
            self.lost += (cover & ~alone).bit_count()
            return [Branch(each, 1 << each) for each in ids_in(alone)]
        known = self._splitters.get(tree)
        if known is None or known[0] != membership.layout_revision or not self._is_current(known):
            splitter = Splitter(membership.id_space, membership.outside_copy(), tree)
            known = self._splitters[tree] = membership.layout_revision, splitter
        found, left = known[1].split(head, cover)
        # What this layout has no branch for: whoever is there gets a frame of its own.
        alone = left & self._reachable()
        self.lost += (left & ~alone).bit_count()
        return found + [Branch(each, 1 << each) for each in ids_in(alone)]

    def _reachable(self) -> int:
        """The ids that a frame of their own could reach: held alive, or linked."""
        linked = id_set(peer for peer in self._links.by_peer if peer < ID_SET_SPACE)
        return self._context.membership.living_set() | linked

    def _is_current(self, known: tuple[int, Splitter]) -> bool:
        return known[1].id_space == self._context.membership.id_space

    def _share_ways(
        self, linked: dict[NodeId, list[Branch]], distant: list[Branch]
    ) -> list[Branch]:
        """Let distant branches go along with others, or together; returns those without a way."""
        along, apart, without = [], [], []
        for branch in distant:
            hops = self._next_hops(branch.head)
            found = [hop for hop in hops if hop in linked]
            if found:
                along.append((branch, found))
            elif hops:
                apart.append((branch, hops))
            else:
                without.append(branch)
        for options in (along, apart):
            for hop, group in shared_next_hops(options):
                linked.setdefault(NodeId(hop), []).extend(group)
        return without

    def _next_hops(self, head: NodeId) -> list[NodeId]:
        """The linked neighbors that begin a shortest way."""
        membership, me = self._context.membership, self._context.id
        if not (membership.in_layout(head) and membership.in_layout(me)):
            return []
        size, outside = membership.layout_size, membership.outside
        own = rank_of(me, outside)
        jumps = first_hops(size, (rank_of(head, outside) - own) % size)
        hops = (id_of((own + jump) % size, outside) for jump in jumps)
        return [hop for hop in hops if hop in self._links.by_peer]

    # --- in which order -----------------------------------------------------------------------

    def _cost_of(self, group: tuple[NodeId, list[Branch], bool]) -> int:
        return -max(branch_cost(branch) for branch in group[1])

    def _hops_of(self, group: tuple[NodeId, list[Branch], bool]) -> int:
        membership, me = self._context.membership, self._context.id
        if not membership.in_layout(me):
            return 0
        size, outside = membership.layout_size, membership.outside
        own = rank_of(me, outside)
        heads = [branch.head for branch in group[1] if membership.in_layout(branch.head)]
        return -max(
            (hop_count(size, (rank_of(head, outside) - own) % size) for head in heads), default=0
        )

    # --- frames -------------------------------------------------------------------------------

    def _send_group(
        self, message: Branched, peer: NodeId, group: list[Branch], *, is_linked: bool
    ) -> None:
        if isinstance(message, Multicast) and is_linked:
            together = 0
            for branch in group:
                together |= branch.cover
            group = [Branch(peer, together)]
        size = read = 0
        part: list[Branch] = []
        for branch in group:
            more = id_set_bytes(branch.cover) + BRANCH_FRAME_BYTES
            wide = set_bytes(branch.cover)
            is_full = size + more > BRANCH_BYTES_MAX or read + wide > COVERS_BYTES_MAX
            if part and (is_full or len(part) >= BRANCHES_MAX):
                self._send_frame(message, peer, part, is_linked=is_linked)
                size, read, part = 0, 0, []
            size, read = size + more, read + wide
            part.append(branch)
        self._send_frame(message, peer, part, is_linked=is_linked)

    def _send_frame(
        self, message: Branched, peer: NodeId, branches: list[Branch], *, is_linked: bool
    ) -> None:
        route = replace(
            message.route,
            destination=peer,
            hop_budget=message.route.hop_budget - 1,
            search=None,
        )
        frame = replace(message, route=route, branches=tuple(branches))
        link = self._links.to(peer) if is_linked else None
        if link is not None and link.knows(type(frame)):
            self._context.send(link.id, frame)
        elif link is not None or not self._forwarding.originate(frame):
            self.lost += sum(branch.cover.bit_count() for branch in branches)

    def _send_carefully(self, message: Branched, branches: Iterable[Branch]) -> None:
        left = 0
        for branch in branches:
            left |= branch.cover
        ids = ids_in(without(left, self._context.id))
        self.lost += len(ids[CAREFUL_MAX:])
        for each in ids[:CAREFUL_MAX]:
            route = replace(message.route, destination=each, hop_budget=0, search=None)
            frame = replace(message, route=route, branches=(Branch(each, 1 << each),))
            self.lost += not self._forwarding.originate(frame)


def _apart(branches: Iterable[Branch]) -> list[Branch]:
    """The branches, each id in the first that covers it: only a broken member covers one twice."""
    covered, found = 0, []
    for branch in branches:
        cover = branch.cover & ~covered
        covered |= cover
        if cover:
            found.append(Branch(branch.head, cover))
    return found
