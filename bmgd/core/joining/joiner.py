"""A daemon that has no id yet: it asks its contacts in turn, until one tells it how to be a member.

Theory of operation. Like `Node` this is a core without I/O: events in, effects out. A joiner begins one
*life* and asks for it again and again, so that a repeated request is known to be the same:

    AskContact --Granted--------------------------------------> Joined: make a `Node` of it
    AskContact --AskFailed--> the next contact, after a pause    ...
               --the id that it had was given up--> AskContact, for a new id
               --every contact has failed once, and what was kept of a former life is enough--> Joined
               --`start_ns` have passed, or a proven refusal that time does not mend----------> Exit

Who drives it (the shell, the simulator) makes `Node(joined.settings, joined.incarnation, …,
records=joined.records)` of the effect `Joined`; when that node gives `Displaced`, it makes a new `Joiner`
with those contacts, and lets the next node `inherit` from the former one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from bmgd.core.effects import AskContact, Effect, Exit, Joined, Observed
from bmgd.core.events import AskFailed, DeadlineReached, Event, Granted
from bmgd.core.membership.allowance import ID_GAP_MAX
from bmgd.core.settings import Settings
from bmgd.types import Incarnation, NodeId, counter_of
from bmgd.wire.hello import MISCONFIGURED, Refusal

ASK_NS = 3_000_000_000
"""How long one contact has to answer; it must ask the lowest live id first."""
COUNTER_MAX = 2**32 - 1


class Joiner:
    """The core of a daemon that is no member yet.

    Args:
        settings: the configuration; id, size and peers are those of the answer.
        contacts: addresses of members, at least one.
        claimed: the id that it had in a former life, or None for a new one.
        kept: what it knows from that life, for when no contact answers; or None. Without records, so
            it does not serve an id with too many unknown ones below it.
        incarnation: the life that it asks for.
        random: the only source of randomness.
        now_ns: monotonic nanoseconds.
    """

    def __init__(
        self,
        settings: Settings,
        contacts: Sequence[str],
        claimed: NodeId | None,
        kept: Granted | None,
        incarnation: Incarnation,
        random: Random,
        now_ns: int,
    ) -> None:
        self.deadline_ns: int | None = now_ns
        self.incarnation = incarnation
        self._settings = settings
        self._contacts = tuple(contacts)
        self._claimed = claimed
        far = kept is not None and kept.id >= kept.founding_size + ID_GAP_MAX
        self._kept = None if far else kept
        self._random = random
        self._give_up_ns = now_ns + settings.start_ns
        self._attempts = 0

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        """Take one event; return the effects. Others than the three that concern it are ignored."""
        match event:
            case DeadlineReached() if self.deadline_ns is not None and now_ns >= self.deadline_ns:
                return self._ask()
            case Granted():
                return [self._join(event)]
            case AskFailed():
                return self._on_failed(now_ns, event)
        return []

    def _ask(self) -> list[Effect]:
        self.deadline_ns = None
        contact = self._contacts[self._attempts % len(self._contacts)]
        self._attempts += 1
        return [AskContact(contact, self._claimed, self.incarnation, ASK_NS)]

    def _on_failed(self, now_ns: int, failed: AskFailed) -> list[Effect]:
        contact = self._contacts[(self._attempts - 1) % len(self._contacts)]
        why = failed.evidence.value if failed.refusal is None else failed.refusal.text
        effects: list[Effect] = [Observed("not joined", detail=f"{contact}: {why}")]
        if failed.refusal is Refusal.RETIRED and self._claimed is not None:
            return [*effects, *self._on_retired(now_ns)]
        if self._kept is not None and self._attempts >= len(self._contacts):
            return [*effects, self._join(self._kept)]
        if failed.refusal in MISCONFIGURED and failed.proven:
            return [*effects, Exit(1, f"the contact {contact} refuses this node: {why}")]
        if now_ns >= self._give_up_ns:
            return [
                *effects,
                Exit(1, f"no contact lets this node join; the last, {contact}: {why}"),
            ]
        settings = self._settings
        rounds = self._attempts // len(self._contacts)
        pause_ns = min(settings.backoff_min_ns << min(rounds, 20), settings.backoff_max_ns)
        self.deadline_ns = now_ns + pause_ns * self._random.randrange(768, 1280) // 1024
        return effects

    def _on_retired(self, now_ns: int) -> list[Effect]:
        """The id of the former life was given up: ask for another one, as a life that follows none."""
        if not self._settings.takes_new_id:
            return [
                Exit(1, f"the id {self._claimed} was given up; without --id there is a new one")
            ]
        self._claimed = self._kept = None
        self.incarnation = Incarnation(1 << 32 | self._random.getrandbits(32))
        self.deadline_ns = now_ns
        return []

    def _join(self, granted: Granted) -> Joined:
        self.deadline_ns = None
        known = dict(granted.records).get(granted.id)
        # A former life of the id is known there: begin above it, whatever was kept of its counter.
        if self._claimed is not None and known is not None:
            counter = counter_of(known.incarnation)
            if counter_of(self.incarnation) <= counter < COUNTER_MAX:
                low = self._random.getrandbits(32)
                self.incarnation = Incarnation((counter + 1) << 32 | low)
        settings = replace(
            self._settings,
            id=granted.id,
            founding_size=granted.founding_size,
            peers=granted.peers,
        )
        return Joined(settings, self.incarnation, granted.records, granted.retired)
