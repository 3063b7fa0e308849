"""Messages per second of four patterns, as a cluster grows, next to a star through one broker.

    python -m benchmarks.patterns run [--sizes 8,16,32,64,128] [--rounds 3] [--messages 40000]
    python -m benchmarks.patterns report      docs/patterns.md, of docs/results/patterns.jsonl

Each node has a daemon, and a program that reads and sends messages of 64 bytes over reliable streams; the
programs share two processes. Who sends to whom is what `benchmarks.many` counts: uniform, all to one, one
to all, neighbors. The star has the same programs with nats-py at one nats-server, at most once. The two
take turns. A rate counts from the first message sent to the last one read; bytes are what the kernel has
counted on the connections between daemons, or between programs and the broker.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.launched import Launched, launched
from benchmarks.many import Pair, pairs
from benchmarks.messages import nats
from benchmarks.patterns import programs
from benchmarks.patterns.page import REPORT, RESULTS, report
from benchmarks.patterns.traffic import carried_bytes, difference
from bmgd.launcher.rundir import read_members
from bmgd.peers import split_address

PATTERNS: Final = ("uniform", "all to one", "one to all", "neighbors")
PAYLOAD_BYTES: Final = 64
PROCESSES: Final = 2
LIMIT_S: Final = 300.0
Row = dict[str, Any]


class Programs:
    """The processes of one run.

    Args:
        python: the interpreter.
        system: bmgd or nats.
        plans: what each process does.
    """

    def __init__(self, python: str, system: str, plans: Sequence[programs.Plan]) -> None:
        words = [python, str(Path(programs.__file__).resolve()), system]
        self._processes = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in plans
        ]
        for process, plan in zip(self._processes, plans, strict=True):
            self._say(process, json.dumps(plan))
        for process in self._processes:
            self._hear(process)

    def run(self) -> float:
        """Let all send; returns the seconds until the last message was read."""
        for process in self._processes:
            self._say(process, "go")
        told = [self._hear(process) for process in self._processes]
        began_ns: int = min(each["began_ns"] for each in told)
        ended_ns: int = max(each["ended_ns"] for each in told)
        return (ended_ns - began_ns) / 1e9

    def end(self) -> None:
        """Let all disconnect and end."""
        for process in self._processes:
            self._say(process, "end")
        for process in self._processes:
            if process.wait(LIMIT_S):
                raise SystemExit(f"a program ended with {process.returncode}")

    @staticmethod
    def _say(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

    @staticmethod
    def _hear(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"a program ended with {process.wait(LIMIT_S)}")
        told: dict[str, Any] = json.loads(line)
        return told


def plans_of(chosen: Sequence[Pair], addresses: dict[int, str], topic: str) -> list[programs.Plan]:
    """What each process does, for these messages."""
    sends: defaultdict[int, list[int]] = defaultdict(list)
    expects: Counter[int] = Counter()
    for source, to in chosen:
        sends[source].append(to)
        expects[to] += 1
    plans = []
    for first in range(PROCESSES):
        nodes = sorted(addresses)[first::PROCESSES]
        plans.append(
            {
                "nodes": nodes,
                "addresses": {str(node): addresses[node] for node in nodes},
                "sends": {str(node): sends[node] for node in nodes},
                "expects": {str(node): expects[node] for node in nodes},
                "topic": topic,
                "payload_bytes": PAYLOAD_BYTES,
            }
        )
    return plans


def measure(python: str, system: str, plans: Sequence[programs.Plan], ports: Sequence[int]) -> Row:
    """One run: messages per second, bytes per message on all links, and the busiest link's share."""
    running = Programs(python, system, plans)
    before = carried_bytes(ports)
    seconds = running.run()
    carried = difference(before, carried_bytes(ports))
    running.end()
    messages = sum(sum(plan["expects"].values()) for plan in plans)
    return {
        "system": system,
        "per_s": round(messages / seconds),
        "bytes_per_message": round(sum(carried) / messages, 1),
        "busiest_bytes_per_message": round(max(carried) / messages, 2),
        "links": len(carried) // 2,
    }


def _on_cluster(cluster: Launched, chosen: Sequence[Pair], topic: str) -> Row:
    members = read_members(str(cluster.run_dir))
    addresses = {member.id: member.control for member in members}
    ports = [split_address(member.address)[1] for member in members]
    return measure(sys.executable, "bmgd", plans_of(chosen, addresses, topic), ports)


def run(sizes: Sequence[int], rounds: int, messages: int) -> None:
    """Measure, and add a line for each run to the results."""
    with tempfile.TemporaryDirectory() as work, nats(Path(work)) as broker:
        if broker is None:
            print("nats-server is not installed: no star is measured", file=sys.stderr)
        for size in sizes:
            with launched(size, ("--without-secret",)) as cluster:
                for number in range(rounds * len(PATTERNS)):
                    pattern = PATTERNS[number % len(PATTERNS)]
                    chosen = list(pairs(pattern, size, Random(size), messages))
                    topic = f"{number}"
                    rows = [_on_cluster(cluster, chosen, topic)]
                    if broker is not None:
                        python, address, _ = broker
                        plans = plans_of(chosen, dict.fromkeys(range(size), address), topic)
                        port = int(address.rpartition(":")[2])
                        rows.append(measure(python, "nats", plans, [port]))
                    for row in rows:
                        _keep({"pattern": pattern, "size": size, **row})


def _keep(row: Row) -> None:
    print(json.dumps(row), flush=True)
    with RESULTS.open("a", encoding="utf-8") as results:
        results.write(json.dumps(row) + "\n")


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.patterns", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--sizes", default="8,16,32,64,128")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=40_000, help="in each run")
    options = parser.parse_args()
    if options.what == "run":
        sizes = [int(size) for size in options.sizes.split(",")]
        run(sizes, options.rounds, options.messages)
    REPORT.write_text(report(), encoding="utf-8")
