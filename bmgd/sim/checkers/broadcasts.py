"""Messages to many, step by step: frames, whom multicasts reach, what sources believe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.broadcast.retention import BroadcastRetention
from bmgd.core.broadcast.source import BroadcastSource
from bmgd.core.effects import Deliver, Effect, Reply, Send
from bmgd.core.events import DeadlineReached, Event, Received
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.batch import unpack_messages
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    ReliableBroadcast,
    Skipped,
    Stable,
    Watermark,
)

NEWS = "news"
"""The topic of broadcasts, see `bmgd.sim.broadcasters`."""

FEW_LIVES: Final = 1024
"""Where fewer lives of sources are remembered, that is a narrow bound."""

LifeKey = tuple[NodeId, Incarnation]
_BRANCHED = (Broadcast, Multicast, ReliableBroadcast, Stable)
_BRANCHES_PER_STEP_MAX = 4096


def source_of(journal: Journal) -> BroadcastSource:
    """A node's own reliable broadcasts."""
    return journal.inside.to_many.source


def retention_of(journal: Journal) -> BroadcastRetention:
    """What a node has of others'."""
    return journal.inside.to_many.retention


def life_of(message: ReliableBroadcast | Skipped) -> LifeKey:
    """The life of a source that a message of its reliable broadcasts names."""
    return message.route.source, message.route.source_incarnation


def is_taken(journal: Journal, message: Watermark) -> bool:
    """Whether a source takes an acknowledgement: it is for its life, and of one that is believed."""
    route = message.route
    if route.destination != journal.host.id:
        return False
    if route.destination_tag != incarnation_tag(journal.incarnation):
        return False
    return journal.inside.believes(route.source, route.source_incarnation)


def acknowledged_by(journal: Journal, message: Watermark) -> int:
    """Up to where who acknowledges has what was sent: nobody has what was not."""
    return min(message.watermark, source_of(journal).window.next - 1)


class CoversArePartedOnce(Checker):
    """Who sends a message on gives each id that it must reach to one branch, and adds none.

    Within one step, of one message; what its source sends again may cover again. A hop budget falls.
    """

    name: ClassVar[str] = "covers-are-parted-once"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = _BRANCHED

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        came = event.message if isinstance(event, Received) else None
        me = journal.host.id
        if isinstance(came, _BRANCHED) and came.route.destination != me:
            # Passed on as a unicast is, whomever it covers.
            return
        covered: dict[tuple[type, NodeId, Incarnation, int], int] = {}
        count = 0
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, _BRANCHED):
                continue
            message, route = effect.message, effect.message.route
            if message is came or (route.search is not None and route.search.stack[:-1]):
                continue
            key = type(message), route.source, route.source_incarnation, route.sequence
            for branch in message.branches:
                count += 1
                before = covered.get(key, 0)
                if before & branch.cover and isinstance(came, _BRANCHED):
                    self.violate(journal, f"sends {ids_in(before & branch.cover)} twice")
                covered[key] = before | branch.cover
            if covered.get(key, 0) >> me & 1:
                self.violate(journal, "sends a message on to itself")
            if isinstance(came, _BRANCHED) and route.hop_budget > came.route.hop_budget:
                self.violate(journal, f"a hop budget grows to {route.hop_budget}")
        if isinstance(came, _BRANCHED):
            wanted = 0
            for branch in came.branches:
                wanted |= branch.cover
            for sent in covered.values():
                if sent & ~wanted:
                    self.violate(journal, f"sends to {ids_in(sent & ~wanted)}, uncovered")
        if count > _BRANCHES_PER_STEP_MAX:
            self.violate(journal, f"{count} branches in one step")


class AudiencesNeverChange(Checker):
    """Whoever sends a reliable broadcast, it has the payload and the audience that its source gave it."""

    name: ClassVar[str] = "audiences-never-change"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (ReliableBroadcast,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._seen: dict[tuple[NodeId, Incarnation, int], tuple[object, ...]] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, ReliableBroadcast):
                continue
            message, route = effect.message, effect.message.route
            key = route.source, route.source_incarnation, route.sequence
            what = (
                message.topic,
                message.payload,
                message.id_space,
                message.exceptions,
                message.skips,
                message.piece if isinstance(message, BroadcastPiece) else None,
            )
            if self._seen.setdefault(key, what) != what:
                self.violate(journal, f"changes the broadcast {key}")
            if route.source != journal.host.id:
                continue
            if route.sequence <= message.stable:
                self.violate(journal, f"sends {route.sequence}, which is stable, again")


