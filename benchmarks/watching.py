"""What watching a cluster costs: at rest, with a scrape every so often, and with a page open.

    python -m benchmarks.watching -n 64 --seconds 30 --out FILE

Counted over all daemons of one launch, in phases one after the other: bytes over links, bytes over HTTP,
and processor time by the kernel's account of each process. Percentages of a busy machine compare phases
of one run; they are no absolute figures.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Cluster:
    """The daemons of one launch: their pages and processes."""

    urls: list[str]
    pids: list[int]

    def get(self, node: int, path: str) -> bytes:
        """The body of an answer."""
        with OPENER.open(self.urls[node] + path, timeout=60) as answer:
            return bytes(answer.read())

    def cpu_s(self) -> float:
        """Processor seconds of all daemons."""
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)


def sent_bytes(cluster: Cluster) -> int:
    """Bytes written to links, by the metric of each daemon."""
    total = 0
    for node in range(len(cluster.urls)):
        for line in cluster.get(node, "metrics").splitlines():
            if line.startswith(b"bmgd_link_sent_bytes_total "):
                total += int(line.split()[1])
    return total


def phase(cluster: Cluster, seconds: float, scrape_every_s: float | None) -> dict[str, Any]:
    """Let time pass, scraping or not; the costs per daemon and second."""
    bytes_before, cpu_before = sent_bytes(cluster), cluster.cpu_s()
    began_s = time.monotonic()
    scraped = 0
    while (passed_s := time.monotonic() - began_s) < seconds:
        if scrape_every_s is None:
            time.sleep(min(0.5, seconds - passed_s))
            continue
        scraped += sum(len(cluster.get(i, "metrics")) for i in range(len(cluster.urls)))
        time.sleep(max(0.0, scrape_every_s - (time.monotonic() - began_s) % scrape_every_s))
    # The last look is no part of the phase.
    cpu_s = cluster.cpu_s() - cpu_before
    passed_s = time.monotonic() - began_s
    count = len(cluster.urls)
    return {
        "link_bytes_per_s": round((sent_bytes(cluster) - bytes_before) / passed_s / count, 1),
        "http_bytes_per_s": round(scraped / passed_s / count, 1),
        "cpu_percent": round(100 * cpu_s / passed_s / count, 3),
        "seconds": round(passed_s, 1),
    }


def measured(cluster: Cluster, seconds: float) -> dict[str, Any]:
    """All phases, one after the other, the first one twice."""
    result: dict[str, Any] = {"at rest": phase(cluster, seconds, None)}
    result["a scrape every 15 s"] = phase(cluster, seconds, 15.0)
    with OPENER.open(cluster.urls[0] + "events", timeout=600) as stream:
        reader = threading.Thread(target=_read_all, args=(stream,), daemon=True)
        reader.start()
        result["a page open"] = phase(cluster, seconds, None)
        # Ends the connection, and with it the thread.
        stream.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        reader.join()
    result["at rest again"] = phase(cluster, seconds, None)
    return result


def _read_all(stream: Any) -> None:
    while stream.read(65_536):
        pass


def main() -> int:
    """Launch, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--http", type=int, default=23480)
    parser.add_argument("--profile", default="lan")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bmgd-watching-") as run_dir:
        words = ["launch", "-n", str(args.n), "--run-dir", run_dir, "--http", str(args.http)]
        words += ["--json", "--profile", args.profile]
        launcher = subprocess.Popen([sys.executable, "-m", "bmgd", *words], stdout=subprocess.PIPE)
        assert launcher.stdout is not None
        try:
            for line in launcher.stdout:
                if json.loads(line)["event"] == "up":
                    break
            document = json.loads(Path(run_dir, "cluster.json").read_text())
            nodes = document["nodes"]
            cluster = Cluster([node["http"] for node in nodes], [node["pid"] for node in nodes])
            time.sleep(5)
            result = {"daemons": args.n, **measured(cluster, args.seconds)}
        finally:
            launcher.terminate()
            launcher.wait()
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
