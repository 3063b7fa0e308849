"""What programs are shown is so: their own daemon, other daemons, ways through the cluster, readers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

from bmgd.core.commands import (
    FindReaders,
    ProbeTo,
    ShowLinks,
    ShowMembers,
    ShowReport,
    ShowStatus,
    Subscribe,
    TraceFrom,
    Unsubscribe,
)
from bmgd.core.effects import Effect, Exit, RecordChanged, Reply, Reported, ReportWanted
from bmgd.core.events import CommandIssued, Event, LinkUp, Received
from bmgd.core.forwarding.probing import SENDING_BITS
from bmgd.errors import BmgdError, DeadError, RequestError, UnreachableError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.reasons import is_told_gone
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId, NodeState, Status, incarnation_tag
from bmgd.wire.ask_messages import ProbeReply, ReportAsk
from bmgd.wire.features import Feature
from bmgd.wire.routes import Route

SLACK_NS: Final = 200_000_000
"""What a deadline may be late, beside the lag of its node."""
_MILLION: Final = 1_000_000
_SHOWN = ShowStatus | ShowLinks | ShowMembers | ShowReport
_WAY = ProbeTo | TraceFrom
_Asked = tuple[ProbeTo | TraceFrom | FindReaders, int, int]
"""What was asked, by the host's clock and by virtual time when."""


