"""A source's own reliable broadcasts: those that wait for room, and those that are not stable.

Theory of operation. Every broadcast waits first, in the order in which it came. When there is room it
leaves the queue, gets the next number of this life, and is *unstable* until all of its audience have it
whom this node holds alive. The unstable ones are the numbers from `stable` + 1 to `next` - 1, without a
gap; they become stable in this order.

    put --> waiting --room--> number --> unstable --nobody living lacks it--> stable
              '--deadline--> withdrawn

The window, max(64 KiB, 32 MiB / living ids) of unstable broadcasts, bounds what all nodes keep of one
source, so that all sources together stay within a bound too. Beyond it broadcasts wait here. One goes
even if it alone is larger.

What is sent names its audience by an id space and exceptions, so neither may become too large, and all
members must know the kind. That is looked at when a program asks, and again when there is room.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from bmgd.core.commands import BroadcastTo
from bmgd.core.context import Context
from bmgd.errors import BmgdError, RequestError
from bmgd.routing.id_sets import ID_SET_SPACE, without
from bmgd.wire.bounds import EXCEPTIONS_BYTES_MAX
from bmgd.wire.broadcast_messages import Skip
from bmgd.wire.features import Feature
from bmgd.wire.id_sets import id_set_bytes

WINDOW_MIN_BYTES = 64 * 1024
WINDOW_ALL_BYTES = 32 << 20
"""Of all sources together, when each has its share."""
PIECES_WINDOW_BYTES = 1 << 20
"""Of pieces of long broadcasts less may be unstable, so that readers that are behind have room for it."""
OVERHEAD_BYTES = 256
"""What a broadcast costs beside its payload."""
UNSTABLE_MAX = 4096
WAITING_MAX = 65_536
WAITING_BYTES_MAX = 64 << 20
RELIABLE_ID_SPACE_MAX = 32_768
"""So that audience and cover fit into a frame beside the longest payload."""


@dataclass(slots=True, eq=False)
class OwnBroadcast:
    """A broadcast that is not stable.

    Args:
        deadline_ns: when its program waits no longer.
        sequence: its number; 0 while it waits.
        id_space, exceptions: its audience, all ids below the one but for the other.
        skips: what its frames say that nodes need not wait for.
        missing: who of the audience is not known to have it, this node apart.
        restarted: who of the audience began a new life before it confirmed.
        left: who of the audience was known to have left before it confirmed, back or not.
        sent_ns, times: when it was sent last, and how often.
        pause_ns: so long after that it is sent again.
        answered: whether its program was told, or none waits.
    """

    command: BroadcastTo
    request: int
    deadline_ns: int
    sequence: int = 0
    id_space: int = 0
    exceptions: int = 0
    skips: tuple[Skip, ...] = ()
    missing: int = 0
    restarted: int = 0
    left: int = 0
    sent_ns: int = 0
    times: int = 0
    pause_ns: int = 0
    answered: bool = False

    @property
    def cost(self) -> int:
        """What it counts for in the window, in bytes."""
        return len(self.command.payload) + OVERHEAD_BYTES


class BroadcastWindow:
    """The broadcasts of this life that are underway.

    Attributes:
        next: the number that the next one gets.
        stable: up to where all have what was sent whom this node holds alive.
        told_stable: the same, as far as everybody was told.
        waiting, waiting_bytes: those that wait for room, and what they cost.
        unstable, unstable_bytes: those that were sent and are not stable, and what they cost.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.next = 1
        self.stable = 0
        self.told_stable = 0
        self.unstable: deque[OwnBroadcast] = deque()
        self.unstable_bytes = 0
        self.waiting: deque[OwnBroadcast] = deque()
        self.waiting_bytes = 0

    def living(self) -> int:
        """The ids of the layout that are not held dead, this node among them."""
        own = self._context.id
        living = self._context.membership.living_set()
        return living | 1 << own if own < ID_SET_SPACE else living

    def bytes_max(self) -> int:
        """How much may be unstable at a time, by what it costs."""
        living = max(1, self.living().bit_count())
        return max(WINDOW_MIN_BYTES, WINDOW_ALL_BYTES // living)

    # --- what cannot be sent ------------------------------------------------------------------

    def refusal(self, command: BroadcastTo) -> BmgdError | None:
        """Why a program's broadcast is not taken; None when it is."""
        error = self.audience_refusal(command)
        if error is not None:
            return error
        size = self.waiting_bytes + len(command.payload)
        if len(self.waiting) >= WAITING_MAX or size > WAITING_BYTES_MAX:
            return RequestError("too many broadcasts wait for room")
        return None

    def audience_refusal(self, command: BroadcastTo) -> BmgdError | None:
        """Why it cannot be sent to all who live; None when it can."""
        return self.reach_refusal(command.topic) or self._pieces_refusal(command)

    def reach_refusal(self, topic: str = "") -> BmgdError | None:
        """Why no frame could name all nodes; or not all would take one without a topic."""
        if not topic and not self._context.compatibility.common & Feature.PROGRAMS:
            return RequestError("a member of an older release knows nothing of programs")
        space = self._context.membership.id_space
        if space > RELIABLE_ID_SPACE_MAX:
            return RequestError(
                f"reliable broadcasts need an id space of at most {RELIABLE_ID_SPACE_MAX}"
            )
        if id_set_bytes(((1 << space) - 1) & ~self.living()) > EXCEPTIONS_BYTES_MAX:
            return RequestError("too many ids between the living ones are gone")
        return None

    def may_send_pieces(self) -> bool:
        """Whether all members take long broadcasts."""
        return bool(self._context.compatibility.common & Feature.BROADCAST_PIECES)

    def _pieces_refusal(self, command: BroadcastTo) -> BmgdError | None:
        if command.piece is None or self.may_send_pieces():
            return None
        older = self._context.compatibility.older()[:8]
        return RequestError(f"members of an older release take no long broadcasts: {older}")

    # --- from one state to the next -----------------------------------------------------------

    def put(self, sent: OwnBroadcast) -> None:
        """Let one wait for room."""
        self.waiting.append(sent)
        self.waiting_bytes += sent.cost

    def withdraw(self, sent: OwnBroadcast) -> None:
        """Take one out that waits."""
        self.waiting.remove(sent)
        self.waiting_bytes -= sent.cost

    def pop_waiting(self, bytes_max: int) -> OwnBroadcast | None:
        """Take out the first that waits, if there is room for it in `bytes_max` bytes."""
        if not self.waiting or len(self.unstable) >= UNSTABLE_MAX:
            return None
        sent = self.waiting[0]
        most = bytes_max if sent.command.piece is None else min(bytes_max, PIECES_WINDOW_BYTES)
        if self.unstable and self.unstable_bytes + sent.cost > most:
            return None
        self.waiting.popleft()
        self.waiting_bytes -= sent.cost
        return sent

    def number(self, sent: OwnBroadcast) -> None:
        """Give one its number and its audience, which is who lives; it is unstable from now on."""
        living = self.living()
        sent.sequence = self.next
        self.next += 1
        sent.id_space = self._context.membership.id_space
        sent.exceptions = ((1 << sent.id_space) - 1) & ~living
        sent.missing = without(living, self._context.id)
        self.unstable.append(sent)
        self.unstable_bytes += sent.cost

    def pop_stable(self, living: int) -> OwnBroadcast | None:
        """Take out the first that is unstable, if nobody of `living` lacks it."""
        if not self.unstable or self.unstable[0].missing & living:
            return None
        sent = self.unstable.popleft()
        self.unstable_bytes -= sent.cost
        self.stable = sent.sequence
        return sent

    def begin_anew(self) -> None:
        """A new life numbers its broadcasts from 1."""
        self.next, self.stable, self.told_stable = 1, 0, 0
        self.unstable.clear()
        self.waiting.clear()
        self.unstable_bytes = self.waiting_bytes = 0
