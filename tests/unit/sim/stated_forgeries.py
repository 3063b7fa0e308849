"""Bounds, defaults and settings that are not those of the pages, or of the daemon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import pytest

from bmgd.config import Config
from bmgd.core.commands import Subscribe
from bmgd.core.settings import Settings
from bmgd.core.streams.stream_in import StreamIn
from bmgd.sim.checkers.configured import SettingsAreAsConfigured
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


def stream_that_is_full_when_it_begins(f: Forger) -> None:
    [full] = [field for field in fields(StreamIn) if field.name == "full"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(full, "default", True)
        _look(f)


def core_that_is_not_set_as_its_daemon_was_told(f: Forger) -> None:
    true = Settings.of

    def of(config: Config) -> Settings:
        return replace(true(config), refutes=False)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Settings, "of", of)
        SettingsAreAsConfigured(f.scene).on_boot(f.journal)


FORGERIES_OF_NUMBERS: list[tuple[str, Callable[[Forger], None]]] = [
    (NumbersAreAsStated.name, bound_that_is_not_stated),
    (NumbersAreAsStated.name, default_that_is_not_stated),
    (NumbersAreAsStated.name, number_in_a_frame_that_is_not_stated),
    (NumbersAreAsStated.name, stream_that_is_full_when_it_begins),
    (SettingsAreAsConfigured.name, core_that_is_not_set_as_its_daemon_was_told),
]
