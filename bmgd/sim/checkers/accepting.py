"""What comes of a reliable broadcast is taken, whatever is believed of its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.broadcast import delivery, retention
from bmgd.core.effects import Effect
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.broadcasts import life_of, retention_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import incarnation_tag
from bmgd.wire.broadcast_messages import ReliableBroadcast, Skipped


class BroadcastsAreTaken(Checker):
    """A copy that comes to a node is there after the step, or the node counts that it refused it.

    So it is with what is for this node, also where its source is held dead: copies of who died midway are
    all that others can get. What its source lets this node skip is passed over, or will be.
    """

    name: ClassVar[str] = "broadcasts-are-taken"
    events: ClassVar[Kinds] = (ReliableBroadcast, Skipped)
    before_events: ClassVar[Kinds] = (ReliableBroadcast, Skipped)
    effects: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._refused = self._watermark = self._skips = 0

    def before(self, journal: Journal, event: Event) -> None:
        message = event.message if isinstance(event, Received) else None
        if not isinstance(message, ReliableBroadcast | Skipped):
            return
        known = retention_of(journal)
        heard = known.lives.get(life_of(message))
        self._refused, self._watermark = known.refused, heard.watermark if heard else 0
        self._skips = len(heard.skips) if heard else 0

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        message = event.message if isinstance(event, Received) else None
        if isinstance(message, Skipped):
            self._check_skips(journal, message)
        if not isinstance(message, ReliableBroadcast):
            return
        me, route = journal.host.id, message.route
        if route.destination != me or route.source == me:
            # Passed on as a unicast is, or come back.
            return
        if me >= message.id_space or message.exceptions >> me & 1:
            # For others: that it skips this one it may hear again, where it remembers too many already.
            return
        is_refused = retention_of(journal).refused > self._refused
        if not is_refused and not self._has(journal, message):
            self.violate(
                journal, f"drops {route.sequence} of {route.source}, and counts it nowhere"
            )

    def _has(self, journal: Journal, message: ReliableBroadcast) -> bool:
        """Whether a node has that copy, had it, skips it, or it was too far ahead."""
        heard = retention_of(journal).lives.get(life_of(message))
        if heard is None:
            return False
        count = message.route.sequence
        is_far = count > self._watermark + retention.AHEAD_MAX
        is_skipped = any(skip.first <= count <= skip.last for skip in heard.skips)
        return count <= heard.watermark or count in heard.copies or is_far or is_skipped

    def _check_skips(self, journal: Journal, message: Skipped) -> None:
        me, route, known = journal.host.id, message.route, retention_of(journal)
        key = life_of(message)
        is_for_me = route.destination_tag in (0, incarnation_tag(journal.incarnation))
        is_for_me &= route.destination == me != route.source
        if not is_for_me or journal.exited or not journal.inside.believes(*key):
            return
        heard = known.lives.get(key)
        if heard is None:
            is_over = route.source_incarnation <= known._forgotten.get(route.source, 0)
            if not is_over and len(known.lives) < retention.LIVES_MAX:
                self.violate(journal, f"does not hear {key}, which tells what it skips")
            return
        if self._skips + len(message.skips) > delivery.SKIPS_KEPT_MAX:
            # It may have had room for no more; it is told again.
            return
        for skip in message.skips:
            is_done = skip.id != me or skip.last <= heard.watermark
            if not is_done and not any(
                each.first <= max(skip.first, heard.watermark + 1) and skip.last <= each.last
                for each in heard.skips
            ):
                self.violate(journal, f"waits for {skip.first} of {key}, which it is to skip")
