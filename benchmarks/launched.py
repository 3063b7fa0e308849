"""A launched local cluster as the benchmarks see it: the launcher's own events, and nothing else."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

LIMIT_S = 120.0


class Launched:
    """A running `bmgd launch --json`.

    Args:
        size: how many daemons.
        run_dir: a directory of its own.
        extra: further flags.
        python: the interpreter, which chooses the code; this one by default.

    Attributes:
        up_s: from the start of the command to the line that says all have joined.
    """

    def __init__(
        self,
        size: int,
        run_dir: Path,
        extra: tuple[str, ...] = (),
        python: Path = Path(sys.executable),
    ) -> None:
        self.size = size
        self.run_dir = run_dir
        # Without -P the sources of the working directory would come before those that are installed.
        is_own = python == Path(sys.executable)
        self._bmgd = (str(python), *(() if is_own else ("-P",)), "-m", "bmgd")
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        began_s = time.perf_counter()
        self._process = subprocess.Popen(
            [
                *(*self._bmgd, "launch", "--json"),
                *("-n", str(size), "--run-dir", str(run_dir), *extra),
            ],
            stdout=subprocess.PIPE,
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.wait_for(lambda event: event["event"] == "up")
        self.up_s = time.perf_counter() - began_s

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))

    def event(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The next event; TimeoutError when none comes."""
        try:
            return self._lines.get(timeout=limit_s)
        except queue.Empty:
            raise TimeoutError(f"no event within {limit_s} s") from None

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read events up to the first that is wanted."""
        while True:
            event = self.event()
            if wanted(event):
                return event

    def quiet(self, quiet_s: float) -> list[dict[str, Any]]:
        """All events until none has come for `quiet_s`."""
        events: list[dict[str, Any]] = []
        while True:
            try:
                events.append(self.event(quiet_s))
            except TimeoutError:
                return events

    def pids(self) -> dict[int, int]:
        """The process id of each daemon."""
        nodes = json.loads((self.run_dir / "cluster.json").read_text())["nodes"]
        return {node["id"]: node["pid"] for node in nodes}

    def kill(self, node_id: int) -> int:
        """SIGKILL a daemon; returns the time, in the nanoseconds of the events."""
        pid = self.pids()[node_id]
        at_ns = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        return at_ns

    def restart(self, node_id: int) -> None:
        """Start a killed daemon again and wait until it has joined."""
        command = (*self._bmgd, "launch", "--restart", str(node_id))
        subprocess.run([*command, "--run-dir", str(self.run_dir)], check=True, capture_output=True)

    def stop(self) -> None:
        """End the cluster."""
        self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()


@contextmanager
def launched(
    size: int, extra: tuple[str, ...] = (), python: Path = Path(sys.executable)
) -> Iterator[Launched]:
    """A cluster that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="bmgd-bench-") as place:
        cluster = Launched(size, Path(place) / "run", extra, python)
        try:
            yield cluster
        finally:
            cluster.stop()


def loopback_bytes() -> int:
    """What the loopback interface has carried, headers included."""
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)
