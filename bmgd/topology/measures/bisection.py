"""The bisection width: the fewest links between two halves."""

from __future__ import annotations

from random import Random

from bmgd.errors import GraphError
from bmgd.topology.measures.distances import Links
from bmgd.topology.measures.flow import bits_of, masks_of

EXACT_SIZE_MAX = 32
"""The largest graph whose bisection width is decided."""


def cut_links(links: Links, half: int) -> int:
    """The links between a set of nodes, one bit each, and the rest. O(links)."""
    return sum(
        (mask & ~half).bit_count() for mask in map(masks_of(links).__getitem__, bits_of(half))
    )


def smallest_cut_found(links: Links, random: Random, starts: int) -> int:
    """An upper bound of the bisection width, by Kernighan and Lin's exchange from random halves.

    Args:
        links: the graph.
        random: where the starts come from.
        starts: how many of them, from 1.

    Returns:
        The fewest links found between size // 2 nodes and the rest.

    O(starts * passes * size**2 * degree).
    """
    masks, size = masks_of(links), len(links)
    best = sum(map(len, links))
    for _ in range(starts):
        half = sum(1 << node for node in random.sample(range(size), size // 2))
        best = min(best, cut_links(links, _exchanged(masks, half)))
    return best


def bisection_width(links: Links) -> int:
    """The fewest links between size // 2 nodes and the rest, decided by branch and bound.

    Raises:
        GraphError: the graph is above 32 nodes.

    Exponential. Source: HDN §3.
    """
    size = len(links)
    if size > EXACT_SIZE_MAX:
        raise GraphError(f"{size} nodes are above {EXACT_SIZE_MAX}, too many to decide")
    masks = masks_of(links)
    best = smallest_cut_found(links, Random(0), 20)
    order = _outwards(links)
    half = size // 2
    # (nodes placed, those on the one side, those on the other, links between them)
    pending = [(0, 0, 0, 0)]
    while pending:
        placed, here, there, cut = pending.pop()
        if placed == size:
            best = min(best, cut)
            continue
        if cut + _least_to_come(masks, order[placed:], here, there) >= best:
            continue
        node = order[placed]
        bit = 1 << node
        if there.bit_count() < size - half:
            pending.append((placed + 1, here, there | bit, cut + (masks[node] & here).bit_count()))
        if here.bit_count() < half:
            pending.append((placed + 1, here | bit, there, cut + (masks[node] & there).bit_count()))
    return best


def _least_to_come(masks: list[int], rest: list[int], here: int, there: int) -> int:
    return sum(
        min((masks[node] & here).bit_count(), (masks[node] & there).bit_count()) for node in rest
    )


def _outwards(links: Links) -> list[int]:
    """The nodes in the order of a breadth-first search from node 0, and those beyond its reach."""
    order = [0]
    seen = {0}
    for node in order:
        new = [other for other in links[node] if other not in seen]
        seen.update(new)
        order.extend(new)
    return order + [node for node in range(len(links)) if node not in seen]


def _exchanged(masks: list[int], half: int) -> int:
    """Exchange pairs of nodes as long as a pass of exchanges, cut off at its best, gains links."""
    everyone = (1 << len(masks)) - 1
    while True:
        free, now, gained = everyone, half, 0
        best_gain, best = 0, half
        for _ in range(len(masks) // 2):
            a = _gainer(masks, now, now & free)
            moved = now & ~(1 << a)
            b = _gainer(masks, ~now & everyone, ~now & free & everyone)
            gained += _gain(masks, a, now) + _gain(masks, b, ~now & everyone)
            gained -= 2 * (masks[a] >> b & 1)
            now = moved | 1 << b
            free &= ~(1 << a | 1 << b)
            if gained > best_gain:
                best_gain, best = gained, now
        if not best_gain:
            return half
        half = best


def _gainer(masks: list[int], side: int, free: int) -> int:
    return max(bits_of(free), key=lambda node: _gain(masks, node, side))


def _gain(masks: list[int], node: int, side: int) -> int:
    """How many links fewer are cut when a node leaves its side."""
    return masks[node].bit_count() - 2 * (masks[node] & side).bit_count()
