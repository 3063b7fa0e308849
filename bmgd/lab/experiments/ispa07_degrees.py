"""Equation (1): the degree of the binomial graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Row, Run
from bmgd.topology import BinomialGraph

SIZE_MAX: Final = 65_536


def _bands(run: Run) -> Iterator[Row]:
    exponents = range(17)
    for k in exponents:
        first, last = 1 << k, min((2 << k) - 1, SIZE_MAX)
        counts = [0, 0, 0]
        wrong = 0
        for size in range(first, last + 1):
            jumps = [1 << i for i in range((size - 1).bit_length())]
            counted = len({*jumps, *(size - jump for jump in jumps)})
            counts[min(size.bit_count(), 3) - 1] += 1
            wrong += counted != formula(size)
            wrong += counted != BinomialGraph(size).degree and size > 1
        run.progress(last, SIZE_MAX, f"sizes to {last}")
        yield first, last, *counts, wrong


def formula(size: int) -> int:
    """Equation (1), with 0 among the natural numbers."""
    rounded_up = (size - 1).bit_length()
    return 2 * rounded_up - {1: 1, 2: 2}.get(size.bit_count(), 0)


EXPERIMENTS: Final = (
    Experiment(
        name="ispa07-equation-1",
        paper="ISPA07",
        section="§3.1, equation (1)",
        title="The degree of the binomial graph, at every size to 65,536",
        explanation=(
            "Each node is linked to those a power of two away, both ways around; some of these can be "
            "the same node. Equation (1) says how often: the degree is 2·log2(n), rounded up, less 1 "
            "if n is a power of two, less 2 if it is the sum of two. Here the links of a node are "
            "counted at every size, and compared.\n\nIt holds if 0 is a natural number (5 = 2^2 + "
            "2^0), at all sizes but 1, where it gives -1 and a node alone has no links."
        ),
        columns=(
            Column("first", "nodes", "the smallest size of the row"),
            Column("last", "nodes", "the largest"),
            Column("powers", "sizes", "that are a power of two"),
            Column("sums", "sizes", "that are the sum of two different powers"),
            Column("others", "sizes", "all others"),
            Column("wrong", "sizes", "where the formula is not the number counted"),
        ),
        checks=(
            Check(
                "the formula is what is counted at every size from 2 on, and wrong at size 1",
                lambda rows: [r["wrong"] for r in rows] == [1] + [0] * (len(rows) - 1),
            ),
            Check(
                f"every size to {SIZE_MAX} is counted",
                lambda rows: (
                    sum(r["powers"] + r["sums"] + r["others"] for r in rows) == SIZE_MAX
                    and rows[-1]["last"] == SIZE_MAX
                ),
            ),
        ),
        run=_bands,
    ),
)
