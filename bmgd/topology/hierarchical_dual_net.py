"""The hierarchical dual-net HDN(B, k, S): a dual-net whose growth super-nodes hold back.

The base network B is a product of rings. Level i takes 2n copies (clusters) of the network of level
i-1, n of class 0 and n of class 1, where n is the number of *super-nodes* in a copy. A super-node of
level i is a sub-product of B: all nodes that differ in the components S_i only. Node N of super-node
V in cluster U of class 0 is linked to node N of super-node U in cluster V of class 1.

A node of level k has the label (C, U, SN, N): its class, its cluster, its super-node in the cluster
and its place in the super-node. Its *address* is all of it: (C, U) of every level from k down to 1,
then the coordinates in B. The super-node's id is the mixed-radix number of the inner address without
the components of S_i, the place that of those components, first digit most significant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from bmgd.errors import GraphError
from bmgd.topology.protocol import checked_node
from bmgd.topology.torus import Torus, digits_of, number_of

_TABLE_SIZE_MAX = 1 << 16


class Label(NamedTuple):
    """The paper's name of a node at one level: (C, U_id, SN_id, N_id).

    Args:
        class_id: 0 or 1.
        cluster: 0..n-1, n being the super-nodes of a cluster.
        super_node: 0..n-1.
        node: 0..s-1, s being the nodes of a super-node.
    """

    class_id: int
    cluster: int
    super_node: int
    node: int


class HierarchicalDualNet:
    """HDN(B, k, S) over any product of rings, with any components as super-nodes.

    Nodes are numbered as the paper's table 4 numbers labels: ((C*n + U)*n + SN)*s + N.

    Args:
        base: the sizes of B's rings, each from 2.
        super_nodes: for each level, from 1 to k, the indices of the rings that make its super-node,
            in any order; () is a single node, as in the recursive dual-net.

    Raises:
        GraphError: a ring is below 2, or an index is not that of a ring or is there twice.

    Source: HDN §2 and §4.
    """

    def __init__(self, base: Iterable[int], super_nodes: Iterable[Iterable[int]]) -> None:
        self._torus = Torus(base)
        rings = self._torus.sides
        if min(rings) < 2:
            raise GraphError(f"a ring of the base {rings} is below 2")
        self._super_nodes = tuple(_checked_components(rings, level) for level in super_nodes)
        self._cluster: HierarchicalDualNet | None = None
        self._radices = rings
        self._split: _Split | None = None
        self._inside: tuple[tuple[int, ...], ...] | None = None
        if self._super_nodes:
            self._cluster = HierarchicalDualNet(rings, self._super_nodes[:-1])
            inner = self._cluster._radices
            self._split = _Split(inner, [i - len(rings) for i in self._super_nodes[-1]])
            self._radices = (2, self._split.outer_size, *inner)
        self._size = prod(self._radices)

    def __repr__(self) -> str:
        return f"HierarchicalDualNet(base={self.base}, super_nodes={self._super_nodes})"

    @property
    def base(self) -> tuple[int, ...]:
        """The sizes of the base network's rings."""
        return self._torus.sides

    @property
    def super_nodes(self) -> tuple[tuple[int, ...], ...]:
        """Per level, the indices of the rings of its super-node, ascending."""
        return self._super_nodes

    @property
    def levels(self) -> int:
        """k, the number of dual-constructions."""
        return len(self._super_nodes)

    @property
    def cluster(self) -> HierarchicalDualNet:
        """The network of one level less, of which this one holds 2n copies.

        Raises:
            GraphError: this is the base network.
        """
        if self._cluster is None:
            raise GraphError("the base network has no clusters")
        return self._cluster

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._size

    @property
    def clusters_per_class(self) -> int:
        """n, the clusters of one class and the super-nodes of one cluster.

        Raises:
            GraphError: this is the base network.
        """
        return self._labelled().outer_size

    @property
    def super_node_size(self) -> int:
        """s, the nodes of a super-node of the highest level.

        Raises:
            GraphError: this is the base network.
        """
        return self._labelled().place_size

    @property
    def degree(self) -> int:
        """That of the base network, with one link for a ring of two, and one more for every level.

        The paper counts two links for a ring of two: its degrees are higher by one for each such ring.
        """
        return self._torus.degree + self.levels

    @property
    def symmetric(self) -> bool:
        """True if the super-nodes are nested downwards: each level's within that of the level below.

        Then any translation of a level's super-nodes extends to the levels above, and the argument
        for the recursive dual-net holds at each. Else the paper's claim of symmetry is wrong in
        general: nodes of different addresses see different numbers of nodes at the same distance.
        """
        pairs = zip(self._super_nodes, self._super_nodes[1:], strict=False)
        return all(set(above) <= set(below) for below, above in pairs)

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The neighbors in the base network and over the cross-edge of each level, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.

        O(k * (k + rings)); from a table, which the first call makes, if a cluster is of 65,536 nodes
        or fewer.
        """
        at = checked_node(self, node)
        if self._cluster is None:
            return self._torus.neighbors(at)
        inside = at % self._cluster.size
        start = at - inside
        found = [start + other for other in self._neighbors_inside(inside)]
        found.append(self._across(at))
        found.sort()
        return tuple(found)

    def label(self, node: int) -> Label:
        """The paper's label (C, U, SN, N) of a node at the highest level.

        Raises:
            GraphError: the node is not within 0..size-1, or this is the base network.
        """
        return Label(*digits_of(checked_node(self, node), self._label_radices()))

    def node_at(self, label: Sequence[int]) -> int:
        """The node with a label: the inverse of `label`.

        Raises:
            GraphError: the label is out of its range, or this is the base network.
        """
        radices = self._label_radices()
        if len(label) != 4 or not all(0 <= v < r for v, r in zip(label, radices, strict=True)):
            raise GraphError(f"label {tuple(label)} is not within {radices}")
        return number_of(label, radices)

    def address(self, node: int) -> tuple[int, ...]:
        """(C, U) of every level from the highest down, then the coordinates in the base network.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        at = checked_node(self, node)
        if self._cluster is None or self._split is None:
            return self._torus.coordinates(at)
        cluster, inside = divmod(at, self._cluster.size)
        return (*divmod(cluster, self._split.outer_size), *self._split.address(inside))

    def node_with(self, address: Sequence[int]) -> int:
        """The node with an address: the inverse of `address`.

        Raises:
            GraphError: the address is out of its range.
        """
        radices = self._radices
        if len(address) != len(radices) or not all(
            0 <= v < r for v, r in zip(address, radices, strict=True)
        ):
            raise GraphError(f"address {tuple(address)} is not within {radices}")
        if self._cluster is None or self._split is None:
            return self._torus.node_at(address)
        cluster = address[0] * self._split.outer_size + address[1]
        return cluster * self._cluster.size + self._split.number(address[2:])

    def reindexed(self, node: int) -> tuple[int, int]:
        """(SN, N) at this level of a node of `cluster`: the paper's re-indexing.

        The text of HDN §4 moves the indices of the components that are in one super-node and not in
        the other; its table 4 keeps the serial number instead, which is the same thing only where
        the super-nodes of the two levels are equal. This follows the text.

        Args:
            node: 0..size-1 of `cluster`.

        Raises:
            GraphError: it is not within that range, or this is the base network.
        """
        split = self._labelled()
        return divmod(split.number(self.cluster.address(node)), split.place_size)

    def cluster_node(self, super_node: int, place: int) -> int:
        """The node of `cluster` that is (SN, N) at this level: the inverse of `reindexed`.

        Raises:
            GraphError: an argument is out of its range, or this is the base network.
        """
        split = self._labelled()
        if not (0 <= super_node < split.outer_size and 0 <= place < split.place_size):
            within = (split.outer_size, split.place_size)
            raise GraphError(f"super-node and place {(super_node, place)} are not within {within}")
        return self.cluster.node_with(split.address(super_node * split.place_size + place))

    def cross_neighbor(self, node: int) -> int:
        """The node at the other end of the cross-edge of the highest level.

        Raises:
            GraphError: the node is not within 0..size-1, or this is the base network.
        """
        self._labelled()
        return self._across(checked_node(self, node))

    def _labelled(self) -> _Split:
        if self._split is None:
            raise GraphError("nodes of the base network have coordinates, no labels")
        return self._split

    def _label_radices(self) -> tuple[int, int, int, int]:
        split = self._labelled()
        return 2, split.outer_size, split.outer_size, split.place_size

    def _across(self, node: int) -> int:
        class_id, cluster, super_node, place = digits_of(node, self._label_radices())
        return number_of((1 - class_id, super_node, cluster, place), self._label_radices())

    def _neighbors_inside(self, inside: int) -> tuple[int, ...]:
        if self._inside is not None:
            return self._inside[inside]
        if self.cluster.size > _TABLE_SIZE_MAX:
            return self._computed_inside(inside)
        self._inside = tuple(map(self._computed_inside, range(self.cluster.size)))
        return self._inside[inside]

    def _computed_inside(self, inside: int) -> tuple[int, ...]:
        cluster, split = self.cluster, self._labelled()
        at = cluster.node_with(split.address(inside))
        return tuple(split.number(cluster.address(other)) for other in cluster.neighbors(at))


