"""A cluster at rest: when faults have stopped, everything is as if there had been none but the dead."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, get_args

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event
from bmgd.core.neighbors.watched_links import watched_peers
from bmgd.sim.checkers.deadlines import STANDING
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.memberships import binomial_neighbors
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.rest import QUIET_NS
from bmgd.types import NodeId, NodeState, Status
from bmgd.wire.features import Feature
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.messages import Message

BEATS_MAX = 4096


class SurvivorsAgree(Checker):
    """All that run hold equal memberships: the ended dead or left, nobody who runs."""

    name: ClassVar[str] = "survivors-agree"

    def at_rest(self, journals: Sequence[Journal]) -> None:
        running = {journal.host.id: journal for journal in journals}
        for journal in journals:
            inside = journal.inside
            if inside.context.state is not NodeState.READY:
                self.violate(journal, f"is {inside.context.state.value}")
            membership = inside.membership
            for number in range(membership.id_space):
                node_id = NodeId(number)
                status = membership.status_of(node_id)
                if status is None:
                    continue
                if node_id in running and membership.is_gone(node_id):
                    self.violate(journal, f"{node_id} runs, and is {status.name.lower()} here")
                # Where healing is off, one whose neighbors have all died dies unseen.
                is_seen = not running.keys().isdisjoint(membership.neighbors(node_id))
                if node_id not in running and not membership.is_gone(node_id) and is_seen:
                    self.violate(journal, f"{node_id} has ended, and is {status.name.lower()} here")
                self._check_life(journal, inside, running.get(node_id), node_id)
        digests = {journal.inside.membership.digest for journal in journals}
        if len(digests) > 1:
            self.violate(None, f"{len(digests)} different memberships")

    def _check_life(
        self, journal: Journal, inside: Inside, other: Journal | None, node_id: NodeId
    ) -> None:
        record = inside.membership.exceptions().get(node_id)
        if other is not None and record is not None and record.incarnation != other.incarnation:
            self.violate(journal, f"holds {record} of {node_id}, which is {other.incarnation:#x}")


class LinksAreTheHealedGraph(Checker):
    """Links are exactly those of the graph over the survivors: one of each pair, known at both ends."""

    name: ClassVar[str] = "links-are-the-healed-graph"

    def at_rest(self, journals: Sequence[Journal]) -> None:
        running = sorted(journal.host.id for journal in journals)
        ends = {journal.host.id: journal for journal in journals}
        for journal in journals:
            membership = journal.inside.membership
            layout = [i for i in range(membership.id_space) if membership.in_layout(NodeId(i))]
            wanted = [p for p in binomial_neighbors(layout, journal.host.id) if p in ends]
            linked = sorted(link.peer for link in journal.links.values())
            if linked != wanted:
                self.violate(journal, f"is linked to {linked}, not {wanted}, of {running}")
            if len(running) > 1 and not linked:
                self.violate(journal, "is alone")
            count = sum(1 for end in journal.host.ends.values() if end.up)
            if count != len(journal.links):
                self.violate(journal, f"{count} connections, {len(journal.links)} links")
            for link in journal.links.values():
                other = ends.get(link.peer)
                if other is not None and link.incarnation != other.incarnation:
                    self.violate(journal, f"is linked to a former life of {link.peer}")


class NothingIsLeftOver(Checker):
    """Timers, links and memory are back where they were: no suspicion, no ask, no hello, no message."""

    name: ClassVar[str] = "nothing-is-left-over"

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            inside = journal.inside
            left = {
                "suspicions": sorted(inside.suspected()),
                "asks": sorted(inside.asks()),
                "held hellos": sorted(inside.held()),
                "probes": sorted(inside.probes()),
                "messages": [s.key for s in inside.streams_out() if s.underway],
                "accused links": [i for i, k in inside.links.table.items() if k.accused_ns],
                "probed links": [i for i, k in inside.links.table.items() if k.probe],
            }
            for what, rows in left.items():
                if rows:
                    self.violate(journal, f"{what} are left: {rows}")
            self._check_deadlines(journal, inside)
            self._check_peerings(journal, inside)

    def _check_deadlines(self, journal: Journal, inside: Inside) -> None:
        purposes = {key[0] for key in inside.timers()}
        # Copies of sources that are gone are kept for those who return, and silently.
        extra = (
            purposes - STANDING - {"digest", "retire", "expiry", "gone source", "broadcast orphans"}
        )
        if not inside.context.compatibility.common & Feature.PROGRAMS:
            # Lists of programs are wanted, and asked for when the last older member was replaced.
            extra -= {"programs"}
        if extra:
            self.violate(journal, f"deadlines are left: {sorted(extra)}")

    def _check_peerings(self, journal: Journal, inside: Inside) -> None:
        for peer, peering in inside.dialling.peerings.items():
            if inside.links.to(peer) is not None and (peering.proving or peering.broken):
                self.violate(journal, f"holds {peering} against {peer}, to which it is linked")
            has_failed = peering.attempts or peering.trying_since_ns
            if inside.links.to(peer) is not None and has_failed and not peering.dialling:
                self.violate(journal, f"counts failed dials to {peer}, to which it is linked")


class RestIsQuiet(Checker):
    """At rest nothing is sent but heartbeats, one on each link in each interval."""

    name: ClassVar[str] = "rest-is-quiet"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = get_args(Message)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._spoke: dict[NodeId, tuple[int, str]] = {}
        self._beats: dict[NodeId, deque[int]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._beats[journal.place] = deque(maxlen=BEATS_MAX)
        self._spoke.pop(journal.place, None)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if isinstance(effect.message, Heartbeat):
                    self._beats[journal.place].append(journal.now_ns)
                else:
                    self._spoke[journal.place] = journal.now_ns, type(effect.message).__name__

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            now_ns = journal.now_ns
            spoke_ns, what = self._spoke.get(journal.place, (0, ""))
            if what and now_ns - spoke_ns < QUIET_NS:
                self.violate(journal, f"sent a {what} {(now_ns - spoke_ns) // 10**6} ms ago")
            heartbeat_ns = journal.inside.settings.heartbeat_ns
            beats = sum(1 for at_ns in self._beats[journal.place] if now_ns - at_ns < QUIET_NS)
            watched = watched_peers(journal.inside.membership, journal.host.id)
            # On one that is not watched each end asks for one in its turn, and gets it.
            a_round = sum(
                1 + (watched is not None and link.peer not in watched)
                for link in journal.links.values()
            )
            most = (QUIET_NS // heartbeat_ns + 2) * max(1, a_round)
            if beats > most:
                self.violate(journal, f"{beats} heartbeats in 3 s, at most {most}")


def gone_ids(journal: Journal) -> list[int]:
    """The ids that a node holds dead, excluded or left, sorted."""
    exceptions = journal.inside.membership.exceptions()
    return sorted(i for i, record in exceptions.items() if record.status >= Status.DEAD)
