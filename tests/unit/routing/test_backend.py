"""Which backend serves, and that both are the same to their callers."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bmgd import _fastroute, routing
from bmgd import frameheader as header
from bmgd.errors import GraphError
from bmgd.routing import reference

ROOT = Path(routing.__file__).parents[2]
BLOCKED = "import sys; sys.modules['bmgd._fastroute'] = None; "


def imported(backend: str | None, before: str = "") -> tuple[int, str]:
    """The exit code and last line of a fresh interpreter that prints BACKEND."""
    environment = {key: value for key, value in os.environ.items() if key != "BMGD_BACKEND"}
    if backend is not None:
        environment["BMGD_BACKEND"] = backend
    code = (
        before + "from bmgd.routing import BACKEND, Snapshot; print(BACKEND, Snapshot.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()[-1]


def test_backend_is_the_extension_where_it_was_built() -> None:
    for choice in (None, "auto", "c"):
        assert imported(choice) == (0, "c bmgd._fastroute")


def test_backend_is_the_reference_on_request_and_without_the_extension() -> None:
    assert imported("python") == (0, "python bmgd.routing.reference")
    assert imported("auto", BLOCKED) == (0, "python bmgd.routing.reference")


def test_backend_c_without_the_extension_is_an_error() -> None:
    code, message = imported("c", BLOCKED)
    assert code != 0
    assert "ConfigError" in message
    assert "the extension cannot be loaded" in message


def test_backend_refuses_unknown_names() -> None:
    code, message = imported("fortran")
    assert code != 0
    assert "ConfigError: BMGD_BACKEND is 'fortran', not auto, c or python" in message


def test_both_backends_offer_what_routing_exports() -> None:
    for name in routing.__all__:
        if name != "BACKEND":
            assert callable(getattr(_fastroute, name))
            assert callable(getattr(reference, name))
    public = {name for name, _ in inspect.getmembers(reference.Snapshot) if name[0] != "_"}
    assert public == {name for name, _ in inspect.getmembers(_fastroute.Snapshot) if name[0] != "_"}


def test_both_backends_take_keyword_arguments_alike() -> None:
    for backend in (_fastroute, reference):
        snapshot = backend.Snapshot(generation=1, self_id=0, id_space=9, outside=(), links=[(1, 4)])
        assert snapshot.next_hop(destination=1, came_from=3, flow=5) == 4
        assert snapshot.split(buffer=bytearray(), end=0, came_from=-1) == (0, [], [], None)
        assert backend.hop_count(n=9, distance=3) == 2
        assert backend.neighbor_ids(self_id=0, id_space=3, outside=()) == (1, 2)


def test_arguments_that_are_missing_doubled_unknown_or_out_of_range_are_refused_in_c() -> None:
    snapshot: Any = _fastroute.Snapshot(1, 0, 9, (), [(1, 4)])
    with pytest.raises(TypeError, match="'buffer'"):
        snapshot.split(end=0, came_from=-1)
    with pytest.raises(TypeError, match="'end'"):
        snapshot.split(bytearray(), 0, end=0)
    with pytest.raises(TypeError, match="'begin'"):
        snapshot.split(bytearray(), 0, -1, begin=0)
    highest = 2**32 - 1
    assert snapshot.split(bytearray(), 0, highest) == snapshot.split(bytearray(), 0, -1)
    for came_from in (-2, highest + 1):
        with pytest.raises(GraphError, match="came_from"):
            snapshot.split(bytearray(), 0, came_from)


def test_the_header_has_the_same_numbers_in_c() -> None:
    names = [name for name in vars(_fastroute) if name.isupper()]
    assert len(names) > 20
    for name in names:
        assert getattr(_fastroute, name) == getattr(header, name), name


def test_the_header_fields_lie_where_the_offsets_say() -> None:
    packed = header.HEADER.pack(1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert header.HEADER.size == header.HEADER_BYTES == len(packed)
    fields = [
        (header.KIND_AT, 1),
        (header.FLAGS_AT, 1),
        (header.PRIORITY_AT, 1),
        (header.HOP_BUDGET_AT, 1),
        (header.DESTINATION_AT, 4),
        (header.SOURCE_AT, 4),
        (header.SOURCE_INCARNATION_AT, 8),
        (header.DESTINATION_TAG_AT, 4),
        (header.SEQUENCE_AT, 8),
    ]
    for value, (at, length) in enumerate(fields, start=1):
        assert int.from_bytes(packed[at : at + length], "big") == value
