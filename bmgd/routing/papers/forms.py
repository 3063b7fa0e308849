"""A way around the ring, split into jumps by the bits of two numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """Jumps that together make a distance: those of `ahead` one way, those of `behind` back.

    Args:
        ahead: the sum of the jumps in the direction of `sign`. A bit at 2**top or below is a jump;
            the part from 2**top on is made of jumps of 2**top, as no longer one exists.
        behind: the sum of the jumps the other way, a bit each, all below 2**top.
        top: floor(log2 n), so 2**top is the longest jump, the paper's j_m.
        sign: 1 clockwise, -1 counterclockwise.
    """

    ahead: int
    behind: int
    top: int
    sign: int

    @property
    def weight(self) -> int:
        """The number of jumps."""
        below_top = self.ahead & ((1 << self.top) - 1)
        return (self.ahead >> self.top) + below_top.bit_count() + self.behind.bit_count()

    @property
    def jumps(self) -> tuple[int, ...]:
        """The different jumps with their signs, shortest first.

        They are the candidates for load balancing and quality of service. "It does not matter" in
        which order they are taken, says the paper; so it is for a message that carries its form. If
        every relay works out a form of its own, as `first_hop` does, another jump than the longest
        can lead out of it. At n = 235 without loops, 224 = 128 + 128 - 32; after -32 the rest is
        256, which is 21 modulo n and weighs 3, so 4 hops in all. With the longest jump first no
        message takes more hops than its form weighs (by test, to size 256).

        Source: Routing §3.1, §3.2.
        """
        both = [(1 << i, self.sign) for i in range(self.top) if self.ahead >> i & 1]
        both += [(1 << i, -self.sign) for i in range(self.top) if self.behind >> i & 1]
        if self.ahead >> self.top:
            both.append((1 << self.top, self.sign))
        return tuple(jump * sign for jump, sign in sorted(both))


def top_of(n: int) -> int:
    """floor(log2 n)."""
    return n.bit_length() - 1


def lighter(one: Form, other: Form) -> Form:
    """The form with fewer jumps, the first of equal ones."""
    return other if other.weight < one.weight else one
