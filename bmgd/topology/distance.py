"""How far apart two ranks of a binomial graph are, and which jumps shorten the way.

A walk of distance d is a multiset of jumps, so it is a signed-binary form of some d + l*n, where l
counts loops around the ring. Let K = floor(log2 n). Digits at 2**K may repeat, all others are in
{-1, 0, 1}: two equal jumps below 2**K are one jump of twice the length. For x >= 0 with
h = x >> K and r = x mod 2**K the lightest such form weighs h + w(r), where w is the weight of the
non-adjacent form (NAF), which is the least of all signed-binary forms; negative x mirrors it. The
hop count is the least weight over all loops, and as h alone grows with every loop, the search ends
after at most diameter + 1 of them (Routing §3.3, with the number of loops decided, not guessed).

Everything here is exact for every size to 2**31 and needs O(log n) integer operations.
"""

from __future__ import annotations

from operator import index

from bmgd.errors import GraphError

SIZE_MAX = 2**31
"""The largest graph, in ranks."""


def checked_size(size: int) -> int:
    """Return `size` as an int, if a binomial graph can have it.

    Raises:
        GraphError: it is not within 1..2**31.
    """
    n = index(size)
    if not 1 <= n <= SIZE_MAX:
        raise GraphError(f"size {n} is not within 1..{SIZE_MAX}")
    return n


def naf_weight(x: int) -> int:
    """The number of digits that are not 0 in the non-adjacent form of x >= 0. O(1)."""
    return (x ^ 3 * x).bit_count()


def hop_count(n: int, distance: int) -> int:
    """The number of hops between two ranks.

    Args:
        n: the size of the graph, 1..2**31.
        distance: the rank of the one minus that of the other, above -n and below n.

    Returns:
        0 for distance 0, else 1..diameter. The sign of `distance` does not matter.

    Raises:
        GraphError: an argument is out of its range.

    O(log n) worst case. Source: Routing §3.3.
    """
    n, d = _checked(n, distance)
    return _lightest(n, d)[0] if d else 0


def first_hop(n: int, distance: int) -> int:
    """One jump that starts a shortest path.

    It is the lowest digit of the first lightest form, when loops are tried outwards and, of two
    equally long, the clockwise one first.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.

    Returns:
        A jump with its sign, to be added to the own rank modulo n. Where two signed jumps lead to
        the same neighbor, always the same one of them (see `first_hops`).

    Raises:
        GraphError: an argument is out of its range.

    O(log n) worst case. Source: Routing §3.3.
    """
    n, d = _checked(n, distance)
    if d == 0:
        raise GraphError("distance 0 has no first hop")
    _, x, sign = _lightest(n, d)
    top = 1 << (n.bit_length() - 1)
    rest = x & (top - 1)
    if rest == 0:
        return _canonical(n, sign * top)
    low = rest & -rest
    return _canonical(n, -sign * low if rest & low << 1 else sign * low)


def first_hops(n: int, distance: int) -> tuple[int, ...]:
    """Every jump that starts a shortest path.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.

    Returns:
        Signed jumps in ascending order, one per neighbor: where n = 2**k, -n/2 is left out for
        +n/2; where n = 2**k + 2**j with j < k, both +-2**k are left out for their equals -+2**j.

    Raises:
        GraphError: an argument is out of its range.

    O(log n). Source: Routing §3.3.
    """
    n, d = _checked(n, distance)
    if d == 0:
        raise GraphError("distance 0 has no first hop")
    forward, backward = optimal_jumps(n, d)
    down = [-(1 << i) for i in reversed(range(32)) if backward >> i & 1]
    return (*down, *(1 << i for i in range(32) if forward >> i & 1))


def optimal_jumps(n: int, d: int) -> tuple[int, int]:
    """The jumps of `first_hops` as two bit masks.

    Args:
        n: the size of the graph, 2..2**31.
        d: the destination's rank minus the own one modulo n, 1..n-1. Not checked.

    Returns:
        (forward, backward): bit i stands for the jump +2**i and -2**i. O(log n).
    """
    best = _lightest(n, d)[0]
    exponent = n.bit_length() - 1
    top = 1 << exponent
    forward = backward = 0
    ahead, behind = d, n - d
    while min(ahead, behind) >> exponent <= best:
        for x, clockwise in ((ahead, True), (behind, False)):
            loops, rest = x >> exponent, x & (top - 1)
            if loops + naf_weight(rest) != best:
                continue
            plus, minus = lightest_digits(rest)
            plus |= top if loops else 0
            forward |= plus if clockwise else minus
            backward |= minus if clockwise else plus
        ahead += n
        behind += n
    return _fold(n, forward, backward)


def lightest_digits(x: int) -> tuple[int, int]:
    """Which digits occur in any of the lightest signed-binary forms of x >= 0.

    The lightest forms are those that the rewriting 1 0 -1 -> 0 1 1 (and its mirror image) makes of
    the non-adjacent form. It runs down chains: each -1 of 1 0 -1 0 -1 ... can turn.

    Returns:
        (plus, minus): masks of the positions where a digit can be 1, and where it can be -1.
    """
    plus = (3 * x & ~x) >> 1
    minus = (x & ~(3 * x)) >> 1
    up = _chained(plus, minus)
    down = _chained(minus, plus)
    return plus | up | up << 1, minus | down | down << 1


def _checked(n: int, distance: int) -> tuple[int, int]:
    n, distance = checked_size(n), index(distance)
    if not -n < distance < n:
        raise GraphError(f"distance {distance} is not between -{n} and {n}")
    return n, distance % n


def _lightest(n: int, d: int) -> tuple[int, int, int]:
    """The weight, the length and the direction of the first lightest walk of 0 < d < n."""
    exponent = n.bit_length() - 1
    below_top = (1 << exponent) - 1
    ahead, behind = d, n - d
    best = (1 << 30, 0, 0)
    while min(ahead, behind) >> exponent < best[0]:
        for x, sign in ((ahead, 1), (behind, -1)):
            weight = (x >> exponent) + naf_weight(x & below_top)
            if weight < best[0]:
                best = (weight, x, sign)
        ahead += n
        behind += n
    return best


def _chained(heads: int, others: int) -> int:
    """The bits of `others` that follow a head, or another such bit, two places below it."""
    turned = heads >> 2 & others
    run = others
    for shift in (2, 4, 8, 16):
        turned |= run & turned >> shift
        run &= run >> shift
    return turned


def _fold(n: int, forward: int, backward: int) -> tuple[int, int]:
    """Merge the jumps that lead to the same neighbor (the cases of equation (1))."""
    top = 1 << (n.bit_length() - 1)
    rest = n - top
    if rest == 0:
        half = top >> 1
        return forward | backward & half, backward & ~half
    if rest & (rest - 1) == 0:
        folded_forward = forward & ~top | (rest if backward & top else 0)
        return folded_forward, backward & ~top | (rest if forward & top else 0)
    return forward, backward


def _canonical(n: int, jump: int) -> int:
    """The one of the equal jumps that `_fold` keeps."""
    top = 1 << (n.bit_length() - 1)
    rest = n - top
    if rest == 0:
        return -jump if jump == -(top >> 1) else jump
    if rest & (rest - 1) == 0 and abs(jump) == top:
        return -rest if jump > 0 else rest
    return jump
