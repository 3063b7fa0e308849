"""Print the manual page of a command, or write the pages of all into a directory."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import Final

from bmgd.cli import COMMANDS
from bmgd.cli.grammar import Command, Option, commands
from bmgd.errors import ConfigError
from bmgd.version import VERSION

_EXIT: Final = (
    ("0", "done"),
    ("1", "failed"),
    ("2", "usage: the command line, a variable or a file cannot be used"),
    ("3", "no daemon there"),
    ("4", "timed out, or done in part"),
    ("130", "ended by Ctrl-C"),
)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "command",
        nargs="?",
        choices=list(COMMANDS),
        metavar="COMMAND",
        help="only the page of this command",
    )
    parser.add_argument("--out", metavar="DIR", help="write all pages there, bmgd.1 and bmgd-*.1")
    parser.epilog = "To read one: bmgd man send | man -l -"


def run(args: Namespace) -> int:
    """Print, or write."""
    pages = {"bmgd.1": _overview(), **{f"bmgd-{c.name}.1": page_of(c) for c in commands()}}
    if args.out is None:
        print(pages["bmgd.1" if args.command is None else f"bmgd-{args.command}.1"], end="")
        return 0
    if args.command is not None:
        raise ConfigError("--out writes all pages: give either it or a command")
    try:
        os.makedirs(args.out, exist_ok=True)
        for name, text in pages.items():
            with open(os.path.join(args.out, name), "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write to {args.out}: {error.strerror}") from None
    print(f"{len(pages)} pages are in {args.out}")
    return 0


def page_of(command: Command) -> str:
    """The manual page of one command, in the man macros."""
    title = f"bmgd-{command.name}"
    lines = [
        *_head(title, f"{title} - {command.summary}"),
        ".SH SYNOPSIS",
        *_synopsis(command),
        ".SH DESCRIPTION",
        *"\n.PP\n".join(map(_escape, command.description.split("\n"))).split("\n"),
    ]
    for verb in command.verbs:
        lines += [f'.SS "bmgd {_escape(verb.name)}"', _escape(verb.summary), *_options(verb)]
    if command.options or command.arguments:
        lines += [".SH OPTIONS", *_options(command)]
    if command.epilog:
        lines += [".SH NOTES", _escape(command.epilog)]
    return (
        "\n".join([*lines, *_exit(command.exits or _EXIT), ".SH SEE ALSO", ".BR bmgd (1)"]) + "\n"
    )


def _overview() -> str:
    lines = [
        *_head("bmgd", "bmgd - join the hosts of a cluster into a self-healing binomial graph"),
        ".SH SYNOPSIS",
        ".B bmgd",
        ".I COMMAND",
        "[ARGUMENT ...]",
        ".SH COMMANDS",
    ]
    for name, text in COMMANDS.items():
        lines += [".TP", f".BR bmgd\\-{name} (1)", _escape(text)]
    return "\n".join([*lines, *_exit(_EXIT)]) + "\n"


def _head(title: str, name: str) -> list[str]:
    return [
        f'.TH "{_escape(title.upper())}" 1 "" "bmgd {VERSION}" "bmgd"',
        ".SH NAME",
        _escape(name).replace(" \\- ", " \\- ", 1),
    ]


def _synopsis(command: Command) -> list[str]:
    lines = []
    for one in command.verbs or (command,):
        words = [f".B bmgd {_escape(one.name)}\n[OPTION ...]"]
        for argument in one.arguments:
            word = argument.value + (" ..." if argument.many else "")
            words.append(word if argument.needed else f"[{word}]")
        lines += ["\n".join(words), ".br"]
    return lines[:-1]


def _options(command: Command) -> list[str]:
    lines = []
    for option in (*command.arguments, *command.options):
        lines += [".TP", _name(option), _escape(option.text) or "\\&"]
    return lines


def _name(option: Option) -> str:
    if not option.flags:
        return f".I {_escape(option.value)}"
    flags = ", ".join(f"\\fB{_escape(flag)}\\fR" for flag in option.flags)
    return f"{flags} \\fI{_escape(option.value)}\\fR" if option.value else flags


def _exit(codes: tuple[tuple[str, str], ...]) -> list[str]:
    lines = [".SH EXIT STATUS"]
    for code, text in codes:
        lines += [".TP", f".B {code}", _escape(text)]
    return lines


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    # A line that begins with a point or a quote would be a request.
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
