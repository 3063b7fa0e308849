"""What is kept of reliable broadcasts: what it counts for, its bounds, and who waits for room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.broadcast import copies, reserve
from bmgd.core.broadcast.copies import copy_cost
from bmgd.core.broadcast.window import WINDOW_MIN_BYTES
from bmgd.core.effects import Effect
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.broadcasts import retention_of, source_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.wire.broadcast_messages import ReliableBroadcast, Stable
from bmgd.wire.messages import Message


class BroadcastBoundsHold(Checker):
    """What is kept of broadcasts is counted rightly, and within its bounds.

    Beyond the bound of copies there is room only for a life that has waited long enough for it, and of
    which nothing became stable lately.
    """

    name: ClassVar[str] = "broadcast-bounds-hold"
    events: ClassVar[Kinds] = (Look, ReliableBroadcast, Stable)
    before_events: ClassVar[Kinds] = (ReliableBroadcast,)
    effects: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._is_stuck = True

    def before(self, journal: Journal, event: Event) -> None:
        came = event.message if isinstance(event, Received) else None
        self._is_stuck = True
        if not isinstance(came, ReliableBroadcast):
            return
        life, retention = (came.route.source, came.route.source_incarnation), retention_of(journal)
        heard = retention.lives.get(life)
        is_kept = heard is not None and came.route.sequence in heard.copies
        if is_kept or retention.copies.held_bytes + copy_cost(came) <= copies.HELD_BYTES_MAX:
            return
        since, _, moved = journal.inside.waiting_for_room()
        now_ns = journal.now_ns
        self._is_stuck = now_ns - since.get(life, now_ns) >= reserve.STUCK_NS
        self._is_stuck &= life not in moved or now_ns - moved[life] >= reserve.AGAIN_NS

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        self._check_waiting(journal)
        if isinstance(event, Received) and not self._is_stuck:
            self._check_refused(journal, event.message)
        if not is_deadline(event):
            return
        window, retention = source_of(journal).window, retention_of(journal)
        costs = [sent.cost for sent in window.unstable]
        unstable = sum(costs)
        if unstable != window.unstable_bytes:
            self.violate(journal, f"counts {window.unstable_bytes} unstable, there are {unstable}")
        longest = max(costs, default=0)
        share = max(WINDOW_MIN_BYTES, window.bytes_max())
        # Who dies makes the shares of the others larger, who comes makes them smaller afterwards.
        if unstable > 2 * share + longest:
            self.violate(journal, f"{unstable} bytes are unstable, the window has {share}")
        held = 0
        for heard in retention.lives.values():
            cost = 0
            if heard.copies:
                cost = sum(map(copy_cost, heard.copies.values()))
                if any(m.branches or m.route.search for m in heard.copies.values()):
                    self.violate(journal, f"keeps ways of copies of {heard.key}, uncounted")
            held += cost
            if cost != heard.copies_bytes:
                self.violate(journal, f"counts {heard.copies_bytes} of {heard.key}, has {cost}")
            if not heard.copies:
                continue
            is_done = min(heard.stable, heard.watermark)
            if min(heard.copies) <= is_done:
                done = [count for count in heard.copies if count <= is_done]
                self.violate(journal, f"keeps {done} of {heard.key}, which are stable")
        counted = retention.copies.held_bytes
        if held != counted or held > copies.HELD_BYTES_MAX + reserve.RESERVE_BYTES:
            self.violate(journal, f"counts {counted} held, there are {held}")
        readers = journal.inside.to_many.announcements
        waiting = sum(r.queue_bytes + r.unconsumed_bytes for r in readers._readers.values())
        if waiting != readers.held_bytes:
            self.violate(journal, f"counts {readers.held_bytes} for readers, there are {waiting}")

    def _check_refused(self, journal: Journal, came: Message) -> None:
        """There was no room for a copy, and its source was not stuck."""
        if isinstance(came, ReliableBroadcast):
            count, life = came.route.sequence, (came.route.source, came.route.source_incarnation)
            heard = retention_of(journal).lives.get(life)
            if heard is not None and count in heard.copies:
                self.violate(journal, f"keeps {count} of {life} beyond the bound, which can wait")

    def _check_waiting(self, journal: Journal) -> None:
        """Since when is known of the lives that wait: with copies, or refused with none since."""
        retention = retention_of(journal)
        since, refused, _ = journal.inside.waiting_for_room()
        kept = {key for key, heard in retention.lives.items() if heard.copies}
        if since.keys() != kept | refused.keys():
            odd = sorted(since.keys() ^ (kept | refused.keys()))
            self.violate(journal, f"{odd} wait for room, and it is not known since when; or do not")
