"""A plan's faults, carried out on a simulated network; and their end.

What a step asks of a process that is not in the condition for it any more (it exited by itself, its
crash came late) is left out; a restart ends first what still runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random

from bmgd.chaos.faults import (
    Clock,
    Continue,
    Crash,
    Cut,
    Evict,
    Fault,
    HalfOpen,
    Hog,
    Join,
    Kill,
    Leave,
    Mend,
    Pair,
    Partition,
    Reset,
    Restart,
    Slow,
    Stop,
    Takeover,
    write_fault,
)
from bmgd.chaos.history import (
    Disturbed,
    EvictAsked,
    Fact,
    JoinAsked,
    LeaveAsked,
    Mended,
    Resumed,
    Stopped,
)
from bmgd.core import commands
from bmgd.core.commands import Command
from bmgd.core.events import Granted
from bmgd.errors import InvariantError
from bmgd.sim.blockade import Slowness
from bmgd.sim.host import End, Host
from bmgd.sim.network import PEERS, Network
from bmgd.sim.rest import running
from bmgd.sim.wires import ends_between
from bmgd.types import NodeId, counter_of

_MS = 1_000_000
_HOG_NODES = 3
"""One hog makes so many nodes stutter."""
_HOG_PAUSES_NS = (5 * _MS, 120 * _MS)
_HOG_TURNS_NS = (1 * _MS, 30 * _MS)
EVICT_TIMEOUTS_NS = (100 * _MS, 600 * _MS, 3_000 * _MS)
"""For so long an operator waits for the end of whom it evicts."""
CONTACTS_MAX = 3
"""A process that joins knows so many members, if there are."""


class Disturber:
    """Carries faults out.

    Args:
        network: what is disturbed.
        random: for what a plan leaves to chance.
        note: takes the truth for the history.
    """

    def __init__(self, network: Network, random: Random, note: Callable[[Fact], None]) -> None:
        self._network = network
        self._random = random
        self._note = note
        self._half_open: set[Pair] = set()
        self._hogged: dict[NodeId, int] = {}
        self._stopped: set[NodeId] = set()
        self._joined = 0
        self._disturbed: set[NodeId] = set()

    # --- one step -----------------------------------------------------------------------------

    def carry_out(self, fault: Fault) -> None:
        """Do what a step says, now."""
        self._note(Disturbed(self._network.now_ns, json.dumps(write_fault(fault))))
        match fault:
            case Kill(nodes):
                self._each(nodes, self._kill)
            case Crash(nodes, after_effects):
                self._each(nodes, lambda host: self._crash(host, after_effects))
            case Restart(nodes, _, keeps_state):
                for node in nodes:
                    self._restart(node, keeps_state)
            case Stop(nodes):
                self._each(nodes, self._stop)
            case Continue(nodes):
                self._each(nodes, self._continue)
            case Leave(nodes):
                self._each(nodes, self._leave)
            case Join(count, through):
                for _ in range(count):
                    self._join(through)
            case Evict(nodes, by):
                for node in nodes:
                    self._evict(node, by)
            case Takeover(nodes, answers):
                for node in nodes:
                    self._take_over(node, "cluster" if answers else "silent")
            case Clock(nodes, step_ms):
                self._each(nodes, lambda host: self._step_clock(host, step_ms))
            case Hog(count, seconds):
                self._hog(count, seconds)
            case _:
                self._disturb_ways(fault)
        self._tell_watchers()

    def _each(self, nodes: Iterable[NodeId], action: Callable[[Host], None]) -> None:
        for node in nodes:
            host = self._network.hosts.get(node)
            if host is not None and host.alive:
                action(host)

    # --- processes ----------------------------------------------------------------------------

    def _kill(self, host: Host) -> None:
        self._stopped.discard(host.where)
        self._network.kill(host.where)

    def _crash(self, host: Host, after_effects: int) -> None:
        if host.stopped:
            self._kill(host)
        else:
            host.crash_after = after_effects

    def _restart(self, node: NodeId, keeps_state: bool) -> None:
        network = self._network
        host = network.hosts.get(node)
        if host is not None and host.alive:
            self._kill(host)
        counter = 1
        if host is not None and keeps_state:
            counter = counter_of(host.core.incarnation) + 1
        self._stopped.discard(node)
        if node < network.size:
            network.boot(node, counter)
        elif host is not None:
            kept = None
            if keeps_state and host.member is not None and host.id >= 0:
                kept = Granted(host.id, network.size, PEERS)
            self._contact(node, None, kept, counter)

    def _join(self, through: NodeId | None) -> None:
        self._joined += 1
        self._contact(NodeId(self._network.size + self._joined - 1), through, None, 1)

    def _contact(
        self, place: NodeId, through: NodeId | None, kept: Granted | None, counter: int
    ) -> None:
        """Start a process that asks members, one of them first, for an id or for its former one."""
        network = self._network
        members = [host.where for host in running(network)]
        chosen = self._random.sample(members, min(len(members), CONTACTS_MAX))
        if through is not None and through in network.hosts:
            chosen.insert(0, through)
        if chosen:
            self._note(JoinAsked(network.now_ns, place, network.hosts[chosen[0]].id))
            network.join(*chosen, kept=kept, counter=counter, place=place)

    def _stop(self, host: Host) -> None:
        if not host.stopped:
            self._stopped.add(host.where)
            self._network.stop(host.where)
            self._note(Stopped(self._network.now_ns, host.id))

    def _continue(self, host: Host) -> None:
        self._stopped.discard(host.where)
        self._hogged.pop(host.where, None)
        if host.stopped:
            self._note(Resumed(self._network.now_ns, host.id))
            self._network.resume(host.where)

    def _leave(self, host: Host) -> None:
        if host.joiner is not None:
            self._kill(host)
            return
        self._note(LeaveAsked(self._network.now_ns, host.id))
        self._command(host, commands.Leave())

    def _evict(self, node: NodeId, by: NodeId) -> None:
        host = self._network.hosts.get(by)
        if host is not None and host.alive and host.joiner is None:
            target, timeout_ns = self._id(node), self._random.choice(EVICT_TIMEOUTS_NS)
            self._note(EvictAsked(self._network.now_ns, target, host.id))
            self._command(host, commands.Evict(target, timeout_ns))

    def _command(self, host: Host, command: Command) -> None:
        """A program's command waits in the socket of a stopped daemon."""
        if host.stopped:
            request = self._network.next_request()
            host.held_back.append((self._network.issue_as, (host, request, command)))
        else:
            self._network.issue(host.where, command)

    def _take_over(self, node: NodeId, squatter: str) -> None:
        host = self._network.hosts.get(node)
        if host is not None and not host.alive:
            host.squatter = squatter

    def _step_clock(self, host: Host, step_ms: float) -> None:
        # A monotonic clock is never stepped back; it can leap, as over a suspended machine.
        if step_ms > 0:
            host.offset_ns += int(step_ms * _MS)
            if not host.stopped:
                self._network.wake_soon(host)
        self._blink((host.where,))

    # --- processor time -----------------------------------------------------------------------

    def _hog(self, count: int, seconds: float) -> None:
        network = self._network
        until_ns = network.now_ns + int(seconds * 1e9)
        running = [n for n, host in sorted(network.hosts.items()) if host.alive]
        chosen = self._random.sample(running, min(len(running), count * _HOG_NODES))
        for node in chosen:
            is_new = node not in self._hogged
            self._hogged[node] = until_ns
            if is_new:
                self._stutter(node, network.hosts[node])

    def _stutter(self, node: NodeId, host: Host) -> None:
        """A hogged node gets a turn, then none, then a turn again."""
        network, random = self._network, self._random
        until_ns = self._hogged.get(node)
        if not host.alive or network.hosts[node] is not host:
            self._hogged.pop(node, None)
            self._tell_watchers()
            return
        if until_ns is None or network.now_ns >= until_ns:
            self._hogged.pop(node, None)
            if host.stopped and node not in self._stopped:
                network.resume(node)
            self._tell_watchers()
            return
        if node not in self._stopped:
            if host.stopped:
                network.resume(node)
            else:
                network.stop(node)
        low_ns, high_ns = _HOG_PAUSES_NS if host.stopped else _HOG_TURNS_NS
        at_ns = network.now_ns + random.randrange(low_ns, high_ns)
        if not host.stopped:
            # Where steps come late, or time goes in ticks, a turn is none in which no step can be.
            conditions = network.conditions
            at_ns += 1_000 * (conditions.late_us_max + conditions.tick_us)
        network.timeline.plan(at_ns, self._stutter, node, host)

    # --- ways ---------------------------------------------------------------------------------

    def _disturb_ways(self, fault: Fault) -> None:
        blockade = self._network.blockade
        match fault:
            case Cut(links, one_way):
                for a, b in links:
                    blockade.cut(a, b, one_way=one_way)
            case Partition(groups, one_way):
                blockade.part(groups, one_way=one_way)
            case Slow(links, nodes, delay_ms, bytes_per_second):
                slowness = Slowness(int(delay_ms * _MS), bytes_per_second)
                for a, b in links:
                    blockade.slow_way(a, b, slowness)
                for node in nodes:
                    blockade.slow_node(node, slowness)
            case Mend(links):
                self._mend(links)
            case HalfOpen(links):
                for pair in links:
                    self._half_open.add(pair)
                    for end in self._ends(pair):
                        end.dead = True
                        if end.other is not None:
                            end.other.dead = True
                self._blink(place for pair in links for place in pair)
            case Reset(links):
                self._reset(links)
            case _:
                raise InvariantError(f"a fault that nobody carries out: {fault!r}")

    def _id(self, node: NodeId) -> NodeId:
        """The id that a process of the plan has now; joiners can have got another than its number."""
        host = self._network.hosts.get(node)
        return node if host is None else host.id

    def _ends(self, pair: Pair) -> list[End]:
        host = self._network.hosts.get(pair[0])
        return [] if host is None else ends_between(host, self._id(pair[1]))

    def _mend(self, links: tuple[Pair, ...] | None) -> None:
        network = self._network
        if links is None:
            network.mend()
            for host in network.hosts.values():
                host.squatter = ""
            for pair in sorted(self._half_open):
                self._revive(pair)
            self._half_open.clear()
            return
        for pair in links:
            network.blockade.mend(*pair)
            for known in (pair, (pair[1], pair[0])):
                if known in self._half_open:
                    self._half_open.discard(known)
                    self._revive(known)
        ends = {node for pair in links for node in pair}
        network.release([network.hosts[n] for n in sorted(ends) if n in network.hosts])

    def _revive(self, pair: Pair) -> None:
        """Dead connections cannot go on; what answers on their way now knows nothing of them."""
        for end in self._ends(pair):
            if end.dead and end.other is not None:
                for one in (end, end.other):
                    one.dead, one.held, one.doubted_ns = False, None, 0
                    one.cut_off = min(one.cut_off, one.arrived)
                self._network.wires.break_link(end)

    def _reset(self, links: tuple[Pair, ...] | None) -> None:
        network = self._network
        if links is None:
            hosts = [host for host in network.hosts.values() if host.alive]
            for host in hosts:
                for end in list(host.ends.values()):
                    if end.other is not None and end.link < end.other.link:
                        network.wires.break_link(end)
            self._blink(host.where for host in hosts)
            return
        for pair in links:
            for end in self._ends(pair):
                network.wires.break_link(end)
        self._blink(place for pair in links for place in pair)

    # --- the end ------------------------------------------------------------------------------

    def end(self) -> None:
        """The faults are over: everything is mended, and who is stopped goes on."""
        network = self._network
        for host in list(network.hosts.values()):
            if host.alive and host.crash_after is not None:
                self._kill(host)
        self._hogged.clear()
        self._mend(None)
        for _, host in sorted(network.hosts.items()):
            if host.alive and host.stopped:
                self._continue(host)
        self._note(Mended(network.now_ns))
        self._disturbed.clear()
        for watcher in network.watchers:
            watcher.mended()

    # --- watchers -----------------------------------------------------------------------------

    def _blink(self, places: Iterable[NodeId]) -> None:
        """A fault that is over at once."""
        for place in places:
            self._network.blink(place)

    def _tell_watchers(self) -> None:
        """Tell which processes are disturbed now and were not, and the other way about."""
        now = {*self._stopped, *self._hogged, *self._network.blockade.touched()}
        now |= {place for pair in self._half_open for place in pair}
        for place in sorted(now ^ self._disturbed):
            for watcher in self._network.watchers:
                watcher.disturb(place, over=place not in now)
        self._disturbed = now
