"""The report: one HTML page that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from bmgd.lab.experiment import PAPERS, Experiment
from bmgd.lab.outcome import Outcome, Verdict
from bmgd.lab.svg import draw
from bmgd.lab.table import shown

Pair = tuple[Experiment, Outcome]

ROWS_OPEN: Final = 24
"""A longer table is folded up."""

ROWS_MOST: Final = 1000
"""Of a longer table these many rows are in the page; all are in the CSV file."""

_MARKS: Final[dict[Verdict, str]] = {"holds": "✓", "fails": "✗", "not checked": "–"}

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1c1c1c; background: #fafafa; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1.5rem 6rem; }
h1 { font-size: 1.9rem; margin-bottom: .3rem; } h2 { margin-top: 3.5rem; }
article { background: #fff; border: 1px solid #ddd; border-radius: 8px; padding: .4rem 1.4rem 1.2rem;
  margin: 1.6rem 0; }
article h3 { margin-bottom: .2rem; } .where { color: #5a5a5a; font-size: .88rem; margin: 0; }
svg { max-width: 100%; height: auto; display: block; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } th, td { padding: .18rem .7rem; border-bottom: 1px solid #e6e6e6; }
th { text-align: left; vertical-align: bottom; background: #f4f4f4; font-weight: 600; }
td.n, th.n { text-align: right; } .unit { color: #5a5a5a; font-weight: 400; }
ul.checks { list-style: none; padding: 0; } ul.checks li { padding-left: 1.7rem; text-indent: -1.7rem; }
.mark { display: inline-block; width: 1.7rem; text-indent: 0; font-weight: 700; }
.holds .mark { color: #1b7837; } .fails { color: #a50f15; } code { font-size: .9em; }
.error { color: #a50f15; font-weight: 600; } summary { cursor: pointer; color: #0b4f8a; }
nav table a { text-decoration: none; color: #0b4f8a; } dl.columns dt { font-weight: 600; }
dl.columns { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .86rem; }
dl.columns dd { margin: 0; }
"""

_INTRODUCTION: Final = """
<p>A <em>binomial graph</em> (BMG) joins N nodes, numbered 0 to N&nbsp;−&nbsp;1 on a ring: each is
linked to the nodes 1, 2, 4, 8, … places before and behind it. So a node has about 2·log₂(N) links
(its <em>degree</em>, δ), every other is a few <em>hops</em> away (the most is the
<em>diameter</em>), and many nodes can fail before the rest falls apart. bmgd is a daemon that joins the
hosts of a cluster into such a graph.</p>
<p>Each section below makes one table or figure of the papers again, from the code that the daemon
runs, or measures what a paper only says. Columns and hollow circles called <em>published</em> are
what the paper prints; all else was measured here. Below each is what was <em>checked</em>: ✓ holds,
✗ fails, – needs the whole range and was not tried in this quick run. A check states what is true;
where that is not what the paper says, the text tells.</p>
"""


def page(pairs: Sequence[Pair]) -> str:
    """The whole page.

    Args:
        pairs: experiments with their outcomes, in the order of the page.
    """
    quick = any(outcome.quick for _, outcome in pairs)
    passed = sum(outcome.passed for _, outcome in pairs)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>bmgd lab</title><style>{_STYLE}</style></head><body><main>",
        "<h1>The laboratory of bmgd</h1>",
        f"<p class='where'>{passed} of {len(pairs)} experiments passed"
        f"{'; a quick run, with smaller ranges' if quick else ''}. "
        "Made by <code>bmgd lab run</code>.</p>",
        _INTRODUCTION,
        _contents(pairs),
    ]
    for paper, title in PAPERS.items():
        of_paper = [pair for pair in pairs if pair[0].paper == paper]
        if of_paper:
            prefix = "" if paper == "bmgd" else f"{paper}: "
            parts.append(f"<h2>{escape(prefix + title)}</h2>")
            parts.extend(_article(*pair) for pair in of_paper)
    return "".join([*parts, "</main></body></html>\n"])


def _contents(pairs: Sequence[Pair]) -> str:
    rows = "".join(
        f"<tr class='{'holds' if outcome.passed else 'fails'}'>"
        f"<td><span class='mark'>{_MARKS['holds' if outcome.passed else 'fails']}</span></td>"
        f"<td><a href='#{each.name}'>{escape(each.name)}</a></td><td>{escape(each.title)}</td></tr>"
        for paper in PAPERS
        for each, outcome in pairs
        if each.paper == paper
    )
    return f"<nav><table>{rows}</table></nav>"


def _article(experiment: Experiment, outcome: Outcome) -> str:
    paragraphs = "".join(f"<p>{escape(part)}</p>" for part in experiment.explanation.split("\n\n"))
    parts = [
        f"<article id='{experiment.name}'><h3>{escape(experiment.title)}</h3>",
        f"<p class='where'>{escape(experiment.paper)} {escape(experiment.section)} · "
        f"<code>bmgd lab run {experiment.name}</code> · {outcome.seconds:.1f} s</p>",
        paragraphs,
    ]
    if outcome.error:
        return "".join([*parts, f"<p class='error'>{escape(outcome.error)}</p></article>"])
    if experiment.plot is not None:
        parts.append(draw(experiment, experiment.named(outcome.rows)))
    parts += [_checks(experiment, outcome), _table(experiment, outcome), "</article>"]
    return "".join(parts)


def _checks(experiment: Experiment, outcome: Outcome) -> str:
    items = "".join(
        f"<li class='{verdict.split()[0]}'><span class='mark'>{_MARKS[verdict]}</span>"
        f"{escape(check.text)}{'' if verdict == 'holds' else f' ({verdict})'}</li>"
        for check, verdict in zip(experiment.checks, outcome.verdicts, strict=True)
    )
    return f"<ul class='checks'>{items}</ul>"


def _table(experiment: Experiment, outcome: Outcome) -> str:
    rows, columns = outcome.rows, experiment.columns
    texts_in = [any(isinstance(row[i], str) for row in rows) for i in range(len(columns))]
    kinds = ["" if has_text else " class='n'" for has_text in texts_in]
    heads = "".join(
        f"<th{kind}>{escape(column.name.replace('_', ' '))}"
        f"{f' <span class=unit>{escape(column.unit)}</span>' if column.unit else ''}</th>"
        for kind, column in zip(kinds, columns, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(f"<td{k}>{escape(shown(v))}</td>" for k, v in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows[:ROWS_MOST]
    )
    texts = "".join(
        f"<dt>{escape(column.name.replace('_', ' '))}</dt><dd>{escape(column.text)}</dd>"
        for column in columns
        if column.text
    )
    left_out = len(rows) - ROWS_MOST
    note = f"<p>and {left_out} more: {experiment.name}.csv</p>" if left_out > 0 else ""
    legend = f"<dl class='columns'>{texts}</dl>" if texts else ""
    state = " open" if len(rows) <= ROWS_OPEN else ""
    return (
        f"<details{state}><summary>{len(rows)} rows</summary>{legend}<div class='wide'>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>{note}</details>"
    )
