"""Lives and their ends: incarnations only grow, and a living node has the last word on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.commands import Leave
from bmgd.core.effects import Dial, Effect, Exit, RecordChanged, Renewed
from bmgd.core.events import CommandIssued, DialFailed, Event, Greeted, LinkUp, Received
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.memberships import order_of
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import Incarnation, NodeId, NodeState, Record, Status
from bmgd.wire.hello import MISCONFIGURED
from bmgd.wire.link_messages import Notice

REFUSED_BY_ALL: Final = "every neighbor refuses"
LEFT: Final = "left the cluster"
_OF_OWN_ID: Final = (
    "another life has the id {}",
    "another living daemon has the id {}",
    "the id {} was given up",
    "the id {} was given twice",
    "the id {} is claimed again and again",
    "no incarnation of the id {} is left",
)
_GIVEN_UP: Final = "the id {} was given up"
_VERSION_MAX: Final = 2**32 - 1
_REASONS: Final = (
    "this node was evicted from the cluster",
    "this node was declared dead, and --on-declared-dead is exit",
    REFUSED_BY_ALL,
)
"""How the reasons of an exit begin that was not asked for; those of an id name the own one."""


class LivesGrow(Checker):
    """Incarnations only grow: a node's own, with its version, and those of others that are vouched.

    How often it begins a new one is counted, as it may do so only so often. Who is told of a former life
    of its own over a link takes nothing for it that is for any life.
    """

    name: ClassVar[str] = "lives-grow"
    events: ClassVar[Kinds] = (Look, LinkUp, Greeted)
    effects: ClassVar[Kinds] = (RecordChanged, Renewed)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._own: dict[NodeId, tuple[Incarnation, int]] = {}
        self._known: dict[NodeId, dict[NodeId, int]] = {}
        self._lives: dict[NodeId, dict[NodeId, Incarnation]] = {}
        self._moved: dict[NodeId, set[NodeId]] = {}

    def on_boot(self, journal: Journal) -> None:
        context = journal.inside.context
        self._own[journal.place] = context.incarnation, context.version
        self._known[journal.place] = {}
        self._lives[journal.place] = {}
        self._moved[journal.place] = set(journal.inside.membership.exceptions())

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        own = inside.context.incarnation, inside.context.version
        if own < self._own[journal.place]:
            self.violate(
                journal, f"its own life and version fell from {self._own[journal.place]} to {own}"
            )
        renewed = False
        for effect in effects:
            if isinstance(effect, RecordChanged):
                self._moved[journal.place].add(effect.id)
            elif isinstance(effect, Renewed):
                renewed = True
        if (own[0] != self._own[journal.place][0]) != renewed:
            self.violate(
                journal,
                f"life {own[0]:#x} after {self._own[journal.place][0]:#x} without being told",
            )
        begun_ns = inside.lifecycle._begun_ns
        if renewed and not (begun_ns and begun_ns[-1] == journal.now_ns):
            self.violate(journal, "begins a new life, and does not count it")
        is_linked = isinstance(event, LinkUp | Greeted) and event.link in journal.links
        told = event.known_of_me if isinstance(event, LinkUp | Greeted) and is_linked else 0
        if 0 < told < own[0] and not inside.context.followed:
            self.violate(journal, f"was told of its life {told:#x}, and follows none")
        self._own[journal.place] = own
        if is_deadline(event):
            self._compare(journal, inside)

    def _compare(self, journal: Journal, inside: Inside) -> None:
        place = journal.place
        lives, moved, known = inside.lives(), self._moved[place], self._known[place]
        if lives != self._lives[place]:
            moved |= {peer for peer, _ in lives.items() ^ self._lives[place].items()}
            self._lives[place] = dict(lives)
        for peer in moved:
            if peer in inside.membership.retired:
                known.pop(peer, None)
                continue
            life = int(inside.membership.vouched(peer))
            if life < known.get(peer, 0):
                self.violate(journal, f"the life of {peer} fell from {known[peer]:#x} to {life:#x}")
            known[peer] = life
        moved.clear()
        for link in journal.links.values():
            # A link may last longer than what is known of a joiner that left: its end may be asleep.
            if link.peer in inside.membership.retired:
                continue
            if inside.membership.vouched(link.peer) < link.incarnation:
                self.violate(journal, f"forgot the life of {link.peer}, to which it is linked")


class AccusationIsAnswered(Checker):
    """A living node has the last word on its own life.

    What it is told of itself it outranks at once: by a higher version, by a new life above a dead one;
    or it ends, for an eviction and for another life that lives. Its own record says alive. Where another
    life is said to live it may look first, and then leads a higher one, or has lost its id. It looks at
    each address but its own one; and begins no new life for what a version refutes.
    """

    name: ClassVar[str] = "accusation-is-answered"
    events: ClassVar[Kinds] = (Notice, DialFailed, Look)
    before_events: ClassVar[Kinds] = (Notice,)
    effects: ClassVar[Kinds] = (RecordChanged, Renewed, Dial)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._life = Incarnation(0)
        self._claimed: dict[NodeId, Incarnation] = {}
        """The highest life of its own id that each process looks into."""
        self._right: dict[NodeId, tuple[Record | None, Incarnation, int]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._right.pop(journal.place, None)
        self._claimed.pop(journal.place, None)

    def before(self, journal: Journal, event: Event) -> None:
        self._life = journal.incarnation

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        context = inside.context
        if journal.exited or context.state in (NodeState.STARTING, NodeState.LEAVING):
            return
        believed = inside.own_belief()
        look = believed, context.incarnation, context.version
        if look != self._right.get(journal.place):
            own = context.own_record()
            if believed is not None and believed != own:
                self.violate(journal, f"it is {own}, and believes {believed}")
            else:
                self._right[journal.place] = look
        if isinstance(event, Received) and isinstance(event.message, Notice):
            self._check_answer(journal, event.message, believed)
            if any(isinstance(effect, Renewed) for effect in effects):
                self._check_renewal(journal, event.message)
        me, address = journal.host.id, context.settings.address
        if any(isinstance(e, Dial) and (e.peer, e.address) == (me, address) for e in effects):
            self.violate(journal, "looks for another life of its own at its own address")
        if self._claimed and journal.host.id not in journal.dials:
            claimed = self._claimed.pop(journal.place, Incarnation(0))
            if claimed > context.incarnation:
                self.violate(journal, f"has looked into a life {claimed:#x}, and stays as it was")

    def _check_renewal(self, journal: Journal, notice: Notice) -> None:
        """A later life is gone, or is said to be where this one is; or no version is left."""
        own = journal.inside.settings.address
        of_this = [record for node_id, record in notice.records if node_id == journal.host.id]
        for record in of_this:
            is_gone = record.status >= Status.DEAD or record.address == own
            if (record.incarnation > self._life and is_gone) or record.version >= _VERSION_MAX:
                return
        self.violate(journal, f"begins a new life for {of_this}, in its life {self._life:#x}")

    def _check_answer(self, journal: Journal, notice: Notice, believed: Record | None) -> None:
        me = journal.host.id
        for node_id, record in notice.records:
            if node_id != me:
                continue
            own = journal.inside.context.own_record()
            is_of_this = record.incarnation == own.incarnation and order_of(record) > order_of(own)
            if record.status is Status.LEFT and is_of_this:
                # Who gave up a version that was refuted meanwhile has it from the one that refuted.
                self.violate(journal, "it was evicted, and goes on")
            elif me in journal.dials and record.status < Status.DEAD:
                known = self._claimed.get(journal.place, Incarnation(0))
                self._claimed[journal.place] = max(known, record.incarnation)
            elif order_of(record) > order_of(own):
                self.violate(journal, f"told {record}, it stays {own}")
            elif believed is None:
                self.violate(journal, f"told {record}, it has no record of its own")


class ExitsHaveAReason(Checker):
    """A daemon ends only when asked, evicted, a duplicate, or configured for another cluster.

    Configured for another cluster: it was never linked, and all whom it wants to be linked to refuse it
    for good. Whoever says so before `start_ms` are over has proven to be a member, or none can.
    """

    name: ClassVar[str] = "exits-have-a-reason"
    events: ClassVar[Kinds] = (CommandIssued, DialFailed)
    effects: ClassVar[Kinds] = (Exit,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._begun_ns: dict[NodeId, int] = {}
        self._asked: set[NodeId] = set()
        self._refused: dict[NodeId, dict[NodeId, bool]] = {}
        """Who refuses a process for good, by its place, and whether that is proven."""

    def on_boot(self, journal: Journal) -> None:
        place = journal.place
        self._begun_ns[place] = journal.host.local_ns(self.scene.now_ns)
        self._asked.discard(place)
        self._refused[place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, CommandIssued) and isinstance(event.command, Leave):
            self._asked.add(journal.place)
        elif isinstance(event, DialFailed):
            refused = self._refused[journal.place]
            if event.refusal in MISCONFIGURED:
                refused[event.peer] = event.proven
            elif not refused.get(event.peer, True):
                del refused[event.peer]
        for effect in effects:
            if isinstance(effect, Exit):
                problem = self._problem(journal, event, effect)
                if problem:
                    self.violate(journal, f"ended {problem}: {effect.reason}")

    def _problem(self, journal: Journal, event: Event, ended: Exit) -> str:
        is_known = ended.code in (0, 1) and bool(ended.code) == (ended.reason != LEFT)
        reasons = (*_REASONS, *(text.format(journal.host.id) for text in _OF_OWN_ID))
        if not is_known or (ended.code and not ended.reason.startswith(reasons)):
            return f"with code {ended.code}, for a reason that is none"
        is_founder = journal.host.id < self.scene.network.size
        if is_founder and ended.reason.startswith(_GIVEN_UP.format(journal.host.id)):
            return "though no id of a founder is given up"
        if not ended.code:
            return "" if journal.place in self._asked else "and was not asked to"
        if isinstance(event, Received) and isinstance(event.message, Notice):
            return "" if self._is_outranked(journal, event) else "for no record"
        if ended.reason.startswith(REFUSED_BY_ALL):
            return self._why_not_refused(journal)
        return ""

    def _why_not_refused(self, journal: Journal) -> str:
        if journal.ever_linked:
            return "though it was linked"
        refused, wanted = self._refused[journal.place], journal.inside.dialling.wanted
        if not wanted or not refused.keys() >= set(wanted):
            return f"though not all of {wanted} refuse it"
        waited_ns = journal.now_ns - self._begun_ns[journal.place]
        is_in_time = waited_ns >= journal.inside.settings.start_ns
        if not is_in_time and not all(refused[peer] for peer in wanted):
            return f"after {waited_ns / 1e6:.0f} ms for what nobody has proven"
        return ""

    def _is_outranked(self, journal: Journal, event: Event) -> bool:
        assert isinstance(event, Received)
        assert isinstance(event.message, Notice)
        own = journal.incarnation
        return any(
            node_id == journal.host.id
            and (
                record.incarnation > own
                or (record.incarnation == own and record.status >= Status.DEAD)
            )
            for node_id, record in event.message.records
        )
