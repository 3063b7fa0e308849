"""The page docs/mutants.md: what the mutants of `mutating.py` that have been tried show."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Final

from benchmarks.mutants.hunting import NODES, SECONDS, SEEDS_CPU_S
from benchmarks.mutants.mutating import ROOT

EXPLAINED: Final = ROOT / "docs" / "mutants-explained.toml"

Row = dict[str, Any]


def read_explained() -> dict[str, str]:
    """Why no run can tell a mutant from the original, by its name."""
    table = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("mutant", [])
    return {row["name"]: row["why"] for row in table}


def report(rows: Sequence[Row], count: int, modules: Sequence[str], sources: str) -> str:
    """The results as a page of the documentation.

    Args:
        rows: of the mutants that have been tried.
        count: how many there are in the sample.
        modules: all that mutants are made of.
        sources: which ones are here, as `reached.text_of_all` tells them apart.
    """
    explained = read_explained()
    survivors = [row for row in rows if is_survivor(row)]
    missed = [row for row in rows if not row["simulator"]["killed"]]
    untested = sum(row["tests"] is None for row in missed)
    by_tests = len(missed) - len(survivors)
    before = sum(row.get("sources") != sources for row in missed)
    known = sum(row["name"] in explained for row in survivors)
    told = [row for row in rows if not is_survivor(row) or row["name"] not in explained]
    of_modules = len({row["module"] for row in rows})
    unreached = sum(not row["simulator"]["reached_by"] for row in missed)
    lines = [
        "# Mutants",
        "",
        "Small changes of the code, made by the ordinary operators (`benchmarks/mutants/mutating.py`)",
        "and sampled evenly over the modules. `python -m benchmarks.mutants` tries them and writes this.",
        f"Each is tried against the simulator alone: 100 seeds of {NODES[0]} to {NODES[1]} nodes and",
        f"{SECONDS:g} s of faults, the quick ones first, and none after {SEEDS_CPU_S:g} s of them in all",
        "(as they take while it is noted which lines they come to). What it does not find is tried",
        "against the tests of its room. Seeds and tests that never come to the changed statement pass as",
        "without it, and are not run.",
        "",
        f"**{len(rows)} of the {count} mutants of the sample have been tried**; its order goes from",
        f"module to module, so those are an even sample too, of {of_modules} of {len(modules)} modules.",
        "",
        f"Of the {len(rows)} the simulator alone finds {_share(len(rows) - len(missed), rows)}, the",
        f"simulator or the tests {_share(len(rows) - len(survivors), rows)}. Of the {len(survivors)}",
        f"survivors {known} cannot be told from the original by any run, as explained below; of the",
        f"other {len(told)} the simulator alone finds {_percent(len(rows) - len(missed), told)}, the",
        f"simulator or the tests {_percent(len(rows) - len(survivors), told)}. Of the",
        f"{len(missed)} that the simulator does not find, {unreached} are where none of the 100 seeds",
        f"comes, and the tests find {by_tests}. One costs {_mean_cpu_s(rows):.0f} s of CPU on average.",
        "",
        f"For half of those {len(missed)} at most {_median_tried(missed)} seeds were tried.",
        f"{untested} of them have not been tried against tests yet and stand among the survivors.",
        f"{before} were tried before the simulator was what it is now (`--again`).",
        "",
        "| module | mutants | by the simulator | by tests of the others | survive |",
        "|---|---|---|---|---|",
        *_by_module(rows),
        "",
        "| found first by | mutants | median seeds |",
        "|---|---|---|",
        *_by_checker(rows),
        "",
        "## Survivors",
        "",
        "| module and line | operator | change | why |",
        "|---|---|---|---|",
        *_table(survivors, explained),
        "",
        "## Found by tests only",
        "",
        "| module and line | change | seeds that come there | test |",
        "|---|---|---|---|",
    ]
    for row in sorted(missed, key=_place):
        if row["tests"] is not None and row["tests"]["killed"]:
            test = row["tests"]["by"].split("::")[-1].split("[")[0]
            reached_by = row["simulator"]["reached_by"]
            lines.append(f"| {_where(row)} | {_change(row)} | {reached_by} | {test} |")
    return "\n".join(lines) + "\n"


def is_survivor(row: Row) -> bool:
    """Whether neither judge finds a mutant."""
    is_found = row["simulator"]["killed"] or (row["tests"] is not None and row["tests"]["killed"])
    return not is_found


def _table(survivors: Sequence[Row], explained: dict[str, str]) -> Iterator[str]:
    for row in sorted(survivors, key=_place):
        unexplained = "not tried by tests yet" if row["tests"] is None else "not explained"
        why = explained.get(row["name"], unexplained)
        yield f"| {_where(row)} | {row['operator']} | {_change(row)} | {why} |"


def _place(row: Row) -> tuple[str, int]:
    return row["module"], row["line"]


def _where(row: Row) -> str:
    return f"{row['module']}:{row['line']}"


def _change(row: Row) -> str:
    text: str = row["change"].replace("|", "\\|")
    return f"`{text}`"


def _share(count: int, rows: Sequence[Row]) -> str:
    return f"{count} ({_percent(count, rows)})"


def _percent(count: int, rows: Sequence[Row]) -> str:
    return f"{100 * count / max(1, len(rows)):.1f} %"


def _median_tried(missed: Sequence[Row]) -> int:
    return int(median(row["simulator"]["seeds"] for row in missed)) if missed else 0


def _mean_cpu_s(rows: Sequence[Row]) -> float:
    judges = [judge for row in rows for judge in (row["simulator"], row["tests"]) if judge]
    spent_s: float = sum(judge["cpu_s"] for judge in judges)
    return spent_s / max(1, len(rows))


def _by_module(rows: Sequence[Row]) -> Iterator[str]:
    for module in sorted({row["module"] for row in rows}):
        own = [row for row in rows if row["module"] == module]
        by_simulator = sum(row["simulator"]["killed"] for row in own)
        alive = sum(is_survivor(row) for row in own)
        by_tests = len(own) - by_simulator - alive
        yield f"| {module} | {len(own)} | {by_simulator} | {by_tests} | {alive} |"


def _by_checker(rows: Sequence[Row]) -> Iterator[str]:
    killed = [row["simulator"] for row in rows if row["simulator"]["killed"]]
    first = Counter(_checker(one) for one in killed)
    for by, count in first.most_common():
        seeds = sorted(one["seeds"] for one in killed if _checker(one) == by)
        yield f"| {by} | {count} | {seeds[len(seeds) // 2]} |"


def _checker(simulator: Row) -> str:
    by: str = simulator["by"]
    return by.split(" (")[0].split(":")[0]
