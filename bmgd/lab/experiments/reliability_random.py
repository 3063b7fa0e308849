"""Random failures in large graphs, by sampling: what Healing §5 leaves as future work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import comb, exp, lgamma, log
from typing import Any, Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.lab.faults import all_fault_sets, fault_orders, wilson
from bmgd.topology import BinomialGraph

SAMPLES: Final = {
    16: 20_000,
    24: 20_000,
    64: 20_000,
    256: 20_000,
    1024: 10_000,
    4096: 4_000,
    16_384: 2_000,
    65_536: 1_000,
    100_000: 1_000,
}
"""How many random orders of failing, by size."""

SAMPLES_QUICK: Final = {
    16: 4_000,
    24: 4_000,
    64: 2_000,
    256: 2_000,
    1024: 1_000,
    4096: 500,
    100_000: 20,
}

EXACT_SIZE_MAX: Final = 24

LIMIT_PERCENT: Final = 100 / 2**0.5
"""Where large graphs fall apart: p^δ · N = 1 with δ = 2·log2 N gives p = 2^(-1/2)."""

_NODES_AT_ONCE: Final = 1 << 20
_PERCENTS: Final = (*range(10, 50, 10), *range(50, 98, 2), 98)
_Z_SURE: Final = 5.0


def failed_counts(n: int) -> list[int]:
    """The numbers of failed nodes that rows are about: shares of N, at least two survive."""
    return sorted({min(round(n * percent / 100), n - 2) for percent in _PERCENTS})


def lonely_survivors(n: int, failed: int) -> float:
    """The expected number of survivors all of whose neighbors have failed, exact."""
    degree = BinomialGraph(n).degree
    if failed < degree:
        return 0.0
    # n * C(n - 1 - degree, failed - degree) / C(n, failed)
    return exp(log(n) + _log_choose(n - 1 - degree, failed - degree) - _log_choose(n, failed))


def _log_choose(n: int, k: int) -> float:
    if not 0 <= k <= n:
        return float("-inf")
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _samples(run: Run) -> dict[int, int]:
    return SAMPLES_QUICK if run.quick else SAMPLES


def _sampled(run: Run, n: int, done: float, total: float) -> tuple[list[list[float]], list[int]]:
    """Per number of failed nodes (disconnected, isolated, unreachable), and the first to part."""
    samples, failed = _samples(run)[n], failed_counts(n)
    at_once = max(1, _NODES_AT_ONCE // n)
    sums = [[0.0, 0.0, 0.0] for _ in failed]
    first: list[int] = []
    for start in range(0, samples, at_once):
        count = min(at_once, samples - start)

        def part(start: int = start, count: int = count) -> dict[str, list[list[float]]]:
            orders = fault_orders(n, count, n * 10**6 + start)
            columns = (orders.disconnected, orders.isolated, orders.unreachable)
            return {
                "first": [[float(each) for each in orders.first]],
                "sums": [[float(column[f]) for column in columns] for f in failed],
            }

        found = run.resumed(f"{n} nodes, {count} orders from {start}", part)
        first += map(int, found["first"][0])
        sums = [
            [a + b for a, b in zip(old, new, strict=True)]
            for old, new in zip(sums, found["sums"], strict=True)
        ]
        run.progress(done + (start + count) * n, total, f"N = {n}, {start + count} orders")
    return sums, first


def _every_size(run: Run) -> Iterator[tuple[int, int, list[list[float]], list[int]]]:
    total = sum(n * samples for n, samples in _samples(run).items())
    done = 0
    for n, samples in _samples(run).items():
        sums, first = _sampled(run, n, done, total)
        done += n * samples
        yield n, samples, sums, first


def _random(run: Run) -> Iterator[Row]:
    for n, samples, sums, _ in _every_size(run):
        for failed, (disconnected, isolated, unreachable) in zip(
            failed_counts(n), sums, strict=True
        ):
            low, high = wilson(int(disconnected), samples)
            exact = None
            if n <= EXACT_SIZE_MAX:
                exact = 100 * all_fault_sets(n, failed, False).disconnected / comb(n, failed)
            shares = (disconnected / samples, low, high, isolated / samples, unreachable / samples)
            expected = 1 - exp(-lonely_survivors(n, failed))
            yield (
                *(n, failed, 100 * failed / n, samples),
                *(100 * share for share in shares),
                100 * expected,
                exact,
            )


def _first(run: Run) -> Iterator[Row]:
    for n, samples, _, first in _every_size(run):
        degree = BinomialGraph(n).degree
        ordered = sorted(first)
        earliest, median, latest = ordered[0], ordered[samples // 2], ordered[-1]
        shares = (100 * earliest / n, 100 * median / n)
        yield n, degree, samples, degree, earliest, median, min(latest, n), *shares, LIMIT_PERCENT


def _surely(row: Mapping[str, Any], found: str, expected: str, beside: float = 0.0) -> bool:
    """Whether a share that was found is consistent with one expected, to five deviations."""
    samples = row["samples"]
    low, high = wilson(round(row[found] * samples / 100), samples, _Z_SURE)
    return bool(100 * low - beside <= row[expected] <= 100 * high + beside)


def _share_at(rows: Rows, size: int, percent: int) -> float:
    failed = round(size * percent / 100)
    return float(
        next(r["disconnected_percent"] for r in rows if r["size"] == size and r["failed"] == failed)
    )


def _large_are_safer(rows: Rows, percent: int) -> bool:
    """Whether, from 256 nodes on, fewer orders are disconnected the larger the graph is."""
    at_percent = [
        (r["size"], r["expected_percent"], r["disconnected_percent"])
        for r in rows
        if r["size"] >= 256 and r["failed"] == round(r["size"] * percent / 100)
    ]
    _, expected, found = zip(*sorted(at_percent), strict=True)
    return all(a > b for a, b in pairwise(expected)) and found[0] > found[-1]


EXPERIMENTS: Final = (
    Experiment(
        name="reliability-random",
        paper="bmgd",
        section="Healing §5, future work: sampling",
        title="Random failures part a large graph only when about 70 % of its nodes have failed",
        explanation=(
            "All nodes of a graph fail one after the other in random order, and nobody heals it. For "
            "every share of failed nodes: in how many of the orders the survivors are not connected, "
            "with Wilson's interval for 95 %. Where the graph is small enough to examine every set, "
            "the exact share stands beside it.\n\n"
            "A graph that falls apart at random nearly always does so because a survivor has lost "
            "every neighbor ('isolated'); the column 'expected' is the probability of that if "
            "such survivors were independent of each other, 1 − exp(−their expected number). They "
            "appear when p^δ · N nears 1. As δ is about 2·log2(N), that is p = 1/√2 = 70.7 % for "
            "every large graph: the 50 % of Healing §2.2 belongs to its small graphs. A quick run "
            "takes fewer sizes and samples."
        ),
        columns=(
            Column("size", "nodes", "N"),
            Column("failed", "nodes"),
            Column("failed_percent", "%"),
            Column("samples", "", "random orders"),
            Column("disconnected_percent", "%", "of the orders: the survivors are not connected"),
            Column("low_percent", "%", "the lower end of the 95 % interval"),
            Column("high_percent", "%", "the upper end"),
            Column("isolated_percent", "%", "of the orders: a survivor has no link left"),
            Column("unreachable_percent", "%", "of the pairs of survivors, on average"),
            Column("expected_percent", "%", "from the expected number of isolated survivors"),
            Column("exact_percent", "%", "by examining every set; empty where there are too many"),
        ),
        checks=(
            Check(
                "the exact share is within the interval of 5 deviations, wherever it is known",
                lambda rows: all(
                    _surely(r, "disconnected_percent", "exact_percent")
                    for r in rows
                    if r["exact_percent"] is not None
                ),
            ),
            Check(
                "from 256 nodes on the expected share is that of orders with an isolated survivor, "
                "to 5 deviations and 2 points",
                lambda rows: all(
                    _surely(r, "isolated_percent", "expected_percent", beside=2)
                    for r in rows
                    if r["size"] >= 256
                ),
            ),
            Check(
                "with fewer failed nodes than each has neighbors no order is disconnected",
                lambda rows: all(
                    r["disconnected_percent"] == 0
                    for r in rows
                    if r["failed"] < BinomialGraph(r["size"]).degree
                ),
            ),
            Check(
                "with half of the nodes failed, fewer than 2 % of the orders are disconnected, "
                "at every size; at 256 nodes or more fewer than 0.5 %",
                lambda rows: all(
                    _share_at(rows, size, 50) < (0.5 if size >= 256 else 2)
                    for size in {r["size"] for r in rows} - {16}
                ),
            ),
            Check(
                "with 64 % failed, the larger graph is the safer, from 256 nodes on",
                lambda rows: _large_are_safer(rows, 64),
            ),
            Check(
                "with 80 % failed, more than 95 % of the orders of a graph of 4096 or more "
                "are disconnected",
                lambda rows: all(
                    _share_at(rows, size, 80) > 95
                    for size in {r["size"] for r in rows}
                    if size >= 4096
                ),
            ),
        ),
        run=_random,
        plot=Plot(
            x="failed_percent",
            ys=("disconnected_percent",),
            by="size",
            x_label="failed nodes, %",
            y_label="orders whose survivors are not connected, %",
        ),
    ),
    Experiment(
        name="reliability-first-break",
        paper="bmgd",
        section="Healing §5, future work: sampling",
        title="Random failures never find the worst case",
        explanation=(
            "The same random orders: after how many failures the survivors first fall apart, in the "
            "earliest, the middle and the latest order. Somebody who fails the neighbors of one node "
            "needs δ of them, at any size (see reliability-directed). Random failures need more than "
            "half of all nodes in large graphs, and the share nears 70.7 %: no number of random trials "
            "that anybody can run finds the set of δ nodes that does it.\n\n"
            "Where an order never falls apart, N stands for it."
        ),
        columns=(
            Column("size", "nodes", "N"),
            Column("degree", "links", "δ"),
            Column("samples", "", "random orders"),
            Column("directed", "nodes", "failures that are enough when they are chosen: δ"),
            Column("earliest", "nodes", "failures in the order that falls apart first"),
            Column("median", "nodes"),
            Column("latest", "nodes"),
            Column("earliest_percent", "%", "the same, of N"),
            Column("median_percent", "%"),
            Column("limit_percent", "%", "100/√2"),
        ),
        checks=(
            Check(
                "no order falls apart before δ nodes have failed",
                lambda rows: all(r["earliest"] >= r["degree"] for r in rows),
            ),
            Check(
                "from 256 nodes on even the earliest order needs more than twice δ failures, from "
                "1024 on ten times",
                lambda rows: all(
                    r["earliest"] > (10 if r["size"] >= 1024 else 2) * r["degree"]
                    for r in rows
                    if r["size"] >= 256
                ),
            ),
            Check(
                "from 4096 nodes on the median is within 4 points of 70.7 %",
                lambda rows: all(
                    abs(r["median_percent"] - LIMIT_PERCENT) < 4 for r in rows if r["size"] >= 4096
                ),
            ),
        ),
        run=_first,
        plot=Plot(
            x="size",
            ys=("earliest_percent", "median_percent", "limit_percent"),
            log_x=True,
            x_label="nodes N",
            y_label="failed when the survivors part, %",
        ),
    ),
)
