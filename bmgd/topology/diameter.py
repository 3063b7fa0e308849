"""The most hops between any two ranks of a binomial graph: exact, and bounded at once.

Written w(x) is the weight of the non-adjacent form of x, which is a walk of distance x.
"""

from __future__ import annotations

from bmgd.topology.distance import checked_size, hop_count


def diameter_bound(size: int) -> int:
    """A proven upper bound of the diameter.

    The shorter way around is at most n // 2 long and its non-adjacent form alone is a walk. The
    least x whose form weighs w is (2 * 4**(w-1) + 1) / 3 (binary 1011, 101011, ...).

    Args:
        size: the size of the graph, 1..2**31.

    Returns:
        The bound in hops, 0..16; it is the diameter itself where the size is a power of two.

    Raises:
        GraphError: the size is out of its range.

    O(log n). Source: Routing §3.3, made exact.
    """
    farthest = checked_size(size) // 2
    bound, least = 0, 1
    while least <= farthest:
        bound += 1
        least = (2 * 4**bound + 1) // 3
    return bound


def diameter(size: int) -> int:
    """The diameter, exact at every size.

    Distances to n // 2 are halved into intervals, and an interval is left out where none of its
    ranks can be farther than the farthest one found. Between two ranks 2**i apart, a and b hops
    away, a rank x after the first is at most min(a + w(x), b + w(2**i - x)) hops away, and

        w(x) + w(2**i - x) <= i + 1    for 0 < x < 2**i

    so none is farther than (a + b + i + 1) / 2. (For even x halve both. Odd x and 2**i - x are 1
    and 3 modulo 4 in some order; taking off the last digit, 1 and -1, leaves two numbers that are
    divisible by 4 and sum to 2**i: the sum of weights is 2 plus that for i - 2.)

    Args:
        size: the size of the graph, 1..2**31.

    Returns:
        The diameter in hops, 0..16.

    Raises:
        GraphError: the size is out of its range.

    O(log n) memory. Milliseconds for sizes to 10**5, a fraction of a second to 10**6, seconds to
    half a minute near 2**31; use `diameter_bound` where time matters. Source: ISPA07 §3.2.
    """
    n = checked_size(size)
    farthest, limit = n // 2, diameter_bound(n)
    if farthest == 0:
        return 0
    width = farthest.bit_length()
    most = 1
    # (the most hops inside, log2 of the width, the first rank, the hops to the first and to the end)
    pending = [(limit, width, 0, 0, hop_count(n, (1 << width) % n))]
    while pending:
        possible, width, first, to_first, to_end = pending.pop()
        if possible <= most:
            continue
        width -= 1
        middle = first + (1 << width)
        to_middle = hop_count(n, middle % n)
        if middle <= farthest:
            most = max(most, to_middle)
        halves = [
            (min(limit, (a + b + width + 1) // 2), width, start, a, b)
            for start, a, b in ((first, to_first, to_middle), (middle, to_middle, to_end))
            if start < farthest and width > 0
        ]
        pending.extend(sorted(halves))
    return most