class StableIsTold(Checker):
    """An idle source tells what is stable to everybody whom it is linked to and holds alive.

    While a broadcast is not stable the source is not idle: that, or what follows it, tells them.
    """

    name: ClassVar[str] = "stable-is-told"
    events: ClassVar[Kinds] = (DeadlineReached,)
    effects: ClassVar[Kinds] = (ReliableBroadcast, Stable)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._told: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._told[journal.place] = 0

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        window = source_of(journal).window
        me, told = journal.host.id, window.told_stable
        before, self._told[journal.place] = self._told[journal.place], told
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        is_busy = any(isinstance(message, ReliableBroadcast) for message in sent)
        # What a former life has sent goes on as of a source that is gone.
        of_life = me, journal.incarnation
        own = [
            message
            for message in sent
            if isinstance(message, ReliableBroadcast)
            and (message.route.source, message.route.source_incarnation) == of_life
        ]
        if own and max(message.stable for message in own) > told:
            self.violate(journal, f"holds that {told} is told to be stable, and has told more")
        if told <= before or told < window.stable or window.unstable or is_busy:
            return
        covered = 0
        for message in sent:
            if isinstance(message, Stable) and message.route.source == me:
                for branch in message.branches:
                    covered |= branch.cover
        living = journal.inside.membership.living_set()
        linked = {link.peer for link in journal.links.values()}
        left_out = [peer for peer in linked if (living & ~covered) >> peer & 1]
        if left_out:
            self.violate(journal, f"tells that {told} is stable, and not to {sorted(left_out)}")


class MulticastsReachOnlyWhomTheyName(Checker):
    """A multicast is taken where its source meant it to be, in one copy, by one reader."""

    name: ClassVar[str] = "multicasts-reach-only-whom-they-name"
    events: ClassVar[Kinds] = (Multicast,)
    effects: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._taken: Counter[tuple[NodeId, int, bytes]] = Counter()
        self._boots: Counter[NodeId] = Counter()

    def on_boot(self, journal: Journal) -> None:
        self._boots[journal.place] += 1

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not isinstance(event, Received) or not isinstance(event.message, Multicast):
            return
        message = event.message
        given = [effect for effect in effects if isinstance(effect, Deliver) and effect.count]
        handed = [effect for effect in given if message.payload in payloads_of(effect)]
        covered = any(b.cover >> journal.host.id & 1 for b in message.branches)
        if handed and not covered:
            self.violate(journal, f"takes a multicast of {message.route.source} for others")
        for _ in handed:
            # A program outlives its daemon's change of id, and what comes twice came to one program.
            key = journal.place, self._boots[journal.place], message.payload
            self._taken[key] += 1
            if self._taken[key] > 1:
                self.violate(journal, f"takes a multicast of {message.route.source} again")


def payloads_of(deliver: Deliver) -> list[bytes]:
    """What was handed to a reader."""
    return list(unpack_messages(deliver.body, deliver.count))


