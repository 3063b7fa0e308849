"""From when until when a certificate is valid, read from its bytes.

`ssl` tells the dates of the other end's certificate, not those of one's own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_VERSION: Final = 0xA0
_SHORT_YEAR: Final = 0x17
_BEFORE_DATES: Final = 3
"""The serial number, the algorithm and the issuer."""


def outside_dates(der: bytes, path: str, now_unix_s: float) -> str:
    """What is wrong with a certificate's dates, in words; "" when it is valid now.

    Args:
        der: the certificate.
        path: the file that it is from.
        now_unix_s: now.
    """
    try:
        begin, end = validity(der)
    except (ValueError, IndexError):
        # OpenSSL has taken it; what it makes of such dates, the handshake tells.
        return ""
    now = datetime.fromtimestamp(now_unix_s, UTC)
    if now < begin:
        return f"the certificate in {path} is not valid before {_text(begin)}"
    return f"the certificate in {path} has expired at {_text(end)}" if now > end else ""


def validity(der: bytes) -> tuple[datetime, datetime]:
    """The first and the last moment of a certificate.

    Raises:
        ValueError, IndexError: it is no X.509 certificate.
    """
    _, inside, _ = _element(der, 0)
    _, at, _ = _element(der, inside)
    tag, _, behind = _element(der, at)
    if tag == _VERSION:
        at = behind
    for _ in range(_BEFORE_DATES):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)
    begin, at = _moment(der, at)
    end, _ = _moment(der, at)
    return begin, end


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the element there, and where its content begins and ends."""
    tag, size, at = der[at], der[at + 1], at + 2
    if size & 0x80:
        width = size & 0x7F
        size, at = int.from_bytes(der[at : at + width]), at + width
    return tag, at, at + size


def _moment(der: bytes, at: int) -> tuple[datetime, int]:
    tag, begin, end = _element(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _SHORT_YEAR:
        text = ("20" if text[:2] < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), end


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
