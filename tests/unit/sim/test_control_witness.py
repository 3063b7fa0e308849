"""The simulator's own writer of control frames agrees with the codec, though neither knows the other."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.errors import ProtocolError
from bmgd.sim.witness.control import KINDS, any_body, written
from bmgd.wire import control

LONG = b"x" * (control.SHORT_BODY_BYTES + 1)
NUMBERS = [-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63), 2**64 - 1]
MANY = {f"field{number}": number for number in range(16)}
FRAMES = [
    (control.Request(1, "ping", MANY), ("ping", MANY)),
    (control.Result(2, [1, None]), ([1, None],)),
    (control.Result(2, NUMBERS), (NUMBERS,)),
    (
        control.Failure(3, "DeadError", "gone", {"sent": True}),
        ("DeadError", "gone", {"sent": True}),
    ),
    (control.Item(4, {"count": 1, "body": LONG}), ({"count": 1, "body": LONG},)),
    (control.End(5), ("", "")),
    (control.End(6, "DeadError", "gone", {"sent": False}), ("DeadError", "gone", {"sent": False})),
    (control.Consumed(7, 2**48), (2**48,)),
    (control.Cancel(8), ()),
    (control.PutSegment(9, 1, 3, 0, 1.5, b"head", LONG), (1, 3, 0, 1.5, b"head" + LONG)),
    (control.Withdraw(10, 0), (0,)),
    (control.Close(11), ()),
    (control.ConsumedPieces(12, 1, 2), (1, 2)),
    (control.Settled(13, 0, [1, 2**64 - 1]), (0, [1, 2**64 - 1])),
    (control.ConsumedBroadcasts(2**64 - 1, 1024), (1024,)),
]


@pytest.mark.parametrize(("frame", "elements"), FRAMES, ids=lambda value: type(value).__name__)
def test_control_witness_writes_what_the_codec_writes(
    frame: control.Frame, elements: tuple[object, ...]
) -> None:
    assert written(type(frame).__name__, frame.sequence, elements) == control.encode(frame)


def test_control_witness_knows_every_kind_of_the_codec() -> None:
    assert {kind.__name__: number for kind, number in control._KINDS.items()} == KINDS


@pytest.mark.parametrize("seed", range(20))
def test_control_witness_and_codec_agree_on_what_is_malformed(seed: int) -> None:
    random = Random(seed)
    for _ in range(300):
        body, sequence, elements = any_body(random)
        try:
            frame = control.decode(body)
        except ProtocolError:
            assert elements is None, body.hex()
        else:
            assert elements is not None, body.hex()
            assert frame.sequence == sequence
