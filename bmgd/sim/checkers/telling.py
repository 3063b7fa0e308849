"""Telling everybody: what a node must send because of what it learned, and to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Effect, Exit, RecordChanged, Send, Welcome
from bmgd.core.events import DeadlineReached, Event, LinkUp, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.sim.checkers.watching import Watching
from bmgd.types import NODE_ID_MAX, LinkId, NodeId, NodeState, Record
from bmgd.wire.bounds import RECORDS_PER_NOTICE_MAX
from bmgd.wire.link_messages import (
    BUCKETS,
    Buckets,
    Heartbeat,
    Notice,
    PageAsk,
    Ping,
    Pong,
    RecordPage,
)

PAGE_NS = 3_000_000_000
REST_NS = 12_000_000_000
"""For so long after its last page a peer for which another one waited need not be asked again."""
FLOOD_NS = 100_000_000
"""How long a changed record may be gathered with others before it goes out."""


class ChangesAreFlooded(Checker):
    """A record that changed goes out over every link but the one it came on.

    A link that is up when the record changes, or comes up before it has gone out, is among them: there
    is no moment at which a link has shown the digest and is not yet flooded. Of the pages that a node
    fetches only the first is passed on: who has missed as much fetches the others too.
    """

    name: ClassVar[str] = "changes-are-flooded"
    events: ClassVar[Kinds] = (Notice, RecordPage, DeadlineReached)
    effects: ClassVar[Kinds] = (RecordChanged, Notice, PageAsk)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._owed: dict[NodeId, dict[tuple[LinkId, NodeId], tuple[Record, int]]] = {}
        self._goes_on: dict[NodeId, set[LinkId]] = {}
        """The links over which each process has asked for a page that follows another."""

    def on_boot(self, journal: Journal) -> None:
        self._owed[journal.place], self._goes_on[journal.place] = {}, set()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        owed = self._owed[journal.place]
        records: Sequence[tuple[NodeId, Record]] = ()
        came_on: LinkId | None = None
        if isinstance(event, Received) and isinstance(event.message, Notice | RecordPage):
            came_on, records = event.link, event.message.records
            for node_id, record in records if owed else ():
                due = owed.get((came_on, node_id))
                if due is not None and record >= due[0]:
                    del owed[came_on, node_id]
        if effects:
            is_later_page = came_on in self._goes_on[journal.place] and not isinstance(
                event.message if isinstance(event, Received) else None, Notice
            )
            self._note_changes(journal, effects, came_on, records, owes=not is_later_page)
            self._note_pages(journal, effects)
        if owed and is_deadline(event):
            self._dun(journal)

    def _note_pages(self, journal: Journal, effects: Sequence[Effect]) -> None:
        goes_on = self._goes_on[journal.place]
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, PageAsk):
                if effect.message.after:
                    goes_on.add(effect.link)
                else:
                    goes_on.discard(effect.link)

    def _note_changes(
        self,
        journal: Journal,
        effects: Sequence[Effect],
        came_on: LinkId | None,
        records: Sequence[tuple[NodeId, Record]],
        *,
        owes: bool,
    ) -> None:
        """What changed is owed, unless it is of a later page; what goes out is not owed any more."""
        owed, told = self._owed[journal.place], set(records)
        changed = [e for e in effects if isinstance(e, RecordChanged)]
        for effect in changed if owes else ():
            for link_id in journal.links:
                if link_id != came_on or (effect.id, effect.record) not in told:
                    owed[link_id, effect.id] = effect.record, journal.now_ns
        told &= {(e.id, e.record) for e in changed}
        if owed or changed:
            self._strike_off(journal, effects, came_on, told)

    def _strike_off(
        self,
        journal: Journal,
        effects: Sequence[Effect],
        came_on: LinkId | None,
        told: set[tuple[NodeId, Record]],
    ) -> None:
        owed = self._owed[journal.place]
        inside = journal.inside
        moved = {e.id for e in effects if isinstance(e, RecordChanged)}
        membership, own = inside.membership, (journal.host.id, inside.context.own_record())
        for effect in effects:
            if not (isinstance(effect, Send) and isinstance(effect.message, Notice)):
                continue
            for node_id, record in effect.message.records:
                believed = membership.get(node_id)
                # What was told first may have been outranked later in the same step.
                outranked = believed and record < believed and node_id in moved
                outranked = outranked or node_id in membership.retired
                if believed != record and not outranked:
                    self.violate(journal, f"tells {record} of {node_id}, and does not believe it")
                due = owed.get((effect.link, node_id))
                if due is not None and record >= due[0]:
                    del owed[effect.link, node_id]
                elif effect.link == came_on and (node_id, record) in told - {own}:
                    peer = journal.links.get(effect.link)
                    if peer is not None and peer.peer != node_id:
                        self.violate(journal, f"sends {node_id}'s record back to {peer.peer}")

    def _dun(self, journal: Journal) -> None:
        owed = self._owed[journal.place]
        for (link_id, node_id), (record, since_ns) in list(owed.items()):
            link = journal.links.get(link_id)
            if link is None or node_id in journal.inside.membership.retired:
                del owed[link_id, node_id]
            elif journal.now_ns - since_ns > FLOOD_NS:
                del owed[link_id, node_id]
                self.violate(journal, f"did not tell {link.peer} that {node_id} is {record}")


class LinksBeginWithADigest(Checker):
    """A link that comes up carries a heartbeat at once, with the digest of what is believed then."""

    name: ClassVar[str] = "links-begin-with-a-digest"
    events: ClassVar[Kinds] = (LinkUp,)
    effects: ClassVar[Kinds] = (Welcome, Heartbeat)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        opened = {e.link for e in effects if isinstance(e, Welcome)}
        if isinstance(event, LinkUp):
            opened.add(event.link)
        opened &= journal.links.keys()
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Heartbeat):
                opened.discard(effect.link)
                self._check_echo(journal, effect.link, effect.message)
        for link_id in sorted(opened):
            self.violate(journal, f"no heartbeat on the new link to {journal.links[link_id].peer}")

    def _check_echo(self, journal: Journal, link_id: LinkId, heartbeat: Heartbeat) -> None:
        link = journal.links.get(link_id)
        # A node that finds itself late sends heartbeats before it takes in those that the event tells of.
        if link is not None and not link.came_before <= heartbeat.echo <= link.came:
            self.violate(journal, f"echoes {heartbeat.echo} to {link.peer}, {link.came} came")


class HeartbeatsArePaced(Checker):
    """Every watched link carries a heartbeat each interval, with a true digest: of 128 nodes all are."""

    name: ClassVar[str] = "heartbeats-are-paced"
    events: ClassVar[Kinds] = (DeadlineReached,)
    effects: ClassVar[Kinds] = (Heartbeat,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._watching = Watching()
        self._due: dict[NodeId, int] = {}
        self._started: dict[NodeId, int] = {}
        """When each process reached its first deadline: its clock may leap before."""

    def on_boot(self, journal: Journal) -> None:
        self._watching.on_boot(journal)
        self._due[journal.place] = 0
        self._started.pop(journal.place, None)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        if is_deadline(event):
            self._started.setdefault(journal.place, journal.now_ns)
        if effects and not any(isinstance(effect, RecordChanged) for effect in effects):
            digest = inside.membership.digest
            for effect in effects:
                beat = effect.message if isinstance(effect, Send) else None
                if isinstance(beat, Heartbeat) and beat.digest != digest:
                    self.violate(journal, "a heartbeat with another digest than its own")
        if not is_deadline(event) or journal.lag_ns:
            return
        self._watching.look(journal)
        if journal.now_ns > self._due[journal.place]:
            self._check_pauses(journal, 3 * inside.settings.heartbeat_ns)

    def _check_pauses(self, journal: Journal, pause_ns: int) -> None:
        watched, watched_ns = self._watching.look(journal)
        detector = journal.inside.detector
        is_current = detector._watched_at_revision == journal.inside.membership.revision
        if is_current and detector._watched != watched:
            self.violate(journal, f"watches {detector._watched}, not {watched}")
        # No pause is too long before the present one of some link is.
        earliest_ns = journal.now_ns
        for link in journal.links.values():
            if watched is not None and link.peer not in watched:
                continue
            since_ns = max(link.beat_ns, journal.late_ns, self._started[journal.place])
            since_ns = max(since_ns, watched_ns.get(link.peer, 0))
            if journal.now_ns - since_ns > pause_ns:
                self.violate(journal, f"no heartbeat to {link.peer} for {pause_ns // 10**6} ms")
                link.beat_ns = journal.now_ns
            else:
                earliest_ns = min(earliest_ns, since_ns)
        self._due[journal.place] = earliest_ns + pause_ns


class QuestionsAreAnswered(Checker):
    """A ping is answered with its nonce at once, a page that is asked for by all that there is of it.

    Where buckets differ, the records of just those are asked for, unless a page is underway already, or
    the peer was asked before, while another one waited.
    """

    name: ClassVar[str] = "questions-are-answered"
    events: ClassVar[Kinds] = (Ping, Buckets, PageAsk)
    effects: ClassVar[Kinds] = (PageAsk,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked_ns: dict[NodeId, dict[LinkId, int]] = {}
        self._waited_for: dict[NodeId, set[LinkId]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._asked_ns[journal.place] = {}
        self._waited_for[journal.place] = set()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        before = self._asked_ns[journal.place]
        # A page that was asked for over a link which this node closed is waited for all the same.
        asked = {
            link: at_ns
            for link, at_ns in before.items()
            if link in journal.links or journal.now_ns - at_ns < PAGE_NS
        }
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, PageAsk):
                asked[effect.link] = journal.now_ns
                if effect.message.after == 0:
                    self._waited_for[journal.place].discard(effect.link)
        self._asked_ns[journal.place] = asked
        if not isinstance(event, Received) or event.link not in journal.links:
            return
        sent = [e.message for e in effects if isinstance(e, Send) and e.link == event.link]
        match event.message:
            case Ping(nonce):
                if Pong(nonce) not in sent:
                    self.violate(journal, f"a ping of {journal.links[event.link].peer} unanswered")
            case Buckets() as theirs:
                is_excused = self._is_excused(journal, event.link, before)
                self._check_buckets(journal, theirs, sent, is_excused=is_excused)
            case PageAsk() as ask:
                self._check_page(journal, ask, sent)
            case _:
                pass

    def _is_excused(self, journal: Journal, link: LinkId, asked_ns: dict[LinkId, int]) -> bool:
        """Whether a page is underway, or the peer had its turn while another one waited."""
        underway = {i for i, at_ns in asked_ns.items() if journal.now_ns - at_ns < PAGE_NS}
        self._waited_for[journal.place] |= underway - {link}
        if underway:
            return True
        if link not in asked_ns or link not in self._waited_for[journal.place]:
            return False
        return journal.now_ns - asked_ns[link] < PAGE_NS + REST_NS

    def _check_buckets(
        self, journal: Journal, theirs: Buckets, sent: Sequence[object], *, is_excused: bool
    ) -> None:
        ours = journal.inside.membership.buckets
        differing = sum(1 << i for i in range(BUCKETS) if ours[i] != theirs.digests[i])
        asks = [m for m in sent if isinstance(m, PageAsk)]
        if differing and not asks and not is_excused:
            self.violate(journal, "buckets differ, no page is asked for")
        if any((ask.after, ask.buckets) != (0, differing) for ask in asks):
            self.violate(journal, f"asks for {asks}, buckets {differing:#x} differ")
        if theirs.answer and not any(isinstance(m, Buckets) and not m.answer for m in sent):
            self.violate(journal, "buckets were asked for and are not sent")

    def _check_page(self, journal: Journal, ask: PageAsk, sent: Sequence[object]) -> None:
        pages = [m for m in sent if isinstance(m, RecordPage)]
        if len(pages) != 1:
            self.violate(journal, f"{len(pages)} pages for one that was asked for")
            return
        page, membership = pages[0], journal.inside.membership
        end = NODE_ID_MAX + 1 if page.following is None else page.following
        due = [
            (node_id, record)
            for node_id, record in sorted(membership.exceptions().items())
            if ask.after <= node_id < end and ask.buckets >> node_id % BUCKETS & 1
        ]
        if list(page.records) != due or end <= ask.after:
            self.violate(journal, f"a page from {ask.after} to {end} is not what it believes")
        retired = [
            (max(first, ask.after), min(last, end - 1))
            for first, last in membership.retired.pairs
            if first < end and last >= ask.after
        ]
        if list(page.retired) != retired:
            self.violate(journal, f"retired are {retired}, its page has {page.retired}")
        if max(len(page.records), len(page.retired)) > RECORDS_PER_NOTICE_MAX:
            self.violate(journal, f"a page of {len(page.records)} records")


class NoticesAreWellFormed(Checker):
    """A notice holds 1..256 records, one of each id, by id; a node that leaves tells it at last."""

    name: ClassVar[str] = "notices-are-well-formed"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Notice, Exit)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Notice):
                ids = [node_id for node_id, _ in effect.message.records]
                if not 0 < len(ids) <= RECORDS_PER_NOTICE_MAX or ids != sorted(set(ids)):
                    self.violate(journal, f"a notice of the ids {ids}")
        inside = journal.inside
        # One that was evicted while it drained has nothing to tell.
        ended = any(isinstance(effect, Exit) and effect.code == 0 for effect in effects)
        leaves = inside.context.state is NodeState.LEAVING and ended
        believed = inside.own_belief()
        if leaves and (believed is None or believed.status.name != "LEFT"):
            self.violate(journal, "it left and told nobody")
