"""Run one daemon in the foreground, until it leaves or is told to."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import Final

TEXTS: Final = {
    "id": "this node's id, 0..size-1; with --join the one that it had before",
    "size": "the number of founders",
    "join": "addresses of members to ask for an id, instead of --size and --peers",
    "peers": "where the founders are: a template such as host{id}:7400, a list, or a file",
    "listen": "the address to bind, host:port (default: the advertised one)",
    "advertise": "the address told to others (default: the one in --peers)",
    "control": "where programs reach the daemon, unix:PATH",
    "control-group": "a group whose members may use the control socket, too",
    "control-readonly": "a group whose members may look there, but change nothing",
    "cluster": "the cluster's name (default: bmgd)",
    "secret-file": "a file with the cluster's secret",
    "tls-cert": "this node's TLS certificate, and those that lead to its root",
    "tls-key": "the private key of --tls-cert",
    "tls-ca": "the roots whose certificates are trusted",
    "tls-ids": "required: a certificate must name the id, URI:bmgd:CLUSTER/ID; or optional",
    "state-dir": "a directory that keeps the incarnation over restarts",
    "healing": "when the dead leave the graph: every-death, after:K, overhead:P%%, overhead:HOPS or off",
    "reconstruction": "which links healing makes anew: adaptive (those that differ) or naive (all)",
    "quorum": "majority: the smaller side of a partition stands aside; or off",
    "on-declared-dead": "what to do when the others hold this node dead: refute or exit",
    "profile": "the numbers of detection: local, lan, wan or oversubscribed (default: lan)",
    "http": "address of the page and of /metrics, host:port (default: none)",
    "http-token-file": "a file with the token for --http; without it only loopback is served",
    "loop": "auto, uvloop or asyncio",
    "log-level": "debug, info, warning or error",
    "log-format": "text or json",
    "queue-messages": "messages that one topic holds for a reader that has not come",
    "flight-bytes": "memory of the flight recorder (default: 8388608; 0: off), see bmgd record",
    "flight-dir": "where recordings go (default: the state directory, or beside the socket)",
}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments; their values are checked by `bmgd.config_sources.load`."""
    for name, text in TEXTS.items():
        parser.add_argument(f"--{name}", help=text)
    parser.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="bind beyond loopback without a secret",
    )
    parser.add_argument(
        "--proxied",
        action="store_true",
        default=None,
        help="daemons are dialled through a proxy: a refused dial proves nothing",
    )
    parser.add_argument(
        "--flight-payloads",
        action="store_true",
        default=None,
        help="recordings hold the messages of programs, not only their lengths",
    )
    parser.add_argument("--config", metavar="TOML", help="a file with these keys and [timing]")
    parser.epilog = "A flag overrides its BMGD_* variable, which overrides the file."


def run(args: Namespace) -> int:
    """Run it."""
    import logging

    from bmgd.cli import exit_code_of
    from bmgd.config_sources import load, log_format
    from bmgd.errors import ConfigError
    from bmgd.shell.early_log import begin
    from bmgd.shell.process import set_title

    flags = vars(args)
    toml_path = flags.pop("config") or os.environ.get("BMGD_CONFIG")
    form = log_format(flags, os.environ, toml_path)
    begin(form)
    try:
        config = load(flags, os.environ, toml_path)
    except ConfigError as error:
        if form != "json":
            raise
        logging.getLogger("bmgd").error("%s", " ".join(str(error).split()))
        return exit_code_of(error)
    from bmgd.shell.run import run_daemon

    if config.join:
        set_title(f"bmgd: joining ({config.cluster})", "bmgd-joining")
    else:
        set_title(
            f"bmgd: node {config.id} of {config.size} ({config.cluster})", f"bmgd-{config.id}"
        )
    return run_daemon(config)
