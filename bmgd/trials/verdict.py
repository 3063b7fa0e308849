"""From an outcome to what is printed: the verdict, the numbers, and a plan to do it again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from bmgd.chaos.checkers import check
from bmgd.chaos.measures import Detection, Measures, Summary, by_kind
from bmgd.chaos.truth import Truth
from bmgd.trials.runner import Outcome

VIOLATIONS_SHOWN: Final = 50

Document = dict[str, Any]


def judge(outcome: Outcome) -> Document:
    """Everything that is known of a trial, ready for JSON.

    The keys are those that docs/operations.md lists. `verdict` is "pass" when no checker found
    anything and the cluster came to rest.
    """
    history = outcome.history
    truth = Truth.of(history)
    measures = Measures(history, truth)
    violations = check(history)
    verdicts = measures.verdicts()
    names = {violation.checker for violation in violations}
    is_good = not violations and outcome.rest_s is not None
    return {
        "verdict": "pass" if is_good else "fail",
        "violations": [violation.to_row() for violation in violations[:VIOLATIONS_SHOWN]],
        "violations_in_all": len(violations),
        "faults": measures.faults(),
        "detection_ms": _detections(measures.detections()),
        "healing_ms": {kind: _summary(times) for kind, times in measures.healings().items()},
        "rest_s": None if outcome.rest_s is None else round(outcome.rest_s, 3),
        "false_deaths": verdicts.get("", 0),
        "verdicts": {why: count for why, count in sorted(verdicts.items()) if why},
        "alone": sum(1 for v in violations if v.checker == "nobody alone at the end"),
        "links_exact": outcome.rest_s is not None and "links exact at the end" not in names,
        "deliveries": measures.deliveries(),
        "nodes": outcome.plan.nodes,
        "seconds": round(truth.ends_ns / 1e9, 3),
        "seed": outcome.plan.seed,
        "notes": outcome.notes,
        "down": outcome.down,
        "plan": json.loads(outcome.plan.to_json()),
    }


def _detections(detections: list[Detection]) -> Document:
    """By kind of fault: all of them, and those that came alone, at rest and beside hogs."""
    return {
        kind: {
            "all": _times(found),
            "calm": _times(d for d in found if d.calm and not d.hogged),
            "calm_hogged": _times(d for d in found if d.calm and d.hogged),
        }
        for kind, found in by_kind(detections).items()
    }


def _times(detections: Iterable[Detection]) -> Document:
    found = list(detections)
    times = [d.took_ns for d in found if d.took_ns is not None]
    return {**_summary(times), "not_found": len(found) - len(times)}


def _summary(times_ns: list[int]) -> Document:
    return {**asdict(Summary.of(times_ns)), "values": [round(t / 1e6, 1) for t in sorted(times_ns)]}


def lines(document: Document) -> list[str]:
    """The document for people."""
    sent = document["deliveries"]
    failed = ", ".join(f"{count} {name}" for name, count in sent["failed"].items()) or "none"
    faults = ", ".join(f"{count} {kind}" for kind, count in document["faults"].items()) or "none"
    rest = document["rest_s"]
    text = [
        f"verdict        {document['verdict']}, {document['violations_in_all']} violations",
        f"faults         {faults}",
        f"false deaths   {document['false_deaths']}",
        f"at rest        {'never' if rest is None else f'after {rest:.3f} s'}",
        f"links exact    {'yes' if document['links_exact'] else 'no'}, {document['alone']} alone",
        f"messages       {sent['sent']} sent: {sent['acknowledged']} acknowledged,"
        f" {sum(sent['failed'].values())} failed, {sent['sender_ended']} whose sender ended first;"
        f" {sent['duplicates']} came twice",
        f"failed         {failed}",
    ]
    for kind, rows in document["detection_ms"].items():
        for which, times in rows.items():
            if times["count"] or times["not_found"]:
                text.append(f"found by all   {_line(kind, which, times)}")
    for kind, times in document["healing_ms"].items():
        text.append(f"links exact    {_line('after ' + kind, 'calm', times)}")
    text.append(f"random seed    {document['seed']}")
    if document["down"]:
        text.append("stay down      these nodes; each line starts one again:")
        text += [f"  node {row['id']:<6}  {row['restart']}" for row in document["down"]]
    for row in document["violations"]:
        where = "" if row["node"] is None else f" at node {row['node']}"
        text.append(f"VIOLATION      {row['checker']}{where}: {row['text']}")
    return text


def _line(kind: str, which: str, times: Document) -> str:
    missed = f", {times['not_found']} not found" if times.get("not_found") else ""
    return (
        f"{kind} ({which}): median {times['median']:.0f} ms, 99th percentile {times['p99']:.0f} ms,"
        f" greatest {times['max']:.0f} ms of {times['count']}{missed}"
    )
