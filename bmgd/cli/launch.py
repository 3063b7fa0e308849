"""Run a cluster of local daemons until Ctrl-C; start one of them again, or add some."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bmgd.errors import ConfigError
from bmgd.launcher.rundir import default_run_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bmgd.launcher.detour import Detour

# The line for "ended" says it all.
_TWICE_TOLD = frozenset({"ending", "exit"})
_SHARED = (
    "cluster",
    "healing",
    "reconstruction",
    "quorum",
    "on_declared_dead",
    "profile",
    "loop",
    "log_level",
    "log_format",
    "secret_file",
    "control_group",
    "control_readonly",
    "flight_bytes",
    "flight_dir",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "tls_ids",
    "state_dir",
    "http_token_file",
)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("-n", dest="count", metavar="N", help="how many daemons")
    parser.add_argument(
        "--run-dir", metavar="DIR", default=default_run_dir(), help="default: %(default)s"
    )
    parser.add_argument("--base-port", metavar="P", help="port of daemon 0 (default: free ones)")
    parser.add_argument(
        "--http", metavar="PORT", help="serve the page: of daemon I at 127.0.0.1:PORT+I"
    )
    parser.add_argument(
        "--fault-proxy",
        action="store_true",
        help="links go through a proxy that bmgd chaos controls",
    )
    parser.add_argument("--restart", metavar="I", help="start a daemon of a running cluster again")
    parser.add_argument("--grow", metavar="K", help="add K daemons to a running cluster")
    parser.add_argument(
        "--config", metavar="TOML", help="a file with keys of bmgd run and [timing]"
    )
    parser.add_argument(
        "--without-secret",
        action="store_true",
        help="make no secret: every user of this machine can join the cluster",
    )
    parser.add_argument("--json", action="store_true", help="print every event as JSON")
    for key in _SHARED:
        parser.add_argument("--" + key.replace("_", "-"), help="as in bmgd run")


def run(args: Namespace) -> int:
    """Launch a cluster, or restart one daemon."""
    if args.restart is not None:
        return _ask(args, "--restart")
    if args.grow is not None:
        return _ask(args, "--grow")
    if args.count is None:
        raise ConfigError("how many daemons? give -n N")
    from bmgd.launcher.launch import launch
    from bmgd.launcher.lines import Lines
    from bmgd.launcher.plan import LAUNCH_MAX
    from bmgd.launcher.planning import Wanted

    count = _whole(args.count, "-n")
    if not 1 <= count <= LAUNCH_MAX:
        raise ConfigError(f"-n must be in 1..{LAUNCH_MAX}, not {count}")
    wanted = Wanted(
        count,
        base_port=None if args.base_port is None else _whole(args.base_port, "--base-port"),
        http_port=None if args.http is None else _whole(args.http, "--http"),
        flags={key: getattr(args, key) for key in _SHARED},
        toml_path=args.config,
        with_secret=not args.without_secret,
    )
    text = _json if args.json else _text
    now_s = 0.0
    lines = Lines(
        sys.stdout.fileno(), lambda n: text({"event": "left out", "lines": n, "at": now_s})
    )

    def show(event: dict[str, Any]) -> None:
        nonlocal now_s
        now_s = event["at"]
        if args.json or event["event"] not in _TWICE_TOLD:
            # What the launcher itself says is little, and what others wait for.
            lines.add(text(event), must="id" not in event)

    try:
        return launch(
            wanted,
            args.run_dir,
            show=show,
            flush=lines.flush,
            between=_proxy if args.fault_proxy else None,
        )
    finally:
        with suppress(BrokenPipeError):
            lines.finish()


def _proxy(path: str, detours: Sequence[Detour]) -> int:
    # Imported in the process that needs it: the launcher itself stays small.
    from bmgd.trials.proxy import run_proxy

    return run_proxy(path, detours)


def _ask(args: Namespace, flag: str) -> int:
    if args.count is not None:
        raise ConfigError(f"give either -n or {flag}")
    if flag == "--restart":
        from bmgd.cli.restart import restart

        return restart(args.run_dir, _whole(args.restart, flag), as_json=args.json)
    from bmgd.cli.grow import grow

    return grow(args.run_dir, _whole(args.grow, flag), as_json=args.json)


def _whole(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ConfigError(f"{flag} must be a whole number, not {text!r}")
    return int(text)


def _json(event: dict[str, Any]) -> str:
    import json

    return json.dumps(event, separators=(",", ":"))


def _text(event: dict[str, Any]) -> str:
    kind, node = event["event"], event.get("id")
    if kind == "up":
        return f"ready: {event['daemons']} daemons joined in {event['at']:.3f} s"
    # Until it has an id, a joiner has a number below 0.
    who = "" if node is None else f"node {node}" if node >= 0 else f"joiner {-node}"
    match kind:
        case "listening":
            text = f"{who} listens"
        case "ready":
            text = f"{who} joined"
        case "notice":
            text = f"{who} hears that node {event['peer']} is {event['status']}"
        case "ended":
            from bmgd.launcher.daemons import how_ended

            text = f"{who} {how_ended(event['code'])} (pid {event['pid']})"
        case _:
            known = ("event", "id", "at", "at_ns")
            given = {k: v for k, v in event.items() if k not in known and v not in (None, "")}
            rest = [f"{key}={value}" for key, value in given.items()]
            text = " ".join([f"{who} {kind}".strip(), *rest])
    return f"{event['at']:8.3f} s  {text}"
