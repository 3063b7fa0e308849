"""How a node splits the ids that it is told to cover among the branches of a broadcast tree.

The tree is that of `topology/broadcast.py` over the ranks of a node's own layout, with the head of the
branch as its source; what a frame carries are ids. So two nodes whose layouts differ still cover the
same ids, each once: an id goes to exactly one branch, whatever the layout says of it.

    a branch     (head, cover): the head is told to get the message to these ids
    covered ids  in the closest-last tree a branch is an interval of the ring of ids, so ids between
                 two ranks (left, or not known here) go where the rank before them goes
    the rest     ids that no branch of this layout leads to: the caller's to reach
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bmgd.routing.id_sets import ID_SET_SPACE, ids_between, ids_in, without
from bmgd.routing.ranks import id_of, is_outside, rank_of
from bmgd.topology.broadcast import BroadcastTree, Order
from bmgd.types import NodeId


class Branch(NamedTuple):
    """A part of a broadcast.

    Args:
        head: who gets it next, and sees to the rest; often covered itself.
        cover: the set of ids that the branch must reach (`id_sets.py`).
    """

    head: NodeId
    cover: int


@dataclass(frozen=True, slots=True)
class Splitter:
    """Splits covers in one layout.

    Args:
        id_space: 1 + the highest id known.
        outside: the ids of that space that are not in the layout, sorted.
        order: which of the two trees of ISPA07 §5.3.
    """

    id_space: int
    outside: Sequence[int]
    order: Order = "closest-last"

    def split(self, head: NodeId, cover: int) -> tuple[list[Branch], int]:
        """The branches of a head over its cover, the costliest first; its own id is left out.

        The head is this node; or a child that is dead, whose children then get the message from here
        (ISPA07 §5.3).

        Args:
            head: an id in the layout.
            cover: any set of ids.

        Returns:
            The branches, and the ids that none of them leads to.

        Raises:
            GraphError: the head is not in the layout.

        O(log n * highest id / 64) in the closest-last tree, O(ids covered * log n) in the other.
        """
        left = without(cover, head)
        tree = BroadcastTree(self._size, rank_of(head, self.outside), self.order)
        if self.order == "closest-last":
            found = self._intervals(tree, left)
        else:
            found = self._by_lowest_bit(tree, left)
        for branch in found:
            left &= ~branch.cover
        found.sort(key=lambda branch: -branch_cost(branch))
        return found, left

    @property
    def _size(self) -> int:
        return self.id_space - len(self.outside)

    def _intervals(self, tree: BroadcastTree, cover: int) -> list[Branch]:
        found = []
        for child in tree.children(tree.source):
            end = child + tree.covered(child)
            part = cover & self._interval(child, end)
            if part:
                found.append(Branch(id_of(child, self.outside), part))
        return found

    def _interval(self, first: int, end: int) -> int:
        """The ids from a rank up to another, around the ring of ids where that is at its end."""
        size, outside = self._size, self.outside
        if end < size:
            return ids_between(id_of(first, outside), id_of(end, outside))
        above = ids_between(id_of(first, outside), ID_SET_SPACE)
        return above | ids_between(0, id_of(end - size, outside))

    def _by_lowest_bit(self, tree: BroadcastTree, cover: int) -> list[Branch]:
        found: dict[int, int] = {}
        for each in ids_in(cover):
            if each < self.id_space and not is_outside(each, self.outside):
                offset = (rank_of(each, self.outside) - tree.source) % self._size
                jump = offset & -offset
                found[jump] = found.get(jump, 0) | 1 << each
        return [
            Branch(id_of((tree.source + jump) % self._size, self.outside), found[jump])
            for jump in sorted(found)
        ]


def branch_cost(branch: Branch) -> int:
    """The steps from when the head has the message until the whole branch has it."""
    others = without(branch.cover, branch.head)
    return others.bit_count().bit_length()


def shared_next_hops(
    options: Sequence[tuple[Branch, Sequence[int]]],
) -> list[tuple[int, list[Branch]]]:
    """Choose next hops for branches whose heads are not linked, so that as many as can share one.

    Args:
        options: each branch, and the ids of the linked neighbors that begin a shortest path to it.

    Returns:
        (next hop, branches) in the order in which they were chosen: the one that most branches can
        share is chosen first, of several the one offered first.

    O(branches * hops) for each next hop that is chosen. Source: ISPA07 §5.2.
    """
    left = [(branch, hops) for branch, hops in options if hops]
    chosen = []
    while left:
        votes: dict[int, int] = {}
        for _, hops in left:
            for hop in hops:
                votes[hop] = votes.get(hop, 0) + 1
        best = max(votes, key=votes.__getitem__)
        chosen.append((best, [branch for branch, hops in left if best in hops]))
        left = [(branch, hops) for branch, hops in left if best not in hops]
    return chosen
