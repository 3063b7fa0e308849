"""What `benchmarks.cluster` measures, each on a launched cluster of its own."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.launched import Launched, launched, loopback_bytes

QUIET_S = 0.4
DEATH_S = 0.5


@dataclass(frozen=True, slots=True)
class Values:
    """What was measured, once for each repetition."""

    name: str
    unit: str
    values: list[float]


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


def measure_launch(size: int, options: argparse.Namespace, python: Path) -> list[Values]:
    """From the command to all joined."""
    joined, forked, used = [], [], []
    for _ in range(options.repetitions):
        forked.append(fork_reference_s(size))
        with launched(size, python=python) as cluster:
            joined.append(cluster.up_s)
            used.append(_cpu_s(list(cluster.pids().values())) * 1e3 / size)
    return [
        Values("launch to all joined", "s", joined),
        Values("CPU per daemon until all have joined", "ms", used),
        Values("reference: fork and reap as many", "s", forked),
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


def measure_kill(size: int, options: argparse.Namespace, python: Path) -> list[Values]:
    """From SIGKILL to the last notice, and to the last link exact."""
    first, last, exact = [], [], []
    with launched(size, python=python) as cluster:
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
        Values("SIGKILL to the first notice", "ms", first),
        Values("SIGKILL to the last survivor's notice", "ms", last),
        Values("SIGKILL to the last link exact", "ms", exact),
        Values("reference: loopback round trip", "ms", [round_trip_reference_ms()]),
    ]


def _cpu_s(pids: list[int]) -> float:
    """Seconds of CPU that these processes have used."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


def measure_death(size: int, options: argparse.Namespace, python: Path) -> list[Values]:
    """CPU time that one death costs each survivor."""
    spent = []
    with launched(size, python=python) as cluster:
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
    return [Values("CPU per death and survivor", "ms", spent)]


def measure_memory(size: int, options: argparse.Namespace, python: Path) -> list[Values]:
    """Proportional memory of each daemon, once all have joined and the start has settled."""
    with launched(size, python=python) as cluster:
        cluster.quiet(2.0)
        pids = cluster.pids().values()
        infos = [psutil.Process(pid).memory_full_info() for pid in pids]
    return [
        Values("proportional memory per daemon", "MB", [i.pss / 1e6 for i in infos]),
        Values("private memory per daemon", "MB", [i.uss / 1e6 for i in infos]),
    ]


def measure_idle(size: int, options: argparse.Namespace, python: Path) -> list[Values]:
    """CPU and loopback traffic of a cluster at rest, headers included, per daemon."""
    with launched(size, ("--profile", options.profile), python) as cluster:
        cluster.quiet(2.0)
        pids = cluster.pids().values()
        before_s = [_cpu_s([pid]) for pid in pids]
        bytes_before, began_s = loopback_bytes(), time.monotonic()
        time.sleep(options.seconds)
        spent_s = time.monotonic() - began_s
        sent = (loopback_bytes() - bytes_before) / spent_s / size
        used = [
            100 * (_cpu_s([pid]) - was_s) / spent_s
            for pid, was_s in zip(pids, before_s, strict=True)
        ]
    return [
        Values("idle CPU per daemon", "% of a core", used),
        Values("idle bytes per second per daemon", "B/s", [sent]),
    ]


def measure_soak(size: int, options: argparse.Namespace, python: Path) -> list[Values]:
    """False deaths in a time without deaths, with CPU hogs beside the daemons if asked for."""
    hog = (sys.executable, "-c", f"import time\nt=time.time()+{options.seconds + 30}\n")
    with ExitStack() as stack:
        cluster = stack.enter_context(launched(size, python=python))
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
        Values("false deaths" + beside, "verdicts", [counts["verdict"]]),
        Values("suspicions" + beside, "suspicions", [counts["suspected"]]),
    ]


Measure = Callable[[int, argparse.Namespace, Path], list[Values]]
MEASURES: dict[str, tuple[Measure, str]] = {
    "launch": (measure_launch, "16,64,128,256"),
    "kill": (measure_kill, "16,32,64"),
    "death": (measure_death, "64"),
    "memory": (measure_memory, "64"),
    "idle": (measure_idle, "64"),
    "soak": (measure_soak, "64"),
}
