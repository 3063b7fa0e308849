"""The families of chosen faults: what is done to a cluster at rest, and what must come of it.

A family is a function that yields cases for a network at rest; a case does its faults to the copy of it
that a forked process has (`command.py`), and returns the virtual seconds that are of interest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random

from bmgd.core.commands import Evict
from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event
from bmgd.sim import Network
from bmgd.sim.checkers import watch
from bmgd.sim.host import Host
from bmgd.sim.inside import linked_peers, membership_of
from bmgd.sim.observing import Watcher
from bmgd.sim.rest import unrest
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId
from bmgd.wire.link_messages import Notice

REST_LIMIT_S = 60.0
QUIET_S = 4.0
CHECKED_MAX = 12
"""Clusters of up to so many nodes are watched by all checkers."""
S = 1_000_000_000

Case = tuple[str, Callable[[Network], float]]


class Failure(Exception):
    """A case did not end as it must."""


# --- clusters -----------------------------------------------------------------------------------------


def settled(size: int, *, seed: int = 0) -> Network:
    """A cluster at rest, watched by all checkers where it is small."""
    network = Network(size, seed)
    if size <= CHECKED_MAX:
        watch(network)
    settle(network)
    network.run(1)
    return network


def settle(network: Network, limit_s: float = REST_LIMIT_S) -> float:
    """Run until the cluster is at rest; returns the virtual seconds.

    Raises:
        Failure: it was not within the limit.
    """
    began_ns = network.now_ns
    while reason := unrest(network):
        spent_ns = network.now_ns - began_ns
        if spent_ns > limit_s * S:
            raise Failure(f"not at rest after {limit_s:g} s: {reason}")
        network.run(0.002 if spent_ns < S // 5 else 0.05)
    return (network.now_ns - began_ns) / S


def check(network: Network) -> None:
    """Let the checkers, if any watch, look at the cluster at rest.

    Raises:
        Failure: they found something.
    """
    for watcher in network.watchers:
        violations = getattr(watcher, "violations", None)
        if violations is not None:
            network.run(QUIET_S)
            watcher.at_rest()  # type: ignore[attr-defined]
            if violations:
                raise Failure(str(violations[0]))


def kill_all(network: Network, victims: tuple[int, ...]) -> float:
    """Kill nodes at one moment; returns how long healing took."""
    for victim in victims:
        network.kill(victim)
    healed_s = settle(network)
    check(network)
    return healed_s


def deaths(victims: tuple[int, ...]) -> Case:
    """The case of simultaneous deaths."""
    return f"kill {victims}", lambda network: kill_all(network, victims)


# --- families -----------------------------------------------------------------------------------------


def every_set(network: Network) -> Iterator[Case]:
    """Every set of one death less than each node has neighbors."""
    size = network.size
    for victims in combinations(range(size), BinomialGraph(size).degree - 1):
        yield deaths(victims)


def random_sets(count: int) -> Callable[[Network], Iterator[Case]]:
    """So many random sets of one death less than each node has neighbors."""

    def cases(network: Network) -> Iterator[Case]:
        size, random = network.size, Random(f"sets {network.size}")
        for _ in range(count):
            chosen = random.sample(range(size), BinomialGraph(size).degree - 1)
            yield deaths(tuple(sorted(chosen)))

    return cases


def neighborhoods(network: Network) -> Iterator[Case]:
    """The whole neighborhood of each node, alone and with the node."""
    graph = BinomialGraph(network.size)
    for node in range(network.size):
        around = tuple(int(peer) for peer in graph.neighbors(node))
        if len(around) < network.size - 1:
            yield deaths(around)
        if len(around) < network.size - 2:
            yield deaths((*around, node))


def halves(network: Network) -> Iterator[Case]:
    """Half of the nodes at once: even ids, the lower ones, and two random halves."""
    size, random = network.size, Random(f"halves {network.size}")
    yield deaths(tuple(range(0, size, 2)))
    yield deaths(tuple(range(size // 2)))
    for _ in range(2):
        yield deaths(tuple(random.sample(range(size), size // 2)))


def second_deaths(network: Network) -> Iterator[Case]:
    """The death of each other node at every step of healing the first one's."""
    size = network.size
    network.kill(3)
    steps = 0
    while unrest(network) or steps < 10:
        for victim in range(size):
            if victim != 3:
                yield f"kill {victim} at step {steps}", deaths((victim,))[1]
        network.timeline.step(network.now_ns + S)
        steps += 1


class _CrashOf(Watcher):
    """Lets the first node that tells a notice die after it has told so many."""

    def __init__(self, network: Network, told: int) -> None:
        self._network, self._told, self.crashed = network, told, False

    def after(self, host: Host, event: Event, effects: object) -> None:
        assert isinstance(effects, list)
        told = [i for i, e in enumerate(effects) if _is_notice(e)]
        if told and not self.crashed:
            self.crashed = True
            host.crash_after = told[self._told] if self._told < len(told) else told[-1] + 1


def _is_notice(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, Notice)


