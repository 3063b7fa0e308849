"""From a command line to a running local cluster, as fast as it goes.

The zygote is forked before anything else is done, so that its imports (most of the time until the
first daemon) run on another core while this process prepares the rest.
"""

from __future__ import annotations

import hmac
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from bmgd.errors import ConfigError
from bmgd.launcher.detour import Between, start_between
from bmgd.launcher.planning import Wanted, detours, make_plan
from bmgd.launcher.ports import ReservedPorts
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.zygote import Load, Target, start_zygote
from bmgd.shell.process import allow_descriptors
from bmgd.shell.process_stat import process_began_s


def load_daemon() -> Target:
    """Import everything that a daemon needs; runs in the zygote."""
    with suppress(ImportError):
        import uvloop  # noqa: F401
    from bmgd.shell.engines import choose_engine
    from bmgd.shell.run import run_daemon

    # Imports the engine. What a wrong choice is answered with, a daemon says itself.
    with suppress(ConfigError):
        choose_engine()
    # OpenSSL gets ready at the first proof: 0.4 MB that each daemon would write for itself.
    hmac.digest(b"", b"", "sha256")
    return lambda config, report: run_daemon(config, report=report)


def launch(
    wanted: Wanted,
    run_dir: str,
    *,
    show: Callable[[dict[str, object]], None],
    flush: Callable[[], bool],
    load: Load = load_daemon,
    between: Between | None = None,
) -> int:
    """Run a local cluster until a signal ends it. Call it early in a process, which it takes over.

    Args:
        wanted: how many daemons, and what they are told.
        run_dir: see `bmgd.launcher.rundir`.
        show, flush: see `Supervisor`.
        load: gives what a daemon runs; another one for tests.
        between: what runs between the daemons, see `bmgd.launcher.detour`; it needs a second range
            of ports behind the first.

    Returns:
        The exit code.

    Raises:
        LaunchError: the directory or ports are taken, or the cluster broke down.
        ConfigError: a configuration that cannot be used.
    """
    began_s = time.monotonic() - _age_s()
    # Each reserved port is one.
    allow_descriptors()
    zygote = start_zygote(load)
    lock = between_pid = -1
    place = RunDir.at(run_dir)
    reserved = ReservedPorts()
    try:
        lock = place.prepare()
        plan = make_plan(wanted, place, reserved, split=between is not None)
        if between is not None:
            between_pid = start_between(between, place, detours(plan))
        from bmgd.launcher.supervisor import Supervisor

        watched_pid = between_pid if between is not None else None
        supervisor = Supervisor(zygote, plan, reserved, show, flush, began_s, watched_pid)
        supervisor.cluster_file.is_ours = lambda: place.is_held_by(lock)
        return supervisor.run()
    finally:
        reserved.close()
        zygote.channel.close()
        for pid in (zygote.pid, between_pid):
            if pid >= 0:
                _end(pid)
        if lock >= 0:
            _leave(place, lock)


def _leave(place: RunDir, lock: int) -> None:
    """Leave nothing in a run directory but logs, where it is still this launch's."""
    if place.is_held_by(lock):
        # The directory may be something else by now, or take no change any more.
        with suppress(OSError):
            place.clear()
        place.remove_sockets_dir()
    os.close(lock)


def _end(pid: int) -> None:
    """Kill a child and reap it; whatever daemon the zygote has left dies with it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _age_s() -> float:
    """Seconds since this process began, to a hundredth: the interpreter's start is counted too."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - process_began_s(os.getpid()))
