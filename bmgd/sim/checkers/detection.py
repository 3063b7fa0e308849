"""Suspicion and verdicts: nobody is accused, asked about or declared dead but by the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Close, Effect, Observed, RecordChanged, Send
from bmgd.core.events import DeadlineReached, DialFailed, Event, LinkDown, LinkUp, Received
from bmgd.policy import HealingTrigger
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal, SeenLink, Suspected
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.sim.checkers.watching import Watching
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    NodeId,
    NodeState,
    Status,
)
from bmgd.wire.ask_messages import Answer, Ask

LATE_NS = 400_000_000
OBSERVERS_MAX = 3
_PROVING = (Evidence.EOF, Evidence.RESET)


class VerdictsAreProven(Checker):
    """A verdict rests on proof, or on a suspicion that nobody vetoed in its time.

    Proof: the own link to that very life closed without goodbye, and its address refused. Suspicion:
    the ask time is over, or all that were asked concurred. The verdict names the life that was meant,
    with its present version, and is `excluded` where every death is healed.
    """

    name: ClassVar[str] = "verdicts-are-proven"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Observed,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._ended: tuple[Incarnation, Evidence] | None = None
        self._suspected: dict[NodeId, Suspected] = {}
        self._versions: dict[NodeId, tuple[Incarnation, int]] = {}

    def before(self, journal: Journal, event: Event) -> None:
        self._suspected, self._ended, self._versions = {}, None, {}
        if isinstance(event, DialFailed):
            self._ended = journal.ended.get(event.peer)
            self._note_version(journal, event.peer)
        if journal.suspected:
            self._suspected = dict(journal.suspected)
            for peer in self._suspected:
                self._note_version(journal, peer)

    def _note_version(self, journal: Journal, peer: NodeId) -> None:
        record = journal.inside.membership.exceptions().get(peer)
        if record is not None:
            self._versions[peer] = record.incarnation, record.version

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for place, effect in enumerate(effects):
            if isinstance(effect, Observed) and effect.event == "verdict":
                peer, life = effect.peer, effect.incarnation
                assert peer is not None
                assert life is not None
                if not self._is_proven(event, peer, life):
                    self._check_suspicion(journal, event, peer, life)
                # In the same step another life of it may have been looked into, and be forgotten.
                self._check_record(journal, effects[place + 1 :], peer, life)

    def _is_proven(self, event: Event, peer: NodeId, life: Incarnation) -> bool:
        if not isinstance(event, DialFailed) or event.evidence is not Evidence.REFUSED:
            return False
        return (
            event.peer == peer
            and self._ended is not None
            and (self._ended[0] == life and self._ended[1] in _PROVING)
        )

    def _check_suspicion(
        self, journal: Journal, event: Event, peer: NodeId, life: Incarnation
    ) -> None:
        suspected = self._suspected.get(peer)
        if suspected is None:
            self.violate(journal, f"declares {peer} dead without proof or suspicion")
            return
        if suspected.incarnation != life:
            self.violate(journal, f"suspected {suspected.incarnation:#x} of {peer}, not {life:#x}")
        concurred = set(suspected.concurred)
        if isinstance(event, Received) and isinstance(event.message, Answer):
            if event.message.suspect == peer and event.message.alive:
                self.violate(journal, f"declares {peer} dead on a veto")
            if event.message.route.sequence == suspected.number:
                concurred.add(event.message.route.source)
        ask_ns = journal.inside.settings.ask_ns
        waited = is_deadline(event) and journal.now_ns - suspected.since_ns >= ask_ns
        if not waited and not (suspected.asked and suspected.asked <= concurred):
            self.violate(journal, f"declares {peer} dead before the ask time is over")

    def _check_record(
        self, journal: Journal, effects: Sequence[Effect], peer: NodeId, life: Incarnation
    ) -> None:
        heals = journal.inside.settings.healing.trigger is HealingTrigger.EVERY_DEATH
        status = Status.EXCLUDED if heals else Status.DEAD
        before = self._versions.get(peer, (UNKNOWN_INCARNATION, 0))
        version = before[1] if before[0] == life else 0
        for effect in effects:
            if isinstance(effect, RecordChanged) and effect.id == peer:
                record = effect.record
                if (record.incarnation, record.version) != (life, version):
                    self.violate(journal, f"the verdict on {peer} is {record}, life {life:#x}")
                if record.status not in (status, Status.DEAD):
                    self.violate(journal, f"the verdict on {peer} is {record}, not {status.name}")
                return
        self.violate(journal, f"the verdict on {peer} changes nothing")


class SuspicionsHaveAReason(Checker):
    """Who is suspected was silent, or its dial came to nothing; and is not gone already.

    A node that was itself late accuses nobody; a node that was never ready no stranger. Up to three of
    the suspect's neighbors are asked, and who is silent for long is suspected.
    """

    name: ClassVar[str] = "suspicions-have-a-reason"
    events: ClassVar[Kinds] = (DeadlineReached, LinkDown)
    effects: ClassVar[Kinds] = (Observed, Close)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._dialled: Incarnation | None = None
        self._watching = Watching()
        self._due: dict[NodeId, int] = {}
        self._stretches: dict[NodeId, deque[tuple[int, int]]] = {}
        self._parted: dict[NodeId, dict[NodeId, int]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._watching.on_boot(journal)
        self._due[journal.place] = 0
        self._stretches[journal.place] = deque()
        self._parted[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        self._dialled = None
        if isinstance(event, DialFailed) and event.evidence is not Evidence.REJECTED:
            dial = journal.dials.get(event.peer)
            self._dialled = dial[0].known if dial else None

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        for effect in effects:
            if isinstance(effect, Observed) and effect.event == "suspected":
                assert effect.peer is not None
                self._check(journal, inside, event, effect.peer)
                self._check_asked(journal, inside, effects, effect.peer)
        for link_id, link in (journal.links_before or {}).items():
            if link_id not in journal.links:
                self._parted[journal.place][link.peer] = journal.now_ns
        if is_deadline(event):
            self._check_silent(journal, inside)

    def _check(self, journal: Journal, inside: Inside, event: Event, peer: NodeId) -> None:
        if journal.lag_ns > LATE_NS and is_deadline(event):
            self.violate(journal, f"suspects {peer}, and was itself late")
        if inside.context.state is NodeState.LEAVING:
            self.violate(journal, f"suspects {peer} while it leaves")
        is_stranger = peer not in journal.ever_linked
        if is_stranger and not journal.ready:
            self.violate(journal, f"suspects {peer}, a stranger, and was never ready")
        # A link that opened in this step, after the suspicion, has ended it.
        known = [link for link in journal.former_links.values() if link.peer == peer]
        if is_deadline(event):
            for link in known:
                if not self._is_silent(journal, inside, link.heard_ns, link.unechoed):
                    self.violate(journal, f"suspects {peer}, and heard from it in time")
        elif isinstance(event, DialFailed):
            suspected = journal.suspected.get(peer)
            if suspected and self._dialled is not None and self._dialled < suspected.incarnation:
                self.violate(journal, f"suspects {peer} because of a dial to its former life")
            if event.evidence in _PROVING and known:
                self.violate(journal, f"suspects {peer}, to which it is linked")
        elif not isinstance(event, LinkDown | LinkUp):
            # A link to a former life counts as a dial that came to nothing.
            self.violate(journal, f"suspects {peer} because of {type(event).__name__}")

    def _is_silent(
        self, journal: Journal, inside: Inside, heard_ns: int, unechoed: Sequence[tuple[int, int]]
    ) -> bool:
        timeout_ns = inside.settings.timeout_ns
        if journal.now_ns - heard_ns >= timeout_ns:
            return True
        grace_ns = timeout_ns + inside.settings.heartbeat_ns
        return bool(unechoed) and journal.now_ns - unechoed[0][1] >= grace_ns

    def _check_asked(
        self, journal: Journal, inside: Inside, effects: Sequence[Effect], peer: NodeId
    ) -> None:
        asks = [
            e.message
            for e in effects
            if isinstance(e, Send) and isinstance(e.message, Ask) and e.message.suspect == peer
        ]
        asked = [ask.route.destination for ask in asks if ask.route.source == journal.host.id]
        near = inside.membership.neighbors(peer)
        able = [n for n in near if n != journal.host.id and not inside.membership.is_gone(n)]
        if len(asked) > OBSERVERS_MAX or len(set(asked)) != len(asked):
            self.violate(journal, f"asks {asked} about {peer}")
        # Later in the same step the layout may have changed.
        moved = any(isinstance(effect, RecordChanged) for effect in effects)
        if not moved and not set(asked) <= set(able):
            self.violate(journal, f"asks {asked} about {peer}, its neighbors are {able}")
        reachable = [n for n in able if inside.links.to(n) is not None]
        if not asked and len(reachable) == len(able) > 0:
            self.violate(journal, f"asks nobody about {peer}, and could ask {able}")

    def _check_silent(self, journal: Journal, inside: Inside) -> None:
        if inside.context.state is NodeState.LEAVING or journal.exited:
            return
        detector = inside.detector
        most_ns = 3 * inside.settings.timeout_ns
        if not 0 <= detector.stretch_ns <= most_ns:
            self.violate(journal, f"a timeout stretched by {detector.stretch_ns // 10**6} ms")
        stretch_ns = self._longest_stretch(journal, min(journal.lag_ns, most_ns), 2 * most_ns)
        patience_ns = 2 * inside.settings.timeout_ns + stretch_ns
        self._watching.look(journal)
        if journal.now_ns > self._due[journal.place]:
            self._check_links(journal, inside, patience_ns)

    def _longest_stretch(self, journal: Journal, lag_ns: int, kept_ns: int) -> int:
        """The longest of late: deadlines that were set with it may still stand, whatever it is now."""
        falling = self._stretches[journal.place]
        stretch_ns = max(lag_ns, journal.inside.detector.stretch_ns)
        while falling and falling[-1][0] <= stretch_ns:
            falling.pop()
        falling.append((stretch_ns, journal.now_ns))
        while journal.now_ns - falling[0][1] > kept_ns:
            falling.popleft()
        return falling[0][0]

    def _check_links(self, journal: Journal, inside: Inside, patience_ns: int) -> None:
        watched, watched_ns = self._watching.look(journal)
        # In a large cluster the others are tried in turn, one in each interval.
        turn_ns = inside.settings.heartbeat_ns * (1 + len(journal.links))
        earliest_ns = journal.now_ns
        latest: dict[NodeId, SeenLink] = {}
        for link in journal.links.values():
            earliest_ns = min(earliest_ns, max(link.heard_ns, journal.late_ns))
            if link.peer not in latest or link.heard_ns > latest[link.peer].heard_ns:
                latest[link.peer] = link
        for link in latest.values():
            # What came on another link of the pair, until that ended, was heard from the same peer.
            parted_ns = self._parted[journal.place].get(link.peer, 0)
            since_ns = max(link.heard_ns, journal.late_ns, journal.starting_ns, parted_ns)
            since_ns = max(since_ns, link.opened_ns, watched_ns.get(link.peer, 0))
            # Who is gone already is not suspected; its link closes when silence is looked at again.
            grace_ns = inside.settings.timeout_ns * inside.membership.is_gone(link.peer)
            if watched is not None and link.peer not in watched:
                grace_ns += turn_ns
            silent = journal.now_ns - since_ns > patience_ns + grace_ns
            if silent and not inside.suspects(link.peer):
                text = f"{link.peer} is silent for {(journal.now_ns - since_ns) // 10**6} ms"
                self.violate(journal, f"{text}, linked and not suspected")
                return
        # Nobody is silent for too long before the one that is silent for longest now can be.
        self._due[journal.place] = earliest_ns + 2 * inside.settings.timeout_ns


class LateNodesReset(Checker):
    """A node that was itself late shows its digest on every link, and expects no former echo.

    One that has not begun, or whose deadlines it reaches in time, does nothing of it.
    """

    name: ClassVar[str] = "late-nodes-reset"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._late_ns: dict[NodeId, int] = {}
        self._expect = False

    def on_boot(self, journal: Journal) -> None:
        self._late_ns.pop(journal.place, None)

    def before(self, journal: Journal, event: Event) -> None:
        self._expect = False
        if journal.lag_ns <= LATE_NS:
            return
        due_ns = journal.host.node.deadline_ns
        if due_ns is None or journal.inside.context.state is NodeState.STARTING:
            return
        # What a pause made overdue stays so for the events that follow: one reset is for all of them.
        overdue_ns = journal.now_ns - max(due_ns, self._late_ns.get(journal.place, due_ns))
        if overdue_ns > LATE_NS:
            self._late_ns[journal.place] = journal.now_ns
            self._expect = True

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not self._expect:
            if any(isinstance(effect, Observed) and effect.event == "late" for effect in effects):
                self.violate(journal, f"says that it is late, by {journal.lag_ns // 10**6} ms")
            return
        if journal.late_ns != journal.now_ns:
            self.violate(journal, f"{journal.lag_ns // 10**6} ms late, and its stamps stay")
        for link in journal.inside.links.table.values():
            if link.unechoed and link.unechoed[0][1] < journal.now_ns:
                self.violate(
                    journal, f"late, and waits for the echo of {link.peer} to a former heartbeat"
                )


class NoFalseDeath(Checker):
    """Nobody undisturbed declares somebody undisturbed dead.

    Disturbed is who was started, stopped, cut, slowed or reset a moment ago; a verdict on one that died
    is never false.
    """

    name: ClassVar[str] = "no-false-death"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Observed,)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Observed) and effect.event == "verdict":
                assert effect.peer is not None
                self._check(journal, effect.peer, effect.incarnation)

    def _check(self, journal: Journal, peer: NodeId, life: Incarnation | None) -> None:
        victim = self.scene.of_node(peer)
        if victim is None or not victim.host.alive or victim.exited or victim.incarnation != life:
            return
        if self.scene.is_disturbed(victim.place) or self.scene.is_disturbed(journal.place):
            return
        self.violate(journal, f"declares {peer} dead, which lives and was not disturbed")
