"""What no simulated network carries: frames that are not what their messages say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bmgd.sim.checkers.frames import EVERY, FIRST, FramesMeanWhatTheySay
from bmgd.wire.codec import LENGTH_BYTES, encode
from bmgd.wire.link_messages import Ping

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PING, OTHER = Ping(200), Ping(201)


def _checker(f: Forger) -> FramesMeanWhatTheySay:
    [checker] = [c for c in f.scene.checkers if isinstance(c, FramesMeanWhatTheySay)]
    return checker


def frame_of_another_message(f: Forger) -> None:
    checker = _checker(f)
    checker.on_written(PING, encode(PING))
    assert f.scene.violations == []
    checker.on_written(PING, encode(OTHER))


def frame_that_is_read_otherwise(f: Forger) -> None:
    checker = _checker(f)
    checker.on_read(encode(PING)[LENGTH_BYTES:], PING)
    assert f.scene.violations == []
    checker.on_read(encode(PING)[LENGTH_BYTES:], OTHER)


def frame_with_a_wrong_length(f: Forger) -> None:
    _checker(f).on_written(PING, encode(PING) + b"\x00")


def frame_in_a_longer_form(f: Forger) -> None:
    body = encode(PING)[LENGTH_BYTES:-2] + b"\xcd\x00\xc8"
    _checker(f).on_written(PING, len(body).to_bytes(4, "big") + body)


def later_frame_of_another_message(f: Forger) -> None:
    checker = _checker(f)
    for _ in range(FIRST):
        checker.on_written(PING, encode(PING))
    assert f.scene.violations == []
    for _ in range(EVERY):
        checker.on_written(PING, encode(OTHER))


FORGERIES_OF_WIRES: list[tuple[str, Callable[[Forger], None]]] = [
    ("frames-mean-what-they-say", frame_of_another_message),
    ("frames-mean-what-they-say", frame_that_is_read_otherwise),
    ("frames-mean-what-they-say", frame_with_a_wrong_length),
    ("frames-mean-what-they-say", frame_in_a_longer_form),
    ("frames-mean-what-they-say", later_frame_of_another_message),
]
