"""Ports for the clusters of tests: no two test processes, and no two clusters of one, take the same."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from bmgd.errors import LaunchError
from bmgd.launcher.ports import choose_base_port

FIRST: Final = 10_200
"""Above 10,080, the highest port that browsers refuse to open."""
SLICES: Final = 16
SLICE_PORTS: Final = 1_375
"""The last slice ends below 32,768, from where on the kernel picks ports for outgoing connections."""


class Slice:
    """The ports that this process alone takes from, one after another and round again."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._next = first

    def take(self, wanted: int) -> int:
        """The first of so many free ports, which were not taken for as long as possible."""
        end = self._first + SLICE_PORTS
        for _ in range(2 * SLICE_PORTS):
            if self._next + wanted > end:
                self._next = self._first
            base = self._next
            with suppress(LaunchError):
                choose_base_port(wanted, base)
                self._next = base + wanted
                return base
            self._next += 1
        raise AssertionError(f"no {wanted} free ports in {self._first}..{end - 1}")


def free_base_port(wanted: int) -> int:
    """The first of `wanted` free ports.

    A cluster behind the fault proxy, and one that grows, listens on more ports than it has nodes.
    """
    return _own_slice().take(wanted)


@cache
def _own_slice() -> Slice:
    for number in range(SLICES):
        path = Path(tempfile.gettempdir(), f"bmgd-test-ports-{os.getuid()}-{number}")
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            # Held, and so open, until this process ends.
            return Slice(FIRST + number * SLICE_PORTS)
    raise AssertionError(f"{SLICES} test processes use all ports already")
