"""The bit counting method: every one bit of the distance is a jump.

The better of the two directions counts. Two ways to count the bits of a 32-bit number are given, as
in the paper: by a table of bytes, and in parallel.
"""

from __future__ import annotations

from typing import Final

from bmgd.routing.papers.distances import checked_distance, checked_way
from bmgd.routing.papers.forms import Form, lighter, top_of

LTB8: Final = tuple(sum(byte >> i & 1 for i in range(8)) for byte in range(256))
"""The number of one bits of every byte. Source: Routing figure 5."""


def lookup8(x: int) -> int:
    """The one bits of x, 0..2**32-1, a byte at a time. O(1). Source: Routing figure 5."""
    return LTB8[x & 0xFF] + LTB8[x >> 8 & 0xFF] + LTB8[x >> 16 & 0xFF] + LTB8[x >> 24]


def hakmem169(x: int) -> int:
    """The one bits of x, 0..2**32-1, all groups at once. O(1).

    First every three bits are replaced by their sum, then every six, and as 64 is 1 modulo 63, the
    remainder by 63 adds these up. Source: HAKMEM item 169, which Routing §3.1 names.
    """
    threes = x - (x >> 1 & 0o33333333333) - (x >> 2 & 0o11111111111)
    return ((threes + (threes >> 3)) & 0o30707070707) % 63


def form(n: int, distance: int) -> Form:
    """The bits of the distance, in the direction that has fewer, clockwise if both have as many.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.

    Raises:
        GraphError: an argument is out of its range.

    Source: Routing §3.1.
    """
    d, top = checked_way(n, distance), top_of(n)
    return lighter(Form(d, 0, top, 1), Form(n - d, 0, top, -1))


def hop_count(n: int, distance: int) -> int:
    """The one bits of the better direction; arguments and errors as `form`, 0 for distance 0."""
    d = checked_distance(n, distance)
    return min(lookup8(d), lookup8(n - d)) if d else 0


def first_hop(n: int, distance: int) -> int:
    """The longest jump of the `form`, with its sign; the errors are the same."""
    return form(n, distance).jumps[-1]
