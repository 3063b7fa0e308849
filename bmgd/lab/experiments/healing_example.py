"""Ten nodes heal around node 3: Healing figure 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bmgd.healing import link_diff
from bmgd.lab.experiment import Check, Column, Experiment, Row, Rows, Run
from bmgd.topology import BinomialGraph

SIZE: Final = 10
DEAD: Final = 3


def _ids(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, ids))


def _numbers(text: str) -> set[int]:
    return {int(word) for word in text.split()}


def _example(run: Run) -> Iterator[Row]:
    survivors = [node for node in range(SIZE) if node != DEAD]
    for rank, node in enumerate(survivors):
        before = BinomialGraph(SIZE).neighbors(node)
        after = tuple(survivors[r] for r in BinomialGraph(SIZE - 1).neighbors(rank))
        diff = link_diff(SIZE, node, (DEAD,))
        dials = tuple(other for other in diff.added if other < node)
        yield (
            node,
            rank,
            _ids(before),
            _ids(diff.removed),
            _ids(diff.added),
            _ids(dials),
            _ids(after),
        )


def _each_dialled_once(rows: Rows) -> bool:
    dialled = [(r["node"], other) for r in rows for other in _numbers(r["dials"])]
    wanted = {(r["node"], other) for r in rows for other in _numbers(r["opened"])}
    return sorted(dialled) == sorted((a, b) for a, b in wanted if a > b)


EXPERIMENTS: Final = (
    Experiment(
        name="healing-figure-4",
        paper="Healing",
        section="§3.1, figure 4",
        title="Ten nodes of which node 3 dies, and the links that make a graph of nine of the rest",
        explanation=(
            "Each survivor works out its own links before and after (Algorithm 1), under the ids that "
            "all have from the beginning. What it closes contains the link to the dead node, which is "
            "gone already; of a new link the higher id dials the lower.\n\n"
            "The figure draws the same: dotted what was linked to node 3, dashed what is closed, thick "
            "what is opened."
        ),
        columns=(
            Column("node", "", "its id, which stays"),
            Column("rank", "", "its place among the nine"),
            Column("before", "", "its neighbors in the graph of ten"),
            Column("closed", "", "neighbors that it has no more"),
            Column("opened", "", "neighbors that it gains"),
            Column("dials", "", "of these, those that it dials"),
            Column("after", "", "its neighbors in the graph of nine, under their ids"),
        ),
        checks=(
            Check(
                "before, less closed, plus opened, is after",
                lambda rows: all(
                    _numbers(r["before"]) - _numbers(r["closed"]) | _numbers(r["opened"])
                    == _numbers(r["after"])
                    for r in rows
                ),
            ),
            Check(
                "only what differs is touched: nothing opened was there, nothing closed is wanted",
                lambda rows: all(
                    not _numbers(r["opened"]) & _numbers(r["before"])
                    and not _numbers(r["closed"]) & _numbers(r["after"])
                    for r in rows
                ),
            ),
            Check("every new link is dialled by one end, the higher", _each_dialled_once),
            Check(
                "nobody keeps a link to the dead node",
                lambda rows: not any(DEAD in _numbers(r["after"]) for r in rows),
            ),
        ),
        run=_example,
    ),
)
