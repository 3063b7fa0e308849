"""When the dead leave the graph, who says so, and which links that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from random import Random

import pytest

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event
from bmgd.healing import hop_overhead, link_diff
from bmgd.policy import HealingPolicy
from bmgd.sim import Network
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId, Status
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Notice
from tests.unit.core.clusters import healed_neighbors, linked, observed, send, settle, survivors


def cluster(size: int, policy: str, seed: int = 0, *, naive: bool = False) -> Network:
    network = Network(size, seed, healing=HealingPolicy.parse(policy), reconstructs=naive)
    settle(network)
    return network


def kill(network: Network, victim: int) -> None:
    """Kill a node and wait until all survivors hold it dead and any healing is over."""
    network.kill(victim)
    alive = survivors(network)
    network.run_until(lambda: all(victim in network.status(i)["dead"] for i in alive), 5)
    network.run(1)


def excluded(network: Network, node_id: int) -> list[int]:
    """The ids that a node holds excluded: the last record of each."""
    last = {r.id: r.record.status for r in network.hosts[NodeId(node_id)].records}
    return sorted(i for i, status in last.items() if status is Status.EXCLUDED)


def layouts(network: Network) -> set[tuple[int, ...]]:
    """What the survivors hold excluded; one element when they agree."""
    return {tuple(excluded(network, i)) for i in survivors(network)}


def most_dead_neighbors(size: int, dead: Iterable[int]) -> int:
    """The most dead neighbors that a survivor has in the unhealed graph."""
    gone = set(dead)
    graph = BinomialGraph(size)
    return max(len(gone.intersection(graph.neighbors(i))) for i in range(size) if i not in gone)


def count_notices(network: Network) -> list[tuple[int, int]]:
    """From now on, append (records, bytes) of every notice that a core orders to be sent."""
    sent: list[tuple[int, int]] = []

    def counting(
        step: Callable[[int, Event], list[Effect]],
    ) -> Callable[[int, Event], list[Effect]]:
        def counted(now_ns: int, event: Event) -> list[Effect]:
            effects = step(now_ns, event)
            for effect in effects:
                if isinstance(effect, Send) and isinstance(effect.message, Notice):
                    sent.append((len(effect.message.records), len(encode(effect.message))))
            return effects

        return counted

    for host in network.hosts.values():
        host.node.step = counting(host.node.step)  # type: ignore[method-assign, assignment]
    return sent


def rest(network: Network, dead: Iterable[int], limit_s: float = 30) -> None:
    """Run until all know the dead, agree about the graph, and have its links but those to the dead."""

    def is_at_rest() -> bool:
        alive, gone = survivors(network), sorted(dead)
        if any(network.status(i)["dead"] != gone for i in alive) or len(layouts(network)) > 1:
            return False
        out = excluded(network, alive[0])
        unhealed = set(gone).difference(out)
        size = len(network.hosts)
        return all(
            linked(network, i) == [p for p in healed_neighbors(size, i, out) if p not in unhealed]
            for i in alive
        )

    until_ns = network.now_ns + int(limit_s * 1e9)
    while not is_at_rest():
        assert network.now_ns < until_ns, (layouts(network), network.status(survivors(network)[0]))
        network.run(0.02)


# --- after k deaths -------------------------------------------------------------------------------


def test_after_three_heals_with_the_third_death_and_again_with_the_sixth() -> None:
    network = cluster(16, "after:3")
    for count, victim in enumerate([2, 9, 11, 6, 14, 0], 1):
        kill(network, victim)
        healed = count // 3 * 3
        assert layouts(network) == {tuple(sorted([2, 9, 11, 6, 14, 0][:healed]))}
    settle(network, [0, 2, 6, 9, 11, 14])
    network.run(30)
    settle(network, [0, 2, 6, 9, 11, 14])


def test_after_many_keeps_the_graph_and_messages_find_ways() -> None:
    network = cluster(16, "after:100")
    kill(network, 4)
    assert layouts(network) == {()}
    assert network.status(3)["healing"]["unhealed"] == [4]
    for node_id in survivors(network):
        wanted = [peer for peer in BinomialGraph(16).neighbors(node_id) if peer != 4]
        assert linked(network, node_id) == wanted
    for destination in survivors(network):
        assert send(network, 3, destination).error is None


def test_after_k_at_once_heals_with_whoever_hears_of_the_last() -> None:
    for seed in range(6):
        network = cluster(24, "after:4", seed)
        victims = Random(seed).sample(range(24), 4)
        for victim in victims:
            network.kill(victim)
        settle(network, victims, limit_s=5)
        assert layouts(network) == {tuple(sorted(victims))}


def test_node_that_comes_back_before_the_healing_is_alive_in_the_same_graph() -> None:
    network = cluster(16, "after:3")
    network.stop(5)
    network.run_until(lambda: network.status(0)["dead"] == [5], 5)
    network.resume(5)
    settle(network)
    assert not [o for i in range(16) for o in observed(network, i, "relayout")]
    network.run(1)
    kill(network, 5)
    kill(network, 8)
    assert layouts(network) == {()}


# --- before a node is cut off ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["after:1000", "overhead:10000%", "overhead:255"])
@pytest.mark.parametrize("size", [2, 3, 4, 7, 12, 16])
def test_no_node_ever_has_only_dead_neighbors(policy: str, size: int) -> None:
    network = cluster(size, policy)
    for victim in [*BinomialGraph(size).neighbors(0), *range(1, size)]:
        if not network.hosts[NodeId(victim)].alive or len(survivors(network)) == 2:
            continue
        kill(network, victim)
        (gone,) = layouts(network)
        unhealed = network.status(0)["healing"]["unhealed"]
        left = [i for i in range(size) if i not in gone]
        ranks = [left.index(i) for i in unhealed]
        limit = max(1, BinomialGraph(len(left)).degree - 1)
        assert most_dead_neighbors(len(left), ranks) < limit
    settle_rest = sorted(set(range(size)) - set(survivors(network)))
    assert network.status(0)["dead"] == settle_rest


def test_last_neighbor_but_one_heals_and_not_the_one_before() -> None:
    network = cluster(16, "after:1000")
    neighbors = list(BinomialGraph(16).neighbors(0))
    for victim in neighbors[:-2]:
        kill(network, victim)
        assert layouts(network) == {()}
    kill(network, neighbors[-2])
    assert layouts(network) == {tuple(neighbors[:-1])}


def test_whole_neighborhood_at_once_is_healed_under_any_policy() -> None:
    for policy in ("after:1000", "overhead:10000%", "overhead:255"):
        network = cluster(16, policy)
        victims = list(BinomialGraph(16).neighbors(5))
        for victim in victims:
            network.kill(victim)
        rest(network, victims)
        for destination in survivors(network):
            assert send(network, 5, destination).error is None


def test_off_never_heals() -> None:
    network = cluster(12, "off")
    victims = list(BinomialGraph(12).neighbors(0))[:-1]
    for victim in victims:
        kill(network, victim)
    assert layouts(network) == {()}


# --- by overhead in hops --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["overhead:3%", "overhead:12%", "overhead:0", "overhead:1"])
@pytest.mark.parametrize("seed", range(3))
def test_overhead_heals_as_soon_as_ways_are_too_long(policy: str, seed: int) -> None:
    size = 24
    network = cluster(size, policy, seed)
    order = Random(seed).sample(range(size), 12)
    rule = HealingPolicy.parse(policy)
    healed: list[int] = []
    for count in range(1, len(order) + 1):
        kill(network, order[count - 1])
        left = [i for i in range(size) if i not in healed]
        dead = [left.index(i) for i in order[:count] if i not in healed]
        overhead = hop_overhead(len(left), dead)
        amount = overhead.percent if policy.endswith("%") else overhead.hops
        limit = max(1, BinomialGraph(len(left)).degree - 1)
        if amount > rule.threshold or most_dead_neighbors(len(left), dead) >= limit:
            healed = order[:count]
        assert layouts(network) == {tuple(sorted(healed))}, (count, overhead)


# --- who writes it --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["after:2", "overhead:1%"])
def test_healing_costs_no_more_notices_than_a_death(policy: str) -> None:
    size = 32
    costs = []
    for chosen in (policy, "every-death"):
        network = cluster(size, chosen)
        kill(network, 3)
        sent = count_notices(network)
        kill(network, 19)
        costs.append(sum(records for records, _ in sent))
    assert layouts(network)
    # Two records where one would do, and what those told that had just been told otherwise.
    assert costs[0] <= 3 * costs[1]


@pytest.mark.parametrize("step", range(12))
def test_healing_is_written_by_another_when_a_witness_dies_too(step: int) -> None:
    network = cluster(9, "after:2", step)
    kill(network, 4)
    network.kill(7)
    network.run_until(lambda: bool(observed(network, 8, "verdict")), 5)
    network.run(0.00005 * step)
    network.kill(8)
    rest(network, [4, 7, 8])
    assert len(network.status(0)["healing"]["unhealed"]) < 2


# --- the methods ----------------------------------------------------------------------------------


def healing_of(network: Network) -> tuple[int, int]:
    """Ends of links added and removed by healing, over all survivors."""
    rows = [network.status(i)["healing"] for i in survivors(network)]
    return sum(r["links_added"] for r in rows), sum(r["links_removed"] for r in rows)


@pytest.mark.parametrize("size", [10, 16, 33])
def test_adaptive_method_changes_the_links_of_algorithm_1(size: int) -> None:
    network = cluster(size, "every-death")
    network.kill(3)
    settle(network, [3])
    network.run(2)
    for node_id in survivors(network):
        diff = link_diff(size, node_id, [3])
        row = network.status(node_id)["healing"]
        assert row["links_added"] == len(diff.added)
        assert row["links_removed"] == len(set(diff.removed) - {NodeId(3)})
        assert linked(network, node_id) == healed_neighbors(size, node_id, [3])


@pytest.mark.parametrize("size", [10, 16, 33])
def test_naive_method_makes_all_links_anew(size: int) -> None:
    network = cluster(size, "every-death", naive=True)
    before = {link["id"]: link for link in network.status(0)["links"]}
    assert before
    old_ends = {id(end) for host in network.hosts.values() for end in host.ends.values()}
    network.kill(3)
    settle(network, [3])
    network.run(2)
    full, healed = BinomialGraph(size).degree, BinomialGraph(size - 1).degree
    assert healing_of(network) == (healed * (size - 1), full * size - 2 * full)
    kept = {id(end) for host in network.hosts.values() for end in host.ends.values()} & old_ends
    assert not kept
    assert not [
        o for i in survivors(network) for o in observed(network, i, "verdict") if o.peer != 3
    ]
    for destination in survivors(network):
        assert send(network, 0, destination).error is None


def test_adaptive_method_makes_before_it_breaks() -> None:
    network = cluster(33, "every-death")
    before = {i: linked(network, i) for i in range(33)}
    network.kill(3)
    network.run_until(lambda: any(observed(network, i, "relayout") for i in range(33)))
    while not all(linked(network, i) == healed_neighbors(33, i, [3]) for i in survivors(network)):
        for i in survivors(network):
            up = set(linked(network, i))
            wanted = healed_neighbors(33, i, [3])
            if not up.issuperset(wanted):
                assert up.issuperset(set(before[i]) - {3}), i
        network.run(0.0002)


# --- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 64, 128])
def test_half_of_the_nodes_at_once_make_few_new_graphs_and_few_notices(size: int) -> None:
    network = cluster(size, "every-death")
    network.run(1)
    sent = count_notices(network)
    victims = Random(size).sample(range(size), size // 2)
    for victim in victims:
        network.kill(victim)
    assert settle(network, victims, limit_s=15) < 5
    alive = survivors(network)
    assert max(network.status(i)["healing"]["relayouts"] for i in alive) <= 3
    degree = BinomialGraph(size).degree
    # Each record leaves a node at most once over each link, 60 bytes and its share of a frame.
    assert sum(records for records, _ in sent) <= len(alive) * 2 * degree * len(victims)
    assert sum(size for _, size in sent) <= 80 * sum(records for records, _ in sent)


def test_second_death_is_told_within_milliseconds_of_the_first() -> None:
    network = cluster(64, "every-death")
    for victim in (9, 40, 41):
        network.kill(victim)
        network.run(0.001)
    alive = survivors(network)
    told_s = network.run_until(
        lambda: all(network.status(i)["dead"] == [9, 40, 41] for i in alive), 1
    )
    assert told_s < 0.03


def test_all_pairs_of_nine_are_healed_under_after_two() -> None:
    for pair in combinations(range(9), 2):
        network = cluster(9, "after:2")
        for victim in pair:
            network.kill(victim)
        assert settle(network, pair, limit_s=5) < 1
