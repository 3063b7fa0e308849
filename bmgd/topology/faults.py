"""What failed nodes do to those that survive, while nobody heals the graph.

The graph looks the same from every node, so of all sets of F failed nodes only those that contain
node 0 are examined: each orbit of sets is met as often as F/N of it. Sums over all sets are those over
these, times N/F.

`bmgd._labroutes` has `fault_sets` and `fault_orders` in C, with the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import comb
from operator import index
from typing import Final, NamedTuple

from bmgd.errors import GraphError
from bmgd.topology.distance import checked_size

FAULT_NODES_MAX: Final = 64
"""The largest graph whose sets of failed nodes are examined one by one."""

FAULT_ORDER_NODES_MAX: Final = 2**24
"""The largest graph whose nodes fail in random order."""

FAULT_ORDERS_MAX: Final = 2**20
"""The most orders of one call."""

_WORD: Final = 2**64 - 1


class FaultCounts(NamedTuple):
    """Sums over some sets of failed nodes.

    Args:
        disconnected: sets whose survivors are not connected; one survivor or none always is.
        unreachable: ordered pairs of survivors without a way between them.
        measured: sets that leave at least one pair with a way; the next three are over these.
        hops: of all shortest ways between ordered pairs that have one.
        diameters: the most hops between any such pair, of each set.
        most: the greatest of these diameters.
    """

    disconnected: int
    unreachable: int
    measured: int
    hops: int
    diameters: int
    most: int


class FaultOrders(NamedTuple):
    """What became of a graph whose nodes failed one after the other, over some random orders.

    Args:
        first: per order, how many had failed when the survivors first fell apart; N + 1 if never.
        disconnected: by the number failed, 0..N: the orders whose survivors are not connected.
        isolated: the same, of orders where this leaves a survivor without any link.
        unreachable: the same, the sum of the shares of survivors' pairs without a way, each 0..1.
    """

    first: list[int]
    disconnected: list[int]
    isolated: list[int]
    unreachable: list[float]


def component_sizes(size: int, failed: Iterable[int]) -> tuple[int, ...]:
    """The parts into which failed nodes cut the survivors.

    Args:
        size: the size N of the graph, 1..2**31.
        failed: the failed nodes, in any order.

    Returns:
        The number of survivors in each connected part, descending; empty if there are none.

    Raises:
        GraphError: the size or a node is out of its range.

    O(N log(N)**2 / 64) per part. Source: Healing §2.
    """
    n = checked_size(size)
    left = _survivors(n, failed)
    sizes = []
    while left:
        part, _ = _reach(left & -left, left, n)
        sizes.append(part.bit_count())
        left &= ~part
    return tuple(sorted(sizes, reverse=True))


def survivors_by_hops(size: int, failed: Iterable[int], source: int) -> tuple[int, ...]:
    """How many survivors are 0, 1, 2, ... hops from one of them, through survivors only.

    Args:
        size: the size N of the graph, 1..2**31.
        failed: the failed nodes, in any order.
        source: a survivor.

    Returns:
        One number per count of hops; their sum is below the number of survivors if not all are
        reached.

    Raises:
        GraphError: the size or a node is out of its range, or `source` has failed.

    O(N log(N)**2 / 64).
    """
    n = checked_size(size)
    alive = _survivors(n, failed)
    start = 1 << _within("source", source, 0, n - 1)
    if not alive & start:
        raise GraphError(f"source {source} has failed")
    return tuple(_reach(start, alive, n)[1])


def sets_with_node_0(size: int, failed: int) -> int:
    """How many sets of failed nodes contain node 0; 1, the empty one, for no failed node."""
    return comb(size - 1, failed - 1) if failed else 1


def fault_sets(n: int, failed: int, first: int, count: int, distances: bool) -> FaultCounts:
    """Examine sets of failed nodes that contain node 0, one by one.

    Sets are ordered as numbers whose bit i stands for node i; there are `sets_with_node_0` of them.

    Args:
        n: the size of the graph, 2..64.
        failed: how many nodes fail, 0..n.
        first: the number of the first set, from 0.
        count: how many sets to examine; not beyond the last.
        distances: also measure hops and diameters; else `measured` and what follows are 0.

    Raises:
        GraphError: an argument is out of its range.

    O(count * n log(n)**2), without distances O(count * log(n)**2). Source: Healing §2.1.
    """
    n = _within("size", n, 2, FAULT_NODES_MAX)
    failed = _within("number failed", failed, 0, n)
    every = sets_with_node_0(n, failed)
    first = _within("first", first, 0, every)
    count = _within("count", count, 0, every - first)
    chosen = _set_of_rank(n - 1, failed - 1, first) if count and failed > 1 else 0
    everyone = (1 << n) - 1
    sums = [0] * 5
    most = 0
    for _ in range(count):
        alive = everyone & ~(chosen << 1 | 1 if failed else 0)
        *found, diameter = _count_survivors(alive, n, distances)
        sums = [a + b for a, b in zip(sums, found, strict=True)]
        most = max(most, diameter)
        chosen = _next_set(chosen) if chosen else 0
    return FaultCounts(sums[0], sums[1], sums[2], sums[3], sums[4], most)


def fault_orders(n: int, samples: int, seed: int) -> FaultOrders:
    """Let all nodes fail one after the other, in random orders.

    Args:
        n: the size of the graph, 2..2**24.
        samples: how many orders, 0..2**20.
        seed: chooses the orders, 0..2**63-1 (SplitMix64; a shuffle from the last place).

    Raises:
        GraphError: an argument is out of its range.

    O(samples * n log n): survivors are joined backwards, from the last to fail to the first.
    Source: Healing §5, which leaves it as future work.
    """
    n = _within("size", n, 2, FAULT_ORDER_NODES_MAX)
    samples = _within("number of samples", samples, 0, FAULT_ORDERS_MAX)
    state = _within("seed", seed, 0, 2**63 - 1)
    found = FaultOrders([], [0] * (n + 1), [0] * (n + 1), [0.0] * (n + 1))
    for _ in range(samples):
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            state = state + 0x9E3779B97F4A7C15 & _WORD
            j = (_mixed(state) >> 32) * (i + 1) >> 32
            order[i], order[j] = order[j], order[i]
        found.first.append(_fail_in_order(n, order, found))
    return found


# --- sets --------------------------------------------------------------------------------------


def _survivors(n: int, failed: Iterable[int]) -> int:
    """The nodes that have not failed, one per bit."""
    dead = bytearray(-(-n // 8))
    for node in failed:
        place = _within("failed node", node, 0, n - 1)
        dead[place >> 3] |= 1 << (place & 7)
    return (1 << n) - 1 & ~int.from_bytes(dead, "little")


def _reach(start: int, alive: int, n: int) -> tuple[int, list[int]]:
    """The nodes that one reaches through the living, and how many are 0, 1, 2, ... hops away."""
    everyone = (1 << n) - 1
    jumps = [1 << i for i in range((n - 1).bit_length())]
    reached = frontier = start
    levels = [1]
    while reached != alive:
        spread = 0
        for jump in jumps:
            spread |= frontier << jump | frontier >> (n - jump)
            spread |= frontier >> jump | frontier << (n - jump)
        frontier = spread & everyone & alive & ~reached
        if not frontier:
            break
        reached |= frontier
        levels.append(frontier.bit_count())
    return reached, levels


def _count_survivors(alive: int, n: int, distances: bool) -> tuple[int, int, int, int, int, int]:
    """The `FaultCounts` of one set; its diameter is both the sum and the most."""
    survivors = alive.bit_count()
    components = pairs = hops = diameter = 0
    left = alive
    while left:
        part, _ = _reach(left & -left, alive, n)
        components += 1
        pairs += part.bit_count() * (part.bit_count() - 1)
        left &= ~part
    apart, unreachable = int(components > 1), survivors * (survivors - 1) - pairs
    if not distances or not pairs:
        return apart, unreachable, 0, 0, 0, 0
    left = alive
    while left:
        _, levels = _reach(left & -left, alive, n)
        hops += sum(h * nodes for h, nodes in enumerate(levels))
        diameter = max(diameter, len(levels) - 1)
        left &= left - 1
    return apart, unreachable, 1, hops, diameter, diameter


def _set_of_rank(n: int, k: int, rank: int) -> int:
    """The set of k of n things that is number `rank`, when sets are ordered as numbers."""
    chosen = 0
    for place in range(n - 1, -1, -1):
        without = comb(place, k)
        if k and rank >= without:
            rank -= without
            chosen |= 1 << place
            k -= 1
    return chosen


def _next_set(chosen: int) -> int:
    """The next larger number with as many bits (Gosper)."""
    low = chosen & -chosen
    carried = chosen + low
    return carried | (chosen ^ carried) // low >> 2


# --- orders ------------------------------------------------------------------------------------


def _mixed(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
    return x ^ x >> 31


def _fail_in_order(n: int, order: list[int], found: FaultOrders) -> int:
    """Count one order; how many have failed when the survivors first fall apart."""
    jumps = [1 << i for i in range((n - 1).bit_length())]
    parts: dict[int, set[int]] = {}
    lonely: set[int] = set()
    pairs, first = 0, n + 1
    for failed in range(n - 1, -1, -1):
        node = order[failed]
        mine = parts[node] = {node}
        around = {(node + jump) % n for jump in jumps} | {(node - jump) % n for jump in jumps}
        live = [other for other in sorted(around) if other in parts and other != node]
        lonely = lonely.difference(live) if live else lonely | {node}
        for other in live:
            others = parts[other]
            if others is mine:
                continue
            pairs += 2 * len(mine) * len(others)
            if len(mine) < len(others):
                mine, others = others, mine
            mine |= others
            parts.update((each, mine) for each in others)
        survivors = n - failed
        if len(mine) == survivors or len({id(part) for part in parts.values()}) == 1:
            continue
        first = failed
        found.disconnected[failed] += 1
        found.isolated[failed] += bool(lonely)
        found.unreachable[failed] += 1.0 - pairs / (survivors * (survivors - 1.0))
    return first


def _within(what: str, number: int, low: int, high: int) -> int:
    value = index(number)
    if not low <= value <= high:
        raise GraphError(f"{what} {value} is not within {low}..{high}")
    return value
