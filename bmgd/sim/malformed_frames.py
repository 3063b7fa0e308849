"""What members gone wrong have said in a network, so that it is told from what cores ordered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bmgd.sim.host import Host
from bmgd.types import LinkId

_HOPS_AT: Final = 6
"""The place of the hop budget in the body of a frame: relays change it."""


class MalformedFrames:
    """What members have said that no daemon may say.

    Attributes:
        doomed: the ends that must end with it, and what was said there.
        on_read: called with the body of such a frame that was read nevertheless.
    """

    def __init__(self) -> None:
        self.on_read: Callable[[bytes], None] = _overlook
        self.doomed: dict[tuple[Host, LinkId], bytes] = {}
        self._bodies: set[bytes] = set()

    def add(self, body: bytes) -> None:
        """A frame with this body was said."""
        self._bodies.add(_without_hops(body))

    def has(self, body: bytes) -> bool:
        """Whether it was, whichever way it came."""
        return bool(self._bodies) and _without_hops(body) in self._bodies


def _overlook(body: bytes) -> None:
    """Nobody looks."""


def _without_hops(body: bytes) -> bytes:
    return body[:_HOPS_AT] + body[_HOPS_AT + 1 :]