class LooksAreTrue(Checker):
    """A daemon shows itself as events and effects made it; ways are ways of links; readers are there.

    A question that has a time is answered in it: with a way that leads from the one end to the other,
    with who has a reader, who has none and who is silent; or with an error that says what is so.
    """

    name: ClassVar[str] = "looks-are-true"
    events: ClassVar[Kinds] = (CommandIssued, LinkUp, ProbeReply, ReportAsk)
    effects: ClassVar[Kinds] = (Reply, Reported, RecordChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[NodeId, dict[int, _Asked]] = {}
        self._moved: dict[NodeId, dict[NodeId, tuple[Status, int]]] = {}
        """What each id is for each process, and since when by its clock."""
        self._began: dict[NodeId, int] = {}
        self._topics: dict[NodeId, dict[int, str]] = {}
        self._changed: dict[NodeId, int] = {}
        """When a reader came or went at a process, or the process began, in virtual time."""
        self._reports: dict[NodeId, set[bytes]] = {}
        """What each id has told of itself."""
        self._linked: set[tuple[NodeId, NodeId]] = set()
        """Ids that ever had a link, in whatever lives."""

    def on_boot(self, journal: Journal) -> None:
        place = journal.place
        self._asked[place], self._moved[place] = {}, {}
        topics = self._topics.setdefault(place, {})
        if not journal.inside.topics.table.subscriptions:
            # Otherwise it is a process that has taken another id, with its readers.
            topics.clear()
        began_ns = self._began[place] = journal.host.local_ns(self.scene.now_ns)
        self._changed[place] = self.scene.now_ns
        if journal.host.joiner is None:
            # A joiner is told the records of those who were there before it.
            for node_id, record in journal.inside.membership.exceptions().items():
                self._moved[place][node_id] = record.status, began_ns

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        shown: tuple[int, _SHOWN] | None = None
        match event:
            case CommandIssued(request, ShowStatus() | ShowLinks() | ShowMembers() | ShowReport()):
                shown = request, event.command  # type: ignore[assignment]
            case CommandIssued(request, ProbeTo() | TraceFrom() | FindReaders() as command):
                now_ns = self.scene.now_ns
                self._asked[journal.place][request] = command, journal.now_ns, now_ns
            case CommandIssued(request, Subscribe() | Unsubscribe() as command):
                self._note_reader(journal, request, command, effects)
            case Received(_, ProbeReply() as reply):
                self._check_reply(journal, reply.route)
            case LinkUp(_, peer):
                self._linked |= {(journal.host.id, peer), (peer, journal.host.id)}
            case _:
                pass
        is_over = any(isinstance(effect, Exit) for effect in effects)
        for effect in effects:
            match effect:
                case Reply(request, result, error):
                    asked = self._asked[journal.place].pop(request, None)
                    if asked is not None:
                        self._check_answer(journal, asked, result, error, is_over=is_over)
                    elif shown is not None and shown[0] == request:
                        self._check_shown(journal, shown[1], result)
                case RecordChanged(node_id, record):
                    self._note_status(journal, node_id, record.status)
                case ReportWanted():
                    self._check_wish(journal, event, effect)
                case Reported(source, body):
                    if body not in self._reports.get(source, ()):
                        self.violate(journal, f"has a report of {source}, which never gave it")
                case _:
                    pass

    def _check_reply(self, journal: Journal, route: Route) -> None:
        """A reply to a probe that is underway ends it."""
        if route.destination_tag != incarnation_tag(journal.inside.context.incarnation):
            return
        number, sending = divmod(route.sequence, 1 << SENDING_BITS)
        probe = journal.inside.probing._open.get(number)
        if probe is None or route.destination != journal.host.id:
            return
        if probe.command.destination == route.source and sending < len(probe.sent_ns):
            self.violate(journal, f"has the reply of {route.source}, and waits for it")

    def _note_reader(
        self,
        journal: Journal,
        request: int,
        command: Subscribe | Unsubscribe,
        effects: Sequence[Effect],
    ) -> None:
        topics = self._topics[journal.place]
        if isinstance(command, Unsubscribe):
            topics.pop(request, None)
        elif any(
            isinstance(e, Reply) and e.request == request and e.error is None for e in effects
        ):
            topics[request] = command.topic
        self._changed[journal.place] = self.scene.now_ns

    def _note_status(self, journal: Journal, node_id: NodeId, status: Status) -> None:
        is_founder = node_id < self.scene.network.settings.founding_size
        first = Status.EXPECTED if is_founder else None
        moved = self._moved[journal.place]
        known = moved.get(node_id)
        if status is not (first if known is None else known[0]):
            moved[node_id] = status, journal.now_ns

    # --- its own daemon -----------------------------------------------------------------------

    def _check_shown(self, journal: Journal, command: _SHOWN, result: Any) -> None:
        match command:
            case ShowStatus():
                self._compare(journal, result, self._status(journal))
                self._check_links(journal, result["links"])
            case ShowLinks():
                self._check_links(journal, result)
            case ShowMembers():
                self._check_members(journal, result)
            case ShowReport():
                self._compare(journal, result, self._report(journal))

    def _compare(self, journal: Journal, shown: Mapping[str, Any], so: Mapping[str, Any]) -> None:
        for name, value in so.items():
            if shown[name] != value:
                self.violate(journal, f"shows {name} as {shown[name]!r}, it is {value!r}")

    def _status(self, journal: Journal) -> dict[str, Any]:
        context, membership = journal.inside.context, journal.inside.membership
        statuses = {i: membership.status_of(i) for i in membership.known_ids()}
        by_status = {
            "alive": (Status.EXPECTED, Status.ALIVE),
            "dead": (Status.DEAD, Status.EXCLUDED),
            "left": (Status.LEFT,),
        }
        layout = [i for i in statuses if membership.in_layout(i)]
        common = context.compatibility.common
        return {
            "id": journal.host.id,
            "incarnation": journal.incarnation,
            "version": context.version,
            "state": context.state.value,
            "founding_size": self.scene.network.settings.founding_size,
            "layout_size": len(layout),
            "rank": layout.index(journal.host.id) if journal.host.id in layout else None,
            "revision": membership.revision,
            "digest": f"{membership.digest:032x}",
            "features": [
                f.name.lower().replace("_", " ") for f in Feature if f & common and f.name
            ],
            "retired": sum(last - first + 1 for first, last in membership.retired.pairs),
            "older": self._older(journal),
            **self._shown_of_parts(journal, statuses),
            **{
                name: [i for i, status in statuses.items() if status in members]
                for name, members in by_status.items()
            },
        }

    def _shown_of_parts(
        self, journal: Journal, statuses: Mapping[NodeId, Status | None]
    ) -> dict[str, Any]:
        """What a status has of healing, of the quorum, and of what programs wait for."""
        inside, network = journal.inside, self.scene.network
        counted = [status for status in statuses.values() if status is not Status.LEFT]
        named, (added, removed) = journal.named, journal.relaid
        lost = named["events", "quorum lost"] - named["events", "quorum regained"]
        return {
            "quorum": {
                "policy": "majority" if network.settings.quorum else "off",
                "holds": not lost,
                "living": sum(status is not None and status < Status.DEAD for status in counted),
                "of": len(counted),
            },
            "healing": {
                "policy": str(network.settings.healing),
                "reconstruction": "naive" if network.settings.reconstructs else "adaptive",
                "unhealed": [i for i, status in statuses.items() if status is Status.DEAD],
                "relayouts": named["events", "relayout"],
                "links_added": added,
                "links_removed": removed,
            },
            "underway": sum(len(s.underway) + len(s.queue) for s in inside.streams_out()),
            "waiting": sum(
                m.count - m.consumed
                for topic in inside.topics.table.topics.values()
                for m in topic.waiting
            ),
            "owed": len(inside.topics.questions.owed()),
            "neighbors": list(inside.dialling.wanted),
            "isolated": not journal.links and len(counted) > 1,
        }

    def _older(self, journal: Journal) -> list[NodeId]:
        """Of those that it knows to lack something, those that it does not hold dead."""
        own, inside = journal.host.features, journal.inside
        return [
            member.id
            for member in inside.context.compatibility.known()
            if own & ~member.features and not inside.membership.is_gone(member.id)
        ]

    def _check_links(self, journal: Journal, rows: Sequence[Mapping[str, Any]]) -> None:
        links = sorted(journal.links.values(), key=lambda link: (link.peer, link.id))
        table = journal.inside.links.table
        if [row["id"] for row in rows] != [link.peer for link in links]:
            self.violate(journal, f"shows links {rows}, up are those to {[i.peer for i in links]}")
            return
        for row, link in zip(rows, links, strict=True):
            so = {
                "dialled_by": link.dialled_by,
                "incarnation": link.incarnation,
                "state": "accused" if table[link.id].accused_ns else "up",
                "key": table[link.id].key,
                "silent_ms": (journal.now_ns - table[link.id].heard_ns) // _MILLION,
            }
            self._compare(journal, row, so)

    def _check_members(self, journal: Journal, shown: Mapping[str, Any]) -> None:
        membership = journal.inside.membership
        known = list(membership.known_ids())
        if [row["id"] for row in shown["members"]] != known:
            self.violate(journal, f"shows members {shown['members']}, known are {known}")
            return
        moved, began = self._moved[journal.place], (None, self._began[journal.place])
        for row in shown["members"]:
            node_id = row["id"]
            record = membership.get(node_id)
            assert record is not None
            life = membership.incarnation(node_id)
            if node_id == journal.host.id:
                life = journal.incarnation
            status = record.status
            if status is Status.EXPECTED and life:
                status = Status.ALIVE
            for_ms = (journal.now_ns - moved.get(node_id, began)[1]) // _MILLION
            so = {
                "status": status.name.lower(),
                "incarnation": life,
                "version": record.version,
                "address": record.address,
                "for_ms": for_ms,
            }
            self._compare(journal, row, so)

    def _report(self, journal: Journal) -> dict[str, Any]:
        inside = journal.inside
        links = sorted(journal.links.values(), key=lambda link: (link.peer, link.id))
        known = [(i, inside.membership.status_of(i)) for i in inside.membership.known_ids()]
        counted = sum(status is not Status.LEFT for _, status in known)
        status = self._status(journal)
        return {
            **{name: status[name] for name in ("id", "state", "digest", "revision", "layout_size")},
            "incarnation": str(journal.incarnation),
            "record_version": status["version"],
            "living": len(status["alive"]),
            "counted": counted,
            "isolated": not links and counted > 1,
            "stands_aside": inside.context.stands_aside,
            "suspects": sorted(inside.suspected()),
            "wanted": list(inside.dialling.wanted),
            "underway": inside.outbound.underway,
            "waiting": inside.topics.table.waiting(),
            "delivered": inside.context.counts.delivered,
            "relayouts": inside.relayout.relayouts,
            "links": [
                {
                    "link": link.id,
                    "peer": link.peer,
                    "dialled_by": link.dialled_by,
                    "accused": bool(inside.links.table[link.id].accused_ns),
                    "silent_ms": (journal.now_ns - inside.links.table[link.id].heard_ns)
                    // _MILLION,
                    "up_ms": (journal.now_ns - link.opened_ns) // _MILLION,
                }
                for link in links
            ],
        }

    # --- other daemons ------------------------------------------------------------------------

    def _check_wish(self, journal: Journal, event: Event, wanted: ReportWanted) -> None:
        if not isinstance(event, Received) or not isinstance(event.message, ReportAsk):
            self.violate(journal, "has a report made that nobody asked for")
            return
        route = event.message.route
        told = wanted.asker, wanted.tag, wanted.number
        if told != (route.source, incarnation_tag(route.source_incarnation), route.sequence):
            self.violate(journal, f"answers an ask of {route} to {told}")
        self._compare(journal, wanted.facts, self._report(journal))
        body = json.dumps(wanted.facts, separators=(",", ":")).encode()
        self._reports.setdefault(journal.host.id, set()).add(body)

    def _check_answer(
        self,
        journal: Journal,
        asked: _Asked,
        result: Any,
        error: BmgdError | None,
        *,
        is_over: bool,
    ) -> None:
        command, since_ns, at_ns = asked
        waited_ns = journal.now_ns - since_ns
        if error is not None:
            if not is_over and journal.inside.context.state is not NodeState.LEAVING:
                self._check_error(journal, command, waited_ns, error)
        elif isinstance(command, FindReaders):
            self._check_readers(journal, command, result, waited_ns, at_ns)
        else:
            self._check_way(journal, command, result, waited_ns, at_ns)

    def _check_error(
        self, journal: Journal, command: object, waited_ns: int, error: BmgdError
    ) -> None:
        membership = journal.inside.membership
        if isinstance(command, FindReaders):
            return
        assert isinstance(command, _WAY)
        about = command.destination
        if isinstance(command, TraceFrom) and command.source != journal.host.id:
            about = command.source
        match error:
            case RequestError() if membership.status_of(about) is not None:
                self.violate(journal, f"says of {about}, a member: {error}")
            case DeadError() if not membership.is_gone(about):
                self.violate(journal, f"says of {about}, which is not gone: {error}")
            case DeadError() if not is_told_gone(membership.status_of(about), error):
                self.violate(journal, f"says of {about}, which is gone otherwise: {error}")
            case UnreachableError() if (
                isinstance(command, ProbeTo) and waited_ns < command.timeout_ns
            ):
                self.violate(journal, f"gives {about} up after {waited_ns / 1e6:g} ms: {error}")
            case _:
                pass

    # --- ways ---------------------------------------------------------------------------------

    def _has_leapt(self, ids: set[NodeId], since_ns: int) -> bool:
        """Whether the clock of one of these may have been set since a virtual time."""
        places = [j.place for j in self.scene.journals.values() if j.host.id in ids]
        return any(self.scene.disturbed.get(place, -1) >= since_ns for place in places)

    def _check_way(
        self,
        journal: Journal,
        command: _WAY,
        result: Mapping[str, Any],
        waited_ns: int,
        at_ns: int,
    ) -> None:
        source = command.source if isinstance(command, TraceFrom) else journal.host.id
        path, rtt_ns = result["path"], result["rtt_ns"]
        is_recorded = isinstance(command, TraceFrom) or command.record
        if not is_recorded:
            if path:
                self.violate(journal, f"shows a way that it did not ask for: {path}")
        elif path[:1] != [source] or path[-1:] != [command.destination]:
            self.violate(journal, f"the way {source} to {command.destination} is {path}")
        elif not self._linked.issuperset(pairwise(path)):
            self.violate(journal, f"the way {path} has a step between two that were never linked")
        least_ns = 0
        if source != command.destination:
            trip_ns = self.scene.network.conditions.delay_min_ns * 2
            # Clocks run fast or slow, and what others measure is told in whole microseconds.
            least_ns = trip_ns - trip_ns // 1000 - 1000
        limit_ns = waited_ns + waited_ns // 1000 + 1000
        is_measured = least_ns <= rtt_ns <= limit_ns
        if not is_measured and not self._has_leapt({journal.host.id, source}, at_ns):
            self.violate(journal, f"a way of {rtt_ns} ns, not {least_ns} to {limit_ns}")

    # --- readers ------------------------------------------------------------------------------

    def _check_readers(
        self,
        journal: Journal,
        command: FindReaders,
        result: Mapping[str, Sequence[NodeId]],
        waited_ns: int,
        at_ns: int,
    ) -> None:
        readers, silent = result["readers"], result["silent"]
        if set(readers) & set(silent) or sorted({*readers, *silent}) != sorted([*readers, *silent]):
            self.violate(journal, f"readers {readers}, and silent {silent}")
        if silent and waited_ns < command.timeout_ns:
            self.violate(journal, f"calls {silent} silent after {waited_ns / 1e6:g} ms")
        for node_id in readers:
            if not self._may_be(node_id, command.topic, at_ns, is_reader=True):
                self.violate(journal, f"{node_id} has no reader of {command.topic}")
        for node_id in journal.inside.membership.known_ids():
            answered = node_id not in readers and node_id not in silent
            if not answered or journal.inside.membership.is_gone(node_id):
                continue
            _, moved_ns = self._moved[journal.place].get(node_id, (None, 0))
            # Where time goes in ticks, what moved in that of the command may have moved after it.
            has_moved = moved_ns >= journal.now_ns - waited_ns
            if not has_moved and not self._may_be(node_id, command.topic, at_ns, is_reader=False):
                self.violate(journal, f"{node_id} has a reader of {command.topic}, unmentioned")

    def _may_be(self, node_id: NodeId, topic: str, at_ns: int, *, is_reader: bool) -> bool:
        """Whether at some moment since then a process of that id had a reader, or had none."""
        places = [j.place for j in self.scene.journals.values() if j.host.id == node_id]
        return not places or any(
            self._changed[place] >= at_ns or (topic in self._topics[place].values()) is is_reader
            for place in places
        )
