"""Which links may close: hearsay closes none that is heard, nothing breaks before it was made.

The reasons in `Close` are for operators; here a close is judged by what was so when it came. Every
close is put to `_excuse`; one without an excuse is named after the rule that it breaks most likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import (
    Close,
    Effect,
    Exit,
    Observed,
    RecordChanged,
    Renewed,
    Send,
    Welcome,
)
from bmgd.core.events import DeadlineReached, Event, LinkUp, Received
from bmgd.core.links import GUESTS_MAX
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal, SeenLink
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import LinkId, NodeId, NodeState, Status
from bmgd.wire.ask_messages import Answer
from bmgd.wire.link_messages import Notice, Ping, Pong


class LinksCloseByRule(Checker):
    """A link closes only as the design allows.

    Because its own node ends or begins a new life; because a later life of the peer is known; because
    the peer has left; because it is silent; because an observer's veto says that it is broken; by the
    higher id, because another link of its pair stays; by agreement at equal digests, with everything
    that is wanted made; as the oldest of too many; or because the naive method makes all links anew.
    """

    name: ClassVar[str] = "links-close-by-rule"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Close,)
    hearsay: ClassVar[str] = "hearsay-closes-no-heard-link"
    pairs: ClassVar[str] = "pairs-keep-one-link"
    breaks: ClassVar[str] = "make-before-break"

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        closed = [effect.link for effect in effects if isinstance(effect, Close)]
        if not closed:
            return
        inside = journal.inside
        ends = any(isinstance(effect, Exit | Renewed) for effect in effects)
        if ends or inside.context.state is NodeState.LEAVING:
            return
        for link_id in closed:
            link = journal.former_links.get(link_id)
            if link is not None and not self._excuse(journal, inside, event, effects, link):
                self._blame(journal, inside, link)

    # --- excuses ------------------------------------------------------------------------------

    def _excuse(
        self,
        journal: Journal,
        inside: Inside,
        event: Event,
        effects: Sequence[Effect],
        link: SeenLink,
    ) -> bool:
        membership = inside.membership
        record = membership.get(link.peer)
        if membership.vouched(link.peer) > link.incarnation:
            return True
        if record is not None and record.status is Status.LEFT:
            return True
        return (
            self._is_silent(journal, inside, link)
            or self._is_vetoed(event, effects, link)
            or self._is_duplicate(journal, event, link)
            or self._is_agreed(journal, inside, link)
            or self._is_one_too_many(journal, inside, link)
            or self._is_remade(inside, effects)
        )

    def _is_silent(self, journal: Journal, inside: Inside, link: SeenLink) -> bool:
        timeout_ns = inside.settings.timeout_ns
        if journal.now_ns - link.heard_ns >= timeout_ns:
            return True
        grace_ns = timeout_ns + inside.settings.heartbeat_ns
        return bool(link.unechoed) and journal.now_ns - link.unechoed[0][1] >= grace_ns

    def _is_vetoed(self, event: Event, effects: Sequence[Effect], link: SeenLink) -> bool:
        return (
            isinstance(event, Received)
            and isinstance(event.message, Answer)
            and event.message.alive
            and event.message.suspect == link.peer
            and any(isinstance(e, Observed) and e.event == "vetoed" for e in effects)
        )

    def _is_duplicate(self, journal: Journal, event: Event, link: SeenLink) -> bool:
        """The higher id chooses: its own dial, if it has one that answered, else the newest."""
        others = [o for o in journal.to(link.peer) if o.incarnation == link.incarnation]
        if not others or journal.host.id < link.peer:
            return False
        # The one that renews may have closed in this very step, for one under the first key.
        before = [o for o in journal.former_links.values() if o.peer == link.peer]
        if any(one.renews for one in (link, *others, *before)):
            return self._is_renewed(journal, link, others)
        kept = others[-1] if len(others) == 1 else max(others, key=lambda o: o.dial_number)
        mine = journal.host.id
        if kept.dialled_by == mine:
            # Of several own dials the one whose pong comes first has answered.
            match event:
                case Received(link_id, Pong()) if link_id == kept.id:
                    return True
        if kept.dialled_by == mine and link.dialled_by != mine:
            return kept.heard_ns > max(kept.opened_ns, link.opened_ns)
        if kept.dialled_by == link.dialled_by:
            return kept.dial_number > link.dial_number
        return False

    def _is_renewed(self, journal: Journal, link: SeenLink, others: Sequence[SeenLink]) -> bool:
        """Under the first key, renewing, the newest stays; the other end's when it has answered."""

        def rank(one: SeenLink) -> tuple[bool, bool, int]:
            return one.key == journal.first_key, one.renews, one.opened_ns

        kept = max(others, key=rank)
        is_there = kept.dialled_by == journal.host.id or kept.heard_ns > kept.opened_ns
        return rank(kept) >= rank(link) and (is_there or not kept.renews)

    def _is_agreed(self, journal: Journal, inside: Inside, link: SeenLink) -> bool:
        if link.peer in inside.dialling.wanted or link.unwanted is None:
            return False
        return link.unwanted == inside.membership.digest and is_made(journal, inside)

    def _is_one_too_many(self, journal: Journal, inside: Inside, link: SeenLink) -> bool:
        wanted, former = inside.dialling.wanted, inside.former()
        unwanted = [o for o in journal.former_links.values() if o.peer not in wanted]
        kept = sum(1 for peer in former if peer not in wanted) + GUESTS_MAX
        # One more may have been welcomed in this very step.
        return link in unwanted[: max(0, len(unwanted) + 1 - kept)]

    def _is_remade(self, inside: Inside, effects: Sequence[Effect]) -> bool:
        """The naive method of reconstruction makes all links anew when the layout has changed."""
        relaid = any(isinstance(e, Observed) and e.event == "relayout" for e in effects)
        return inside.settings.reconstructs and relaid

    # --- blame --------------------------------------------------------------------------------

    def _blame(self, journal: Journal, inside: Inside, link: SeenLink) -> None:
        silent_ms = (journal.now_ns - link.heard_ns) / 1e6
        text = f"closed a link to {link.peer}, silent for {silent_ms:.1f} ms"
        name = self.name
        if inside.membership.is_gone(link.peer):
            name, text = self.hearsay, f"{text}, because it was told that it is dead"
        elif link.peer in inside.links.by_peer:
            name, text = self.pairs, f"{text}, and kept another that it must not prefer"
        elif link.peer not in inside.dialling.wanted:
            name, text = self.breaks, f"{text}, without agreement or before what it wants is made"
        self.violate(journal, text, name)


