"""Print what a shell needs to complete bmgd's commands: bash, zsh or fish."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace

from bmgd.cli.grammar import Command, Option, commands


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="which one")
    parser.epilog = (
        'For bash: eval "$(bmgd completion bash)" in ~/.bashrc. For zsh: bmgd completion zsh >'
        ' "${fpath[1]}/_bmgd". For fish: bmgd completion fish > ~/.config/fish/completions/bmgd.fish'
    )


def run(args: Namespace) -> int:
    """Print it."""
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](), end="")
    return 0


def _all() -> list[Command]:
    """Commands, and their verbs after them."""
    return [one for command in commands() for one in (command, *command.verbs)]


# --- bash, and zsh in its manner ------------------------------------------------------------------

_BASH = """\
# Completion of bmgd for bash; made by `bmgd completion bash`.
_bmgd_ids() {
    local dir="${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/bmgd}" at
    [ -n "$dir" ] || dir="/tmp/bmgd-$(id -u)"
    for ((at = 1; at < ${#COMP_WORDS[@]}; at++)); do
        [ "${COMP_WORDS[at]}" = --run-dir ] && dir="${COMP_WORDS[at + 1]}"
    done
    [ -r "$dir/cluster.json" ] || return 0
    grep -o '"id":[ ]*[0-9]*' "$dir/cluster.json" | grep -o '[0-9]*$'
}
_bmgd() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD - 1]}"
    local command="${COMP_WORDS[1]}" verb=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "%(names)s --help --version" -- "$word"))
        return 0
    fi
    case "$command" in
%(verbs)s
    esac
    case "$command$verb:$before" in
%(values)s
    esac
    case "$command$verb" in
%(options)s
    esac
}
complete -F _bmgd bmgd
"""


def _bash() -> str:
    every = _all()
    return _BASH % {
        "names": " ".join(command.name for command in commands()),
        "verbs": "\n".join(_verbs_case(c) for c in every if c.verbs) or "        *) ;;",
        "values": "\n".join(
            line for c in every for option in c.options for line in _value_case(c, option)
        ),
        "options": "\n".join(_options_case(c) for c in every),
    }


def _verbs_case(command: Command) -> str:
    verbs = " ".join(_verb(verb) for verb in command.verbs)
    return f"""\
        {command.name})
            if [ "$COMP_CWORD" -eq 2 ]; then
                COMPREPLY=($(compgen -W "{verbs} --help" -- "$word"))
                return 0
            fi
            verb=" ${{COMP_WORDS[2]}}" ;;"""


def _verb(command: Command) -> str:
    return command.name.split()[-1]


def _value_case(command: Command, option: Option) -> list[str]:
    if not option.value:
        return []
    found = [f'"{command.name}:{flag}"' for flag in option.flags]
    return [f"        {'|'.join(found)}) {_words(option)} return 0 ;;"]


def _words(option: Option) -> str:
    """The shell's words for the value of an option."""
    if option.choices:
        words = " ".join(option.choices)
        return f'COMPREPLY=($(compgen -W {shlex.quote(words)} -- "$word"));'
    if option.is_node:
        return 'COMPREPLY=($(compgen -W "$(_bmgd_ids)" -- "$word"));'
    if option.is_directory:
        return 'COMPREPLY=($(compgen -d -- "$word"));'
    if option.is_path:
        return 'COMPREPLY=($(compgen -f -- "$word"));'
    return ""


def _options_case(command: Command) -> str:
    flags = " ".join(flag for option in command.options for flag in option.flags)
    positional = ""
    for argument in command.arguments:
        # What stands there cannot be told apart by its place: options may come in between.
        positional = _words(argument)
        if positional:
            break
    lines = [f'        "{command.name}")']
    if positional:
        lines.append(f'            [[ "$word" == -* ]] || {{ {positional} }}')
        lines.append("            [[ ${#COMPREPLY[@]} -gt 0 ]] && return 0")
    lines.append(f'            COMPREPLY=($(compgen -W "{flags}" -- "$word")) ;;')
    return "\n".join(lines)


_ZSH = """\
#compdef bmgd
# Completion of bmgd for zsh; made by `bmgd completion zsh`.
autoload -Uz bashcompinit && bashcompinit
%s
(( $+functions[_bmgd_described] )) || _bmgd_described() {
    if (( CURRENT == 2 )); then
        local -a commands=(%s)
        _describe command commands
    else
        _bash_complete -F _bmgd
    fi
}
compdef _bmgd_described bmgd
[[ "$funcstack[1]" = _bmgd ]] && _bmgd_described "$@"
"""


def _zsh() -> str:
    names = " ".join(shlex.quote(f"{c.name}:{c.summary.replace(':', ' ')}") for c in commands())
    bash = "\n".join(line for line in _bash().splitlines() if not line.startswith("complete -F"))
    return _ZSH % (bash.partition("\n")[2], names)


# --- fish -----------------------------------------------------------------------------------------


def _fish() -> str:
    lines = [
        "# Completion of bmgd for fish; made by `bmgd completion fish`.",
        "complete -c bmgd -f",
        "complete -c bmgd -n __fish_use_subcommand -l version -d 'the version'",
    ]
    for command in commands():
        lines.append(
            f"complete -c bmgd -n __fish_use_subcommand -a {command.name}"
            f" -d {shlex.quote(command.summary)}"
        )
        seen = f"__fish_seen_subcommand_from {command.name}"
        for verb in command.verbs:
            lines.append(
                f"complete -c bmgd -n '{seen}' -a {_verb(verb)} -d {shlex.quote(verb.summary)}"
            )
        for option in (*command.options, *(o for v in command.verbs for o in v.options)):
            lines.append(_fish_option(seen, option))
        for argument in command.arguments:
            if argument.choices:
                lines.append(f"complete -c bmgd -n '{seen}' -a '{' '.join(argument.choices)}'")
            elif argument.is_path:
                lines.append(f"complete -c bmgd -n '{seen}' -F")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _fish_option(seen: str, option: Option) -> str:
    words = [f"complete -c bmgd -n '{seen}'"]
    for flag in option.flags:
        words.append(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}")
    if option.is_path:
        words.append("-r -F")
    elif option.value:
        # Nothing but these words, and no file, can follow.
        words.append("-x" if not option.choices else f"-x -a '{' '.join(option.choices)}'")
    return " ".join([*words, "-d", shlex.quote(option.text)])
