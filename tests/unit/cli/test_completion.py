"""Completion, as the shells themselves give it, and manual pages, as groff reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from bmgd.cli import COMMANDS, completion, grammar, man
from bmgd.launcher.rundir import default_run_dir

DEADLINE_S = 60.0


def bash(words: list[str], directory: Path, **env: str) -> list[str]:
    """What bash offers for the last of these words."""
    script = f"""
{completion._bash()}
COMP_WORDS=({" ".join(f'"{word}"' for word in words)})
COMP_CWORD={len(words) - 1}
_bmgd
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-eu", "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", **env},
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_completion_of_bash_offers_every_command(tmp_path: Path) -> None:
    assert set(bash(["bmgd", ""], tmp_path)) == {*COMMANDS, "--help", "--version"}
    assert bash(["bmgd", "stat"], tmp_path) == ["status"]


@pytest.mark.parametrize(
    "command", [c for c in grammar.commands() if not c.verbs], ids=lambda c: c.name
)
def test_completion_of_bash_offers_every_option(command: grammar.Command, tmp_path: Path) -> None:
    flags = {flag for option in command.options for flag in option.flags}
    offered = set(bash(["bmgd", command.name, "-"], tmp_path))
    assert offered == flags


def test_completion_of_bash_knows_the_verbs_of_a_command(tmp_path: Path) -> None:
    assert {"list", "run"} <= set(bash(["bmgd", "lab", ""], tmp_path))
    assert "--json" in bash(["bmgd", "secret", "show", "--"], tmp_path)


@pytest.mark.parametrize(
    ("flag", "offered"),
    [
        *((f"--tls-{name}", {"a.pem", "own"}) for name in ("cert", "key", "ca")),
        *((f"--{name}-dir", {"own"}) for name in ("state", "flight")),
    ],
)
def test_completion_of_bash_offers_files_and_directories(
    flag: str, offered: set[str], tmp_path: Path
) -> None:
    (tmp_path / "a.pem").touch()
    (tmp_path / "own").mkdir()
    assert set(bash(["bmgd", "run", flag, ""], tmp_path)) == offered


def test_completion_of_bash_offers_the_words_of_a_choice(tmp_path: Path) -> None:
    assert bash(["bmgd", "run", "--loop", ""], tmp_path) == ["auto", "uvloop", "asyncio"]
    assert bash(["bmgd", "completion", "z"], tmp_path) == ["zsh"]


def test_completion_of_bash_offers_the_ids_of_the_local_cluster(tmp_path: Path) -> None:
    (tmp_path / "bmgd").mkdir()
    nodes = [{"id": 3, "pid": 1}, {"id": 17, "pid": 2}]
    (tmp_path / "bmgd" / "cluster.json").write_text(json.dumps({"nodes": nodes}))
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert bash(["bmgd", "status", "--id", ""], tmp_path, **runtime) == ["3", "17"]
    assert bash(["bmgd", "send", "1"], tmp_path, **runtime) == ["17"]
    words = ["bmgd", "status", "--run-dir", str(tmp_path / "bmgd"), "--id", ""]
    assert bash(words, tmp_path) == ["3", "17"]


def test_completion_of_bash_offers_files_where_a_file_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "plan.json").touch()
    assert bash(["bmgd", "chaos", "--plan", "pl"], tmp_path) == ["plan.json"]
    assert bash(["bmgd", "replay", "pl"], tmp_path) == ["plan.json"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_completion_of_zsh_is_read_by_zsh(tmp_path: Path) -> None:
    (tmp_path / "_bmgd").write_text(completion._zsh())
    script = f"""
fpath=({tmp_path} $fpath)
autoload -Uz compinit && compinit -u -d {tmp_path}/dump
source {tmp_path}/_bmgd
[[ $_comps[bmgd] = _bmgd_described ]] || exit 3
typeset -f _bmgd _bmgd_ids _bmgd_described >/dev/null || exit 4
"""
    done = subprocess.run(
        ["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_completion_of_fish_offers_commands_options_and_words(tmp_path: Path) -> None:
    path = tmp_path / "bmgd.fish"
    path.write_text(completion._fish())

    def offered(line: str) -> set[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            check=True,
        )
        return {one.split("\t")[0] for one in done.stdout.splitlines()}

    assert offered("bmgd ") >= set(COMMANDS)
    assert {"--json", "--id", "--run-dir"} <= offered("bmgd status --")
    assert offered("bmgd run --loop ") == {"auto", "uvloop", "asyncio"}


def test_man_pages_hold_every_command_and_option(tmp_path: Path) -> None:
    assert man.run(_args(tmp_path)) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "bmgd.1",
        *(f"bmgd-{name}.1" for name in COMMANDS),
    }
    for command in grammar.commands():
        text = (tmp_path / f"bmgd-{command.name}.1").read_text().replace("\\-", "-")
        for one in (command, *command.verbs):
            for option in one.options:
                assert all(flag in text for flag in option.flags), (one.name, option)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_page_has_all_of_the_help_and_the_exit_codes_of_its_command() -> None:
    pages = {command.name: man.page_of(command) for command in grammar.commands()}
    check = pages["check"].replace("\\-", "-")
    assert "Exit codes are those of monitoring plugins: 0 OK, 1 WARNING" in check
    assert ".TP\n.B 2\nCRITICAL" in check
    assert "usage" not in check[check.index("EXIT STATUS") :]
    assert ".TP\n.B 2\nusage" in pages["status"]
    assert "Keys: q ends" in pages["top"]
    for name, page in pages.items():
        description = page[page.index(".SH DESCRIPTION") :]
        for paragraph in (grammar.parser_of(name).description or "").split("\n\n"):
            assert man._escape(" ".join(paragraph.split())) in description


@pytest.mark.parametrize("runtime", [None, "/run/user/4711"])
def test_man_pages_are_for_every_user_whoever_has_written_them(
    monkeypatch: pytest.MonkeyPatch, runtime: str | None
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    for command in grammar.commands():
        page = man.page_of(command).replace("\\-", "-")
        assert default_run_dir() not in page
        assert "run directory of a local" not in page or "XDG_RUNTIME_DIR" in page


def test_man_pages_are_read_by_groff_without_a_warning() -> None:
    for command in grammar.commands():
        done = subprocess.run(
            ["groff", "-man", "-Tascii", "-ww", "-z"],
            input=man.page_of(command),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        assert done.stderr == "", command.name


def _args(directory: Path) -> Namespace:
    return Namespace(command=None, out=str(directory))
