"""The outbox of one link: what goes first, what is bounded, and what is left when the link is lost."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from random import Random
from socket import socket
from typing import cast

import pytest

from bmgd.shell.outbox import BULK_BYTES_MAX, CONTROL_BYTES_MAX, Outbox, frames_in


class Taker:
    """A socket that takes as many bytes as it is told to, a call at a time, then blocks.

    Args:
        allowances: how many bytes each call takes at most.
    """

    def __init__(self, allowances: Iterable[int]) -> None:
        self.taken = b""
        self._allowances = iter(allowances)

    def send(self, data: bytes | memoryview) -> int:
        allowance = next(self._allowances, 0)
        if allowance == 0:
            raise BlockingIOError
        self.taken += bytes(data[:allowance])
        return min(allowance, len(data))

    def sendmsg(self, buffers: list[bytes | memoryview]) -> int:
        return self.send(b"".join(buffers))


def frame(text: str) -> bytes:
    return len(text).to_bytes(4, "big") + text.encode()


def written(outbox: Outbox, allowances: Iterable[int]) -> bytes:
    """What a socket gets that takes so much."""
    taker = Taker(allowances)
    with suppress(BlockingIOError):
        outbox.write_to(cast(socket, taker))
    return taker.taken


def filled(*, control: tuple[str, ...] = (), bulk: tuple[str, ...] = ()) -> Outbox:
    outbox = Outbox()
    for text in bulk:
        assert outbox.put_bulk(frame(text))
    for text in control:
        assert outbox.put_control(frame(text))
    return outbox


def test_outbox_writes_control_before_bulk_and_each_in_order() -> None:
    outbox = filled(bulk=("b1", "b2"), control=("c1", "c2"))
    assert written(outbox, [10**6] * 9) == b"".join(map(frame, ("c1", "c2", "b1", "b2")))
    assert not outbox
    assert outbox.backlog_bytes == 0


def test_outbox_does_not_call_a_socket_without_anything_to_write() -> None:
    assert written(Outbox(), []) == b""


def test_outbox_finishes_a_frame_that_it_began_before_a_more_urgent_one() -> None:
    outbox = filled(bulk=("bulk-one", "bulk-two"))
    assert written(outbox, [5]) == frame("bulk-one")[:5]
    outbox.put_control(frame("urgent"))
    rest = written(outbox, [10**6] * 9)
    assert rest == frame("bulk-one")[5:] + frame("urgent") + frame("bulk-two")


def test_outbox_counts_what_waits() -> None:
    outbox = filled(bulk=("0123456789",), control=("abc",))
    assert outbox.backlog_bytes == 14 + 7
    written(outbox, [3])
    assert outbox.backlog_bytes == 14 + 4
    written(outbox, [4, 1])
    assert outbox.backlog_bytes == 13
    assert outbox


@pytest.mark.parametrize("seed", range(50))
def test_outbox_loses_and_repeats_nothing_however_little_is_taken(seed: int) -> None:
    random = Random(seed)
    outbox = Outbox()
    put: dict[str, list[bytes]] = {"control": [], "bulk": []}
    out, waiting = b"", 0
    for number in range(300):
        text = frame(f"{number}:" + "x" * random.randrange(40))
        if random.randrange(2):
            put["control"].append(text)
            outbox.put_control(text)
        else:
            put["bulk"].append(text)
            outbox.put_bulk(text)
        waiting += len(text)
        got = written(outbox, [random.randrange(60) for _ in range(random.randrange(4))])
        out += got
        waiting -= len(got)
        assert outbox.backlog_bytes == waiting
        assert bool(outbox) is (waiting > 0)
    out += written(outbox, [10**6] * 999)
    bodies = frames_in(out)
    for frames in put.values():
        mine = [run[4:] for run in frames]
        assert [body for body in bodies if body in mine] == mine
    assert len(bodies) == len(put["control"]) + len(put["bulk"])


def test_outbox_writes_more_frames_than_one_call_gathers() -> None:
    outbox = filled(control=tuple(str(number) for number in range(500)))
    assert frames_in(written(outbox, [10**6] * 99)) == [str(n).encode() for n in range(500)]


def test_outbox_passes_on_what_the_socket_raises() -> None:
    class Gone:
        def send(self, data: bytes) -> int:
            raise ConnectionResetError

    outbox = filled(control=("abc",))
    with pytest.raises(ConnectionResetError):
        outbox.write_to(cast(socket, Gone()))
    assert outbox.take_unsent() == [b"abc"]


def test_outbox_drops_and_counts_bulk_at_the_bound() -> None:
    outbox = Outbox()
    half = frame("x" * (BULK_BYTES_MAX // 2 - 4))
    assert outbox.put_bulk(half)
    assert outbox.put_bulk(half)
    assert not outbox.put_bulk(frame("a") + frame("b"))
    assert outbox.dropped_frames == 2
    assert outbox.backlog_bytes == BULK_BYTES_MAX
    assert outbox.put_control(frame("still"))
    written(outbox, [len(frame("still")), len(half)])
    assert outbox.put_bulk(frame("a"))


def test_outbox_keeps_control_and_tells_when_it_is_too_much() -> None:
    outbox = Outbox()
    half = frame("x" * (CONTROL_BYTES_MAX // 2 - 4))
    assert outbox.put_control(half)
    assert outbox.put_control(half)
    assert not outbox.put_control(frame("a"))
    assert outbox.backlog_bytes == CONTROL_BYTES_MAX + 5
    assert outbox.put_bulk(frame("bulk"))


def test_outbox_gives_back_what_was_not_begun() -> None:
    outbox = filled(bulk=("b2", "b3"), control=("c1", "c2"))
    outbox.put_bulk(frame("b4") + frame("b5"))
    written(outbox, [3])
    assert outbox.take_unsent() == [b"c2", b"b2", b"b3", b"b4", b"b5"]
    assert outbox.take_unsent() == []
    # Only the rest of the frame that was begun still waits.
    assert outbox.backlog_bytes == len(frame("c1")) - 3


def test_outbox_splits_a_run_into_its_bodies() -> None:
    assert frames_in(b"") == []
    assert frames_in(frame("") + frame("a") + frame("bc")) == [b"", b"a", b"bc"]
