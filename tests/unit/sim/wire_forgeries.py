"""What no simulated network carries: frames that are not what their messages say."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from bmgd.errors import ProtocolError
from bmgd.sim.checkers.frames import EVERY, FIRST, FramesMeanWhatTheySay
from bmgd.sim.checkers.malformed import BadInputEndsItsOwnLink
from bmgd.sim.gonewrong import Listener
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.link_messages import Ping
from bmgd.wire.messages import Message

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


def malformed_frame_that_is_read(f: Forger) -> None:
    """A codec that reads whatever comes."""

    def lenient(body: bytes) -> Message:
        try:
            return decode(body)
        except ProtocolError:
            return PING

    listener = _listener(f)
    listener._events._decode = lenient
    for _ in range(50):
        listener.hear()


def good_frame_that_is_refused(f: Forger) -> None:
    listener = _listener(f)
    for _ in range(100):
        listener.hear()
    assert f.scene.violations == []
    listener._events._decode = _refuse
    for _ in range(50):
        listener.hear()


def _refuse(body: bytes) -> Message:
    raise ProtocolError(f"a frame of {len(body)} bytes")


def _listener(f: Forger) -> Listener:
    [checker] = [c for c in f.scene.checkers if isinstance(c, BadInputEndsItsOwnLink)]
    return Listener(Random(1), lambda text: checker.violate(f.journal, text))


FORGERIES_OF_WIRES: list[tuple[str, Callable[[Forger], None]]] = [
    ("frames-mean-what-they-say", frame_of_another_message),
    ("frames-mean-what-they-say", frame_that_is_read_otherwise),
    ("frames-mean-what-they-say", frame_with_a_wrong_length),
    ("frames-mean-what-they-say", frame_in_a_longer_form),
    ("frames-mean-what-they-say", later_frame_of_another_message),
    ("bad-input-ends-its-own-link", malformed_frame_that_is_read),
    ("bad-input-ends-its-own-link", good_frame_that_is_refused),
]
