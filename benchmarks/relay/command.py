"""What one daemon pays to pass frames on, next to a plain relay in C, in bytes per second of its CPU.

    python -m benchmarks.relay [--rounds 5] [--seconds 1] [--cases closed-64-1,open-1024-1,...]
                               [--engines c,python] [--before COMMIT] [--out build/relay/results.jsonl]

A real daemon stands between neighbors that only write and count. Its relays are compared in
interleaved order, one sample of each in turn, because a machine's speed drifts: what counts are the
ratios within one round, and their medians. The relays:

    plain        benchmarks/relay/plain.c: reads 256 KiB, parses every length, writes each run
    bmgd         this source, or bmgd-c and bmgd-python with --engines
    before       bmgd of another commit, built from `git archive` into an environment of its own
    nats         nats-server, where it is installed (or NATS_SERVER names it)

A case is LOOP-PAYLOAD-SINKS: `closed` keeps 1 MiB underway, in batches of 64 KiB; `open` writes as fast
as the relay reads, and what the relay drops does not count; `writes` is one frame per write, 64 KiB
underway; `one` is one frame underway, in microseconds of the relay's CPU per frame. All relays but
nats pass the same frames on.

`in the kernel` is the share of the relay's CPU that system calls take.

Each sample is a line of --out as soon as it is taken: the same command goes on where it was
interrupted. The table of medians is printed at the end, with --json as one object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.commits import python_of
from benchmarks.relay.load import Case, Sample
from benchmarks.relay.targets import (
    BUILD,
    ROOT,
    Running,
    daemon,
    nats,
    nats_server,
    plain,
)

Start = Callable[[], AbstractContextManager[Running]]

CASES: Final = (
    *(Case("closed", size, sinks) for size in (64, 1024, 65536) for sinks in (1, 8)),
    *(Case("open", size, 1) for size in (64, 1024, 65536)),
    Case("writes", 64, 1),
    Case("one", 64, 1),
)


def relays(options: argparse.Namespace) -> dict[str, Start]:
    """What to compare, by name."""
    own = Path(sys.executable)
    chosen: dict[str, Start] = {"plain": plain}
    if options.engines:
        for engine in options.engines.split(","):
            chosen[f"bmgd-{engine}"] = partial(daemon, own, {"BMGD_ENGINE": engine})
    else:
        chosen["bmgd"] = partial(daemon, own, {})
    if options.before:
        chosen["before"] = partial(daemon, python_of(options.before), {})
    if nats_server() is not None:
        chosen["nats"] = nats
    return chosen


# --- samples --------------------------------------------------------------------------------------


class Results:
    """Samples in a file, one a line; the first line says how they were taken.

    Args:
        path: the file; made with the first sample.
        head: what all samples have in common.

    Raises:
        SystemExit: the file has samples that were taken otherwise.
    """

    def __init__(self, path: Path, head: dict[str, object]) -> None:
        self._path = path
        self.samples: list[dict[str, Any]] = []
        if path.exists():
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            if lines[:1] != [head]:
                raise SystemExit(f"{path} is of another run ({lines[:1]}): move it away")
            self.samples = lines[1:]
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n")

    def has(self, round_number: int, case: Case, relay: str) -> bool:
        """Whether a sample was taken."""
        wanted = (round_number, case.name, relay)
        return any((s["round"], s["case"], s["relay"]) == wanted for s in self.samples)

    def add(self, round_number: int, case: Case, relay: str, sample: Sample) -> None:
        """Keep a sample."""
        row = {
            "round": round_number,
            "case": case.name,
            "relay": relay,
            "frames": sample.frames,
            "frame_bytes": sample.frame_bytes,
            "cpu_ns": sample.cpu_ns,
            "kernel_ns": sample.kernel_ns,
            "wall_ns": sample.wall_ns,
        }
        self.samples.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def measure(
    results: Results, starts: dict[str, Start], cases: list[Case], rounds: int, seconds: float
) -> None:
    """Take all samples that are missing."""
    for number in range(rounds):
        for case in cases:
            # Each round begins with another relay.
            names = list(starts)
            turned = names[number % len(names) :] + names[: number % len(names)]
            for name in turned:
                if results.has(number, case, name):
                    continue
                with starts[name]() as running:
                    load = running.load(case.payload_bytes, case.sinks)
                    load.run(case.loop, min(0.2, seconds / 4))
                    results.add(number, case, name, load.run(case.loop, seconds))
                print(f"round {number + 1} {case.name} {name}", file=sys.stderr)


# --- what they say --------------------------------------------------------------------------------


def cost_ns(sample: dict[str, Any]) -> float:
    """The relay's CPU for a frame, in nanoseconds."""
    return float(sample["cpu_ns"] / max(1, sample["frames"]))


def summary(samples: list[dict[str, Any]], cases: list[Case]) -> list[dict[str, Any]]:
    """One row for each case and relay: medians, and the median of the ratios within a round."""
    rows = []
    for case in cases:
        of_case = [s for s in samples if s["case"] == case.name]
        plain_ns = {s["round"]: cost_ns(s) for s in of_case if s["relay"] == "plain"}
        for relay in dict.fromkeys(s["relay"] for s in of_case):
            own = [s for s in of_case if s["relay"] == relay]
            shares = [plain_ns[s["round"]] / cost_ns(s) for s in own if s["round"] in plain_ns]
            rows.append(
                {
                    "case": case.name,
                    "relay": relay,
                    "rounds": len(own),
                    "frames_per_cpu_s": round(median(1e9 / cost_ns(s) for s in own)),
                    "us_per_frame": round(median(cost_ns(s) for s in own) / 1e3, 3),
                    "in_kernel": round(
                        median(s["kernel_ns"] / max(1, s["cpu_ns"]) for s in own), 2
                    ),
                    "share_of_plain": round(median(shares), 3) if shares else None,
                    "least": round(min(shares), 3) if shares else None,
                    "greatest": round(max(shares), 3) if shares else None,
                }
            )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table."""
    head = (
        "case",
        "relay",
        "frames per CPU-s",
        "us per frame",
        "in the kernel",
        "share of plain",
        "range",
    )
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print(
            f"| {row['case']} | {row['relay']} | {row['frames_per_cpu_s']:,} | {row['us_per_frame']} "
            f"| {row['in_kernel']} | {row['share_of_plain']} | {row['least']} to {row['greatest']} |"
        )


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> None:
    """Measure what is missing, print all."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.relay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cases", default=",".join(case.name for case in CASES))
    parser.add_argument("--engines", default="", help="bmgd with BMGD_ENGINE=c, python, or both")
    parser.add_argument("--before", default="", help="a commit to compare with")
    parser.add_argument("--out", type=Path, default=BUILD / "results.jsonl")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    known = {case.name: case for case in CASES}
    unknown = [name for name in options.cases.split(",") if name not in known]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(known)}")
    cases = [known[name] for name in options.cases.split(",")]
    head: dict[str, object] = {
        "commit": _commit(),
        "before": options.before,
        "engines": options.engines,
        "seconds": options.seconds,
    }
    results = Results(options.out, head)
    measure(results, relays(options), cases, options.rounds, options.seconds)
    rows = summary(results.samples, cases)
    if options.json:
        print(json.dumps({**head, "rows": rows}))
    else:
        show(rows)
