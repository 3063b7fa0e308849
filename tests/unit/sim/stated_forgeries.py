"""Bounds and defaults that are not those of the pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from enum import IntEnum
from typing import TYPE_CHECKING

import pytest

from bmgd.core.commands import Subscribe
from bmgd.sim.checkers.stated import NumbersAreAsStated
from bmgd.wire import bounds, stream_messages

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger


def _look(f: Forger) -> None:
    [checker] = [c for c in f.scene.checkers if isinstance(c, NumbersAreAsStated)]
    checker.at_rest([f.journal])


def bound_that_is_not_stated(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bounds, "GAPS_MAX", 33)
        _look(f)


def default_that_is_not_stated(f: Forger) -> None:
    [credit] = [field for field in fields(Subscribe) if field.name == "credit_bytes"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(credit, "default", 1 << 21)
        _look(f)


def number_in_a_frame_that_is_not_stated(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            stream_messages, "SegmentFlag", IntEnum("SegmentFlag", {"OPEN": 1, "LAST": 9})
        )
        _look(f)


FORGERIES_OF_NUMBERS: list[tuple[str, Callable[[Forger], None]]] = [
    (NumbersAreAsStated.name, bound_that_is_not_stated),
    (NumbersAreAsStated.name, default_that_is_not_stated),
    (NumbersAreAsStated.name, number_in_a_frame_that_is_not_stated),
]
