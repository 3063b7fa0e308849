"""Which daemon a command talks to: ``--run-dir DIR --id I`` or ``--control ADDRESS``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Final

from bmgd.errors import ConfigError, NoDaemonError
from bmgd.launcher.rundir import default_run_dir, find_member
from bmgd.types import NODE_ID_MAX
from bmgd.wire.bounds import TOPIC_BYTES_MAX

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from bmgd.client import Daemon

_DIGITS_MAX: Final = 1000


def add_target(parser: ArgumentParser) -> None:
    """Declare the arguments that name a daemon, and ``--json``."""
    parser.add_argument(
        "--run-dir",
        metavar="DIR",
        help=f"the run directory of a local cluster (default {default_run_dir()})",
    )
    parser.add_argument("--id", type=node_id, metavar="I", help="a daemon of the local cluster")
    parser.add_argument("--control", metavar="ADDRESS", help="a daemon's socket, unix:PATH")
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_topic(parser: ArgumentParser) -> None:
    """Declare ``--topic``."""
    parser.add_argument(
        "--topic", type=topic, default="default", help="1 to 255 bytes (default: default)"
    )


def address_of(args: Namespace) -> str:
    """The control address of the daemon that the arguments name.

    Raises:
        ConfigError: they name none, two, or an id that the cluster does not have.
        NoDaemonError: no cluster runs in the run directory, or that daemon is not running.
    """
    if args.control is not None:
        if args.run_dir is not None or args.id is not None:
            raise ConfigError("give either --control or --run-dir and --id")
        return str(args.control)
    if args.id is None:
        raise ConfigError("which daemon? give --id (with --run-dir), or --control")
    member = find_member(args.run_dir or default_run_dir(), args.id)
    if member.pid is None:
        raise NoDaemonError(
            f"node {member.id} is not running: start it again with bmgd restart {member.id}"
        )
    return member.control


def connect_within(address: str, timeout_s: float) -> AbstractAsyncContextManager[Daemon]:
    """Connect to a daemon for what may take so long; it answers at first in as much, 10 s at most.

    Raises: on entry, as `bmgd.connect`.
    """
    from bmgd.client import connect
    from bmgd.client.connection import ANSWER_S

    return connect(address, timeout=min(timeout_s, ANSWER_S))


def node_id(text: str) -> int:
    """An argument that is a node id."""
    return _whole("a node id", text, 0, NODE_ID_MAX)


def seconds(text: str) -> float:
    """An argument that is a time span above 0, in seconds, at most a day."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise ArgumentTypeError(f"not a number of seconds above 0, at most 86400: {text!r}")
    return value


def seed(text: str) -> int:
    """An argument that is the seed of a plan."""
    return _whole("a seed", text, 0, 2**63 - 1)


def count(text: str) -> int:
    """An argument that is a whole number from 1 to a million."""
    return _whole("a whole number", text, 1, 1_000_000)


def topic(text: str) -> str:
    """An argument that is a topic, 1 to 255 bytes."""
    if not 1 <= len(os.fsencode(text)) <= TOPIC_BYTES_MAX:
        raise ArgumentTypeError(f"not a topic of 1 to {TOPIC_BYTES_MAX} bytes: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError(f"not a topic of valid text: {text!r}") from None
    return text


def port(text: str) -> int:
    """An argument that is a port, 1 to 65535."""
    return _whole("a port", text, 1, 65_535)


def _whole(what: str, text: str, low: int, high: int) -> int:
    # Python reads no number of thousands of digits.
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not (is_number and low <= int(text) <= high):
        raise ArgumentTypeError(f"not {what} in {low}..{high}: {text!r}")
    return int(text)
