"""Bounds that other implementations are told: they are as the pages say."""

from __future__ import annotations

from pathlib import Path

from bmgd.wire.bounds import MESSAGES_PER_SEGMENT_MAX
from bmgd.wire.packing import UNPACKED_BYTES_MAX

DOCS = Path(__file__).parents[3] / "docs"


def test_messages_of_a_segment_are_as_the_wire_protocol_says() -> None:
    page = (DOCS / "wire-protocol.md").read_text(encoding="utf-8")
    assert f"count 0..{MESSAGES_PER_SEGMENT_MAX:,}," in page


def test_what_a_recording_may_become_is_as_the_architecture_says() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    row = next(row for row in page.splitlines() if row.startswith("| a frame of a recording;"))
    assert f"; {UNPACKED_BYTES_MAX >> 20} MiB |" in row
