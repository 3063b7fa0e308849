"""What a daemon writes into its log names what happened: the event, the peer, its life, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from bmgd.core.commands import Leave
from bmgd.core.effects import (
    Dial,
    Displaced,
    Effect,
    Exit,
    Grant,
    Observed,
    RecordChanged,
    Refuse,
    Renewed,
    Welcome,
)
from bmgd.core.events import (
    Backlog,
    CommandIssued,
    DialFailed,
    Event,
    Greeted,
    KeysChanged,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Evidence, NodeId, Status
from bmgd.wire.ask_messages import Answer
from bmgd.wire.hello import Refusal
from bmgd.wire.messages import RoutedMessage

LATE_NS: Final = 400_000_000
"""A node whose deadline is later than this has not run for a while, and says so."""
_VERSION_MAX: Final = 2**32 - 1
_CAUSES: Final = "|".join(
    ["silence", *(e.value for e in Evidence), *(refusal.text for refusal in Refusal)]
)
_REFUSALS: Final = "|".join(refusal.text for refusal in Refusal)

FORMS: Final[dict[str, tuple[bool, bool, str]]] = {
    "assigned": (True, True, ""),
    "backlog": (False, False, r"link \d+: \d+ bytes"),
    "bad programs": (True, True, ".+"),
    "claimed": (True, True, "at .+"),
    "contested": (True, True, "messages name another life of it"),
    "displaced": (True, True, ".+"),
    "evicted": (True, True, ""),
    "expired": (False, False, r"\d+ messages of the topic .+ that nobody came to read"),
    "flooding": (
        True,
        False,
        r"more than \d+ messages a second(, by way of node \d+)?: the rest is not looked at",
    ),
    "given up": (True, True, ""),
    "healed": (False, False, r"[1-9]\d* dead leave the graph"),
    "joiner": (True, False, ""),
    "keys changed": (False, False, r"\d+ links to be renewed"),
    "late": (False, False, r"\d+ ms"),
    "leaving": (False, False, ""),
    "left unread": (False, False, r"[1-9]\d* messages that no program consumed"),
    "link down": (True, True, "|".join(e.value for e in Evidence)),
    "link up": (True, True, ""),
    "links exact": (False, False, r"\d+ links"),
    "new life": (True, True, ""),
    "not renewed": (True, False, _CAUSES),
    "older member": (
        True,
        True,
        r"its release has the features 0x[0-9a-f]+, this one 0x[0-9a-f]+",
    ),
    "quorum lost": (False, False, r"\d+ of \d+ live"),
    "quorum regained": (False, False, r"\d+ of \d+ live"),
    "ready": (False, False, r"\d+ links"),
    "refused": (True, True, _REFUSALS),
    "refuted": (True, True, "expected|alive|dead|excluded|left"),
    "refused joiner": (False, False, f"a joiner: ({_REFUSALS})"),
    "rejected": (True, False, _REFUSALS),
    "relayout": (False, False, r"\d+ links to add, \d+ to remove"),
    "renewed link": (True, True, ".+"),
    "stale source": (True, True, ""),
    "suspected": (True, True, _CAUSES),
    "unreachable": (True, False, r"from \d+|best effort"),
    "untold": (True, False, r"\d+ lost questions, and too many streams to say so"),
    "verdict": (True, True, _CAUSES),
    "vetoed": (True, False, r"by \d+"),
}
"""For each event: whether it names a peer, and a life of it; what its detail looks like. A joiner that is
refused has neither."""
_PATTERNS: Final = {event: re.compile(form[2]) for event, form in FORMS.items()}

Step = tuple[Journal, Observed, Event, Sequence[Effect]]


class LogLinesAreTrue(Checker):
    """A line of the log names the event that there was, with its peer, that peer's life, and the cause.

    Each link that opens or is lost, each new life, each lateness and each eviction has its line, once.
    """

    name: ClassVar[str] = "log-lines-are-true"
    events: ClassVar[Kinds] = (LinkDown, LinkUp)
    effects: ClassVar[Kinds] = (Observed, Renewed, Welcome)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._late_ns: dict[NodeId, int] = {}
        """When each process was last late, or began."""

    def on_boot(self, journal: Journal) -> None:
        self._late_ns[journal.place] = journal.host.local_ns(self.scene.now_ns)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        lines = [effect for effect in effects if isinstance(effect, Observed)]
        for line in lines:
            problem = _misshapen(line)
            if not problem:
                right = _RIGHT.get(line.event)
                if right is not None and not right((journal, line, event, effects)):
                    problem = "is not what happened"
            if not problem and line.event == "late":
                problem = self._check_late(journal, line)
            if problem:
                self.violate(journal, f"the line {line} {problem}, at {type(event).__name__}")
        told = Counter(line.event for line in lines)
        ends = any(isinstance(effect, Exit | Displaced) for effect in effects)
        lost = isinstance(event, LinkDown) and event.link in journal.former_links
        if told["link down"] != lost and not ends:
            self.violate(journal, f"tells of {told['link down']} lost links, lost were {int(lost)}")
        opened = [i for i in journal.links if i not in journal.former_links]
        if told["link up"] < len(opened) and not ends:
            self.violate(journal, f"tells of {told['link up']} links, {len(opened)} came up")
        renewed = sum(isinstance(effect, Renewed) for effect in effects)
        if told["new life"] != renewed:
            self.violate(journal, f"tells of {told['new life']} new lives, began {renewed}")

    def _check_late(self, journal: Journal, line: Observed) -> str:
        due_ns = max(journal.now_ns - journal.lag_ns, self._late_ns[journal.place])
        self._late_ns[journal.place] = journal.now_ns
        lag_ns = journal.now_ns - due_ns
        is_right = lag_ns > LATE_NS and line.detail == f"{lag_ns // 1_000_000} ms"
        return "" if is_right else f"is of a lag of {lag_ns} ns"


def _misshapen(line: Observed) -> str:
    is_joiner = line.event == "refused" and line.peer is None
    event = "refused joiner" if is_joiner else line.event
    form = FORMS.get(event)
    if form is None:
        return "is of no event that there is"
    names_peer, names_life, _ = form
    if (line.peer is not None) != names_peer or (line.incarnation is not None) != names_life:
        return "names a peer or a life, and must not, or must and does not"
    if not _PATTERNS[event].fullmatch(line.detail):
        return "has another detail than such a line"
    return ""


# --- what happened -------------------------------------------------------------------------------


def _link_up(step: Step) -> bool:
    journal, line, event, _ = step
    links = [*journal.links.values(), *journal.former_links.values()]
    known = {(link.peer, link.incarnation) for link in links}
    if isinstance(event, LinkUp):
        known.add((event.peer, event.incarnation))
    return (line.peer, line.incarnation) in known


def _link_down(step: Step) -> bool:
    journal, line, event, _ = step
    link = journal.former_links.get(event.link) if isinstance(event, LinkDown) else None
    if link is None or not isinstance(event, LinkDown):
        return False
    told = line.peer, line.incarnation, line.detail
    return told == (link.peer, link.incarnation, event.evidence.value)


def _of_own_life(step: Step) -> bool:
    journal, line, _, _ = step
    return (line.peer, line.incarnation) == (journal.host.id, journal.incarnation)


def _displaced(step: Step) -> bool:
    return _of_own_life(step) and any(isinstance(effect, Displaced) for effect in step[3])


def _claimed(step: Step) -> bool:
    journal, line, _, effects = step
    dials = [(e.peer, e.known, f"at {e.address}") for e in effects if isinstance(e, Dial)]
    return line.peer == journal.host.id and (line.peer, line.incarnation, line.detail) in dials


def _written(status: Status, version: int | None = None) -> Callable[[Step], bool]:
    """The line tells of a record that has this status, and whose life and version these are."""

    def is_right(step: Step) -> bool:
        _, line, _, effects = step
        return any(
            isinstance(e, RecordChanged)
            and (e.id, e.record.incarnation, e.record.status)
            == (line.peer, line.incarnation, status)
            and (version is None or e.record.version == version)
            for e in effects
        )

    return is_right


def _evicted(step: Step) -> bool:
    journal, line, _, _ = step
    record = journal.inside.membership.get(line.peer) if line.peer is not None else None
    # Who had left already, with the highest version, is told nothing new.
    was_so = record is not None and record.status is Status.LEFT
    return was_so or _written(Status.LEFT, _VERSION_MAX)(step)


def _contested(step: Step) -> bool:
    _, line, _, effects = step
    changed = [e for e in effects if isinstance(e, RecordChanged) and e.id == line.peer]
    return any(e.record.version == 1 and not e.record.incarnation for e in changed)


def _joiner(step: Step) -> bool:
    return any(isinstance(e, Grant) and e.id == step[1].peer for e in step[3])


def _of_dial(step: Step) -> bool:
    _, line, event, _ = step
    if not isinstance(event, DialFailed) or event.peer != line.peer:
        # A dial that came to a link of a former life is over too.
        return isinstance(event, LinkUp) and line.detail == Evidence.EOF.value
    cause = event.evidence.value if event.refusal is None else event.refusal.text
    return line.detail == cause


def _suspected(step: Step) -> bool:
    """Silence shows at a deadline; a lost link is a reason if it timed out, a dial by how it failed."""
    journal, line, event, _ = step
    match event:
        case LinkDown(link_id, evidence):
            link = journal.former_links.get(link_id)
            is_of_link = link is not None and link.peer == line.peer
            return is_of_link and evidence is Evidence.TIMED_OUT and line.detail == evidence.value
        case DialFailed() | LinkUp():
            return event.peer == line.peer and _of_dial(step)
        case _:
            return line.detail == "silence"


def _renewed_link(step: Step) -> bool:
    """A link that renews is one that this node has dialled."""
    _, line, event, _ = step
    told = line.peer, line.incarnation, line.detail
    return isinstance(event, LinkUp) and told == (event.peer, event.incarnation, event.key)


def _refused(step: Step) -> bool:
    _, line, event, effects = step
    if isinstance(event, Greeted) and (line.peer, line.incarnation) != (
        event.peer,
        event.incarnation,
    ):
        return False
    refusals = [effect.refusal.text for effect in effects if isinstance(effect, Refuse)]
    return line.detail.removeprefix("a joiner: ") in refusals


def _vetoed(step: Step) -> bool:
    _, line, event, _ = step
    answer = event.message if isinstance(event, Received) else None
    if not isinstance(answer, Answer) or not answer.alive:
        return False
    return (line.peer, line.detail) == (answer.suspect, f"by {answer.route.source}")


def _verdict(step: Step) -> bool:
    journal, line, event, _ = step
    assert line.peer is not None
    if line.detail == Evidence.REFUSED.value and isinstance(event, DialFailed):
        return event.peer == line.peer
    suspected = journal.suspected.get(line.peer)
    return suspected is None or line.detail == suspected.why


def _stale_source(step: Step) -> bool:
    _, line, event, _ = step
    message = event.message if isinstance(event, Received) else None
    if not isinstance(message, RoutedMessage):
        # One that a search brought back, or that is this node's own, is looked at later.
        return message is None
    route = message.route
    return (line.peer, line.incarnation) == (route.source, route.source_incarnation)


def _older_member(step: Step) -> bool:
    journal, line, _, _ = step
    own = journal.host.features
    texts = [
        f"its release has the features {link.features:#x}, this one {own:#x}"
        for link in journal.to(line.peer if line.peer is not None else journal.host.id)
        if link.incarnation == line.incarnation
    ]
    return not texts or line.detail in texts


def _ready(step: Step) -> bool:
    journal, line, _, _ = step
    now = {link.peer for link in journal.links.values()}
    before = {link.peer for link in journal.former_links.values()}
    return len(now) <= int(line.detail.split()[0]) <= len(now | before)


def _links_exact(step: Step) -> bool:
    return step[1].detail == f"{len({link.peer for link in step[0].links.values()})} links"


def _keys_changed(step: Step) -> bool:
    journal, line, event, _ = step
    if not isinstance(event, KeysChanged):
        return False
    newest = {link.peer: link.key for link in journal.former_links.values()}
    first = event.keys[0] if event.keys else ""
    return line.detail == f"{sum(key != first for key in newest.values())} links to be renewed"


def _quorum(step: Step) -> bool:
    journal, line, _, effects = step
    if line.event == "quorum lost" and any(isinstance(e, RecordChanged) for e in effects):
        # It counts before what the same step did afterwards.
        return True
    membership = journal.inside.membership
    known = [membership.status_of(i) for i in membership.known_ids()]
    counted = [status for status in known if status is not None and status is not Status.LEFT]
    living = sum(status < Status.DEAD for status in counted)
    return line.detail == f"{living} of {len(counted)} live"


def _healed(step: Step) -> bool:
    _, line, _, effects = step
    written = [e for e in effects if isinstance(e, RecordChanged)]
    excluded = sum(e.record.status is Status.EXCLUDED for e in written)
    return int(line.detail.split()[0]) <= excluded


def _relayout(step: Step) -> bool:
    journal, line, _, effects = step
    inside = journal.inside
    if inside.settings.reconstructs or any(isinstance(e, RecordChanged) for e in effects):
        # All links are made anew; or who is gone changed after it was counted.
        return True
    before, after = set(inside.former()), set(inside.dialling.wanted)
    added = sum(not inside.membership.is_gone(peer) for peer in after - before)
    removed = sum(not inside.membership.is_gone(peer) for peer in before - after)
    return line.detail == f"{added} links to add, {removed} to remove"


def _backlog(step: Step) -> bool:
    _, line, event, _ = step
    is_one = isinstance(event, Backlog)
    return is_one and line.detail == f"link {event.link}: {event.backlog_bytes} bytes"  # type: ignore[union-attr]


def _leaving(step: Step) -> bool:
    event = step[2]
    return isinstance(event, CommandIssued) and isinstance(event.command, Leave)


_RIGHT: Final[dict[str, Callable[[Step], bool]]] = {
    "assigned": _written(Status.ALIVE),
    "backlog": _backlog,
    "claimed": _claimed,
    "contested": _contested,
    "displaced": _displaced,
    "evicted": _evicted,
    "given up": _written(Status.LEFT),
    "healed": _healed,
    "joiner": _joiner,
    "keys changed": _keys_changed,
    "leaving": _leaving,
    "link down": _link_down,
    "link up": _link_up,
    "links exact": _links_exact,
    "new life": _of_own_life,
    "not renewed": _of_dial,
    "older member": _older_member,
    "quorum lost": _quorum,
    "quorum regained": _quorum,
    "ready": _ready,
    "refused": _refused,
    "refuted": _of_own_life,
    "rejected": _of_dial,
    "relayout": _relayout,
    "renewed link": _renewed_link,
    "stale source": _stale_source,
    "suspected": _suspected,
    "verdict": _verdict,
    "vetoed": _vetoed,
}
