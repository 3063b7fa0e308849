"""What a node orders of its shell: only what can be done, once, and answered once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, get_args

from bmgd.core.commands import (
    AskReports,
    BroadcastTo,
    CloseStream,
    Consumed,
    ConsumedAnnouncements,
    Evict,
    FindReaders,
    MulticastTo,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    OpenStream,
    ProbeTo,
    PutSegment,
    Register,
    SendTo,
    Settled,
    ShowLinks,
    ShowMembers,
    ShowPrograms,
    ShowReport,
    ShowStatus,
    Subscribe,
    TraceFrom,
    Unregister,
    Unsubscribe,
    Withdraw,
)
from bmgd.core.effects import (
    Close,
    Dial,
    Displaced,
    Effect,
    ForwardingChanged,
    Observed,
    Refuse,
    Reply,
    Send,
    Welcome,
)
from bmgd.core.events import (
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    JoinAsked,
    LinkDown,
    LinkUp,
)
from bmgd.routing import Snapshot
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import LinkId, NodeId, NodeState, Status, outranks
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.messages import Message

SLACK_NS = 200_000_000


class OrdersCanBeDone(Checker):
    """Messages go to links that are up; a link is closed once; the node's table is the journal's."""

    name: ClassVar[str] = "orders-can-be-done"
    events: ClassVar[Kinds] = (LinkUp, LinkDown, Look)
    effects: ClassVar[Kinds] = (Welcome, Close, *get_args(Message))

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if effects:
            self._check_effects(journal, event, effects)
        table = journal.inside.links
        if table.table.keys() != journal.links.keys():
            self.violate(journal, f"links {list(table.table)}, up are {list(journal.links)}")
        if journal.links_before is None and not is_deadline(event):
            return
        rows = [link.id for links in table.by_peer.values() for link in links]
        if sorted(rows) != sorted(table.table) or not all(table.by_peer.values()):
            self.violate(journal, f"links by peer {rows}, by id {list(table.table)}")

    def _check_effects(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        up = set(journal.former_links)
        if isinstance(event, LinkUp):
            up.add(event.link)
        elif isinstance(event, LinkDown):
            up.discard(event.link)
        for effect in effects:
            match effect:
                case Welcome(link_id):
                    up.add(link_id)
                case Close(link_id):
                    if link_id not in up:
                        self.violate(journal, f"closes link {link_id}, which is not up")
                    up.discard(link_id)
                case Send(link_id, message) if link_id not in up:
                    if isinstance(message, Heartbeat) and isinstance(event, LinkDown):
                        # A node that finds itself late sends heartbeats before it takes in the event.
                        continue
                    name = type(effect.message).__name__
                    self.violate(journal, f"sends a {name} to link {link_id}, which is not up")
                case _:
                    pass


class DialsAreSingle(Checker):
    """One dial at a time to a peer, to its recorded address, with the life that is known, numbered."""

    name: ClassVar[str] = "dials-are-single"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Dial,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._open: dict[NodeId, int] = {}
        self._numbers: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._numbers[journal.place] = 0

    def before(self, journal: Journal, event: Event) -> None:
        self._open = {}
        if journal.dials:
            self._open = {peer: dial.dial_number for peer, (dial, _) in journal.dials.items()}
        if isinstance(event, DialFailed | LinkUp):
            self._open.pop(event.peer, None)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        for effect in effects:
            if not isinstance(effect, Dial):
                continue
            if effect.peer == journal.host.id and _looks_into_claim(effect, effects):
                self._numbers[journal.place] = effect.dial_number
                continue
            if effect.peer in self._open or effect.peer == journal.host.id:
                self.violate(journal, f"dials {effect.peer} twice at once, or itself")
            self._open[effect.peer] = effect.dial_number
            if effect.dial_number <= self._numbers[journal.place]:
                self.violate(journal, f"dial {effect.dial_number} is not above the last one")
            self._numbers[journal.place] = effect.dial_number
            if effect.peer in inside.membership.retired:
                # It became so in this very step, after the dial was ordered: it will be refused.
                continue
            record = inside.membership.get(effect.peer)
            if record is None or record.address != effect.address:
                self.violate(journal, f"dials {effect.peer} at {effect.address}, not {record}")
            if effect.known > inside.membership.vouched(effect.peer):
                self.violate(journal, f"dials a life of {effect.peer} that it does not know")
            # Who begins with an id that another has learns it in the step that dials.
            leaves = inside.context.state is NodeState.LEAVING
            if leaves and not any(isinstance(e, Displaced) for e in effects):
                self.violate(journal, f"dials {effect.peer} while it leaves")


def _looks_into_claim(dial: Dial, effects: Sequence[Effect]) -> bool:
    """Whether a node dials its own id, where another life of it is said to be."""
    return any(
        isinstance(effect, Observed)
        and (effect.event, effect.detail) == ("claimed", f"at {dial.address}")
        for effect in effects
    )


class HellosAreAnsweredByRule(Checker):
    """Each hello is answered once, in time, and by the rules about lives.

    Refused is who speaks for a life below one that is known, who was evicted, and who claims the id of
    a life that still answers.
    """

    name: ClassVar[str] = "hellos-are-answered-by-rule"
    events: ClassVar[Kinds] = (Greeted, JoinAsked, DeadlineReached)
    effects: ClassVar[Kinds] = (Welcome, Refuse)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._hellos: dict[LinkId, tuple[Greeted, int]] = {}
        self._links: dict[NodeId, list[tuple[int, int]]] = {}
        self._joiners: set[LinkId] = set()

    def before(self, journal: Journal, event: Event) -> None:
        self._hellos = dict(journal.hellos)
        if self._hellos or isinstance(event, Greeted):
            self._links = {}
            for link in journal.links.values():
                self._links.setdefault(link.peer, []).append((link.incarnation, link.heard_ns))

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Greeted):
            self._hellos[event.link] = event, journal.now_ns
        elif isinstance(event, JoinAsked):
            # Link ids are unique in the whole network.
            self._joiners.add(event.link)
        for effect in effects:
            if isinstance(effect, Refuse) and effect.link in self._joiners:
                self._joiners.discard(effect.link)
            elif isinstance(effect, Welcome | Refuse):
                hello = self._hellos.pop(effect.link, None)
                if hello is None:
                    self.violate(journal, f"answers a hello on link {effect.link}: there is none")
                elif isinstance(effect, Welcome):
                    self._check_welcome(journal, event, *hello)
                else:
                    self._check_refusal(journal, effect, hello[0])
        if is_deadline(event):
            self._check_held(journal)

    def _check_welcome(self, journal: Journal, event: Event, hello: Greeted, since_ns: int) -> None:
        inside = journal.inside
        record = inside.membership.get(hello.peer)
        if outranks(inside.membership.vouched(hello.peer), hello.incarnation):
            self.violate(journal, f"welcomes a former life of {hello.peer}")
        if outranks(hello.known_of_me, journal.incarnation):
            self.violate(journal, f"welcomes {hello.peer}, which knows another life of it")
        evicted = record is not None and record.status is Status.LEFT
        if evicted and record is not None and record.incarnation == hello.incarnation:
            self.violate(journal, f"welcomes {hello.peer}, which was evicted")
        for incarnation, heard_ns in self._links.get(hello.peer, ()):
            if incarnation < hello.incarnation and not isinstance(event, LinkDown):
                waited = journal.now_ns - since_ns >= inside.settings.ask_ns
                if heard_ns > since_ns or not waited:
                    self.violate(
                        journal, f"welcomes a second {hello.peer}; the first still answers"
                    )

    def _check_refusal(self, journal: Journal, refuse: Refuse, hello: Greeted) -> None:
        known = journal.inside.membership.vouched(hello.peer)
        if refuse.refusal is Refusal.STALE_INCARNATION and not outranks(known, hello.incarnation):
            self.violate(journal, f"calls {hello.peer}'s life {hello.incarnation:#x} stale")
        if refuse.known != known:
            self.violate(journal, f"refuses {hello.peer}, and does not tell the life it knows")

    def _check_held(self, journal: Journal) -> None:
        settings = journal.inside.settings
        patience_ns = max(settings.dial_ns, settings.ask_ns) + SLACK_NS
        for hello, since_ns in list(journal.hellos.values()):
            if journal.now_ns - since_ns > patience_ns + journal.lag_ns:
                self.violate(journal, f"the hello of {hello.peer} is not answered")
                del journal.hellos[hello.link]


_UNANSWERED = (
    *(PutSegment, Withdraw, CloseStream, Consumed, Settled, Unsubscribe),
    *(ConsumedAnnouncements, AskReports, Unregister),
)
"""Commands that belong to a request that was answered, or is not answered by a `Reply`."""
_TIMED = SendTo | ProbeTo | BroadcastTo | MulticastTo | FindReaders | Evict
"""Commands that are answered at their deadline, or when their node ends or takes another id."""
_AT_ONCE = (
    *(OpenStream, OpenQuestions, OpenAnswers, OpenInbox, Subscribe),
    *(ShowStatus, ShowLinks, ShowMembers, ShowPrograms, ShowReport, Register),
)
"""Commands that are answered in the step that takes them."""


class RequestsAreAnsweredOnce(Checker):
    """A request of a program gets one reply, a message's at the latest at its deadline.

    Who opens a stream or an inbox, subscribes or looks at its daemon is answered at once. A node that
    takes another id answers before.
    """

    name: ClassVar[str] = "requests-are-answered-once"
    sees_unusable: ClassVar[bool] = True
    events: ClassVar[Kinds] = (CommandIssued, DeadlineReached)
    effects: ClassVar[Kinds] = (Reply, Displaced)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._open: dict[NodeId, dict[int, tuple[object, int]]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._open[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        waiting = self._open[journal.place]
        if isinstance(event, CommandIssued) and not isinstance(event.command, _UNANSWERED):
            waiting[event.request] = event.command, journal.now_ns
        for effect in effects:
            if isinstance(effect, Reply) and waiting.pop(effect.request, None) is None:
                self.violate(journal, f"answers request {effect.request} twice, or unasked")
        match event:
            case CommandIssued(request, command) if request in waiting:
                if isinstance(command, _AT_ONCE):
                    kind = type(command).__name__
                    self.violate(journal, f"does not answer a {kind} at once")
            case _:
                pass
        if any(isinstance(effect, Displaced) for effect in effects):
            left = [r for r, (command, _) in waiting.items() if isinstance(command, _TIMED)]
            if left:
                self.violate(journal, f"takes another id, and has not answered {left}")
        if not is_deadline(event) or journal.exited:
            return
        for request, (asked, since_ns) in list(waiting.items()):
            if not isinstance(asked, _TIMED | TraceFrom):
                continue
            # Another node measures for as long as it is allowed to, and its answer comes from afar.
            wait_ns = asked.timeout_ns * (2 if isinstance(asked, TraceFrom) else 1)
            if journal.now_ns - since_ns > wait_ns + SLACK_NS + journal.lag_ns:
                self.violate(journal, f"request {request} is past its deadline, unanswered")
                del waiting[request]


class SnapshotsAreCurrent(Checker):
    """After each step the published snapshot sends to every linked peer over its link, and no other.

    Its layout may be older, for as long as a relayout is planned.
    """

    name: ClassVar[str] = "snapshots-are-current"
    events: ClassVar[Kinds] = (LinkUp, LinkDown, Look)
    effects: ClassVar[Kinds] = (Welcome, Close, ForwardingChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._published: dict[NodeId, dict[NodeId, LinkId]] = {}
        self._generations: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._published[journal.place] = {}
        self._generations[journal.place] = -1

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        linked = {peer: links[0].id for peer, links in inside.links.by_peer.items()}
        changed = [e.snapshot for e in effects if isinstance(e, ForwardingChanged)]
        for snapshot in changed:
            if snapshot.generation <= self._generations[journal.place]:
                self.violate(journal, f"generation {snapshot.generation} was published before")
            self._generations[journal.place] = snapshot.generation
            self._published[journal.place] = linked
        if linked != self._published[journal.place]:
            self.violate(journal, f"links {linked}, published {self._published[journal.place]}")
            self._published[journal.place] = linked
        if changed:
            self._check_hops(journal, changed[-1], linked)

    def _check_hops(
        self, journal: Journal, snapshot: Snapshot, linked: Mapping[NodeId, LinkId]
    ) -> None:
        inside, links = journal.inside, set(linked.values())
        if not inside.plans_relayout() and snapshot.layout_size != inside.membership.layout_size:
            self.violate(journal, "the snapshot has another layout")
        hops = {
            peer: hop
            for peer in map(NodeId, range(snapshot.id_space))
            if (hop := snapshot.next_hop(peer)) != -1
        }
        others = {peer: hop for peer, hop in hops.items() if hop not in links}
        if others:
            self.violate(journal, f"the snapshot sends over links that are not up: {others}")
        # Who has left the layout has no rank in it, nor has anybody where this node is outside.
        near = [peer for peer in linked if inside.membership.in_layout(peer)]
        if inside.plans_relayout() or not inside.membership.in_layout(journal.host.id):
            near = [peer for peer in near if peer in hops]
        wrong = {peer: hops.get(peer) for peer in near if hops.get(peer) != linked[peer]}
        if wrong:
            self.violate(journal, f"the snapshot sends elsewhere: {wrong}, links {linked}")
