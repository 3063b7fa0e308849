"""The claims of "Binomial Graph: A Scalable and Fault-Tolerant Logical Network Topology" (ISPA07).

Its nodes are numbered from 1, the ranks here from 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

from bmgd.lab.compared import compared, one_way_fingers
from bmgd.topology import BinomialGraph, HierarchicalCliques, UndirectedChord
from bmgd.topology.measures.broadcasts import broadcast_steps
from bmgd.topology.measures.connectivity import link_connectivity, node_connectivity
from bmgd.topology.measures.distances import distances, level_sizes, links_of
from bmgd.topology.measures.faults import fault_diameter
from bmgd.topology.measures.separators import smallest_separators
from bmgd.topology.measures.sizes import cost_factor, degrees, network_cost


def disjoint_paths(arcs: Iterable[tuple[int, int]], source: int, sink: int) -> int:
    """The maximum flow from source to sink where every arc carries one unit."""
    residual: dict[int, dict[int, int]] = {}
    for a, b in arcs:
        residual.setdefault(a, {})[b] = 1
        residual.setdefault(b, {}).setdefault(a, 0)
    flow = 0
    while True:
        parent = {source: source}
        queue = [source]
        for at in queue:
            for to, room in residual[at].items():
                if room and to not in parent:
                    parent[to] = at
                    queue.append(to)
        if sink not in parent:
            return flow
        at = sink
        while at != source:
            residual[parent[at]][at] -= 1
            residual[at][parent[at]] += 1
            at = parent[at]
        flow += 1


def closest_neighbor(graph: BinomialGraph, at: int, to: int) -> int:
    """Algorithm 1, the basic routing: the neighbor with the id closest to the destination's."""
    return min(graph.neighbors(at), key=lambda neighbor: abs(to - neighbor))


def test_section_2_figure_1_node_9_of_12_initiates_4_links_and_accepts_2() -> None:
    neighbors = [rank + 1 for rank in BinomialGraph(12).neighbors(9 - 1)]
    assert [node for node in neighbors if node < 9] == [1, 5, 7, 8]
    assert [node for node in neighbors if node > 9] == [10, 11]


def test_section_3_1_a_graph_of_12_has_degree_6_everywhere() -> None:
    graph = BinomialGraph(12)
    assert graph.degree == 6
    assert {len(graph.neighbors(rank)) for rank in range(12)} == {6}


def test_section_3_1_equation_1_gives_the_degree_of_every_size_to_65536() -> None:
    assert BinomialGraph(1).degree == 0
    for n in range(2, 65537):
        jumps = [1 << i for i in range((n - 1).bit_length())]
        neighbors = {jump for jump in jumps} | {n - jump for jump in jumps}  # noqa: C416
        assert BinomialGraph(n).degree == len(neighbors), n


def message_traffic_density(n: int) -> float:
    graph = BinomialGraph(n)
    return graph.average_distance * n / (graph.degree * n / 2)


def test_section_3_4_message_traffic_density_does_not_exceed_a_half_from_size_9_on() -> None:
    for n in [*range(9, 2049), 4095, 4096, 4097, 100_000, 2**20]:
        assert message_traffic_density(n) <= 0.5, n


def test_section_3_4_message_traffic_density_exceeds_a_half_in_the_smallest_graphs() -> None:
    """Against the paper, which draws no size that small."""
    above = [n for n in range(2, 2049) if message_traffic_density(n) > 0.5]
    assert above == [2, 3, 4, 6, 8]


