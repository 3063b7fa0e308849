"""Who may import whom. Imports point down only; docs/architecture.md draws the same order.

Every import counts, also one inside a function: written late it is for speed, not for a way around.
Imports that only the type checker reads (under `if TYPE_CHECKING`) obey the layers too.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import bmgd

PACKAGE: Final = Path(bmgd.__file__).parent

LAYERS: Final[tuple[tuple[str, ...], ...]] = (
    ("dataclass", "errors", "printable", "transports", "version"),
    ("types",),
    ("frameheader", "peers"),
    ("profiles", "policy", "secret"),
    ("config",),
    ("config_files",),
    ("config_sources",),
    ("topology",),
    ("_fastroute", "_labroutes"),
    ("_engine",),
    ("routing",),
    ("healing", "readiness"),
    ("wire",),
    ("linklayer",),
    ("client",),
    ("blocking",),
    ("chaos",),
    ("core",),
    ("linkevents",),
    ("flight",),
    ("shell", "sim"),
    ("launcher",),
    ("trials",),
    ("lab",),
    ("cli",),
    ("__main__",),
)
"""From the bottom up; rooms of one layer do not know each other."""

OF_THE_CORE: Final = (
    *("membership", "forwarding", "neighbors", "joining", "topics", "streams", "broadcast"),
)
"""The rooms of the core, from the bottom up. What stands beside them is what all of them know
(commands, context, effects, events, links, timers), or what puts them together."""

OUTSIDE: Final = {
    "msgpack": {
        "bmgd.wire.batch",
        "bmgd.wire.codec",
        "bmgd.wire.control",
        "bmgd.wire.packing",
        "bmgd.wire.unpacking",
    },
    "uvloop": {"bmgd.shell.run", "bmgd.launcher.launch", "bmgd.trials.proxy"},
    "psutil": {"bmgd.cli.status"},
}
"""The third-party packages, and the modules that may import them; uvloop and psutil only late."""

OF_CORE: Final = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "hashlib",
    "heapq",
    "itertools",
    "operator",
    "random",
    "struct",
    "typing",
}
"""What the core may take from the standard library: nothing that reads a clock, a file or a socket."""

CLIENT_LAYERS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "arguments",
        "backlog",
        "broadcast_credit",
        "calls",
        "deadlines",
        "forked",
        "items",
        "line",
        "thread_calls",
    ),
    (
        *("broadcast_pieces", "daemon_socket", "file_payload", "long_multicasts", "loop_thread"),
        *("lasting", "turns", "underway"),
    ),
    ("connection",),
    ("connecting",),
    ("reconnecting",),
    ("to_many",),
    ("putting",),
    ("outgoing",),
    ("kept_streams", "questions", "writing"),
    ("inbox",),
    ("replying",),
    ("message",),
    ("long_broadcasts", "long_messages"),
    ("reading",),
    ("draining", "programs"),
    ("program_stream", "requesting", "sending"),
    ("showing",),
    ("daemon",),
    ("",),
)
"""The modules of the client, from the bottom up; "" is the package with the public names."""

HELLO_NAMES_OF_CORE: Final = {"Refusal", "MISCONFIGURED"}

NOT_OF_CORE: Final = {
    f"bmgd.wire.{name}"
    for name in (
        "batch",
        "codec",
        "control",
        "fields",
        "link_formats",
        "stream_formats",
        "ask_formats",
        "broadcast_formats",
    )
}

_LATE = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Import:
    """One import statement's one name.

    Args:
        by: the module that it stands in, such as ``bmgd.core.node``.
        module: what it imports, or imports from.
        name: the name that it takes from it; "" for the module itself.
        late: whether it stands in a function.
        typing: whether only the type checker reads it.
        line: where.
    """

    by: str
    module: str
    name: str
    late: bool
    typing: bool
    line: int

    @property
    def target(self) -> str:
        """The module that is meant: ``from bmgd import errors`` imports ``bmgd.errors``."""
        full = f"{self.module}.{self.name}"
        return full if self.name and _is_module(full) else self.module

    def __str__(self) -> str:
        return f"{self.by}, line {self.line}: {self.module} {self.name}".rstrip()


def _is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return any((path.is_dir(), path.with_suffix(".py").exists(), path.with_suffix(".pyi").exists()))


def _module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports_in(source: str, by: str) -> list[Import]:
    """Every import in a module's source."""
    found: list[Import] = []

    def visit(node: ast.AST, late: bool, typing: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(by, a.name, "", late, typing, node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{by}, line {node.lineno}: a relative import"
            module = node.module or ""
            found.extend(Import(by, module, a.name, late, typing, node.lineno) for a in node.names)
        elif isinstance(node, ast.If) and _is_type_checking(node):
            for for_checker in node.body:
                visit(for_checker, late, True)
            for otherwise in node.orelse:
                visit(otherwise, late, typing)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, late or isinstance(node, _LATE), typing)

    visit(ast.parse(source), False, False)
    return found


def _all_imports() -> list[Import]:
    return [
        found
        for path in sorted(PACKAGE.rglob("*.py"))
        for found in imports_in(path.read_text(encoding="utf-8"), _module_name(path))
    ]


IMPORTS: Final = _all_imports()


def room_of(module: str) -> str:
    """The room of a module of this package; "" for the package itself."""
    return module.removeprefix("bmgd").removeprefix(".").partition(".")[0]


def layer_of(room: str) -> int:
    """The number of a room's layer, from the bottom."""
    return next(number for number, rooms in enumerate(LAYERS) if room in rooms)


def is_own(module: str) -> bool:
    """Whether a module is of this package."""
    return module.partition(".")[0] == "bmgd"


def is_allowed(found: Import) -> bool:
    """Whether an import points down, or stays within its room."""
    by, target = room_of(found.by), room_of(found.target)
    if target == "":
        # The package holds the version and the public names, and imports nothing by itself.
        return found.late and by == "cli"
    return by == target or layer_of(target) < layer_of(by)


def test_layers_have_a_place_for_every_room() -> None:
    rooms = {room_of(_module_name(path)) for path in PACKAGE.rglob("*.py")} - {""}
    placed = [room for rooms_of_layer in LAYERS for room in rooms_of_layer]
    assert len(placed) == len(set(placed))
    assert rooms <= set(placed)


@pytest.mark.parametrize("room", [room for rooms in LAYERS for room in rooms])
def test_layers_are_imported_downwards_only(room: str) -> None:
    wrong = [
        str(found)
        for found in IMPORTS
        if room_of(found.by) == room and is_own(found.target) and not is_allowed(found)
    ]
    assert wrong == []


def test_layers_reader_finds_imports_wherever_they_stand() -> None:
    source = """
import bmgd.core.node
from bmgd import errors
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from bmgd.shell import daemon
else:
    import json
class C:
    async def f(self):
        if True:
            import psutil as p
"""
    found = {(f.target, f.late, f.typing) for f in imports_in(source, "bmgd.wire.codec")}
    assert found == {
        ("bmgd.core.node", False, False),
        ("bmgd.errors", False, False),
        ("typing", False, False),
        ("bmgd.shell.daemon", False, True),
        ("json", False, False),
        ("psutil", True, False),
    }
    upwards = [f.target for f in imports_in(source, "bmgd.wire.codec") if is_own(f.target)]
    allowed = [
        f.target
        for f in imports_in(source, "bmgd.wire.codec")
        if is_own(f.target) and is_allowed(f)
    ]
    assert set(upwards) - set(allowed) == {"bmgd.core.node", "bmgd.shell.daemon"}


def test_layers_package_itself_imports_nothing_but_types() -> None:
    by_package = [found for found in IMPORTS if found.by == "bmgd" and is_own(found.target)]
    assert by_package
    assert [str(found) for found in by_package if not (found.late or found.typing)] == []


def test_layers_rooms_of_the_core_import_downwards_only() -> None:
    rooms = {path.name for path in (PACKAGE / "core").iterdir() if (path / "__init__.py").exists()}
    assert rooms == set(OF_THE_CORE)
    place = {f"bmgd.core.{room}": number for number, room in enumerate(OF_THE_CORE)}
    between = [
        (found, place[by], place[target])
        for found in IMPORTS
        if (by := found.by.rpartition(".")[0]) in place
        and (target := found.target.rpartition(".")[0]) in place
    ]
    assert between
    assert [str(found) for found, by, target in between if by < target] == []


def test_layers_core_takes_nothing_with_a_clock_or_a_socket() -> None:
    taken = {f.module.partition(".")[0] for f in IMPORTS if room_of(f.by) == "core"}
    assert taken - {"bmgd"} - OF_CORE == set()


def test_layers_core_takes_the_type_of_random_and_no_function_of_it() -> None:
    of_random = [f for f in IMPORTS if room_of(f.by) == "core" and f.module == "random"]
    assert of_random
    assert {found.name for found in of_random} == {"Random"}


def test_layers_core_makes_no_random_source_of_its_own() -> None:
    for path in sorted((PACKAGE / "core").rglob("*.py")):
        calls = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        assert not [call for call in calls if ast.unparse(call.func) == "Random"], path.name


def test_layers_core_knows_no_bytes() -> None:
    of_core = [found for found in IMPORTS if room_of(found.by) == "core"]
    assert [str(found) for found in of_core if found.target in NOT_OF_CORE] == []
    hello = {found.name for found in of_core if found.target == "bmgd.wire.hello"}
    assert hello <= HELLO_NAMES_OF_CORE


def test_layers_pure_rooms_take_nothing_with_a_clock_or_a_socket() -> None:
    taken = {
        f.module.partition(".")[0]
        for f in IMPORTS
        if room_of(f.by) in ("errors", "types", "peers", "topology", "healing", "linklayer")
    }
    assert taken - {"bmgd", "re", "math", "functools", "importlib"} - OF_CORE == set()


def test_layers_laboratory_reaches_only_the_pure_rooms() -> None:
    rooms = {room_of(f.target) for f in IMPORTS if room_of(f.by) == "lab" and is_own(f.target)}
    assert rooms <= {
        "lab",
        "errors",
        "types",
        "frameheader",
        "topology",
        "_labroutes",
        "routing",
        "healing",
    }


def test_layers_client_knows_neither_core_nor_shell() -> None:
    of_client = [f for f in IMPORTS if room_of(f.by) in ("client", "blocking")]
    rooms = {room_of(found.target) for found in of_client if is_own(found.target)} - {""}
    assert rooms <= {
        *("blocking", "client", "config", "errors", "routing", "transports", "types", "wire"),
    }


def test_layers_client_modules_are_imported_downwards_only() -> None:
    number = {name: at for at, names in enumerate(CLIENT_LAYERS) for name in names}

    def layer(module: str) -> int:
        return number[module.removeprefix("bmgd.client").removeprefix(".")]

    within = [f for f in IMPORTS if room_of(f.by) == room_of(f.target) == "client"]
    assert {layer(found.by) for found in within}
    assert [str(found) for found in within if layer(found.target) >= layer(found.by)] == []


def test_layers_know_no_other_third_party_package() -> None:
    foreign = {
        found.module.partition(".")[0]
        for found in IMPORTS
        if found.module.partition(".")[0] not in sys.stdlib_module_names
        and not is_own(found.module)
    }
    assert foreign <= set(OUTSIDE)


@pytest.mark.parametrize("package", OUTSIDE)
def test_layers_third_party_package_is_imported_only_where_it_belongs(package: str) -> None:
    imports = [found for found in IMPORTS if found.module.partition(".")[0] == package]
    assert {found.by for found in imports} == OUTSIDE[package]
    if package != "msgpack":
        assert [str(found) for found in imports if not found.late] == []
