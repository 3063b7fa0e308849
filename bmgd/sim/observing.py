"""What a simulation tells to those who watch it: checkers, recorders, traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Effect
from bmgd.core.events import Event
from bmgd.sim.host import Host
from bmgd.types import NodeId


class Watcher:
    """Told of each step of every core and of every fault; does nothing by itself.

    Attributes:
        looks_before: whether it wants to be told `before` each step too.
    """

    looks_before: ClassVar[bool] = False

    def boot(self, host: Host) -> None:
        """A process began at a host; what was there before is over."""

    def before(self, host: Host, event: Event) -> None:
        """A core is about to take an event."""

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        """A core took an event; the effects are not carried out yet."""

    def ended(self, host: Host) -> None:
        """A process ended: killed, crashed, or by itself (`host.exit`)."""

    def disturb(self, place: NodeId, *, over: bool = False) -> None:
        """A fault at a host began, or one ended; `place` is its number among all (`Host.where`)."""

    def mended(self) -> None:
        """All disturbances end now."""