class _Split:
    """How a cluster's nodes are cut into super-nodes: (SN, N) of an address, and back."""

    __slots__ = ("_order", "_radices", "outer_size", "place_size")

    def __init__(self, radices: tuple[int, ...], places: Sequence[int]) -> None:
        """`radices` are those of the cluster's address, `places` the super-node's digits in it."""
        chosen = {place % len(radices) for place in places}
        outer = [i for i in range(len(radices)) if i not in chosen]
        self._order = (*outer, *sorted(chosen))
        self._radices = tuple(radices[i] for i in self._order)
        self.outer_size = prod(radices[i] for i in outer)
        self.place_size = prod(radices[i] for i in chosen)

    def number(self, address: Sequence[int]) -> int:
        """SN * s + N."""
        return number_of((address[i] for i in self._order), self._radices)

    def address(self, number: int) -> tuple[int, ...]:
        """The inverse of `number`."""
        digits = dict(zip(self._order, digits_of(number, self._radices), strict=True))
        return tuple(digits[i] for i in range(len(digits)))


def _checked_components(rings: tuple[int, ...], components: Iterable[int]) -> tuple[int, ...]:
    found = sorted(components)
    if len(set(found)) < len(found) or not all(0 <= i < len(rings) for i in found):
        raise GraphError(f"a super-node is of distinct rings 0..{len(rings) - 1}, not {found}")
    return tuple(found)
