"""A frame of several parts, on Pythons whose asyncio pauses after it, and on those where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from bmgd import transports
from bmgd.transports import pauses_after_lines, write_parts


class Written(asyncio.WriteTransport):
    """Notes the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.calls.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[int]]) -> None:
        self.calls.append([bytes(part) for part in list_of_data])


@pytest.mark.parametrize("version", [(3, 12, 0), (3, 12, 8), (3, 13, 0), (3, 13, 1)])
def test_lines_of_these_pythons_pause_nobody(version: tuple[int, ...]) -> None:
    assert not pauses_after_lines(version)


@pytest.mark.parametrize("version", [(3, 11, 13), (3, 12, 9), (3, 13, 2), (3, 14, 0)])
def test_lines_of_other_pythons_pause(version: tuple[int, ...]) -> None:
    assert pauses_after_lines(version)


@pytest.mark.parametrize(
    ("pauses", "calls"), [(True, [b"1", [b"2", b"3"]]), (False, [b"1", b"23"])]
)
def test_frame_is_written_by_a_call_that_pauses(
    monkeypatch: pytest.MonkeyPatch, pauses: bool, calls: list[object]
) -> None:
    monkeypatch.setattr(transports, "PAUSES_AFTER_LINES", pauses)
    transport = Written()
    write_parts(transport, [b"1"])
    write_parts(transport, [b"2", memoryview(b"3")])
    assert transport.calls == calls
