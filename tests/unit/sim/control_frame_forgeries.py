"""Steps between programs and daemons of which the frames are not those of the control protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bmgd.core.commands import Subscribe, Unsubscribe
from bmgd.core.effects import Reply
from bmgd.core.events import CommandIssued
from bmgd.errors import DeadError
from bmgd.sim.checkers.control_frames import EVERY, ControlFramesMeanWhatTheySay
from bmgd.wire import control, control_errors, control_reader

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger


def _checker(f: Forger) -> ControlFramesMeanWhatTheySay:
    [checker] = [c for c in f.scene.checkers if isinstance(c, ControlFramesMeanWhatTheySay)]
    return checker


def frame_of_another_kind(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(control._KINDS, control.Cancel, control._KINDS[control.Close])
        f.step(CommandIssued(77, Unsubscribe()))


def malformed_frame_that_is_read(f: Forger) -> None:
    checker = _checker(f)
    for _ in range(300):
        checker._look_at_any(f.journal)
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(control, "_is_count", lambda value: isinstance(value, int))
        for _ in range(300):
            checker._look_at_any(f.journal)


def frame_that_is_awaited_though_it_is_too_short(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(control_reader, "BODY_BYTES_MIN", 34)
        _checker(f)._look_at_any(f.journal)


def frame_in_pieces_of_which_one_is_lost(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(control_reader.FrameReader, "feed", lambda self, data: None)
        for number in range(8):
            f.step(CommandIssued(77 + number, Subscribe("t", 1)))


def long_frame_that_there_is_no_room_for(f: Forger) -> None:
    checker = _checker(f)
    for _ in range(20):
        checker._look_at_long(f.journal)
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(control_reader.ReadBuffer, "reserve", lambda self, size: None)
        for _ in range(20):
            checker._look_at_long(f.journal)


def error_without_what_it_says_beside_its_text(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(control_errors, "fields_of", lambda error: {})
        f.deadline(*[Reply(10**6, error=DeadError(4, "killed", sent=True))] * EVERY)


FORGERIES_OF_CONTROL_FRAMES: list[tuple[str, Callable[[Forger], None]]] = [
    (ControlFramesMeanWhatTheySay.name, frame_of_another_kind),
    (ControlFramesMeanWhatTheySay.name, malformed_frame_that_is_read),
    (ControlFramesMeanWhatTheySay.name, frame_that_is_awaited_though_it_is_too_short),
    (ControlFramesMeanWhatTheySay.name, frame_in_pieces_of_which_one_is_lost),
    (ControlFramesMeanWhatTheySay.name, long_frame_that_there_is_no_room_for),
    (ControlFramesMeanWhatTheySay.name, error_without_what_it_says_beside_its_text),
]
