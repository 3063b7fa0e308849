"""The observer: what a node does that another one asks about a suspect.

Theory of operation. An asked node that has fresh bytes of the suspect vetoes at once; else it pings and
answers by what comes back, on the links that it has or on one that opens meanwhile:

    asked ----fresh bytes of the suspect---------------> Answer: alive
          ----nothing lately--> ping --half the time---> Answer: by what came on any link to it
                                     --and no link-----> no answer
          ----it is gone, and no link is left----------> no answer

Why a node asks, and what it makes of the answers: `detector.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.context import Context
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.links import Links
from bmgd.core.neighbors.detector import Detector
from bmgd.core.timers import TimerKey
from bmgd.types import UNKNOWN_INCARNATION, Incarnation
from bmgd.wire.ask_messages import Answer, Ask

ASKS_OPEN_MAX = 64
PING_LEGS = 2
"""How many processes the answer to a ping passes, the own one included."""
ANSWER_TIMER = "answer"


@dataclass(slots=True)
class _OpenAsk:
    """An observer's duty: to answer `ask` once the suspect has had time to answer a ping."""

    ask: Ask
    pinged_ns: int


@dataclass(slots=True)
class Observer:
    """Answers of one node to those who suspect somebody."""

    context: Context
    links: Links
    forwarding: Forwarding
    detector: Detector
    _asks: dict[int, _OpenAsk] = field(default_factory=dict)
    _ask_count: int = 0

    def on_ask(self, ask: Ask) -> None:
        """Another node asks about a suspect: answer from fresh bytes, or ping it first."""
        if ask.suspect == self.context.id:
            self._answer(ask, self.context.incarnation, alive=True)
            return
        # Of two links of a pair one may be dead and the other carry bytes: all of them are asked.
        links = [
            link
            for link in self.links.by_peer.get(ask.suspect, ())
            if link.incarnation >= ask.incarnation
        ]
        is_gone = self.context.membership.is_gone(ask.suspect)
        if (is_gone and not links) or len(self._asks) >= ASKS_OPEN_MAX:
            return
        if any(self.detector.is_fresh(link) for link in links):
            self._answer(ask, links[-1].incarnation, alive=True)
            return
        for link in links:
            self.links.probe(link)
        now_ns = self.context.now_ns
        self._ask_count += 1
        self._asks[self._ask_count] = _OpenAsk(ask, now_ns)
        until_ns = now_ns + self.detector.patience_ns(self.context.settings.ask_ns // 2, PING_LEGS)
        self.context.timers.set((ANSWER_TIMER, self._ask_count, 0), until_ns)

    def on_answer_timer(self, key: TimerKey) -> None:
        """The pinged suspect, or a link to it that was being made, has had its time."""
        duty = self._asks.pop(key[1])
        links = self.links.by_peer.get(duty.ask.suspect)
        if links is None:
            return
        # A later life may have come meanwhile: it is that life whose bytes count.
        alive = any(link.heard_ns > duty.pinged_ns for link in links)
        self._answer(duty.ask, links[-1].incarnation, alive=alive)

    def _answer(self, ask: Ask, incarnation: Incarnation, *, alive: bool) -> None:
        if incarnation == UNKNOWN_INCARNATION:
            return
        route = self.forwarding.route_to(ask.route.source, sequence=ask.route.sequence)
        answer = Answer(route, ask.suspect, incarnation, alive)
        self.forwarding.originate(answer, avoiding=ask.suspect)