def test_section_4_1_node_and_link_connectivity_equal_the_degree_to_size_32() -> None:
    for n in range(2, 33):
        graph = BinomialGraph(n)
        links = [(a, b) for a in range(n) for b in graph.neighbors(a)]
        # Node a becomes an arc from a to n + a, so that a path uses it up.
        through = [(a, n + a) for a in range(n)] + [(n + a, b) for a, b in links]
        # The graph looks the same from everywhere: rank 0 stands for every source.
        for to in range(1, n // 2 + 1):
            assert disjoint_paths(links, 0, to) == graph.degree
            if to not in graph.neighbors(0):
                assert disjoint_paths(through, n, to) == graph.degree


def test_section_3_2_no_topology_has_a_lower_diameter_than_the_binomial_graph_of_its_size() -> None:
    for family, graph in compared(quick=True):
        own, other = distances(BinomialGraph(graph.size)), distances(graph)
        assert own.diameter <= other.diameter, (family, graph.size)
        # §3.3: nor a lower average distance.
        assert own.average <= other.average + 1e-12, (family, graph.size)


def test_section_3_3_a_broadcast_takes_log2_of_n_steps_rounded_up() -> None:
    for size in [*range(2, 200), 1000, 1023, 1025]:
        steps = broadcast_steps(links_of(BinomialGraph(size)), 0)
        assert steps.least == steps.most == (size - 1).bit_length()


def test_section_3_5_hierarchical_cliques_cost_less_than_the_binomial_graph() -> None:
    """Against the paper, which finds them significantly dearer."""
    for height in (3, 4, 5):
        cliques = HierarchicalCliques(4, height)
        binomial = BinomialGraph(cliques.size)
        for cost in (cost_factor, network_cost):
            theirs = cost(distances(cliques), degrees(cliques))
            assert theirs < cost(distances(binomial), degrees(binomial))


def test_section_3_5_undirected_chord_is_the_binomial_graph() -> None:
    """Against the paper, which finds Chord dearer and longer: that is Chord used in one direction."""
    for bits in (4, 7, 10):
        assert links_of(UndirectedChord(bits)) == links_of(BinomialGraph(1 << bits))
        one_way = one_way_fingers(bits)
        assert len(level_sizes(one_way.__getitem__, 1 << bits, 0)) - 1 == bits


def test_section_4_1_node_and_link_connectivity_equal_the_degree_to_size_64() -> None:
    """To size 128 it is shown by ispa07-figure-4a."""
    for size in [*range(33, 65), 127, 128]:
        graph = BinomialGraph(size)
        assert node_connectivity(graph) == link_connectivity(graph) == graph.degree


def test_section_4_1_less_than_one_percent_of_fault_sets_disconnect_from_size_15_on() -> None:
    """Against the paper for the smaller sizes, which it does not draw."""
    shares = {
        size: smallest_separators(BinomialGraph(size)) / comb(size, BinomialGraph(size).degree)
        for size in range(2, 41)
    }
    assert [size for size, share in shares.items() if share >= 0.01] == [6, *range(8, 15)]


def test_section_4_1_the_binomial_graph_is_twice_as_robust_as_hierarchical_cliques() -> None:
    cliques = HierarchicalCliques(4, 3)
    assert node_connectivity(cliques) == link_connectivity(cliques) == 4
    assert degrees(cliques).most == BinomialGraph(24).degree == 8
    assert node_connectivity(BinomialGraph(24)) == 8


def test_section_4_2_the_fault_diameter_is_at_most_the_diameter_and_2() -> None:
    differences = set()
    for size in range(3, 49):
        graph = BinomialGraph(size)
        differences.add(fault_diameter(graph) - graph.diameter)
    assert differences == {0, 1, 2}


def test_section_5_1_basic_routing_takes_1_9_11_12_in_a_graph_of_23() -> None:
    graph = BinomialGraph(23)
    path = [1]
    while path[-1] != 12:
        path.append(closest_neighbor(graph, path[-1] - 1, 12 - 1) + 1)
    assert path == [1, 9, 11, 12]


def test_section_5_1_the_shortest_path_from_1_to_12_in_a_graph_of_23_uses_5() -> None:
    graph = BinomialGraph(23)
    assert graph.hops(1 - 1, 12 - 1) == 2
    assert 5 - 1 in graph.next_hops(1 - 1, 12 - 1)
    assert 12 - 1 in graph.neighbors(5 - 1)
