"""A launch whose daemons reach each other through another process, such as a fault proxy.

Every daemon advertises one address and listens at another; the process in between listens at the
first and connects to the second. What it does meanwhile is its own matter; the launcher starts it
before the daemons, and when it ends, so does the launch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from bmgd.dataclass import dataclass
from bmgd.launcher.child import finish_process, take_descriptors
from bmgd.launcher.rundir import RunDir
from bmgd.shell.process import die_with_parent, set_title


@dataclass(frozen=True, slots=True)
class Detour:
    """The way to one daemon.

    Args:
        node_id: whose; None for that of a joiner, whose id will be known by what dialers say.
        outside: ``host:port`` that it advertises, and the process in between listens at.
        inside: ``host:port`` that it listens at.
    """

    node_id: int | None
    outside: str
    inside: str


Between = Callable[[str, Sequence[Detour]], int]
"""What runs in between: told the path of its own Unix socket and all ways; returns an exit code."""


def start_between(between: Between, run_dir: RunDir, detours: Sequence[Detour]) -> int:
    """Fork the process in between; returns its process id. It dies with this one.

    Call it while this process has neither loop nor thread.
    """
    launcher_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        finish_process(lambda: _main(launcher_pid, between, run_dir, detours))
    return pid


def _main(launcher_pid: int, between: Between, run_dir: RunDir, detours: Sequence[Detour]) -> int:
    die_with_parent(launcher_pid)
    os.setsid()
    take_descriptors(run_dir.between_log)
    set_title("bmgd: between the daemons", "bmgd-between")
    return between(run_dir.between_socket, detours)
