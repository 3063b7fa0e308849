"""How fast a local cluster starts, hears of a death and heals, and what an idle daemon costs.

    python -m benchmarks.cluster launch [--sizes 16,64,128,256] [--repetitions 20]
    python -m benchmarks.cluster kill   [--sizes 16,32,64]      [--repetitions 20]
    python -m benchmarks.cluster death  [--sizes 64]            [--repetitions 20]
    python -m benchmarks.cluster memory [--sizes 64]
    python -m benchmarks.cluster idle   [--sizes 64] [--seconds 30] [--profile lan]
    python -m benchmarks.cluster soak   [--sizes 64] [--seconds 600] [--hogs 2]

Printed are medians, least and greatest, with `--json` as one object a line. `launch` runs from the
start of the command to the line that all have joined; its reference is a fork of as many processes
that end at once. `kill` runs from just before SIGKILL to the time, taken in the daemons, of the last
survivor's notice and of the last link exact; its reference is one round trip over a loopback socket.
`death` counts the CPU time of all survivors until half a second after each death, less what they use at
rest; the victims stay dead. CPU time is the kernel's, in nanoseconds (`/proc/PID/schedstat`).
`idle` counts all of the loopback interface, so let nothing else use it (`unshare -n` gives an own one).
`soak` counts deaths that were declared while nobody died.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.launched import Launched, launched

QUIET_S = 0.4
DEATH_S = 0.5
Row = dict[str, Any]


def summary(name: str, size: int, unit: str, values: list[float]) -> Row:
    """Median, least and greatest of what was measured."""
    return {
        "what": name,
        "size": size,
        "unit": unit,
        "median": round(median(values), 4),
        "least": round(min(values), 4),
        "greatest": round(max(values), 4),
        "repetitions": len(values),
    }


def fork_reference_s(size: int) -> float:
    """Seconds to fork `size` children that exit, and to reap them."""
    began_s = time.perf_counter()
    children = []
    for _ in range(size):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return time.perf_counter() - began_s


def round_trip_reference_ms(count: int = 200) -> float:
    """Median milliseconds of one round trip over a loopback TCP connection within one process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        times = []
        for _ in range(count):
            began_s = time.perf_counter()
            ours.sendall(b"x")
            theirs.recv(1)
            theirs.sendall(b"x")
            ours.recv(1)
            times.append((time.perf_counter() - began_s) * 1e3)
        ours.close()
        theirs.close()
    return median(times)


def measure_launch(size: int, options: argparse.Namespace) -> list[Row]:
    """From the command to all joined."""
    joined, forked = [], []
    for _ in range(options.repetitions):
        forked.append(fork_reference_s(size))
        with launched(size) as cluster:
            joined.append(cluster.up_s)
    return [
        summary("launch to all joined", size, "s", joined),
        summary("reference: fork and reap as many", size, "s", forked),
    ]


def _one_kill(cluster: Launched, victim: int) -> tuple[float, float, float]:
    killed_ns = cluster.kill(victim)
    events = cluster.quiet(QUIET_S)
    told = {
        e["id"]: e["at_ns"] for e in events if e["event"] == "notice" and e.get("peer") == victim
    }
    exact = {e["id"]: e["at_ns"] for e in events if e["event"] == "links exact"}
    survivors = set(range(cluster.size)) - {victim}
    if set(told) != survivors or not survivors <= set(exact):
        raise SystemExit(f"after the death of {victim}: told {sorted(told)}, exact {sorted(exact)}")
    return (
        (min(told.values()) - killed_ns) / 1e6,
        (max(told.values()) - killed_ns) / 1e6,
        (max(exact[i] for i in survivors) - killed_ns) / 1e6,
    )


def measure_kill(size: int, options: argparse.Namespace) -> list[Row]:
    """From SIGKILL to the last notice, and to the last link exact."""
    first, last, exact = [], [], []
    with launched(size) as cluster:
        cluster.quiet(1.0)
        for turn in range(options.repetitions):
            victim = turn * 7 % size
            a, b, c = _one_kill(cluster, victim)
            first.append(a)
            last.append(b)
            exact.append(c)
            cluster.restart(victim)
            cluster.quiet(QUIET_S)
    return [
        summary("SIGKILL to the first notice", size, "ms", first),
        summary("SIGKILL to the last survivor's notice", size, "ms", last),
        summary("SIGKILL to the last link exact", size, "ms", exact),
        summary("reference: loopback round trip", size, "ms", [round_trip_reference_ms()]),
    ]


