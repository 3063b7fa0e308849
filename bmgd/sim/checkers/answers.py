"""Answers about a suspect: observers say what they hear, and one veto clears it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.core.neighbors import observer
from bmgd.sim.checkers.journal import Journal, Suspected
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.wire.ask_messages import Answer, Ask

_FRESH: Final = 5 / 4
"""Of a heartbeat interval."""


class VetoesWin(Checker):
    """A veto, fresh bytes, or a new link end a suspicion; a late concurring answer begins none."""

    name: ClassVar[str] = "vetoes-win"
    events: ClassVar[Kinds] = (Received,)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not isinstance(event, Received):
            return
        inside = journal.inside
        message = event.message
        if isinstance(message, Answer) and message.route.destination == journal.host.id:
            suspected = journal.suspected.get(message.suspect)
            alive = message.alive and suspected is not None
            if alive and suspected and message.incarnation >= suspected.incarnation:
                if inside.suspects(message.suspect):
                    self.violate(journal, f"a veto for {message.suspect} is ignored")
                journal.suspected.pop(message.suspect, None)
            elif suspected is not None and not message.alive:
                self._check_concurring(journal, message, suspected)
        link = journal.links.get(event.link)
        if link is not None and not link.unechoed and inside.suspects(link.peer):
            self.violate(journal, f"{link.peer} was heard, and is still suspected")

    def _check_concurring(self, journal: Journal, answer: Answer, suspected: Suspected) -> None:
        """Who has concurred is not waited for any more, and no verdict waits for more than all."""
        route, own = answer.route, journal.inside.detector._suspicions.get(answer.suspect)
        is_for_this = route.sequence == suspected.number
        if own is None or not is_for_this or answer.incarnation < suspected.incarnation:
            return
        if route.source in own.waiting_for or not own.waiting_for:
            text = f"{route.source} concurs on {answer.suspect}, and is still waited for"
            self.violate(journal, text)


class AnswersAreTrue(Checker):
    """An observer vetoes only what it hears, concurs only in silence, and never against itself.

    What it hears it says at once, also of one that is said to be gone, unless it has as many to answer
    as it may.
    """

    name: ClassVar[str] = "answers-are-true"
    events: ClassVar[Kinds] = (Ask,)
    effects: ClassVar[Kinds] = (Answer,)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        me = journal.host.id
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Answer):
                answer = effect.message
                came = isinstance(event, Received) and isinstance(event.message, Answer)
                if answer.route.source == me and not came:
                    self._check(journal, answer)
        if isinstance(event, Received) and isinstance(event.message, Ask):
            ask = event.message
            if ask.suspect == me == ask.route.destination:
                self._check_own(journal, effects, ask)
            elif ask.route.destination == me:
                self._check_observed(journal, effects, ask)

    def _check(self, journal: Journal, answer: Answer) -> None:
        settings = journal.inside.settings
        if answer.suspect == journal.host.id:
            if not answer.alive or answer.incarnation != journal.incarnation:
                self.violate(journal, f"says of itself {answer}")
            return
        # An answer may go out in the step that closes the link afterwards, or that opened it.
        seen = journal.former_links | journal.links
        links = [link for link in seen.values() if link.peer == answer.suspect]
        asks = journal.asks.get((answer.route.destination, answer.suspect), {})
        asked_ns = asks.get(answer.route.sequence)
        if asked_ns is None or not links:
            self.violate(journal, f"answers about {answer.suspect}, unasked or not linked to it")
            return
        heard_ns = max(link.heard_ns for link in links)
        fresh = journal.now_ns - heard_ns <= settings.heartbeat_ns * _FRESH
        # A node that was late sets its stamps anew, and takes what waits for fresh.
        fresh = fresh or heard_ns > asked_ns or journal.late_ns > heard_ns
        if answer.alive and not fresh:
            self.violate(journal, f"vetoes for {answer.suspect}, and has not heard from it")
        if not answer.alive and heard_ns > asked_ns:
            self.violate(journal, f"concurs on {answer.suspect}, and has heard from it")
        if answer.incarnation not in {link.incarnation for link in links}:
            self.violate(journal, f"answers for a life of {answer.suspect} that it does not hear")

    def _check_observed(self, journal: Journal, effects: Sequence[Effect], ask: Ask) -> None:
        inside = journal.inside
        silent_ns = min(
            (
                journal.now_ns - link.heard_ns
                for link in journal.to(ask.suspect)
                if link.incarnation >= ask.incarnation
            ),
            default=None,
        )
        is_heard = silent_ns is not None and silent_ns <= inside.settings.heartbeat_ns * _FRESH
        is_free = len(inside.asks()) < observer.ASKS_OPEN_MAX
        if not is_heard or not is_free or inside.links.to(ask.route.source) is None:
            return
        vetoes = [e.message for e in effects if isinstance(e, Send)]
        if not any(isinstance(m, Answer) and m.suspect == ask.suspect and m.alive for m in vetoes):
            self.violate(journal, f"is asked about {ask.suspect}, hears it, and is silent")

    def _check_own(self, journal: Journal, effects: Sequence[Effect], ask: Ask) -> None:
        inside = journal.inside
        answered = any(isinstance(e, Send) and isinstance(e.message, Answer) for e in effects)
        if not answered and inside.links.to(ask.route.source) is not None:
            self.violate(journal, f"is asked by {ask.route.source} whether it lives, and is silent")
