"""The steps of a broadcast when each node sends to, or receives from, one neighbor in a step.

The least number of steps is hard to find in general (it is NP-complete), so it is bounded from both
sides. No schedule can beat the distance to the farthest node, or the doubling of the informed; a
schedule that is found shows that no more are needed. Where the two meet, the number is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bmgd.errors import GraphError
from bmgd.topology.measures.distances import Links, hops_from

Transfer = tuple[int, int]
"""One message in one step: sender and receiver."""


@dataclass(frozen=True, slots=True)
class BroadcastSteps:
    """What is known of the least number of steps: it is within `least`..`most`."""

    least: int
    most: int


def broadcast_steps(links: Links, source: int) -> BroadcastSteps:
    """Bounds of the steps of a broadcast from `source`.

    Raises:
        GraphError: the graph is not connected.

    O(links * log(degree)) for the tree and O(links * steps) for the other schedules.
    """
    hops = hops_from(links, source)
    if min(hops) < 0:
        raise GraphError("the graph is not connected")
    least = max(max(hops), (len(links) - 1).bit_length())
    costs = tree_costs(links, hops)
    most = costs[source]
    if most > least:
        most = min(most, len(forward_schedule(links, source)))
    if most > least:
        most = min(most, len(greedy_schedule(links, source, costs)))
    return BroadcastSteps(least, most)


def tree_costs(links: Links, hops: list[int]) -> list[int]:
    """The steps that each node needs for its subtree in a tree of shortest paths.

    The costliest child is served first: with costs c1 >= c2 >= ... the subtree takes
    max(i + c_i) steps (ISPA07 §5.3). From the leaves up, a node of several possible parents is given
    to the one that has the fewest children, costliest nodes first.
    """
    order = sorted(range(len(links)), key=lambda node: -hops[node])
    costs = [0] * len(links)
    children: list[list[int]] = [[] for _ in links]
    place = 0
    while place < len(order):
        depth = hops[order[place]]
        level = []
        while place < len(order) and hops[order[place]] == depth:
            node = order[place]
            of_children = sorted((costs[child] for child in children[node]), reverse=True)
            costs[node] = max((i + cost for i, cost in enumerate(of_children, 1)), default=0)
            level.append(node)
            place += 1
        for node in sorted(level, key=lambda node: (-costs[node], node)):
            parents = [other for other in links[node] if hops[other] == depth - 1]
            if parents:
                children[min(parents, key=lambda other: (len(children[other]), other))].append(node)
    return costs


def greedy_schedule(links: Links, source: int, costs: list[int]) -> list[list[Transfer]]:
    """A schedule that serves in every step the costliest nodes that can be served.

    Returns:
        For each step its transfers; `check_schedule` holds for it.
    """
    size = len(links)
    informed = bytearray(size)
    informed[source] = 1
    rim = [source]
    left, steps = size - 1, []
    while left:
        wanted = {other for node in rim for other in links[node] if not informed[other]}
        free = set(rim)
        step = []
        for node in sorted(wanted, key=lambda node: (-costs[node], node)):
            senders = [other for other in links[node] if other in free]
            if senders:
                sender = min(
                    senders, key=lambda other: (_open_links(links, informed, other), other)
                )
                free.remove(sender)
                step.append((sender, node))
        for _, node in step:
            informed[node] = 1
            rim.append(node)
        rim = [node for node in rim if _open_links(links, informed, node)]
        left -= len(step)
        steps.append(step)
    return steps


def forward_schedule(links: Links, source: int) -> list[list[Transfer]]:
    """A schedule in which each node sends to the nearest number above its own that it can serve.

    Numbers are counted from the source around. In a binomial graph and a hypercube this is the
    binomial tree, which doubles the informed in every step.

    Returns:
        For each step its transfers; `check_schedule` holds for it.
    """
    size = len(links)
    informed = bytearray(size)
    informed[source] = 1
    left, steps = size - 1, []
    senders = [source]
    while left:
        step = []
        for node in senders:
            open_to = [other for other in links[node] if not informed[other]]
            if open_to:
                nearest = min(open_to, key=lambda other: (other - node) % size)
                informed[nearest] = 1
                step.append((node, nearest))
        senders += [node for _, node in step]
        senders = [node for node in senders if _open_links(links, informed, node)]
        senders.sort(key=lambda node: (node - source) % size)
        left -= len(step)
        steps.append(step)
    return steps


def check_schedule(links: Links, source: int, steps: Iterable[Iterable[Transfer]]) -> int:
    """Check that a broadcast is one, in the one-port model, and count its steps.

    Raises:
        GraphError: a step sends what its sender does not have, or over no link, or uses a node
            twice, or somebody is left without the message.
    """
    informed = {source}
    count = 0
    for step in steps:
        count += 1
        busy: set[int] = set()
        received = set()
        for sender, receiver in step:
            if sender not in informed or receiver not in links[sender]:
                raise GraphError(f"step {count}: {sender} cannot send to {receiver}")
            if sender in busy or receiver in busy:
                raise GraphError(f"step {count}: {sender} or {receiver} takes part twice")
            busy |= {sender, receiver}
            received.add(receiver)
        informed |= received
    if len(informed) != len(links):
        raise GraphError(f"{len(links) - len(informed)} nodes are left without the message")
    return count


def _open_links(links: Links, informed: bytearray, node: int) -> int:
    return sum(1 for other in links[node] if not informed[other])
