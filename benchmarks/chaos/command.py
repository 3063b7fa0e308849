"""Campaigns of trials on real processes, in rounds that are kept: begun again, they go on.

    python -m benchmarks.chaos random    --size 64 --seconds 1800   random faults
    python -m benchmarks.chaos messages  --size 16 --messages 250000    all kinds of messages meanwhile
    python -m benchmarks.chaos detect    --size 64 [--hogs 2]       stop, cut off, kill one at a time
    python -m benchmarks.chaos silence   --size 64 [--hogs 2]       stop and cut off, three at a time
    python -m benchmarks.chaos partition --size 64                  two halves, then mended
    python -m benchmarks.chaos half      --size 64                  half of all killed at once
    python -m benchmarks.chaos soak      --size 64 --seconds 600 --hogs 2     nothing but hogs
    python -m benchmarks.chaos whole     --size 256                 lose ten, heal, ten leave
    python -m benchmarks.chaos grow      --size 16 --joiners 64     all joiners at once
    python -m benchmarks.chaos report                               writes docs/chaos-results.md

Each round is one `bmgd chaos`, on the cluster of the rounds before, and one line in `--progress`
(build/chaos/CAMPAIGN-SIZE-PROFILE.jsonl). A round that fails leaves its history and the daemons'
logs beside that file; the campaign goes on with a new cluster, and exits with 1 in the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.plans import PLANS, Round
from benchmarks.chaos.report import keep, report
from benchmarks.core_sources import digest
from benchmarks.launched import Launched, launched
from bmgd.profiles import DEFAULT_PROFILE

CHAOS_MARGIN_S = 1200.0
GROWN_MAX = 8
DOCS = Path(__file__).parents[2] / "docs"
REPORT = DOCS / "chaos-results.md"
RESULTS = DOCS / "results" / "chaos.jsonl"
HEAD = (
    "# Faults on real processes",
    "",
    "Written by `python -m benchmarks.chaos report`, of [results/chaos.jsonl](results/chaos.jsonl): what",
    "it summed up of the rounds of each campaign (one that was run again replaces what was there). A",
    "round is one `bmgd chaos` on a launched cluster: its plan is carried out while programs send each",
    "other messages, then all must agree and have exactly the links of the graph; its verdict is that of",
    "the checkers of [fault-plans.md](fault-plans.md). *Core* is the digest of the sources that ran,",
    "where it was kept (`python -m benchmarks.core_sources` prints that of these). A name that ends in",
    "`beside-...` says what else ran meanwhile. Daemons, faults and judge share the machine:",
    "",
)
Document = dict[str, Any]


class TrialError(Exception):
    """A trial ended without a verdict."""


@dataclass(slots=True)
class Progress:
    """The rounds of one campaign that are done, in a file."""

    path: Path
    rounds: list[Document] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Progress:
        """What was done before; a line that was cut short is left out."""
        progress = cls(path)
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    progress.rounds.append(json.loads(line))
                except ValueError:
                    continue
        return progress

    def add(self, document: Document) -> None:
        """Keep a round."""
        self.rounds.append(document)
        with self.path.open("a") as file:
            file.write(json.dumps(document, separators=(",", ":")) + "\n")

    @property
    def seconds(self) -> float:
        """How long faults went on in all."""
        return float(sum(document["plan"]["seconds"] for document in self.rounds))

    @property
    def messages(self) -> int:
        """How many were sent in all."""
        return sum(document["deliveries"]["sent"] for document in self.rounds)


def is_done(progress: Progress, options: argparse.Namespace) -> bool:
    """Whether the campaign has had its messages, its time, or its number of rounds."""
    if options.messages:
        return progress.messages >= int(options.messages)
    if options.seconds:
        return progress.seconds >= float(options.seconds)
    return len(progress.rounds) >= int(options.rounds)


class Bench:
    """The cluster under trial; a new one when the last one failed."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self._options = options
        self._stack = stack
        self._own = ExitStack()
        self._cluster: Launched | None = None
        stack.callback(lambda: self._own.close())

    def cluster(self, extra: tuple[str, ...]) -> Launched:
        """A cluster whose daemons all run, and that has not grown by more than the proxy has gates."""
        if self._cluster is not None and self._must_be_new():
            self._end()
        if self._cluster is None:
            self._cluster = self._own.enter_context(launched(self._options.size, extra))
        for node, pid in self._cluster.pids().items():
            if pid is None:
                self._cluster.restart(node)
        return self._cluster

    def _must_be_new(self) -> bool:
        assert self._cluster is not None
        grown = len(self._cluster.pids()) - int(self._options.size)
        most = GROWN_MAX if self._options.campaign in ("random", "messages") else 0
        return grown > most

    def give_up(self, keep: Path) -> None:
        """End the cluster after a failure, and keep its logs."""
        assert self._cluster is not None
        shutil.copytree(self._cluster.run_dir, keep, ignore=_not_logs, dirs_exist_ok=True)
        self._end()

    def _end(self) -> None:
        self._own.close()
        self._own = ExitStack()
        self._cluster = None


