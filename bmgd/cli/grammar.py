"""What can be typed after `bmgd`, read from the commands' parsers: for completion and manual pages."""

from __future__ import annotations

import importlib
from argparse import SUPPRESS, Action, ArgumentParser, _SubParsersAction
from dataclasses import dataclass
from typing import Final

from bmgd.cli import COMMANDS
from bmgd.launcher.rundir import default_run_dir

DIRECTORIES: Final = frozenset({"DIR", "state-dir", "flight-dir"})
"""Metavars, and names of options, whose value is a directory."""
PATHS: Final = DIRECTORIES | {
    *("FILE", "TOML", "PLAN", "config", "secret-file", "http-token-file"),
    *("tls-cert", "tls-key", "tls-ca"),
}
"""The same of those whose value is any path."""

RUN_DIR: Final = "$XDG_RUNTIME_DIR/bmgd, else /tmp/bmgd-UID"
"""The default run directory, of any user."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option or positional argument.

    Args:
        flags: as they are typed; () for a positional argument.
        value: what the value is called; "" for a switch.
        choices: the words that the value can be; () for any.
        text: its help, one line.
        many: whether a positional argument can be given several times.
        needed: whether it must be given.
    """

    flags: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    text: str
    many: bool = False
    needed: bool = False

    @property
    def is_path(self) -> bool:
        """Whether its value is a file or directory."""
        return not PATHS.isdisjoint(self._names)

    @property
    def is_directory(self) -> bool:
        """Whether its value is a directory."""
        return not DIRECTORIES.isdisjoint(self._names)

    @property
    def _names(self) -> set[str]:
        return {self.value, *(flag.lstrip("-") for flag in self.flags)}

    @property
    def is_node(self) -> bool:
        """Whether its value is a node id of the local cluster."""
        return "--id" in self.flags or (not self.flags and self.value in ("DEST", "ID", "I"))


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or one verb of a command that has several.

    Args:
        name: as it is typed, ``status`` or ``lab run``.
        summary: one line.
        description: the module's docstring; a paragraph a line.
        epilog: what its help ends with.
        exits: its exit codes, if they are not those of all; else empty.
        options, arguments: what can follow it.
        verbs: its own commands.
    """

    name: str
    summary: str
    description: str
    epilog: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    verbs: tuple[Command, ...] = ()
    exits: tuple[tuple[str, str], ...] = ()


def parser_of(name: str) -> ArgumentParser:
    """The parser of a command, as `bmgd.cli.main` makes it."""
    module = importlib.import_module(f"bmgd.cli.{name}")
    parser = ArgumentParser(prog=f"bmgd {name}", description=module.__doc__, allow_abbrev=False)
    module.configure(parser)
    return parser


def commands() -> tuple[Command, ...]:
    """All commands, in the order of the help."""
    return tuple(_command(name, text, parser_of(name)) for name, text in COMMANDS.items())


def _command(name: str, summary: str, parser: ArgumentParser) -> Command:
    options, arguments, verbs = [], [], []
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for verb, inner in action.choices.items():
                verbs.append(_command(f"{name} {verb}", texts.get(verb, ""), inner))
        elif action.help == SUPPRESS:
            continue
        elif action.option_strings:
            options.append(_option(parser, action))
        else:
            arguments.append(_option(parser, action))
    return Command(
        name,
        summary,
        "\n".join(" ".join(each.split()) for each in (parser.description or "").split("\n\n")),
        " ".join((parser.epilog or "").split()),
        tuple(options),
        tuple(arguments),
        tuple(verbs),
        parser.get_default("exits") or (),
    )


def _option(parser: ArgumentParser, action: Action) -> Option:
    takes = action.nargs != 0
    value = ""
    if takes:
        metavar = action.metavar if isinstance(action.metavar, str) else None
        value = metavar or (action.dest if not action.option_strings else action.dest.upper())
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    # What one user writes down, others read.
    text = text.replace(default_run_dir(), RUN_DIR)
    return Option(
        tuple(action.option_strings),
        value,
        _choices(action),
        " ".join(text.split()),
        many=action.nargs in ("*", "+"),
        needed=action.required and action.nargs != "*",
    )


def _choices(action: Action) -> tuple[str, ...]:
    from bmgd.config import CHOICES

    if action.choices is not None:
        return tuple(map(str, action.choices))
    return CHOICES.get(action.dest, ()) if action.option_strings else ()