def half_told(network: Network) -> Iterator[Case]:
    """The source of a notice dies after telling k neighbors: of a death, and of an eviction."""
    size = network.size
    most = max(sum(linked_peers(host.node).values()) for host in network.hosts.values())

    def case(told: int, cause: Callable[[Network], None]) -> Callable[[Network], float]:
        def run(network: Network) -> float:
            crash = _CrashOf(network, told)
            network.watchers.append(crash)
            cause(network)
            # Whose source died before it told anybody may still be unknown to all: all agree then, too.
            network.run(0.001)
            healed_s = settle(network)
            if not crash.crashed:
                raise Failure("no notice was told")
            check(network)
            return healed_s

        return run

    for told in range(most + 1):
        yield f"death, {told} told", case(told, lambda network: network.kill(2))
        for evictor in range(0, size, 3):
            victim = NodeId((evictor + 1) % size)
            yield (
                f"{evictor} evicts {victim}, {told} told",
                case(told, lambda n, e=evictor, v=victim: evict(n, e, v)),  # type: ignore[misc]
            )


def evict(network: Network, evictor: int, victim: NodeId) -> None:
    """Let one node evict another."""
    network.issue(evictor, Evict(victim, 2 * S))


def parted(network: Network) -> Iterator[Case]:
    """Two healthy halves meet again; no link inside either that both layouts want is lost."""
    size = network.size
    splits = [range(size // 2), range(0, size, 2), range(size // 3)]
    for split in splits:
        side = frozenset(split)
        yield f"part {sorted(side)}", lambda network, side=side: merge(network, side)  # type: ignore[misc]


def merge(network: Network, side: frozenset[int]) -> float:
    """Part a cluster for 20 s; returns how long merging took."""
    size = network.size
    others = [i for i in range(size) if i not in side]
    for a in side:
        for b in others:
            network.cut(a, b)
    network.run(20)
    inside: dict[int, dict[int, int]] = {}
    for number, host in network.hosts.items():
        half = sorted(side) if number in side else others
        dead = {int(i) for i in membership_of(host.node).outside}
        if dead != set(range(size)) - set(half):
            raise Failure(f"node {number} holds {sorted(dead)} dead while parted")
        links = host.node.parts.links.by_peer
        wanted = {int(peer) for peer in BinomialGraph(size).neighbors(number)}
        kept = {int(p): int(rows[0].id) for p, rows in links.items() if int(p) in wanted}
        inside[int(number)] = kept
    for watcher in network.watchers:
        watcher.mended()
    network.mend()
    merged_s = settle(network)
    for a, links_before in inside.items():
        now = network.hosts[NodeId(a)].node.parts.links.by_peer
        for b, link in links_before.items():
            if now[NodeId(b)][0].id != link:
                raise Failure(f"the link of {a} and {b} was lost in the merge")
    return merged_s


def silent(network: Network) -> Iterator[Case]:
    """Each node stops, or is cut off from all, at any phase of the heartbeats; all others know it."""
    for victim in range(network.size):
        for phase in range(4):
            yield f"stop {victim}", lambda n, v=victim, p=phase: find(n, v, p, cut=False)  # type: ignore[misc]
            yield f"cut {victim}", lambda n, v=victim, p=phase: find(n, v, p, cut=True)  # type: ignore[misc]


def find(network: Network, victim: int, phase: int, *, cut: bool) -> float:
    """Let a node fall silent; returns how long it took until all others hold it dead."""
    network.run(2 + phase * 0.13)
    if cut:
        for other in range(network.size):
            if other != victim:
                network.cut(victim, other)
    else:
        network.stop(victim)
    others = [host.node for i, host in network.hosts.items() if i != victim]
    known = network.run_until(
        lambda: all(membership_of(node).is_gone(NodeId(victim)) for node in others), 30
    )
    for node in others:
        for number in range(network.size):
            if number != victim and membership_of(node).is_gone(NodeId(number)):
                raise Failure(f"{number} is held dead, and {victim} fell silent")
    return known


def one_way(network: Network) -> Iterator[Case]:
    """A is cut from B only, both ways and one way: nobody is held dead, and a message arrives."""
    for a in range(network.size):
        for b in range(network.size):
            if a != b:
                for single in (False, True):
                    yield (
                        f"cut {a} from {b}, one way {single}",
                        lambda n, a=a, b=b, s=single: live_with_cut(n, a, b, one_way=s),  # type: ignore[misc]
                    )


def live_with_cut(network: Network, a: int, b: int, *, one_way: bool) -> float:
    """Cut one pair for a minute; returns how long rest took after it was mended."""
    for node in (a, b):
        for watcher in network.watchers:
            watcher.disturb(NodeId(node))
    network.cut(a, b, one_way=one_way)
    for _ in range(60):
        network.run(1)
        for host in network.hosts.values():
            gone = [i for i in range(network.size) if membership_of(host.node).is_gone(NodeId(i))]
            if gone:
                raise Failure(f"node {host.id} holds {gone} dead")
    for watcher in network.watchers:
        watcher.mended()
    network.mend()
    rest_s = settle(network)
    check(network)
    return rest_s
