"""The command `bmgd`: one small module per command, and only the one that runs is imported.

A command's module has `configure(parser)`, which declares its arguments, and `run(args)`, which
returns the exit code:

    0 done    1 failed    2 usage    3 no daemon there    4 timed out or partial
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bmgd.errors import BmgdError

COMMANDS: Final = {
    "run": "run one daemon",
    "launch": "run a cluster of local daemons",
    "status": "what a daemon knows of itself and the cluster",
    "members": "what a daemon believes of every node",
    "links": "a daemon's links that are up",
    "send": "send a message to a node",
    "multicast": "send a message to some nodes",
    "broadcast": "send a message to all nodes",
    "request": "ask a program at a node, and print its answer",
    "recv": "read the messages of a topic",
    "programs": "the registered programs of all nodes",
    "ping": "measure the round trip to a node",
    "trace": "show the path to a node",
    "leave": "let a daemon leave the cluster",
    "drain": "let a daemon finish what it has, and leave",
    "restart": "start a daemon of a local cluster again",
    "grow": "add daemons to a local cluster",
    "kill": "end a daemon",
    "evict": "take a node out of the cluster",
    "reload": "let a daemon read its secrets and certificates anew",
    "secret": "make a secret file, and change the secrets in it",
    "check": "check a daemon, for monitoring: a line and an exit code",
    "top": "show all nodes as a table that follows them",
    "bench": "measure what a cluster moves",
    "monitor": "show what a daemon observes, as it happens",
    "record": "write what a daemon's flight recorder holds to a file",
    "replay": "run a daemon's core over a recording, and look into it",
    "sim": "run a cluster in virtual time and disturb it",
    "chaos": "harm a local cluster by a fault plan, and judge it",
    "demo": "launch 16 daemons, kill one, and watch the rest heal",
    "completion": "print what a shell needs to complete commands",
    "man": "print or write manual pages",
    "lab": "make the tables and figures of the papers again, and check them",
}

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NO_DAEMON: Final = 3
PARTIAL: Final = 4
INTERRUPTED: Final = 128 + 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: what follows the program's name; None takes it from `sys.argv`.

    Returns:
        The exit code.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    _take_closed_numbers()
    _escape_what_cannot_be_encoded()
    try:
        return _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED


def _take_closed_numbers() -> None:
    """Where the process was started with a standard stream closed, its number must not go to a socket."""
    if sys.stdin is None:
        # Who reads it is told, see `standard_input`.
        os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process runs)
    if sys.stderr is None:
        # What is printed to None goes to the output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _escape_what_cannot_be_encoded() -> None:
    """Names of others may have characters that this terminal's encoding has not."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(words: Sequence[str]) -> int:
    if not words or words[0] not in COMMANDS:
        return _without_command(words)
    import importlib
    from argparse import ArgumentParser

    from bmgd.errors import BmgdError

    name = words[0]
    module = importlib.import_module(f"bmgd.cli.{name}")
    parser = ArgumentParser(prog=f"bmgd {name}", description=module.__doc__, allow_abbrev=False)
    module.configure(parser)
    as_json = False
    try:
        args = parser.parse_args(words[1:])
        as_json = getattr(args, "json", False) is True
        code: int = module.run(args)
        sys.stdout.flush()
        return code
    except (BmgdError, KeyboardInterrupt, OSError, MemoryError, BaseExceptionGroup) as raised:
        # A group comes of a command that does several things at once.
        return _told(name, raised, as_json=as_json)


def _told(name: str, raised: BaseException, *, as_json: bool) -> int:
    """Say why a command ended; returns the exit code. What is a bug is raised again."""
    from bmgd.cli.output import Detailed
    from bmgd.errors import BmgdError, innermost

    match innermost(raised):
        case Detailed(error=error, fields=fields):
            return _told_error(name, error, fields, as_json=as_json)
        case BmgdError() as error:
            return _told_error(name, error, {}, as_json=as_json)
        case KeyboardInterrupt():
            if not _takes_output():
                _drop_output()
            return INTERRUPTED
        case BrokenPipeError():
            # The reader of the output has gone.
            _drop_output()
            return FAILED
        case (
            OSError(
                errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG | errno.EIO, filename=None
            ) as error
        ):
            _drop_output()
            print(f"bmgd {name}: cannot write the output: {error.strerror}", file=sys.stderr)
            return FAILED
        case OSError(errno=errno.EMFILE | errno.ENFILE) as error:
            print(f"bmgd {name}: cannot open what it needs: {error.strerror}", file=sys.stderr)
            return FAILED
        case MemoryError():
            print(f"bmgd {name}: there is not enough memory", file=sys.stderr)
            return FAILED
    raise raised


def _told_error(name: str, error: BmgdError, fields: Mapping[str, object], *, as_json: bool) -> int:
    print(f"bmgd {name}: {_one_line(error)}", file=sys.stderr)
    if as_json:
        _print_error(error, fields)
    return exit_code_of(error)


def _print_error(error: BmgdError, fields: Mapping[str, object]) -> None:
    """Say it to a program too: the last line of the output."""
    from bmgd.cli.output import print_json
    from bmgd.errors import ControlError, DeliveryError

    told: dict[str, object] = {"error": type(error).__name__, "text": _one_line(error)}
    if isinstance(error, DeliveryError) or (isinstance(error, ControlError) and error.sent):
        told["sent"] = error.sent
    try:
        print_json({**told, **fields})
    except OSError:
        # Nobody reads it, or there is no room for it: stderr has the text.
        _drop_output()


def _takes_output() -> bool:
    """Whether what is left of the output can be written: the end of the process waits for it."""
    import select

    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        # It is closed, or none of a process.
        return True
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    return poll.poll(0) == [(output, select.POLLOUT)]


def _drop_output() -> None:
    """Nothing may be written to the output when the process ends: it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(error: BmgdError) -> int:
    """The exit code that tells of an error."""
    from bmgd import errors

    match error:
        case errors.ConfigError() | errors.GraphError() | errors.PlanError():
            return USAGE
        case errors.NoDaemonError():
            return NO_DAEMON
        case errors.UnreachableError() | errors.SilentDaemonError():
            return PARTIAL
    return FAILED


def _one_line(error: BmgdError) -> str:
    from bmgd.printable import printable

    return printable(" ".join(str(error).split()))


def _without_command(words: Sequence[str]) -> int:
    from argparse import ArgumentParser, RawDescriptionHelpFormatter

    import bmgd

    lines = "\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())
    parser = ArgumentParser(
        prog="bmgd",
        usage="bmgd COMMAND [ARGUMENT ...]",
        description="Join the hosts of a cluster into a self-healing binomial graph.",
        epilog=f"commands (each has --help):\n{lines}",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bmgd {bmgd.__version__}")
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND")
    parser.parse_args(words)
    return USAGE


def entry() -> NoReturn:
    """Run one command as a process of its own."""
    if sys.argv[1:2] == ["run"]:
        from bmgd.shell import early_signals

        early_signals.hold()
    sys.exit(main())