def is_made(journal: Journal, inside: Inside) -> bool:
    """Whether each wanted link is up, or its id is gone, broken, or was dialled and is not there."""
    if inside.plans_relayout():
        return False
    linked = {link.peer for link in journal.links.values()}
    for peer in inside.dialling.wanted:
        if peer in linked or inside.membership.is_gone(peer):
            continue
        peering = inside.dialling.peerings.get(peer)
        never = journal.ready and peer in journal.failed
        if not never and not (peering is not None and peering.broken):
            return False
    return True


class FormerLivesAreCutOff(Checker):
    """No links to two lives of one peer are up, and none that a former life of this node has made."""

    name: ClassVar[str] = "former-lives-are-cut-off"
    events: ClassVar[Kinds] = (LinkUp,)
    effects: ClassVar[Kinds] = (Welcome, Close, Renewed)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if journal.links and any(isinstance(effect, Renewed) for effect in effects):
            self.violate(journal, f"began a new life with {len(journal.links)} links of the former")
        if isinstance(event, LinkUp) or any(not isinstance(e, Observed) for e in effects):
            lives: dict[NodeId, int] = {}
            for link in journal.links.values():
                if lives.setdefault(link.peer, link.incarnation) != link.incarnation:
                    self.violate(journal, f"links to two lives of {link.peer} are up")


class AccusedAreTold(Checker):
    """Whoever is declared dead while a link to that life is up is told over it, with a ping.

    Then the link closes if nothing comes back within the timeout, and stays if something does.
    """

    name: ClassVar[str] = "accused-are-told"
    events: ClassVar[Kinds] = (DeadlineReached,)
    effects: ClassVar[Kinds] = (RecordChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._told: dict[NodeId, dict[LinkId, int]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._told[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        me = journal.host.id
        for effect in effects:
            if isinstance(effect, RecordChanged) and effect.record.status >= Status.DEAD:
                for link in journal.to(effect.id) if effect.id != me else ():
                    if link.incarnation <= effect.record.incarnation:
                        self._expect_telling(journal, effect, effects, link)
        if is_deadline(event):
            self._expect_closing(journal)

    def _expect_telling(
        self,
        journal: Journal,
        changed: RecordChanged,
        effects: Sequence[Effect],
        link: SeenLink,
    ) -> None:
        sent = [e.message for e in effects if isinstance(e, Send) and e.link == link.id]
        rows = [row for m in sent if isinstance(m, Notice) for row in m.records]
        # In one step a verdict can become an exclusion; either tells the accused.
        if not any(i == changed.id and record.status >= Status.DEAD for i, record in rows):
            self.violate(journal, f"declared {link.peer} dead and did not tell it")
        if not any(isinstance(m, Ping) for m in sent):
            self.violate(journal, f"declared {link.peer} dead and did not ping it")
        self._told[journal.place].setdefault(link.id, journal.now_ns)

    def _expect_closing(self, journal: Journal) -> None:
        inside, told = journal.inside, self._told[journal.place]
        for link_id, told_ns in list(told.items()):
            link = journal.links.get(link_id)
            if link is None or max(link.heard_ns, journal.late_ns) > told_ns:
                del told[link_id]
            elif journal.now_ns - told_ns > 2 * inside.settings.timeout_ns:
                if inside.membership.is_gone(link.peer):
                    self.violate(journal, f"{link.peer} did not answer, its link is still up")
                del told[link_id]
