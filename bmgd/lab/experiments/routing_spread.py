"""Load spreading and quality of service among the candidates for the next hop: Routing §3.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import sqrt
from random import Random
from typing import Final

from bmgd.frameheader import flow_of
from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.routing import Snapshot, first_hop, first_hops
from bmgd.topology import BinomialGraph

SIZES: Final = (64, 100, 128, 256, 365, 512, 777)
QUICK_SIZES: Final = (64, 100, 128, 256)

SLOW_SHARE: Final = 0.25
SEED: Final = 20080

NextHop = Callable[[int, int, int, int], int]
"""From the own node, the destination, the node it came from (-1: from here) and the flow."""


def always_first(n: int) -> NextHop:
    """One next hop per distance, the same at every node and for every message."""
    jumps = [0, *(first_hop(n, d) for d in range(1, n))]
    return lambda at, to, came_from, flow: (at + jumps[(to - at) % n]) % n


def spread_by_flow(n: int) -> NextHop:
    """What the daemon does: its forwarding snapshot, which chooses among all first hops by a hash."""
    graph = BinomialGraph(n)
    snapshots = [
        # A link's id is its other end plus one, as 0 is none.
        Snapshot(1, node, n, (), [(other, other + 1) for other in graph.neighbors(node)])
        for node in range(n)
    ]
    return lambda at, to, came_from, flow: snapshots[at].next_hop(to, came_from, flow) - 1


def best_link(n: int, is_slow: Callable[[int, int], bool]) -> NextHop:
    """Of all first hops one over a link that is not slow, if there is one."""
    jumps: list[tuple[int, ...]] = [(), *(first_hops(n, d) for d in range(1, n))]

    def choose(at: int, to: int, came_from: int, flow: int) -> int:
        candidates = [(at + jump) % n for jump in jumps[(to - at) % n]]
        return next((each for each in candidates if not is_slow(at, each)), candidates[0])

    return choose


def path_of(source: int, destination: int, next_hop: NextHop) -> list[int]:
    """The nodes that a message passes, both ends included."""
    path, came_from = [source], -1
    flow = flow_of(source, destination)
    while path[-1] != destination:
        at = path[-1]
        path.append(next_hop(at, destination, came_from, flow))
        came_from = at
    return path


def loads_of(
    run: Run, pairs: list[tuple[int, int]], next_hop: NextHop, place: tuple[float, float, str]
) -> dict[tuple[int, int], int]:
    """How many messages pass each link in each direction."""
    before, share, what = place
    loads: dict[tuple[int, int], int] = {}
    for done, (source, destination) in enumerate(pairs):
        path = path_of(source, destination, next_hop)
        for hop in pairwise(path):
            loads[hop] = loads.get(hop, 0) + 1
        if done % 4096 == 0:
            run.progress(before + share * done / len(pairs), 1, what)
    return loads


def all_pairs(n: int) -> list[tuple[int, int]]:
    """Every node to every other."""
    return [(a, b) for a in range(n) for b in range(n) if a != b]


def _spreads(run: Run) -> Iterator[Row]:
    sizes = QUICK_SIZES if run.quick else SIZES
    total = sum(n * n for n in sizes)
    done = 0.0
    for n in sizes:
        links = n * BinomialGraph(n).degree
        traffics = {"all to all": all_pairs(n), "all to one": [(a, 0) for a in range(1, n)]}
        for traffic, pairs in traffics.items():
            for choice, chooser in (("first", always_first(n)), ("spread", spread_by_flow(n))):
                share = n * n / total / 4
                loads = loads_of(run, pairs, chooser, (done, share, f"N = {n}"))
                done += share
                mean = sum(loads.values()) / links
                square = sum(load * load for load in loads.values()) / links
                busiest = max(loads.values())
                deviation = sqrt(square / mean**2 - 1)
                yield n, traffic, choice, mean, busiest, busiest / mean, deviation


def _service(run: Run) -> Iterator[Row]:
    sizes = QUICK_SIZES if run.quick else SIZES
    total = sum(n * n for n in sizes)
    done = 0.0
    for n in sizes:
        random = Random(SEED + n)
        graph = BinomialGraph(n)
        every = [(a, int(b)) for a in range(n) for b in graph.neighbors(a) if a < b]
        slow = set(random.sample(every, round(SLOW_SHARE * len(every))))

        def is_slow(a: int, b: int, slow: set[tuple[int, int]] = slow) -> bool:
            return (min(a, b), max(a, b)) in slow

        choices = {
            "first": always_first(n),
            "spread": spread_by_flow(n),
            "best link": best_link(n, is_slow),
        }
        for choice, chooser in choices.items():
            share = n * n / total / len(choices)
            loads = loads_of(run, all_pairs(n), chooser, (done, share, f"N = {n}"))
            done += share
            hops = sum(loads.values())
            over_slow = sum(load for (a, b), load in loads.items() if is_slow(a, b))
            yield n, choice, 100 * len(slow) / len(every), 100 * over_slow / hops, hops


def _value(rows: Rows, column: str, **wanted: object) -> float:
    (found,) = [r[column] for r in rows if all(r[key] == want for key, want in wanted.items())]
    return float(found)


def _each(rows: Rows, column: str, traffic: str, holds: Callable[[float, float], bool]) -> bool:
    """Whether something holds of the first and the spread choice, at every size."""
    return all(
        holds(
            _value(rows, column, size=n, traffic=traffic, choice="first"),
            _value(rows, column, size=n, traffic=traffic, choice="spread"),
        )
        for n in {r["size"] for r in rows}
    )


EXPERIMENTS: Final = (
    Experiment(
        name="routing-load-spreading",
        paper="Routing",
        section="§3.1",
        title="How evenly messages load the links, with one next hop and with a choice among all",
        explanation=(
            "A shortest path is a set of jumps that may be taken in any order, and often there are "
            "several sets. So a node mostly has several candidates for the next hop, and the paper "
            "proposes to choose among them for balance. Here one message goes from every node to every "
            "other (all to all), or to node 0 (all to one), once with the same first hop for every "
            "message of a distance, and once as the daemon does it: its forwarding snapshot chooses "
            "among all candidates by a hash of the flow. Every link is counted in both directions, "
            "the unused ones too; all ways are shortest in both cases, so the mean is the same.\n\n"
            "Under uniform traffic the choice makes loads more even (the deviation falls), though the "
            "busiest link is about as busy as before: the order of jumps changes nothing there, as "
            "every node's link of one length carries the same. It pays where traffic converges: "
            "without a choice all messages to one node come in over a few of its links."
        ),
        columns=(
            Column("size", "nodes", "N"),
            Column("traffic", "", "who sends to whom"),
            Column("choice", "", "first: one next hop per distance; spread: the daemon's"),
            Column("mean", "messages", "per link and direction"),
            Column("busiest", "messages", "over the busiest link"),
            Column("busiest_over_mean", "", "how often the mean that is"),
            Column("deviation", "", "standard deviation of the links' loads over their mean"),
        ),
        checks=(
            Check(
                "both choices take as many hops in all: spreading costs nothing",
                lambda rows: all(
                    _each(rows, "mean", traffic, lambda first, spread: first == spread)
                    for traffic in ("all to all", "all to one")
                ),
            ),
            Check(
                "under uniform traffic the loads are more even with the choice, at every size",
                lambda rows: _each(
                    rows, "deviation", "all to all", lambda first, spread: spread < first
                ),
            ),
            Check(
                "but no link carries more than 2.5 times the mean even without",
                lambda rows: _each(
                    rows, "busiest_over_mean", "all to all", lambda first, spread: first < 2.5
                ),
            ),
            Check(
                "where all send to one, the busiest link carries at most 0.6 of what it carries without",
                lambda rows: _each(
                    rows, "busiest", "all to one", lambda first, spread: spread <= 0.6 * first
                ),
            ),
        ),
        run=_spreads,
        plot=Plot(
            x="size",
            ys=("deviation",),
            by="choice",
            log_x=True,
            x_label="nodes N",
            where=("traffic", "all to all"),
            y_label="deviation of the links' loads / mean",
        ),
    ),
    Experiment(
        name="routing-quality-of-service",
        paper="Routing",
        section="§3.1",
        title="How many hops avoid slow links when each node prefers its better ones",
        explanation=(
            "The paper's second use of the candidates: quality of service by the priority of links. "
            "A quarter of all links, drawn at random with a fixed seed, is slow; every node knows its "
            "own. One message goes from every node to every other by a shortest path: with one next hop "
            "per distance, spread as the daemon does, or over a candidate whose link is not slow, where "
            "there is one. Drawn is the share of hops that go over slow links. Only the next link is "
            "looked at, so no path is longer than before."
        ),
        columns=(
            Column("size", "nodes", "N"),
            Column("choice", "", "among the candidates for the next hop"),
            Column("slow_links", "%", "of all links"),
            Column("slow_hops", "%", "of all hops, over slow links"),
            Column("hops", "hops", "of all messages together"),
        ),
        checks=(
            Check(
                "preferring better links avoids over 40 % of the hops over slow ones, at every size",
                lambda rows: all(
                    _value(rows, "slow_hops", size=n, choice="best link")
                    < 0.6 * _value(rows, "slow_hops", size=n, choice="first")
                    for n in {r["size"] for r in rows}
                ),
            ),
            Check(
                "without, their share is within 3 % of the share of slow links",
                lambda rows: all(
                    abs(r["slow_hops"] - r["slow_links"]) < 3
                    for r in rows
                    if r["choice"] != "best link"
                ),
            ),
            Check(
                "it costs no hop",
                lambda rows: all(
                    len({r["hops"] for r in rows if r["size"] == n}) == 1
                    for n in {r["size"] for r in rows}
                ),
            ),
        ),
        run=_service,
        plot=Plot(
            x="size",
            ys=("slow_hops",),
            by="choice",
            log_x=True,
            x_label="nodes N",
            y_label="hops over slow links, %",
        ),
    ),
)