class ConfirmedMeansRetained(Checker):
    """A report names as confirmed only nodes that acknowledged the broadcast, and have it.

    And what a source calls stable, all have whom it holds alive, as the lives that it knows. Who confirms
    and then begins a new life stays confirmed, as who confirms and then dies: a report promises nothing
    of lives that follow. Who acknowledges only what it was told to miss has confirmed nothing.
    """

    name: ClassVar[str] = "confirmed-means-retained"
    events: ClassVar[Kinds] = (Watermark,)
    effects: ClassVar[Kinds] = (Reply, ReliableBroadcast, Stable, Skipped)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._stable: dict[LifeKey, int] = {}
        self._count: dict[tuple[NodeId, int], tuple[LifeKey, int]] = {}
        self._audience: dict[tuple[LifeKey, int], int] = {}
        self._acknowledged: dict[tuple[LifeKey, NodeId], dict[Incarnation, int]] = {}
        self._missed: dict[tuple[LifeKey, int], set[NodeId]] = {}
        """Of broadcasts that programs wait for: who was told to miss it before it acknowledged it."""

    def before(self, journal: Journal, event: Event) -> None:
        if isinstance(event, Received) and isinstance(event.message, Watermark):
            self._on_watermark(journal, event.message)
        for request, sent in source_of(journal).reports.awaited.items():
            if sent.sequence:
                key = journal.host.id, journal.incarnation
                self._count[journal.host.id, request] = key, sent.sequence

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply) and isinstance(effect.result, dict):
                self._on_reply(journal, effect)
            elif isinstance(effect, Send) and isinstance(effect.message, ReliableBroadcast):
                message, route = effect.message, effect.message.route
                life = route.source, route.source_incarnation
                audience = ((1 << message.id_space) - 1) & ~message.exceptions
                self._audience.setdefault((life, route.sequence), audience)
            elif isinstance(effect, Send) and isinstance(effect.message, Skipped):
                self._on_skipped(journal, effect.message)
        key, source = (journal.host.id, journal.incarnation), source_of(journal)
        before, stable = self._stable.get(key, 0), source.window.stable
        if stable > before:
            self._stable[key] = stable
            self._check_stable(journal, key, source, range(before + 1, stable + 1))

    def _on_watermark(self, journal: Journal, message: Watermark) -> None:
        route, own = message.route, journal.incarnation
        if route.destination != journal.host.id or route.destination_tag != incarnation_tag(own):
            return
        lives = self._acknowledged.setdefault(((journal.host.id, own), route.source), {})
        before = lives.get(route.source_incarnation, 0)
        lives[route.source_incarnation] = max(before, acknowledged_by(journal, message))

    def _on_skipped(self, journal: Journal, message: Skipped) -> None:
        route = message.route
        life = journal.host.id, journal.incarnation
        if (route.source, route.source_incarnation) != life:
            return
        lives = self._acknowledged.get((life, route.destination), {})
        acknowledged = max(lives.values(), default=0)
        for key, count in self._count.values():
            is_missed = any(s.missed and s.first <= count <= s.last for s in message.skips)
            if key == life and count > acknowledged and is_missed:
                self._missed.setdefault((life, count), set()).add(route.destination)

    def _on_reply(self, journal: Journal, reply: Reply) -> None:
        known = self._count.pop((journal.host.id, reply.request), None)
        if known is None:
            return
        life, count = known
        missed = self._missed.pop(known, set())
        for node_id in reply.result["confirmed"]:
            if node_id == life[0]:
                continue
            if node_id in missed:
                self.violate(journal, f"{node_id} confirms {count}, which it was told to miss")
            told = self._acknowledged.get((life, node_id), {})
            if max(told.values(), default=0) < count:
                self.violate(journal, f"{node_id} never acknowledged {count}")
            other = self.scene.of_node(node_id)
            if other is None or told.get(other.incarnation, 0) < count:
                # A life that followed the one that confirmed.
                continue
            if self._lacks(other, life, count):
                self.violate(journal, f"{node_id} confirmed {count}, and does not have it")

    def _check_stable(
        self, journal: Journal, key: LifeKey, source: BroadcastSource, counts: range
    ) -> None:
        for node_id in ids_in(source.window.living()):
            other, peer = self.scene.of_node(node_id), source.peers.by_id.get(node_id)
            if other is None or node_id == key[0] or peer is None:
                continue
            if peer.life != other.incarnation:
                continue
            for count in counts:
                is_for_it = self._audience.get((key, count), 0) >> node_id & 1
                is_skipped = any(skip.first <= count <= skip.last for skip in peer.skips)
                if is_for_it and not is_skipped and self._lacks(other, key, count):
                    self.violate(journal, f"calls {count} stable, which {node_id} lacks")

    @staticmethod
    def _lacks(other: Journal, life: LifeKey, count: int) -> bool:
        """Whether a process that runs has not got so far, and need not skip it."""
        if not other.host.alive or other.exited:
            return False
        heard = retention_of(other).lives.get(life)
        if heard is None:
            forgotten = retention_of(other)._forgotten.get(life[0], 0)
            # Not one that has forgotten the source's life, or a new life of its own.
            return forgotten < life[1] and not other.inside.context.followed
        return heard.watermark < count
