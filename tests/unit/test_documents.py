"""What the pages name is there: files, links, commands and their options, decisions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from bmgd.cli import COMMANDS
from bmgd.cli.grammar import parser_of
from bmgd.config import KEYS
from bmgd.sim.conditions import Conditions

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
BASES: Final = tuple(ROOT / base for base in (".", "bmgd", "docs"))
"""Where a path in a page begins: `core/node.py`, `tests/unit`, `results/mutants.jsonl`."""

FILE: Final = re.compile(
    r"`([\w*./-]+\.(?:py|c|h|md|toml|jsonl?|ya?ml|sh|txt|js|html|css|service))`"
)
DIRECTORY: Final = re.compile(
    r"`((?:bmgd|tests|docs|benchmarks|deploy|examples|\.ci)(?:/[\w.-]+)*/)`"
)
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
COMMAND: Final = re.compile(r"(?:^|(?<=[\s`(/]))bmgd ([a-z]+)((?: [^`\n|&;#)]*)?)", re.M)
OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
MADE: Final = ("GROUP", "build/", "dist/", "deploy/wheels")
"""What stands for a name, or is made by a command."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def code_of(page: Path) -> str:
    """The code in a page, inline and in blocks, each line of a block as one that was typed."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.S | re.M)
    blocks += re.findall(r"^(?: {4}.*\n)+", text, re.M)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    code = "\n".join([*blocks, *re.findall(r"`[^`\n]+`", rest)]).replace("\\\n", " ")
    return re.sub(r"\s# .*$", "", code, flags=re.M)


def named_files(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for pattern in (FILE, DIRECTORY):
        for path in pattern.findall(text):
            is_named = "/" in path or path.endswith((".md", ".toml"))
            if is_named and not path.startswith("/") and not any(part in path for part in MADE):
                yield path


def headings(page: Path) -> set[str]:
    """The anchors of a page, as a forge makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in found}


@cache
def options_of(command: str) -> frozenset[str]:
    """The options of a command and of its verbs, those that its help leaves out too."""
    parsers, found = [parser_of(command)], {"--help", "--version"}
    while parsers:
        for action in parsers.pop()._actions:
            found.update(action.option_strings)
            if isinstance(action.choices, dict):
                parsers.extend(action.choices.values())
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_names_files_that_exist(page: Path) -> None:
    missing = [
        path
        for path in named_files(page)
        if not any(list(base.glob(path.rstrip("/"))) for base in (*BASES, page.parent))
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_links_to_what_exists(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_names_commands_and_options_that_exist(page: Path) -> None:
    for command, arguments in COMMAND.findall(code_of(page)):
        if command == "key":
            continue  # the label of a key in the wire protocol
        assert command in COMMANDS, f"bmgd {command}"
        known = options_of(command)
        own, _, _ = arguments.partition(" -- ")
        assert [option for option in OPTION.findall(own) if option not in known] == [], command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_names_decisions_that_exist(page: Path) -> None:
    for number in re.findall(r"\bADR (\d+)", page.read_text(encoding="utf-8")):
        assert list((ROOT / "docs" / "adr").glob(f"{int(number):04d}-*.md")), f"ADR {number}"


def test_index_of_decisions_has_each_of_them() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / "docs" / "adr").glob("0*.md")}
    assert set(re.findall(r"\]\((0\d+-[\w-]+\.md)\)", index)) == files


def test_readme_leads_to_every_page() -> None:
    linked = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages - set(linked) == set()


def test_promises_name_checkers_that_the_page_of_the_simulator_has() -> None:
    checkers = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    cells = [row.split("|")[2] for row in page.splitlines() if row.count("|") == 4]
    named = {name for cell in cells for name in re.findall(r"\b[a-z]+(?:-[a-z]+)+\b", cell)}
    assert len(named) > 30
    assert [name for name in named if f"| {name} |" not in checkers] == []


def test_config_keys_of_the_operations_page_are_the_flags_of_run() -> None:
    flags = {option[2:].replace("-", "_") for option in options_of("run") if option != "-h"}
    assert flags - {"help", "version", "config"} == KEYS


def test_page_of_the_simulator_has_every_option_and_its_default() -> None:
    page = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    table = page[page.index("| option | meaning | default |") :].partition("\n\n")[0]
    said: dict[str, str] = {}
    for row in table.splitlines()[2:]:
        names, _, defaults = (cell.strip() for cell in row.strip("|").split("|"))
        values = re.findall(r"true|false|(?<![\d,])\d[\d,]*", defaults.partition(":")[0])
        said.update(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    plain = {f.name: str(getattr(Conditions(), f.name)).lower() for f in fields(Conditions)}
    assert {name: value.replace(",", "").rstrip() for name, value in said.items()} == plain


def test_docstrings_name_modules_that_stand_where_they_say() -> None:
    package = ROOT / "bmgd"
    missing = []
    for module in sorted(package.rglob("*.py")):
        for named in re.findall(r"[`(]((?:\w+/)*\w+\.py)`", module.read_text(encoding="utf-8")):
            bases = (module.parent, module.parent.parent, package, ROOT)
            if not any((base / named).exists() for base in bases):
                missing.append(f"{name_of(module)}: {named}")
    assert missing == []
