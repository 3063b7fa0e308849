"""The tables of docs/growth.md, put between its markers, and the plots beside the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bmgd.lab.experiment import Plot
from bmgd.lab.svg import draw_plot

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "growth.md"

Row = dict[str, Any]
Table = list[Row]

# --- what others publish, as formulas of N --------------------------------------------------------------


def serf_told_s(size: int) -> float:
    """When the formula of Serf's convergence simulator says that 99.99 % of the members know.

    Source: hashicorp/serf at 1619379, website/source/assets/javascripts/_simulator.js, with the
    values it begins with: a round each 0.2 s, fanout 3, no loss.
    """
    told_part, per_round = 0.0, 3 * 0.5
    rounds = 0
    while told_part < 0.9999:
        rounds += 1
        told_part = 1 / (1 + (size + 1) * math.exp(-per_round * rounds))
    return round(rounds * 0.2, 1)


def memberlist_suspicion_s(size: int) -> float:
    """How long memberlist, as configured for a LAN, waits for a suspect's refutation, at least.

    Source: hashicorp/memberlist at 1b4c746, `suspicionTimeout` in util.go: 4 (SuspicionMult) times
    max(1, log10 N) times 1 s (ProbeInterval).
    """
    return round(4 * max(1.0, math.log10(size)), 1)


# --- the rows -------------------------------------------------------------------------------------------


def joined(rows: Sequence[Row]) -> Table:
    """One row for each size: all that is known of it, each list of values as its median and most."""
    table = []
    for size in sorted({row["size"] for row in rows}):
        flat: Row = {"size": size}
        for row in rows:
            if row["size"] == size:
                flat |= _flat(row)
        flat["published_serf_told"] = 1000 * serf_told_s(size)
        flat["published_memberlist_suspicion"] = 1000 * memberlist_suspicion_s(size)
        table.append(flat)
    return table


def _flat(row: Row) -> Row:
    case, found = row["case"], {}
    for name, value in row.items():
        if name == "victims":
            found[f"{case}_count"] = len(value)
        elif isinstance(value, list):
            found[f"{case}_{name}"] = median(value)
            found[f"{case}_{name}_most"] = max(value)
        elif name not in ("size", "case"):
            found[f"{case}_{name}"] = value
    return found


# --- tables ---------------------------------------------------------------------------------------------

Cell = Callable[[Row], str]


def _number(name: str, form: str = ",.1f") -> Cell:
    return lambda row: format(row[name], form) if name in row else "not run"


def _spread(name: str, form: str) -> Cell:
    """The median, and the most where that differs."""

    def cell(row: Row) -> str:
        if name not in row:
            return "not run"
        usual, most = format(row[name], form), format(row[f"{name}_most"], form)
        return usual if usual == most else f"{usual} (most {most})"

    return cell


def _per_log(name: str) -> Cell:
    return lambda row: (
        format(row[name] / math.log2(row["size"]), ".2f") if name in row else "not run"
    )


TABLES: Final[dict[str, dict[str, Cell]]] = {
    "killed": {
        "N": _number("size", ",d"),
        "links per node": _number("start_links_per_node", ".1f"),
        "first notice, ms": _spread("killed_noticed_ms", ".1f"),
        "last survivor told, ms": _spread("killed_told_ms", ".1f"),
        "links exact, ms": _spread("killed_healed_ms", ".1f"),
        "messages per node": _spread("killed_messages", ".1f"),
        "per log2 N": _per_log("killed_messages"),
        "bytes per node": _spread("killed_bytes", ",.0f"),
        "dials per node": _spread("killed_dials", ".2f"),
        "victims": _number("killed_count", "d"),
    },
    "stopped": {
        "N": _number("size", ",d"),
        "first notice, s": _spread("stopped_noticed_ms_s", ".2f"),
        "last survivor told, s": _spread("stopped_told_ms_s", ".2f"),
        "told after the first, ms": _spread("stopped_spread_ms", ".1f"),
        "links exact but at its neighbors, s": _spread("stopped_others_healed_ms_s", ".2f"),
        "links exact, s": _spread("stopped_healed_ms_s", ".2f"),
        "messages per node": _spread("stopped_messages", ".1f"),
        "victims": _number("stopped_count", "d"),
    },
    "idle": {
        "N": _number("size", ",d"),
        "messages per node and s": _number("idle_messages_per_node_s"),
        "bytes per node and s": _number("idle_bytes_per_node_s", ",.0f"),
        "a core, bytes": _number("start_core_bytes", ",d"),
        "of that membership": _number("start_membership_bytes", ",d"),
        "records in the end": _number("memory_exceptions", "d"),
        "membership then": _number("memory_membership_bytes", ",d"),
        "simulator, bytes per node": _number("start_simulator_bytes_per_node", ",d"),
    },
    "published": {
        "N": _number("size", ",d"),
        "bmgd: killed, last told": lambda row: _seconds(row, "killed_told_ms"),
        "bmgd: silent, last told": lambda row: _seconds(row, "stopped_told_ms"),
        "memberlist: suspicion alone": lambda row: f"{memberlist_suspicion_s(row['size']):.1f} s",
        "Serf: 99.99 % told, after a verdict": lambda row: f"{serf_told_s(row['size']):.1f} s",
    },
}


def _seconds(row: Row, name: str) -> str:
    return f"{row[name] / 1000:.4f} s" if name in row else "not run"


def _in_seconds(rows: Sequence[Row]) -> list[Row]:
    """The rows, those of stopped nodes with their times in seconds beside those in milliseconds."""
    found = []
    for row in rows:
        if row["case"] == "stopped":
            times = {f"{k}_s": [ms / 1000 for ms in v] for k, v in row.items() if k.endswith("_ms")}
            pairs = zip(row["told_ms"], row["noticed_ms"], strict=True)
            row = {**row, **times, "spread_ms": [told - noticed for told, noticed in pairs]}
        found.append(row)
    return found


def table_of(cells: dict[str, Cell], table: Table) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(cells)} |", "|" + "---|" * len(cells)]
    lines += [f"| {' | '.join(cell(row) for cell in cells.values())} |" for row in table]
    return "\n".join(lines)


# --- plots ----------------------------------------------------------------------------------------------


def _plot(ys: dict[str, str], y_label: str, *, log_y: bool) -> tuple[dict[str, str], Plot]:
    x_label = "nodes N (logarithmic)"
    plot = Plot("size", tuple(ys), log_x=True, log_y=log_y, x_label=x_label, y_label=y_label)
    return ys, plot


PLOTS: Final = {
    "growth-times": _plot(
        {
            "killed, first notice": "killed_noticed_ms",
            "killed, last told": "killed_told_ms",
            "killed, links exact": "killed_healed_ms",
            "silent, first notice": "stopped_noticed_ms",
            "silent, last told": "stopped_told_ms",
            "silent, links exact": "stopped_healed_ms",
            "published: Serf 99.99 % told": "published_serf_told",
            "published: memberlist suspicion": "published_memberlist_suspicion",
        },
        "ms after the fault (logarithmic)",
        log_y=True,
    ),
    "growth-messages": _plot(
        {
            "links": "start_links_per_node",
            "messages of a death": "killed_messages",
            "messages of a silence": "stopped_messages",
            "messages a second at rest": "idle_messages_per_node_s",
        },
        "per node",
        log_y=False,
    ),
    "growth-memory": _plot(
        {
            "simulator, all of a node": "start_simulator_bytes_per_node",
            "core": "start_core_bytes",
            "membership at rest": "start_membership_bytes",
            "membership after all faults": "memory_membership_bytes",
        },
        "bytes per node (logarithmic)",
        log_y=True,
    ),
}


def write_report(rows: Sequence[Row], page: Path) -> None:
    """Put the tables into a page, and draw the plots into `results` beside it.

    Raises:
        ValueError: the page has no place for one of the tables.
    """
    table = joined(_in_seconds(rows))
    text = replaced(page.read_text(encoding="utf-8"), "sizes", _sizes(table))
    for name, cells in TABLES.items():
        text = replaced(text, name, table_of(cells, table))
    page.write_text(text, encoding="utf-8")
    folder = page.parent / "results"
    folder.mkdir(exist_ok=True)
    for name, (ys, plot) in PLOTS.items():
        drawn = [
            {"size": row["size"], **{shown: row.get(key) for shown, key in ys.items()}}
            for row in table
        ]
        svg = draw_plot(f"How cost grows: {plot.y_label}", plot, drawn)
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


def _sizes(table: Table) -> str:
    run, left = (
        ", ".join(f"{row['size']:,}" for row in table if ("memory_sampled" in row) is is_done)
        for is_done in (True, False)
    )
    return f"Tried: N = {run or 'none'}." + (f" Begun, not finished: {left}." if left else "")


def replaced(text: str, name: str, new: str) -> str:
    """A text with something else between the two markers of a name.

    Raises:
        ValueError: it has not both markers.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"the page has no {begin} with {end} after it")
    return f"{before}{begin}\n\n{new}\n\n{end}{after}"
