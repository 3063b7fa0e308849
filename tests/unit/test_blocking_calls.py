"""The client without asyncio has what the other has, by the same names and with the same arguments."""

from __future__ import annotations

import inspect

import pytest

import bmgd
from bmgd import blocking

_NOT_OF_PROGRAMS = {"abandon", "close", "until_open"}
"""What leaving the block of a stream does."""


def public(kind: type) -> dict[str, object]:
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: each for name, each in found.items() if name not in _NOT_OF_PROGRAMS}


@pytest.mark.parametrize("name", ["Daemon", "Writer"])
def test_blocking_client_has_every_call_with_the_same_arguments(name: str) -> None:
    theirs, own = public(getattr(bmgd, name)), public(getattr(blocking, name))
    assert own.keys() == theirs.keys()
    for call, each in theirs.items():
        if inspect.isfunction(each):
            wanted = inspect.signature(each).parameters.values()
            given = inspect.signature(getattr(blocking, name).__dict__[call]).parameters.values()
            assert [(p.name, p.kind, p.default) for p in given] == [
                (p.name, p.kind, p.default) for p in wanted
            ], call
