"""Whether a cluster is at rest: all agree, hold exactly those dead who are, and have exactly the links.

The links of every node are compared with the graph over the layout, computed anew from what is
believed: that all agree is checked first, so the layout of one node is that of all.
"""

from __future__ import annotations

from collections.abc import Iterable

from bmgd.sim.host import Host
from bmgd.sim.inside import linked_peers, membership_of, wanted_peers
from bmgd.sim.network import Network
from bmgd.types import NodeId, NodeState


def running(network: Network) -> list[Host]:
    """The hosts whose processes run, by id."""
    return [host for _, host in sorted(network.hosts.items()) if host.alive]


def unrest(network: Network) -> str:
    """Why the cluster is not at rest; "" when it is.

    Complexity: O(N log N).
    """
    hosts = running(network)
    if not hosts:
        return ""
    first = membership_of(hosts[0].node)
    for host in hosts:
        if host.node.state is not NodeState.READY:
            return f"node {host.id} is {host.node.state.value}"
        if membership_of(host.node).digest != first.digest:
            return f"nodes {hosts[0].id} and {host.id} have different digests"
    alive = {host.id for host in hosts}
    for number in range(first.id_space):
        node_id = NodeId(number)
        if first.status_of(node_id) is not None and first.is_gone(node_id) == (node_id in alive):
            status = first.status_of(node_id)
            word = "runs" if node_id in alive else "does not run"
            return f"node {node_id} {word} and is held {status.name.lower() if status else '?'}"
    return _wrong_links(hosts)


def _wrong_links(hosts: Iterable[Host]) -> str:
    for host in hosts:
        membership, node = membership_of(host.node), host.node
        neighbors = membership.neighbors(host.id)
        if wanted_peers(node) != neighbors:
            return f"node {host.id} wants {wanted_peers(node)}, not {neighbors}"
        linked = linked_peers(node)
        there = {peer for peer in neighbors if not membership.is_gone(peer)}
        if linked.keys() != there:
            return f"node {host.id} is linked to {sorted(linked)}, not {sorted(there)}"
        doubled = [peer for peer, count in linked.items() if count != 1]
        if doubled:
            return f"node {host.id} has several links to {doubled[0]}"
    return ""
