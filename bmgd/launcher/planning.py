"""From what a launch is asked for to what its daemons are told: ports, configuration, secret."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from bmgd.dataclass import dataclass
from bmgd.errors import ConfigError, LaunchError
from bmgd.launcher.detour import Detour
from bmgd.launcher.plan import LAUNCH_MAX, Plan
from bmgd.launcher.ports import FIRST_PORT, ReservedPorts
from bmgd.launcher.rundir import RunDir
from bmgd.types import NodeId

HTTP_SPARES: Final = 64
"""Behind the founders' HTTP ports so many stay free for those of joiners."""
SPARES: Final = 16
"""So many joiners are reached through the process between the daemons; further ones directly."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launch is asked for.

    Args:
        count: how many daemons, 1..`LAUNCH_MAX`.
        base_port: the port of daemon 0, or None to search for free ones.
        http_port: where daemon 0 serves HTTP, daemon i at so many above; None for nowhere.
        flags: keys of the configuration that every daemon shares.
        toml_path: a TOML file that every daemon shares, or None.
        with_secret: whether a secret is made, in the run directory, where the configuration has none.
    """

    count: int
    base_port: int | None = None
    http_port: int | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    toml_path: str | None = None
    with_secret: bool = True


def make_plan(wanted: Wanted, place: RunDir, reserved: ReservedPorts, *, split: bool) -> Plan:
    """Choose ports and read the configuration.

    Args:
        wanted: see there.
        place: the run directory; a secret is made there.
        reserved: gets the ports.
        split: whether daemons listen at other ports than those that they advertise, for what runs
            between them.

    Raises:
        LaunchError: too many daemons, or ports that are taken.
        ConfigError: a configuration that cannot be used, or ports that overlap.
    """
    from bmgd.config_sources import load

    count = wanted.count
    if not 1 <= count <= LAUNCH_MAX:
        raise LaunchError(f"a launch has 1 to {LAUNCH_MAX} daemons, not {count}")
    base = _choose_ports(wanted, reserved, split=split)
    own: dict[str, object] = {"id": 0, "size": count, "peers": f"127.0.0.1:{{{base}+id}}"}
    own |= {"listen": "", "advertise": "", "control": ""}
    chosen = {*own, "join"}
    if wanted.http_port is not None:
        own["http"] = f"127.0.0.1:{{{wanted.http_port}+id}}"
    config = load({**wanted.flags, **own}, os.environ, wanted.toml_path, not_in_file=chosen)
    if wanted.with_secret and not config.secrets:
        path, secret = place.make_secret()
        config = replace(config, secret_file=path, secrets=(secret,))
    if not split:
        return Plan(config, place)
    outside = [f"127.0.0.1:{base + i}" for i in range(count + SPARES)]
    inside = [f"127.0.0.1:{base + count + SPARES + i}" for i in range(count + SPARES)]
    ways = tuple(zip(outside, inside, strict=True))
    return Plan(config, place, tuple(inside[:count]), ways[count:])


def detours(plan: Plan) -> list[Detour]:
    """What runs between the daemons of a plan: one for each founder, then the spares."""
    founders = [
        Detour(i, plan.config.peers.address_of(NodeId(i)), listen)
        for i, listen in enumerate(plan.listen)
    ]
    return founders + [Detour(None, *spare) for spare in plan.spares]


def _choose_ports(wanted: Wanted, reserved: ReservedPorts, *, split: bool) -> int:
    """Reserve what the daemons need; returns the port of daemon 0."""
    count, http_port = wanted.count, wanted.http_port
    ports = 2 * (count + SPARES) if split else count
    _check_apart(wanted, ports)
    if http_port is not None:
        reserved.choose(count, http_port, flag="--http")
    # Away from the HTTP ports, those of joiners too: none of them is bound yet.
    pages = range(0) if http_port is None else range(http_port, http_port + count + HTTP_SPARES)
    above = max(FIRST_PORT, pages.stop)
    return reserved.choose(ports, wanted.base_port, above, pages)


def _check_apart(wanted: Wanted, ports: int) -> None:
    """Nothing is bound while ports are chosen: daemons would fail one by one where two ranges meet."""
    base, http = wanted.base_port, wanted.http_port
    if base is None or http is None:
        return
    if max(base, http) < min(base + ports, http + wanted.count):
        raise ConfigError(
            f"--base-port {base} needs the ports up to {base + ports - 1}, and --http {http} those up to"
            f" {http + wanted.count - 1}: they overlap"
        )
