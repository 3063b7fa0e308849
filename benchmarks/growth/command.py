"""How cost grows with N: detection, dissemination, healing, messages and memory, in virtual time.

    python -m benchmarks.growth                      what has no result yet, then the page
    python -m benchmarks.growth --sizes 16 64        these sizes alone
    python -m benchmarks.growth report               the page and its plots alone

Each size has a process of its own. Every case of a size is one JSON line in `--out`, kept as soon as it
is known, so that the command can be ended and begun again: a size goes on with the cases that have no
line yet. docs/growth.md is made from those lines; `run.py` says what is measured, and how.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.growth.report import PAGE, write_report
from benchmarks.growth.run import Row, cases_of, effort_of

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "docs" / "results" / "growth.jsonl"
SIZES: Final = (*(2**k for k in range(4, 15)), 100_000)


def read_rows(path: Path) -> list[Row]:
    """The results until now; a line that was cut short is left out."""
    rows: list[Row] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
    return rows


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Keep the results, by size and in the order of their cases."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for row in sorted(rows, key=lambda row: row["size"])]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def missing(size: int, rows: Sequence[Row]) -> list[str]:
    """The cases of a size that have no result yet."""
    cases = ["start", "idle", "killed", *(["stopped"] if effort_of(size).stops else []), "memory"]
    known = {row["case"] for row in rows if row["size"] == size}
    return [case for case in cases if case not in known]


def run_size(size: int, path: Path) -> None:
    """Run one size in a process of its own, and keep each new result at once."""
    wanted = missing(size, read_rows(path))
    if not wanted:
        return
    command = [sys.executable, "-m", "benchmarks.growth", "--in-process", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            if row["case"] in wanted:
                write_rows(path, [*read_rows(path), row])
                print(f"N = {size}: {row['case']}, {row.get('real_s', 0.0)} s", flush=True)
    if process.returncode:
        sys.exit(f"N = {size}: failed, see above")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("what", nargs="?", choices=("run", "report"), default="run")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=list(SIZES), help="N, each 16 or more"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the results, one JSON line each")
    parser.add_argument(
        "--page", type=Path, default=PAGE, help="the page that the report is put into"
    )
    parser.add_argument("--in-process", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if min(arguments.sizes) < 16:
        parser.error("--sizes: 16 or more")
    if arguments.in_process:
        # Millions of objects live until the end; to look through them again and again costs minutes.
        gc.disable()
        for row in cases_of(arguments.in_process):
            print(json.dumps(row), flush=True)
        return
    if arguments.what == "run":
        for size in arguments.sizes:
            run_size(size, arguments.out)
    write_report(read_rows(arguments.out), arguments.page)