def _not_logs(directory: str, names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith((".log", ".json"))}


def trial(cluster: Launched, planned: Round, keep: Path) -> Document:
    """Carry one plan out."""
    keep.mkdir(parents=True, exist_ok=True)
    plan, facts = keep / "plan.json", keep / "facts.jsonl"
    words = [sys.executable, "-m", "bmgd", "chaos", "--run-dir", str(cluster.run_dir), "--json"]
    words += ["--history", str(facts)]
    if planned.plan is None:
        words += ["--random", "--seed", str(planned.seed), "--for", f"{planned.seconds}"]
        words += planned.words
    else:
        plan.write_text(planned.plan.to_json())
        words += ["--plan", str(plan)]
    with (keep / "progress.txt").open("wb") as progress:
        limit_s = planned.seconds + CHAOS_MARGIN_S
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=progress, timeout=limit_s, check=False
        )
    if not done.stdout:
        raise TrialError(f"bmgd chaos ended with {done.returncode}, see {keep}/progress.txt")
    document: Document = json.loads(done.stdout)
    return document


def run_campaign(options: argparse.Namespace) -> int:
    """Run rounds until there are enough."""
    hogs = f"-{options.hogs}-hogs" if options.hogs else ""
    name = f"{options.campaign}-{options.size}-{options.profile}{hogs}"
    path = Path(options.progress or f"build/chaos/{name}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress.load(path)
    with ExitStack() as stack:
        bench = Bench(options, stack)
        while not is_done(progress, options):
            number = len(progress.rounds)
            planned = PLANS[options.campaign](options, number)
            keep = path.with_suffix("") / f"round-{number}"
            began_s = time.time()
            flags = (*planned.flags, "--profile", options.profile)
            try:
                document = trial(bench.cluster(flags), planned, keep)
            except TrialError as error:
                bench.give_up(keep)
                sys.exit(str(error))
            document |= {"campaign": options.campaign, "profile": options.profile}
            document |= {"hogs": options.hogs, "began": began_s, "core": digest()}
            progress.add(document)
            _show(number, document)
            if document["verdict"] == "pass":
                shutil.rmtree(keep)
            else:
                bench.give_up(keep)
    return 0 if all(document["verdict"] == "pass" for document in progress.rounds) else 1


def _show(number: int, document: Document) -> None:
    faults = sum(document["faults"].values())
    rest = document["rest_s"]
    print(
        f"round {number}: {document['verdict']}, {faults} faults in {document['plan']['seconds']:g} s,"
        f" {document['false_deaths']} false deaths, at rest after {rest} s",
        flush=True,
    )
    for violation in document["violations"][:5]:
        print(f"    {violation['checker']}: {violation['text']}", flush=True)


def main() -> int:
    """Run one campaign, or report on all."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", description=text.splitlines()[0]
    )
    parser.add_argument("campaign", choices=[*PLANS, "report"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10, help="how many, without --seconds")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="faults in all go on for so long"
    )
    parser.add_argument(
        "--messages", type=int, default=0, help="of `messages`: so many in all, without --seconds"
    )
    parser.add_argument("--rate", type=float, default=1000.0, help="of `messages`: a second")
    parser.add_argument("--hogs", type=int, default=0)
    parser.add_argument("--profile", default=DEFAULT_PROFILE, help="of the daemons' timing")
    parser.add_argument("--joiners", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--progress", help="the file that keeps what is done")
    options = parser.parse_args()
    # Also where a shell has put it into the background, and told it to be deaf to interrupts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("interrupted; begun again, it goes on"))
    commands: dict[str, Callable[[], int]] = {
        "report": lambda: _write(report(keep(Path("build/chaos"), RESULTS)))
    }
    return commands.get(options.campaign, lambda: run_campaign(options))()


def _write(lines: Iterator[str]) -> int:
    text = "\n".join([*HEAD, *lines]) + "\n"
    REPORT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0
