"""Which connection is closed when more strangers wait than there is room for.

Theory of operation. A connection has a slot until its hello is proven; then it waits for the core, which
has bounds of its own. One of the HTTP port has a slot until it is answered, or is a page's stream. When
all slots are taken, a new connection is let in all the same, and another is closed. It is one from the
address that has most slots; among these, one without a valid hello (or a whole request) goes first, then
the oldest. So many connections from one address push out each other, and a member, which proves itself
within milliseconds, does not wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

SLOTS_MAX = 128
_V6_PREFIX_GROUPS = 4


K = TypeVar("K", bound=Hashable)
"""What names a connection."""


class Slots(Generic[K]):
    """The connections that have not proven themselves yet, oldest first.

    Args:
        slots_max: how many there are.
    """

    def __init__(self, slots_max: int = SLOTS_MAX) -> None:
        self._slots_max = slots_max
        self._addresses: dict[K, str] = {}
        self._speaking: set[K] = set()
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    def enter(self, link: K, host: str) -> K | None:
        """Give a slot to a connection from this address; returns whose slot it takes, if any.

        Complexity: O(1), and O(`slots_max`) when all are taken.
        """
        given_way = self._least_worthy() if len(self._addresses) >= self._slots_max else None
        if given_way is not None:
            self.leave(given_way)
        address = share_of(host)
        self._addresses[link] = address
        self._counts[address] += 1
        return given_way

    def speaks(self, link: K) -> None:
        """It has said a valid hello, and is to prove itself."""
        if link in self._addresses:
            self._speaking.add(link)

    def leave(self, link: K) -> None:
        """It has proven itself, or is gone."""
        address = self._addresses.pop(link, None)
        if address is None:
            return
        self._speaking.discard(link)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _least_worthy(self) -> K:
        most = max(self._counts.values())
        crowd = [link for link, address in self._addresses.items() if self._counts[address] == most]
        return next((link for link in crowd if link not in self._speaking), crowd[0])


def share_of(host: str) -> str:
    """What shares slots: an IPv4 address, or the network of 64 bits that an IPv6 address is in."""
    if ":" not in host:
        return host
    if host.startswith("::ffff:") and "." in host:
        return host.removeprefix("::ffff:")
    head, gap, _ = host.partition("::")
    groups = [group for group in head.split(":") if group][:_V6_PREFIX_GROUPS]
    if gap:
        groups += ["0"] * (_V6_PREFIX_GROUPS - len(groups))
    return ":".join(groups) + "::"
