"""What a node says of itself in its own messages is what its tables have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import EVERY, Checker, Kinds, Scene
from bmgd.types import NodeId
from bmgd.wire.ask_messages import TraceAnswer
from bmgd.wire.broadcast_messages import Skipped, Stable
from bmgd.wire.link_messages import Pull


class OwnWordsAreTrue(Checker):
    """A source says how far it has come and what is stable; who measured no way says nothing of one."""

    name: ClassVar[str] = "own-words-are-true"
    events: ClassVar[Kinds] = EVERY
    before_events: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._sent: dict[NodeId, int] = {}
        """How many broadcasts each process had sent before this step."""

    def on_boot(self, journal: Journal) -> None:
        self._sent[journal.place] = 0

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        window = journal.inside.to_many.source.window
        least, most = self._sent[journal.place], window.next - 1
        self._sent[journal.place] = most
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Pull):
                pull, lives = effect.message, journal.inside.to_many.retention.lives
                heard = lives.get((pull.source, pull.incarnation))
                if heard is not None and not heard.asks:
                    self.violate(
                        journal, f"has asked for broadcasts of {pull.source}, and says never"
                    )
            if isinstance(effect, Send) and isinstance(
                effect.message, Skipped | Stable | TraceAnswer
            ):
                self._check(journal, event, effect.message, min(least, most))

    def _check(
        self, journal: Journal, event: Event, message: Skipped | Stable | TraceAnswer, least: int
    ) -> None:
        route, window = message.route, journal.inside.to_many.source.window
        if (route.source, route.source_incarnation) != (journal.host.id, journal.incarnation):
            return
        if isinstance(event, Received) and type(event.message) is type(message):
            # A search has brought it back, and it goes on another way.
            return
        most = window.next - 1
        if isinstance(message, TraceAnswer):
            if message.problem and (message.rtt_us or message.passed):
                self.violate(journal, f"measured no way, and tells of one: {message}")
        elif not least <= route.sequence <= most:
            self.violate(journal, f"has sent {most} broadcasts, and says {route.sequence}")
        elif message.stable > min(window.stable, route.sequence):
            self.violate(journal, f"says that {message.stable} are stable, {window.stable} are")
