"""What a daemon's process uses: CPU, memory, descriptors; and how late its loop is."""

from __future__ import annotations

import os
import resource
import time
from typing import Final

from bmgd.shell.exposition import Histogram

_US: Final = 1_000
_MS: Final = 1_000_000
STEP_BOUNDS_NS: Final = tuple(
    n * _US for n in (10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 25_000, 100_000, 1_000_000)
)
LAG_BOUNDS_NS: Final = tuple(n * _MS for n in (1, 2, 5, 10, 25, 50, 100, 200, 400, 1_000, 5_000))
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Vitals:
    """Histograms that the daemon feeds, and what the kernel knows of the process.

    Attributes:
        steps: how long the core's steps took, their effects included.
        lag: how much later than asked for the loop called the daemon at the core's deadlines.
    """

    def __init__(self) -> None:
        self.steps = Histogram(STEP_BOUNDS_NS)
        self.lag = Histogram(LAG_BOUNDS_NS)
        self.began_s = time.time()

    def cpu_s(self) -> float:
        """Seconds of processor time, user and system."""
        return time.process_time()

    def resident_bytes(self) -> int:
        """Resident memory now; its highest where the system has no /proc."""
        try:
            with open("/proc/self/statm", "rb") as statm:
                return int(statm.read().split()[1]) * _PAGE_BYTES
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def open_descriptors(self) -> int:
        """How many descriptors are open; 0 where the system has no /proc."""
        try:
            return len(os.listdir("/proc/self/fd")) - 1
        except OSError:
            return 0
