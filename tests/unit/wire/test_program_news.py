"""The bytes by which daemons tell of programs: pinned, in both directions, and what they cannot be."""

from __future__ import annotations

import pytest

from bmgd.errors import ProtocolError
from bmgd.wire.program_news import Ended, Started, pack_news, pack_starts, unpack_news

BYTES: dict[Started | Ended, str] = {
    Started(1, "a"): "01 0000000000000001 01 61",
    Started(2**64 - 1, "ä" * 127): "01 ffffffffffffffff fe" + "c3a4" * 127,
    Ended(3, 1, 0): "02 0000000000000003 0000000000000001 0000000000000000",
    Ended(3, 1, -9): "02 0000000000000003 0000000000000001 fffffffffffffff7",
    Ended(3, 1, None): "02 0000000000000003 0000000000000001 8000000000000000",
}


@pytest.mark.parametrize(("news", "text"), BYTES.items(), ids=str)
def test_news_have_these_bytes(news: Started | Ended, text: str) -> None:
    assert pack_news(news) == bytes.fromhex(text)
    assert unpack_news(bytes.fromhex(text)) == [news]


def test_several_news_follow_one_another() -> None:
    several: list[Started | Ended] = list(BYTES)
    assert unpack_news(b"".join(pack_news(news) for news in several)) == several
    assert unpack_news(b"") == []


@pytest.mark.parametrize(
    "text",
    [
        "00",
        "03",
        "01",
        "01 0000000000000001",
        "01 0000000000000001 02 61",
        "01 0000000000000001 00",
        "01 0000000000000001 01 ff",
        "02 00000000",
        "01 61",
    ],
)
def test_what_is_no_news_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        unpack_news(bytes.fromhex(text))


def test_starts_are_packed_as_far_as_they_fit() -> None:
    starts = [Started(1, "a"), Started(2, "b"), Started(3, "c")]
    assert pack_starts(starts, 22) == (b"".join(map(pack_news, starts[:2])), False)
    assert pack_starts(starts, 33) == (b"".join(map(pack_news, starts)), True)
    assert pack_starts([], 10) == (b"", True)
