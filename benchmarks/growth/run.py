"""One cluster of N in virtual time: what rest, a death and a silence cost it.

Theory of operation. All N cores are the daemon's own, every message goes through the real codec, and
the cluster starts as daemons do: all at once, dialling. When it is at rest the cases follow one
another in it. A *killed* node's connections close and dials to it are refused; a *stopped* one is
silent and its kernel still accepts. After each fault it is waited until every survivor has the record
and exact links, then for a pause in which all trailing messages pass, then the whole cluster is
compared with the graph over the survivors. So each fault finds one more hole in the layout than the
one before it.

Counted are frames read. Heartbeats go on as always, so of those only the first on each new link is a
part of what a fault costs. Hellos and TCP's own packets are not counted; dials are.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from random import Random
from statistics import median
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import psutil

from bmgd.core.effects import Dial, Effect, Observed, RecordChanged
from bmgd.core.events import Event
from bmgd.frameheader import BODY_PREFIX_BYTES, HEADER_BYTES, KIND_AT, LENGTH_BYTES
from bmgd.peers import PeerList
from bmgd.policy import HealingPolicy
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.inside import linked_peers, membership_of
from bmgd.sim.observing import Watcher
from bmgd.sim.rest import unrest
from bmgd.types import NodeId, Status
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Heartbeat

SETTLE_S: Final = 1.2
"""Until the last dial's timeout has left the timeline."""
PAUSE_S: Final = 0.5
LIMIT_S: Final = 30.0
HEARTBEAT_S: Final = 0.5
SAMPLED: Final = 9

Row = dict[str, Any]
_KIND_AT: Final = LENGTH_BYTES + BODY_PREFIX_BYTES + KIND_AT
_SEQUENCE_AT: Final = LENGTH_BYTES + BODY_PREFIX_BYTES + HEADER_BYTES
"""Of a heartbeat: a single byte up to 127, and one above those from then on."""
_HEARTBEAT: Final = encode(Heartbeat(1, 0, 0, False))[_KIND_AT]
_SHARED: Final = (
    *(type, ModuleType, FunctionType, BuiltinFunctionType, Enum),
    *(PeerList, HealingPolicy),
)
"""What all cores of a process have in common."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried at one size.

    Args:
        kills, stops: how many nodes are killed, and stopped, one after another.
        idle_beats: for how many heartbeat intervals the idle cluster is watched.
    """

    kills: int
    stops: int
    idle_beats: int


