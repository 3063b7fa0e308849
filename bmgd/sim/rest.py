"""Whether a cluster is at rest: all agree, hold exactly those dead who are, and have exactly the links.

The links of every node are compared with the graph over the layout, computed anew from what is
believed: that all agree is checked first, so the layout of one node is that of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bmgd.sim.host import Host
from bmgd.sim.inside import (
    awaits_the_unseen,
    being_read,
    is_told_ways,
    linked_peers,
    links_of,
    membership_of,
    unsettled_broadcast,
    wanted_peers,
)
from bmgd.sim.network import Network
from bmgd.types import NodeId, NodeState, Status

QUIET_NS: Final = 3_000_000_000
"""For so long nothing but heartbeats may have been sent when a cluster at rest is looked at."""
BEATS_BYTES: Final = 2_000
"""More than heartbeats waits to be written."""
BACKLOG_NS: Final = 1_000_000_000
"""What was sent over a slow link may take longer than that to arrive, though it is slow no more."""


def running(network: Network) -> list[Host]:
    """The hosts whose processes run and are members, by id."""
    found = [host for host in network.hosts.values() if host.alive and host.joiner is None]
    return sorted(found, key=lambda host: host.id)


def components(hosts: Iterable[Host]) -> list[list[Host]]:
    """The hosts, parted into those that the graphs they want connect; by their lowest ids.

    With healing there is one part. Without it the dead keep their places in the graph, and when a node
    has lost all its neighbors nothing connects it any more.
    """
    unseen = {host.id: host for host in hosts}
    wanted: dict[NodeId, set[NodeId]] = {node_id: set() for node_id in unseen}
    for host in unseen.values():
        for peer in membership_of(host.node).neighbors(host.id):
            if peer in wanted:
                wanted[host.id].add(peer)
                wanted[peer].add(host.id)
    parts = []
    while unseen:
        part, edge = [], [min(unseen)]
        while edge:
            host_there = unseen.pop(edge.pop(), None)
            if host_there is not None:
                part.append(host_there)
                edge += wanted[host_there.id]
        parts.append(sorted(part, key=lambda host: host.id))
    return parts


def is_whole(network: Network) -> bool:
    """Whether one graph connects all who run, so that all can know the same."""
    hosts = running(network)
    return _all_heal(hosts) or len(components(hosts)) <= 1


def comes_to_quiet(network: Network) -> bool:
    """Whether all can know the same and nothing is sent again without end, so that checkers may look."""
    connected = frozenset(host.id for host in running(network))
    awaits = any(awaits_the_unseen(host.node, connected) for host in running(network))
    return is_whole(network) and not awaits


def cannot_meet(network: Network) -> bool:
    """Whether two sides are left of which neither knows an address of the other.

    Joiners that two sides let in under one id know founders in common, and those are all gone.
    """
    ids = [host.id for host in running(network)]
    founder_runs = any(node_id < network.settings.founding_size for node_id in ids)
    return not founder_runs and len(set(ids)) < len(ids)


def meets_by_lot(network: Network) -> bool:
    """Whether a node without a link holds somebody for gone who runs.

    It dials all who are gone, slowly and by lot, and has no other way to the others. One that holds an
    id that was given twice is refused at first, and gives way when the lot falls on the same again.
    """
    hosts = running(network)
    alone = [host for host in hosts if not linked_peers(host.node)]
    return any(
        membership_of(host.node).is_gone(other.id)
        for host in alone
        for other in hosts
        if other.id != host.id
    )


def holds_majority(part: Sequence[Host]) -> bool:
    """Whether a part has more than half of all who have not left, or half of them and the lowest."""
    alive = {host.id for host in part}
    first = membership_of(part[0].node)
    members = [NodeId(number) for number in range(first.id_space)]
    counted = [m for m in members if first.status_of(m) not in (None, Status.LEFT)]
    living = sum(member in alive for member in counted)
    return 2 * living > len(counted) or (2 * living == len(counted) and counted[0] in alive)


def unrest(network: Network) -> str:
    """Why the cluster is not at rest; "" when it is.

    Complexity: O(N log N).
    """
    for host in network.hosts.values():
        if host.alive and host.joiner is not None:
            return f"process {host.where} has no id yet"
    hosts = running(network)
    for host in hosts:
        if host.node.state is not NodeState.READY:
            return f"node {host.id} is {host.node.state.value}"
        if any(end.up and end.last_ns > network.now_ns + BACKLOG_NS for end in host.ends.values()):
            return f"what node {host.id} sent is still underway"
        if any(host.layer.backlog(end.link) > BEATS_BYTES for end in host.ends.values() if end.up):
            return f"what node {host.id} sends waits for a pipe"
    if not _all_heal(hosts):
        parts = components(hosts)
        if len(parts) > 1:
            return next(filter(None, (_disagreement(part, parted=True) for part in parts)), "")
    return _disagreement(hosts, parted=False)


def unsettled(network: Network) -> str:
    """Which node still tells or asks others about reliable broadcasts or ways, or is read; "" when none.

    Complexity: O(N * lives of sources * log N).
    """
    for part in components(running(network)):
        connected = frozenset(host.id for host in part)
        for host in part:
            count = being_read(host.node)
            if count:
                return f"node {host.id}: {count} messages are not read"
            if is_told_ways(host.node):
                return f"node {host.id}: others measure ways for it"
            reason = unsettled_broadcast(host.node, connected)
            if reason:
                return f"node {host.id}: {reason}"
    return ""


def _all_heal(hosts: Iterable[Host]) -> bool:
    """Whether nobody dead has a place in a layout, so that one graph connects all."""
    return not any(
        record.status is Status.DEAD
        for host in hosts
        for record in membership_of(host.node).exceptions().values()
    )


def _disagreement(hosts: Sequence[Host], *, parted: bool) -> str:
    """Why hosts that a graph connects are not at rest.

    Args:
        parted: there are others that it does not connect: what became of those is not theirs to know.
    """
    if not hosts:
        return ""
    first = membership_of(hosts[0].node)
    for host in hosts:
        if membership_of(host.node).digest != first.digest:
            return f"nodes {hosts[0].id} and {host.id} have different digests"
    alive = {host.id for host in hosts}
    for number in range(first.id_space):
        node_id = NodeId(number)
        status = first.status_of(node_id)
        if status is None or first.is_gone(node_id) != (node_id in alive):
            continue
        if node_id in alive:
            return f"node {node_id} runs and is held {status.name.lower()}"
        # Whose neighbors are all dead, dies unseen.
        if not parted and not alive.isdisjoint(first.neighbors(node_id)):
            return f"node {node_id} does not run and is held {status.name.lower()}"
    return _wrong_links(hosts) or _outdated_link(hosts)


def _outdated_link(hosts: Iterable[Host]) -> str:
    """Which link was made under an old secret though both its ends use the same new one first."""
    first_key = {host.id: host.keys[0] for host in hosts if host.keys}
    for node_id, peer, key in sorted(
        (host.id, link.peer, link.key) for host in hosts for link in links_of(host.node)
    ):
        if node_id in first_key and first_key[node_id] == first_key.get(peer) != key:
            return f"the link of nodes {node_id} and {peer} is made under {key}"
    return ""


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
