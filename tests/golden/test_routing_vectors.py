"""The routing vectors, which any other implementation must reproduce, in both backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bmgd import _fastroute
from bmgd.routing import reference

HERE = Path(__file__).parent

both_backends = pytest.mark.parametrize(
    "backend", [pytest.param(_fastroute, id="c"), pytest.param(reference, id="python")]
)


def vectors(name: str) -> Iterator[list[str]]:
    """The columns of each line that is neither empty nor a comment."""
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield [column.strip() for column in line.split("|")]


def numbers(column: str) -> tuple[int, ...]:
    return tuple(int(each) for each in column.split())


def pairs(column: str) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, _, b in (each.partition(":") for each in column.split())]


@both_backends
def test_hops_are_as_written_down(backend: ModuleType) -> None:
    lines = list(vectors("hops.txt"))
    assert len(lines) >= 30
    for size, distance, hops, first, every in lines:
        n, d = int(size), int(distance)
        assert backend.hop_count(n, d) == int(hops)
        assert backend.first_hop(n, d) == int(first)
        assert backend.first_hops(n, d) == numbers(every)


@both_backends
def test_links_are_chosen_as_written_down(backend: ModuleType) -> None:
    lines = list(vectors("next_links.txt"))
    assert len(lines) >= 30
    for own, space, outside, links, to, back, flow, link in lines:
        snapshot = backend.Snapshot(1, int(own), int(space), numbers(outside), pairs(links))
        assert snapshot.next_hop(int(to), int(back), int(flow)) == int(link)


@both_backends
def test_streams_are_split_as_written_down(backend: ModuleType) -> None:
    lines = list(vectors("split.txt"))
    assert len(lines) >= 8
    for own, space, outside, links, back, stream, consumed, runs, core, error in lines:
        snapshot = backend.Snapshot(1, int(own), int(space), numbers(outside), pairs(links))
        buffer = bytearray.fromhex(stream)
        answer = snapshot.split(buffer, len(buffer), int(back))
        hex_runs = [
            (link, bytes.fromhex(run)) for link, run in (r.split(":") for r in runs.split())
        ]
        assert answer == (
            int(consumed),
            [(int(link), run) for link, run in hex_runs],
            [bytes.fromhex(body) for body in core.split()],
            error or None,
        )
