"""What a launcher prints, where its reader is slow or there is none."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from bmgd.launcher import lines
from bmgd.launcher.lines import LEFT_BYTES_MAX, Lines

PIPE_BYTES = 1 << 16


class Pipe:
    """A pipe that is read when a test says so; writing to it waits, as to that of a shell."""

    def __init__(self) -> None:
        self.out, self.descriptor = os.pipe()
        self.lines = Lines(self.descriptor, lambda count: f"{count} left out")

    def read(self) -> bytes:
        """What is in it."""
        os.set_blocking(self.out, False)
        try:
            return os.read(self.out, 2 * PIPE_BYTES)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.out)
    os.close(made.descriptor)


def test_lines_come_in_order_and_whole_however_slowly_they_are_read(pipe: Pipe) -> None:
    wanted = "".join(f"{number} {'x' * (977 * number % 9000)}\n" for number in range(200)).encode()
    for line in wanted.decode().splitlines():
        pipe.lines.add(line)
    assert pipe.lines.flush(), "it would have waited"
    read = b""
    while len(read) < len(wanted):
        part = pipe.read()
        assert part, "what is left is written when it is called again"
        read += part
        pipe.lines.flush()
    assert read == wanted
    assert not pipe.lines.flush()


def test_lines_beyond_the_bound_are_left_out_and_counted_but_for_those_that_must_come(
    pipe: Pipe,
) -> None:
    long = "x" * 4095
    for _ in range(LEFT_BYTES_MAX // 4096 + 3):
        pipe.lines.add(long)
    pipe.lines.add("up", must=True)
    pipe.lines.add(long)
    read = b""
    while pipe.lines.flush():
        read += pipe.read()
    read += pipe.read()
    told = [line for line in read.decode().splitlines() if line != long]
    assert told == ["3 left out", "up", "1 left out"]
    assert len(read.splitlines()) == LEFT_BYTES_MAX // 4096 + 3


def test_lines_that_are_left_at_the_end_wait_for_a_reader_and_not_for_ever(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.lines.add("x" * (4 * PIPE_BYTES))
    monkeypatch.setattr(lines, "FINISH_S", 0.05)
    pipe.lines.finish()
    assert pipe.lines.flush(), "nobody has read it"
    monkeypatch.setattr(lines, "FINISH_S", 30.0)
    read: list[bytes] = []

    def take() -> None:
        while sum(map(len, read)) <= 4 * PIPE_BYTES:
            read.append(os.read(pipe.out, PIPE_BYTES))

    reading = threading.Thread(target=take)
    reading.start()
    pipe.lines.finish()
    reading.join()
    assert b"".join(read) == b"x" * (4 * PIPE_BYTES) + b"\n"
