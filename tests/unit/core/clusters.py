"""What tests ask of a cluster in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bmgd.core.commands import ProbeTo, SendTo
from bmgd.core.effects import Effect, Refuse, Reply
from bmgd.core.events import Event
from bmgd.healing import link_diff
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId

S = 1_000_000_000


def healed_neighbors(size: int, node_id: int, dead: Iterable[int]) -> list[int]:
    """The neighbors of a survivor in the healed graph, by Algorithm 1 of Healing."""
    added, removed = link_diff(size, node_id, sorted(dead))
    return sorted((set(BinomialGraph(size).neighbors(node_id)) - set(removed)) | set(added))


def linked(network: Network, node_id: int) -> list[int]:
    """The peers that a node is linked to, one entry per link, sorted."""
    return [link["id"] for link in network.status(node_id)["links"]]


def survivors(network: Network) -> list[int]:
    """The hosts that run."""
    return [i for i, host in sorted(network.hosts.items()) if host.alive]


def disagreement(network: Network, dead: Iterable[int]) -> str:
    """Why the cluster is not at rest with exactly these dead; "" when it is."""
    gone = sorted(dead)
    alive = survivors(network)
    for node_id in alive:
        status = network.status(node_id)
        if status["state"] != "ready":
            return f"node {node_id} is {status['state']}"
        if status["dead"] != gone or status["alive"] != alive:
            return f"node {node_id} holds dead {status['dead']}, alive {status['alive']}"
        wanted = healed_neighbors(len(network.hosts), node_id, gone)
        if linked(network, node_id) != wanted:
            return f"node {node_id} is linked to {linked(network, node_id)}, not {wanted}"
    digests = {network.status(node_id)["digest"] for node_id in alive}
    return "" if len(digests) == 1 else f"digests differ: {sorted(digests)}"


def settle(network: Network, dead: Iterable[int] = (), limit_s: float = 30.0) -> float:
    """Run until the cluster is at rest with exactly these dead; returns the virtual seconds."""
    began_ns = network.now_ns
    gone = sorted(dead)
    while reason := disagreement(network, gone):
        if network.now_ns - began_ns > limit_s * S:
            raise AssertionError(f"not at rest after {limit_s} virtual seconds: {reason}")
        network.run(0.0005 if network.now_ns - began_ns < S // 10 else 0.05)
    return (network.now_ns - began_ns) / S


def reply_to(network: Network, node_id: int, command: Any, limit_s: float = 30.0) -> Reply:
    """Issue a command and run until its reply."""
    replies = network.hosts[NodeId(node_id)].replies
    request = network.issue(node_id, command)
    network.run_until(lambda: request in replies, limit_s)
    return replies[request]


def send(network: Network, source: int, destination: int, payload: bytes = b"x") -> Reply:
    """Send one message on the topic "t", with a deadline of 10 virtual seconds."""
    return reply_to(network, source, SendTo(NodeId(destination), "t", payload, 10 * S))


def trace(network: Network, source: int, destination: int) -> list[int]:
    """The nodes that a probe went through."""
    reply = reply_to(network, source, ProbeTo(NodeId(destination), record=True, timeout_ns=10 * S))
    assert reply.error is None, reply.error
    path: list[int] = reply.result["path"]
    return path


def observed(network: Network, node_id: int, event: str) -> list[Any]:
    """What a node's core observed under this name, oldest first."""
    return [o for _, o in network.hosts[NodeId(node_id)].observed if o.event == event]


class Refusals(Watcher):
    """Every refusal of every core."""

    def __init__(self) -> None:
        self.seen: list[Refuse] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self.seen += [effect for effect in effects if isinstance(effect, Refuse)]
