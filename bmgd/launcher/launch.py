"""From a command line to a running local cluster, as fast as it goes.

The zygote is forked before anything else is done, so that its imports (most of the time until the
first daemon) run on another core while this process prepares the rest.
"""

from __future__ import annotations

import hmac
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from bmgd.errors import ConfigError, LaunchError
from bmgd.launcher.detour import Between, Detour, start_between
from bmgd.launcher.ports import FIRST_PORT, ReservedPorts
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.zygote import LAUNCH_MAX, Load, Plan, Target, start_zygote
from bmgd.shell.process import allow_descriptors
from bmgd.shell.process_stat import process_began_s
from bmgd.types import NodeId

HTTP_SPARES = 64
"""Behind the founders' HTTP ports so many stay free for those of joiners."""
SPARES = 16
"""So many joiners are reached through the process between the daemons; further ones directly."""


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
    count: int,
    run_dir: str,
    *,
    base_port: int | None = None,
    http_port: int | None = None,
    flags: Mapping[str, object] | None = None,
    toml_path: str | None = None,
    show: Callable[[dict[str, object]], None],
    flush: Callable[[], bool],
    load: Load = load_daemon,
    between: Between | None = None,
    with_secret: bool = True,
) -> int:
    """Run a local cluster until a signal ends it. Call it early in a process, which it takes over.

    Args:
        count: how many daemons, 1..`LAUNCH_MAX`.
        run_dir: see `bmgd.launcher.rundir`.
        base_port: the port of daemon 0, or None to search for free ones.
        http_port: where daemon 0 serves HTTP, daemon i at so many above; None for nowhere.
        flags: keys of the configuration that every daemon shares.
        toml_path: a TOML file that every daemon shares, or None.
        show, flush: see `Supervisor`.
        load: gives what a daemon runs; another one for tests.
        between: what runs between the daemons, see `bmgd.launcher.detour`; it needs a second range
            of ports behind the first.
        with_secret: whether a secret is made, in the run directory, where the configuration has none.

    Returns:
        The exit code.

    Raises:
        LaunchError: the directory or ports are taken, or the cluster broke down.
        ConfigError: a configuration that cannot be used.
    """
    began_s = time.monotonic() - _age_s()
    zygote = start_zygote(load)
    # Each reserved port is one.
    allow_descriptors()
    lock = between_pid = -1
    place = RunDir.at(run_dir)
    reserved = ReservedPorts()
    try:
        lock = place.prepare()
        own_flags = dict(flags or {})
        if http_port is not None:
            own_flags["http"] = _http(count, http_port, reserved)
        split = between is not None
        ports = base_port, http_port
        plan = _plan(
            count,
            place,
            ports,
            reserved,
            own_flags,
            toml_path,
            split=split,
            with_secret=with_secret,
        )
        if between is not None:
            between_pid = start_between(between, place, _detours(plan))
        from bmgd.launcher.supervisor import Supervisor

        pid = between_pid if between is not None else None
        supervisor = Supervisor(zygote, plan, reserved, show, flush, began_s, pid)
        supervisor.cluster_file.is_ours = lambda: place.is_held_by(lock)
        return supervisor.run()
    finally:
        reserved.close()
        zygote.channel.close()
        _end(zygote.pid)
        if between_pid >= 0:
            _end(between_pid)
        if lock >= 0:
            if place.is_held_by(lock):
                # The directory may be something else by now, or take no change any more.
                with suppress(OSError):
                    place.clear()
                place.remove_sockets_dir()
            os.close(lock)


def _plan(
    count: int,
    place: RunDir,
    ports: tuple[int | None, int | None],
    reserved: ReservedPorts,
    flags: Mapping[str, object],
    toml_path: str | None,
    *,
    split: bool,
    with_secret: bool,
) -> Plan:
    from bmgd.config_sources import load

    if not 1 <= count <= LAUNCH_MAX:
        raise LaunchError(f"a launch has 1 to {LAUNCH_MAX} daemons, not {count}")
    spares = SPARES if split else 0
    base_port, http_port = ports
    # Away from the HTTP ports, those of joiners too: none of them is bound yet.
    pages = range(0) if http_port is None else range(http_port, http_port + count + HTTP_SPARES)
    above = max(FIRST_PORT, pages.stop)
    base = reserved.choose(2 * (count + spares) if split else count, base_port, above, pages)
    own = {"id": 0, "size": count, "peers": f"127.0.0.1:{{{base}+id}}"}
    own |= {"listen": "", "advertise": "", "control": ""}
    config = load({**flags, **own}, os.environ, toml_path)
    if with_secret and not config.secrets:
        path, secret = place.make_secret()
        config = replace(config, secret_file=path, secrets=(secret,))
    if not split:
        return Plan(config, place)
    outside = [f"127.0.0.1:{base + i}" for i in range(count + spares)]
    inside = [f"127.0.0.1:{base + count + spares + i}" for i in range(count + spares)]
    ways = tuple(zip(outside, inside, strict=True))
    return Plan(config, place, tuple(inside[:count]), ways[count:])


def _http(count: int, http_port: int, reserved: ReservedPorts) -> str:
    reserved.choose(count, http_port, flag="--http")
    return f"127.0.0.1:{{{http_port}+id}}"


def _detours(plan: Plan) -> list[Detour]:
    founders = [
        Detour(i, plan.config.peers.address_of(NodeId(i)), listen)
        for i, listen in enumerate(plan.listen)
    ]
    return founders + [Detour(None, *spare) for spare in plan.spares]


def _end(pid: int) -> None:
    """Kill a child and reap it; whatever daemon the zygote has left dies with it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _age_s() -> float:
    """Seconds since this process began, to a hundredth: the interpreter's start is counted too."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - process_began_s(os.getpid()))
