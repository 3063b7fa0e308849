"""A network of cores in virtual time.

Theory of operation. Every happening (bytes that arrive, a deadline, a dial's outcome) is an entry of
one timeline; so a run is a function of its seed. Hosts run the daemon's own `Node`. Messages pass
through the real codec, and each host's arriving bytes through the real frame splitter with the snapshot
that its core published last (or, where conditions say so, with a former one), so relays behave as in
the daemon. `stepping.py` has the cores' steps, `wires.py` the connections, `pipes.py` their bytes,
`blockade.py` who does not hear whom; here is how hosts begin and end, and what is done for each effect.

What a host can suffer: `kill` (connections close, dials are refused), `stop` and `resume` (nothing is
read, the kernel still accepts), `cut` between two hosts, one way or both (dials are not answered, and
what TCP would send again arrives when the cut is mended), `boot` (a new life at the same address), and
what `disturbances.py` makes of these for a fault plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from bmgd.config import Config
from bmgd.config_sources import load
from bmgd.core.commands import Command, SendReport, ShowStatus
from bmgd.core.effects import (
    AbsorbHeartbeats,
    Announce,
    AskContact,
    Close,
    Deliver,
    Dial,
    Displaced,
    Effect,
    Exit,
    ForwardingChanged,
    Grant,
    Joined,
    Observed,
    Overlooked,
    ProgramsChanged,
    RecordChanged,
    Refuse,
    Renewed,
    Reply,
    Reported,
    ReportWanted,
    Send,
    TellMissed,
    Welcome,
)
from bmgd.core.events import CommandIssued, Event, Granted, KeysChanged, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.errors import ConfigError, PlanError
from bmgd.peers import PeerList
from bmgd.routing import Snapshot
from bmgd.sim.blockade import Blockade
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import End, Host
from bmgd.sim.joining import become_member, begin_joining
from bmgd.sim.malformed_frames import MalformedFrames
from bmgd.sim.observing import Watcher
from bmgd.sim.stepping import Stepping
from bmgd.sim.timeline import Timeline
from bmgd.sim.wires import Wires
from bmgd.types import NO_ID, Incarnation, LinkId, NodeId
from bmgd.wire.features import SPOKEN
from bmgd.wire.messages import Message

TEMPLATE = "sim{id}:7400"
PEERS = PeerList(template=TEMPLATE)
_SKEW_NS = 3_600_000_000_000


def config_of(size: int, changes: Mapping[str, object]) -> Config:
    """The configuration of node 0, with changes by the keys of a daemon's TOML file.

    Raises:
        PlanError: a key or a value that a daemon would refuse.
    """
    variables = {
        f"BMGD_{'TIMING_' if key.endswith('_ms') else ''}{key.upper()}": str(value)
        for key, value in changes.items()
    }
    flags = {"id": 0, "size": size, "peers": TEMPLATE, "insecure": True}
    if own := sorted(flags.keys() & changes.keys()):
        raise PlanError(f"settings: {own[0]} is what the simulation gives each daemon")
    try:
        return load(flags, variables, None)
    except ConfigError as error:
        raise PlanError(f"settings: {error}") from None


class Network:
    """Hosts 0..size-1, all founders.

    Args:
        size: the founding size.
        seed: decides everything that is random.
        start: whether all hosts start at time 0; else call `boot` for each.
        conditions: what the network is like.
        configured: changes to the daemons' configuration, by the keys of its TOML file.
        keeps_all: whether hosts keep what their cores showed (`observed`, `delivered`, `records`).
        settings: changes to the core's settings, by their names.

    Attributes:
        timeline: virtual time.
        random: the network's own chance.
        hosts: the last process of every id.
        watchers: told of each step and fault.
        keys: what links of the hosts that begin are made under; () for nothing.
        malformed: what members gone wrong have said.
        unusable: the requests with which programs ask for what cannot be.
        lied_about: the ids of which a lie was told.
        config: what node 0 was told, not what its core made of it.
    """

    def __init__(
        self,
        size: int,
        seed: int = 0,
        *,
        start: bool = True,
        conditions: Conditions = Conditions(),  # noqa: B008
        configured: Mapping[str, object] | None = None,
        keeps_all: bool = True,
        **settings: Any,
    ) -> None:
        self.timeline = Timeline(max(1, 1_000 * conditions.tick_us))
        self.random = Random(seed)
        self.hosts: dict[NodeId, Host] = {}
        self.conditions = conditions
        self.blockade = Blockade()
        self.watchers: list[Watcher] = []
        self.keys: tuple[str, ...] = ()
        self._stepping = Stepping(
            self.timeline,
            self.random,
            conditions,
            self.watchers,
            self._carry_out,
            partial(self._end, abruptly=True),
        )
        emit_all = self._stepping.step_all
        self.malformed = MalformedFrames()
        self.unusable: set[int] = set()
        self.lied_about: set[NodeId] = set()
        self.wires = Wires(
            self.timeline, self.random, conditions, self.blockade, emit_all, self.malformed
        )
        self._stepping.begin(self.wires)
        self.size = size
        self.config = config_of(size, configured or {})
        self._settings = replace(Settings.of(self.config), **settings)
        self._keeps_all = keeps_all
        self._request_count = 0
        self._joined_count = 0
        if start:
            for number in range(size):
                self.boot(number)

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.timeline.now_ns

    @property
    def settings(self) -> Settings:
        """What all founders have in common; id and address are one's own."""
        return self._settings

    # --- what tests and plans do --------------------------------------------------------------

    def boot(self, number: int, counter: int = 1, features: int = SPOKEN) -> Host:
        """Start a host, or start it again in a new life.

        Args:
            number: its id.
            counter: of its incarnation.
            features: what its release can do, see `bmgd.wire.features`.
        """
        node_id, random, conditions = NodeId(number), self.random, self.conditions
        address = PEERS.address_of(node_id)
        before = self.hosts.get(node_id)
        if before is not None and before.alive:
            self.kill(number)
        incarnation = Incarnation(counter << 32 | random.getrandbits(32))
        offset_ns = random.randrange(_SKEW_NS) if conditions.skewed else 0
        drift_ppm = conditions.drift_ppm and random.randint(
            -conditions.drift_ppm, conditions.drift_ppm
        )
        local_ns = self.now_ns * (1_000_000 + drift_ppm) // 1_000_000 + offset_ns
        if counter == 1 and conditions.older_percent:
            features = 0 if random.randrange(100) < conditions.older_percent else features
        settings = replace(self._settings, id=node_id, address=address, features=features)
        node = Node(settings, incarnation, Random(random.getrandbits(64)), local_ns)
        host = Host(node_id, node, Snapshot(0, node_id, self.size, (), ()), address)
        host.features, host.keys = features, self.keys
        host.offset_ns, host.drift_ppm = offset_ns, drift_ppm
        host.proxied = bool(conditions.proxied_percent) and (
            random.randrange(100) < conditions.proxied_percent
        )
        self.hosts[node_id] = host
        self.wires.equip(host)
        self.wires.hellos.listeners[address] = host
        for watcher in self.watchers:
            watcher.boot(host)
        self._stepping.plan_wake(host)
        return host

    def join(
        self,
        *through: int,
        kept: Granted | None = None,
        counter: int = 1,
        place: int | None = None,
    ) -> Host:
        """Start a host that asks these members for an id; later `host.id` is that.

        Args:
            through: ids of members, asked in turn.
            kept: what it knows from a former life, or None.
            counter: of its incarnation.
            place: its number among the hosts, for ever; None for its id, once it has one.
        """
        self._joined_count += 1
        address = f"joiner{self._joined_count}:7400"
        number = NodeId(-self._joined_count)
        host = Host(number, None, Snapshot(0, 0, 1, (), ()), address)
        host.place = None if place is None else NodeId(place)
        host.keys = self.keys
        contacts = tuple(self.hosts[NodeId(i)].address for i in through)
        self._begin_joining(host, contacts, kept, counter)
        self.wires.hellos.listeners[address] = host
        return host

    def _begin_joining(
        self, host: Host, contacts: tuple[str, ...], kept: Granted | None, counter: int
    ) -> None:
        # Without a counter of that life it was told its id, as by `--id`, and keeps to it.
        settings = replace(
            self._settings,
            address=host.address,
            takes_new_id=kept is None or counter > 1,
            id=NO_ID,
            founding_size=1,
        )
        local_ns = host.local_ns(self.now_ns)
        self.wires.equip(host)
        begin_joining(host, settings, contacts, kept, counter, self.random, local_ns)
        self.hosts[host.where] = host
        host.wake_planned_ns = None
        self._stepping.plan_wake(host)

    def _on_displaced(self, host: Host, displaced: Displaced) -> None:
        for watcher in self.watchers:
            watcher.ended(host)
        self.wires.end_all(host, abruptly=False)
        if self.hosts.get(host.where) is host:
            del self.hosts[host.where]
        self._joined_count += 1
        host.id = NodeId(-self._joined_count)
        self._begin_joining(host, displaced.contacts, None, 1)

    def _on_joined(self, host: Host, joined: Joined) -> None:
        del self.hosts[host.where]
        become_member(host, joined, self.random, host.local_ns(self.now_ns))
        self.hosts[host.where] = host
        for watcher in self.watchers:
            watcher.boot(host)
        self.wires.hellos.answer_backlog(host)
        host.wake_planned_ns = None
        self._stepping.plan_wake(host)

    def kill(self, number: int) -> None:
        """End a host at once: its connections close, dials to it are refused."""
        self._end(self.hosts[NodeId(number)], abruptly=True)

    def stop(self, number: int) -> None:
        """Let a host do nothing, as SIGSTOP does."""
        self.hosts[NodeId(number)].stopped = True

    def resume(self, number: int) -> None:
        """Let a stopped host go on: first it reads what waits, then its deadlines count."""
        host = self.hosts[NodeId(number)]
        host.stopped = False
        self._stepping.go_on(host)

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Hold back everything from a to b, and from b to a unless `one_way`."""
        self.blockade.cut(NodeId(a), NodeId(b), one_way=one_way)

    def mend(self) -> None:
        """Undo all cuts; what was held back arrives."""
        self.blockade.mend_all()
        self.release(self.hosts.values())

    def release(self, hosts: Any) -> None:
        """What these hosts have sent and a cut held back is sent again, where it now can."""
        self.wires.release([end for host in hosts for end in list(host.ends.values())])
        self.wires.release([end for host in hosts for end in list(host.closing.values())])

    def rekey(self, number: int, keys: tuple[str, ...]) -> None:
        """A host's links are made under other keys from now on, see `KeysChanged`."""
        host = self.hosts[NodeId(number)]
        host.keys = keys
        if host.joiner is None and host.alive:
            self._step(host, KeysChanged(keys))

    def members(self) -> list[Host]:
        """The hosts whose process is a member and runs, by their places."""
        return [
            host
            for _, host in sorted(self.hosts.items())
            if host.alive and not host.pauses and host.joiner is None
        ]

    def blink(self, place: NodeId) -> None:
        """Tell watchers of a fault at a process, by its place, that is over at once."""
        for watcher in self.watchers:
            watcher.disturb(place)
            watcher.disturb(place, over=True)

    def can_come(self, end: End) -> bool:
        """Whether its other end can be heard over a link now: it says that a process runs there."""
        other = end.other
        if not end.up or end.closing or other is None or not other.up or other.dead:
            return False
        is_running = other.host.alive and not other.host.stopped
        return is_running and not self.blockade.blocks(other.host.where, end.host.where)

    def let_come(self, host: Host, link: LinkId, message: Message) -> None:
        """Let a message come over a link where one can, as if its other end had sent it."""
        self._step(host, Received(link, message))

    def wake_soon(self, host: Host) -> None:
        """Its clock has leapt: look at its deadline anew."""
        host.wake_planned_ns = None
        self._stepping.plan_wake(host)

    def issue(self, number: int, command: Command) -> int:
        """Let a program ask its daemon; returns the request's number."""
        request = self.next_request()
        self.issue_as(self.hosts[NodeId(number)], request, command)
        return request

    def next_request(self) -> int:
        """A request number that was not used yet."""
        self._request_count += 1
        return self._request_count

    def issue_as(self, host: Host, request: int, command: Command) -> None:
        """Let a program ask its daemon under a number of its own."""
        self._step(host, CommandIssued(request, command))

    def status(self, number: int) -> dict[str, Any]:
        """What `bmgd status --json` would show (the core's part)."""
        request = self.issue(number, ShowStatus())
        result: dict[str, Any] = self.hosts[NodeId(number)].replies[request].result
        return result

    def run(self, duration_s: float) -> None:
        """Let virtual time pass."""
        self.timeline.run_until(self.now_ns + int(duration_s * 1e9))

    def run_until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> float:
        """Let time pass until a condition holds; returns the virtual seconds that it took.

        Raises:
            TimeoutError: it did not hold within `limit_s` virtual seconds.
        """
        began_ns = self.now_ns
        until_ns = began_ns + int(limit_s * 1e9)
        while not condition():
            if not self.timeline.step(until_ns):
                raise TimeoutError(f"not within {limit_s} virtual seconds")
        return (self.now_ns - began_ns) / 1e9

    # --- effects ------------------------------------------------------------------------------

    def _step(self, host: Host, event: Event) -> None:
        self._stepping.step_all(host, (event,))

    def _carry_out(self, host: Host, effect: Effect) -> None:
        wires = self.wires
        match effect:
            case Send(link, message):
                wires.send(host, link, message)
            case Observed():
                if self._keeps_all:
                    host.observed.append((self.now_ns, effect))
            case RecordChanged():
                if self._keeps_all:
                    host.records.append(effect)
            case ForwardingChanged(snapshot):
                self._change_snapshot(host, snapshot)
            case AbsorbHeartbeats(digest, links):
                wires.absorb_heartbeats(host, digest, links)
            case Overlooked(notice):
                wires.overlook(host, notice)
            case Dial() | AskContact():
                wires.hellos.dial(host, effect)
            case Welcome(link, known):
                wires.hellos.welcome(host, link, known)
            case Refuse():
                wires.hellos.refuse(host, effect)
            case Grant():
                wires.hellos.grant(host, effect, self._settings)
            case Joined():
                self._on_joined(host, effect)
            case Displaced():
                self._on_displaced(host, effect)
            case Close(link, reason):
                wires.close(host, link, reason)
            case Deliver():
                if self._keeps_all:
                    host.delivered.append(effect)
            case Announce() | TellMissed():
                if self._keeps_all:
                    host.announced.append(effect)
            case Reply(request):
                if self._keeps_all:
                    host.replies[request] = effect
            case Exit():
                host.exit = effect
                self._end(host, abruptly=False)
            case Renewed() | ProgramsChanged():
                pass
            case ReportWanted(asker, tag, number, facts):
                body = json.dumps(facts, separators=(",", ":")).encode()
                host.events.append(CommandIssued(0, SendReport(asker, tag, number, body)))
            case Reported(source, body):
                host.reports[source] = body

    def _change_snapshot(self, host: Host, snapshot: Snapshot) -> None:
        stale_us = self.conditions.stale_us_max
        if stale_us:
            at_ns = self.now_ns + self.random.randrange(stale_us * 1_000)
            self.timeline.plan(at_ns, _use_snapshot, host, snapshot)
        else:
            _use_snapshot(host, snapshot)

    def _end(self, host: Host, *, abruptly: bool) -> None:
        """A process is over."""
        if not host.alive:
            return
        host.alive = False
        host.stopped = False
        host.held_back.clear()
        linger_us = self.conditions.linger_us_max
        if abruptly and linger_us:
            host.accepts_until_ns = self.now_ns + self.random.randrange(linger_us * 1_000)
        self.wires.end_all(host, abruptly=abruptly)
        # A process that was never a member ends unseen.
        for watcher in self.watchers if host.joiner is None else ():
            watcher.ended(host)


def _use_snapshot(host: Host, snapshot: Snapshot) -> None:
    if snapshot.generation > host.snapshot.generation:
        host.snapshot = snapshot
        host.layer.publish(snapshot)