def effort_of(size: int) -> Effort:
    """Fewer repetitions where one takes long; and most of the nodes stay."""
    if size <= 1024:
        return Effort(min(9, size // 4), min(5, size // 8), 4)
    if size <= 4096:
        return Effort(5, 3, 2)
    return Effort(3, 2, 1) if size <= 16_384 else Effort(1, 0, 1)


@dataclass(slots=True)
class Onlooker(Watcher):
    """Notes when each node has the record of a victim's end, and exact links, last.

    Attributes:
        knew_ns, exact_ns: by node.
        dials: how many were ordered.
    """

    network: Network
    victim: NodeId
    knew_ns: dict[NodeId, int] = field(default_factory=dict)
    exact_ns: dict[NodeId, int] = field(default_factory=dict)
    dials: int = 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        """A core took an event."""
        for effect in effects:
            kind = type(effect)
            if kind is RecordChanged:
                assert isinstance(effect, RecordChanged)
                if effect.id == self.victim and effect.record.status >= Status.DEAD:
                    self.knew_ns.setdefault(host.id, self.network.now_ns)
            elif kind is Dial:
                self.dials += 1
            elif kind is Observed:
                assert isinstance(effect, Observed)
                if effect.event == "links exact" and host.id in self.knew_ns:
                    self.exact_ns[host.id] = self.network.now_ns


@dataclass(slots=True)
class Traffic:
    """Counts the frames that a fault causes, and their bytes, prefix included.

    Attributes:
        frames: by kind, the number on the wire.
        frame_bytes: of all of them.
    """

    frames: Counter[int] = field(default_factory=Counter)
    frame_bytes: int = 0

    def on_chunk(self, sender: Host, receiver: Host, data: bytes) -> None:
        """Bytes were read, of whole frames."""
        at = 0
        while at < len(data):
            upto = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
            kind = data[at + _KIND_AT]
            if kind != _HEARTBEAT or data[at + _SEQUENCE_AT] == 1:
                self.frames[kind] += 1
                self.frame_bytes += upto - at
            at = upto


# --- the cases --------------------------------------------------------------------------------------


def cases_of(size: int, seed: int = 1, effort: Effort | None = None) -> Iterator[Row]:
    """Start a cluster and try the cases in it; yields a row for each as soon as it is known.

    Args:
        size: N, 16 or more.
        seed: decides incarnations, jitter and victims.
        effort: None for `effort_of(size)`.
    """
    effort = effort or effort_of(size)
    before_bytes, began = _resident_bytes(), time.monotonic()
    network = Network(size, seed, keeps_all=False)
    network.run(SETTLE_S)
    _must_rest(network)
    started = {
        "virtual_ready_s": SETTLE_S,
        "simulator_bytes_per_node": (_resident_bytes() - before_bytes) // size,
        "links_per_node": _mean(len(linked_peers(h.node)) for h in network.hosts.values()),
    }
    yield {"size": size, "case": "start", **started, **_memory(network), "real_s": _since(began)}
    yield _idle(network, effort.idle_beats)
    victims = iter(
        Random(f"victims {size} {seed}").sample(range(size), effort.kills + effort.stops)
    )
    yield _faults(network, "killed", network.kill, list(islice(victims, effort.kills)))
    if effort.stops:
        yield _faults(network, "stopped", network.stop, list(victims))
    yield {"size": size, "case": "memory", **_memory(network)}


def _idle(network: Network, beats: int) -> Row:
    """Nothing happens for some heartbeat intervals."""
    began, size = time.monotonic(), network.size
    messages, sent = _sent(network)
    network.run(beats * HEARTBEAT_S)
    messages, sent = _sent(network)[0] - messages, _sent(network)[1] - sent
    per_node_s = 1 / (size * beats * HEARTBEAT_S)
    return {
        "size": size,
        "case": "idle",
        "watched_s": beats * HEARTBEAT_S,
        "messages_per_node_s": round(messages * per_node_s, 3),
        "bytes_per_node_s": round(sent * per_node_s, 1),
        "real_s": _since(began),
    }


def _faults(
    network: Network, case: str, fault: Callable[[int], None], victims: Sequence[int]
) -> Row:
    began = time.monotonic()
    found = [_fault(network, fault, victim) for victim in victims]
    lists = {name: [row[name] for row in found] for name in found[0]}
    row: Row = {"size": network.size, "case": case, "victims": list(victims), **lists}
    return row | {"real_s": _since(began)}


def _fault(network: Network, fault: Callable[[int], None], victim: int) -> dict[str, float]:
    """One node ends or falls silent; returns when that was known and healed, and what it cost."""
    onlooker, traffic = Onlooker(network, NodeId(victim)), Traffic()
    neighbors = linked_peers(network.hosts[NodeId(victim)].node)
    network.watchers.append(onlooker)
    network.wires.on_chunk = traffic.on_chunk
    fault_ns = network.now_ns
    fault(victim)
    survivors = sum(h.alive for h in network.hosts.values() if h.id != victim)
    network.run_until(lambda: len(onlooker.exact_ns) == survivors, LIMIT_S)
    network.run(PAUSE_S)
    network.watchers.remove(onlooker)
    network.wires.on_chunk = None
    if network.hosts[NodeId(victim)].alive:
        network.kill(victim)
    _must_rest(network)
    exact_ns = onlooker.exact_ns
    times = {
        "noticed_ms": min(onlooker.knew_ns.values()),
        "told_ms": max(onlooker.knew_ns.values()),
        "healed_ms": max(exact_ns.values()),
        "others_healed_ms": max(
            (at_ns for node_id, at_ns in exact_ns.items() if node_id not in neighbors),
            default=max(exact_ns.values()),
        ),
    }
    return {
        **{name: round((at_ns - fault_ns) / 1e6, 4) for name, at_ns in times.items()},
        "messages": round(traffic.frames.total() / survivors, 3),
        "bytes": round(traffic.frame_bytes / survivors, 1),
        "dials": round(onlooker.dials / survivors, 3),
    }


def _memory(network: Network) -> Row:
    """What some of the cores hold now."""
    living = [host for host in network.hosts.values() if host.alive]
    sample = living[:: max(1, len(living) // SAMPLED)][:SAMPLED]
    cores = [footprint(host.node) for host in sample]
    memberships = [footprint(membership_of(host.node)) for host in sample]
    return {
        "sampled": len(sample),
        "exceptions": len(membership_of(sample[0].node).exceptions()),
        "core_bytes": int(median(cores)),
        "core_bytes_max": max(cores),
        "membership_bytes": int(median(memberships)),
        "membership_bytes_max": max(memberships),
    }


# --- measuring --------------------------------------------------------------------------------------


def footprint(root: object) -> int:
    """Bytes of all objects that one refers to, directly or not, but for what all cores share.

    Small numbers and texts that others refer to as well are counted, so this is an upper bound; what
    the extension keeps outside Python's objects (some tens of bytes for each link) is not.
    """
    seen: set[int] = set()
    waiting, total = [root], 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        waiting += gc.get_referents(found)
    return total


def _must_rest(network: Network) -> None:
    why = unrest(network)
    if why:
        raise RuntimeError(f"N = {network.size}: not at rest after {network.now_ns / 1e9} s: {why}")


def _sent(network: Network) -> tuple[int, int]:
    hosts = network.hosts.values()
    return sum(host.messages for host in hosts), sum(host.bytes for host in hosts)


def _resident_bytes() -> int:
    resident: int = psutil.Process().memory_info().rss
    return resident


def _mean(numbers: Iterator[int]) -> float:
    values = list(numbers)
    return round(sum(values) / len(values), 2)


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)