def _cpu_s(pids: list[int]) -> float:
    """Seconds of CPU that these processes have used."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


def measure_death(size: int, options: argparse.Namespace) -> list[Row]:
    """CPU time that one death costs each survivor."""
    spent = []
    with launched(size) as cluster:
        cluster.quiet(2.0)
        pids = dict(cluster.pids())
        for turn in range(min(options.repetitions, size // 2)):
            victim = turn * 7 % size
            del pids[victim]
            survivors = list(pids.values())
            before_s = _cpu_s(survivors)
            time.sleep(DEATH_S)
            rest_s = _cpu_s(survivors)
            cluster.kill(victim)
            time.sleep(DEATH_S)
            used_s = (_cpu_s(survivors) - rest_s) - (rest_s - before_s)
            spent.append(used_s * 1e3 / len(survivors))
            cluster.quiet(QUIET_S)
    return [summary("CPU per death and survivor", size, "ms", spent)]


def measure_memory(size: int, options: argparse.Namespace) -> list[Row]:
    """Proportional memory of each daemon, once all have joined and the start has settled."""
    with launched(size) as cluster:
        cluster.quiet(2.0)
        pids = cluster.pids().values()
        infos = [psutil.Process(pid).memory_full_info() for pid in pids]
    return [
        summary("proportional memory per daemon", size, "MB", [i.pss / 1e6 for i in infos]),
        summary("private memory per daemon", size, "MB", [i.uss / 1e6 for i in infos]),
    ]


def _loopback_bytes() -> int:
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def measure_idle(size: int, options: argparse.Namespace) -> list[Row]:
    """CPU and loopback traffic of a cluster at rest, headers included, per daemon."""
    with launched(size, ("--profile", options.profile)) as cluster:
        cluster.quiet(2.0)
        processes = [psutil.Process(pid) for pid in cluster.pids().values()]
        before = [sum(p.cpu_times()[:2]) for p in processes]
        bytes_before, began_s = _loopback_bytes(), time.monotonic()
        time.sleep(options.seconds)
        spent_s = time.monotonic() - began_s
        sent = (_loopback_bytes() - bytes_before) / spent_s / size
        used = [
            100 * (sum(p.cpu_times()[:2]) - was) / spent_s
            for p, was in zip(processes, before, strict=True)
        ]
    return [
        summary("idle CPU per daemon", size, "% of a core", used),
        summary("idle bytes per second per daemon", size, "B/s", [sent]),
    ]


def measure_soak(size: int, options: argparse.Namespace) -> list[Row]:
    """False deaths in a time without deaths, with CPU hogs beside the daemons if asked for."""
    hog = (sys.executable, "-c", f"import time\nt=time.time()+{options.seconds + 30}\n")
    with ExitStack() as stack:
        cluster = stack.enter_context(launched(size))
        cluster.quiet(1.0)
        for _ in range(options.hogs):
            spin = hog[2] + "while time.time() < t: pass"
            process = subprocess.Popen([*hog[:2], spin])
            stack.callback(process.wait)
            stack.callback(process.kill)
        until_s = time.monotonic() + options.seconds
        counts = {"verdict": 0, "suspected": 0}
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                event = cluster.event(left_s)["event"]
            except TimeoutError:
                break
            if event in counts:
                counts[event] += 1
    beside = f" in {options.seconds:.0f} s beside {options.hogs} CPU hogs"
    return [
        summary("false deaths" + beside, size, "verdicts", [counts["verdict"]]),
        summary("suspicions" + beside, size, "suspicions", [counts["suspected"]]),
    ]


Measure = Callable[[int, argparse.Namespace], list[Row]]
MEASURES: dict[str, tuple[Measure, str]] = {
    "launch": (measure_launch, "16,64,128,256"),
    "kill": (measure_kill, "16,32,64"),
    "death": (measure_death, "64"),
    "memory": (measure_memory, "64"),
    "idle": (measure_idle, "64"),
    "soak": (measure_soak, "64"),
}


def main() -> None:
    """Run one measure at each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--sizes", help="comma-separated cluster sizes")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--profile", default="lan", help="of `idle`")
    parser.add_argument("--hogs", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measure, default_sizes = MEASURES[options.measure]
    for size in map(int, (options.sizes or default_sizes).split(",")):
        for row in measure(size, options):
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                print(
                    f"N={row['size']:<4} {row['what']:<46} median {row['median']:>10} {row['unit']}"
                    f"   ({row['least']} to {row['greatest']}, {row['repetitions']} values)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
