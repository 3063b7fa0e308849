"""One HTTP request, read with bounds: a line, headers, no body.

A small part of HTTP/1.1 (RFC 9112), and only what a browser, Prometheus and a probe need: every answer
closes its connection, so nothing of a request can be taken for the next one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from typing import Final
from urllib.parse import parse_qs, unquote

from bmgd.dataclass import dataclass
from bmgd.errors import RequestError

HEAD_BYTES_MAX: Final = 8192
"""Request line and headers together."""
HEAD_S: Final = 5.0
"""How long a client may take to send them."""

_HOST: Final = re.compile(r"(?:\[(?P<in_brackets>[^\[\]]+)\]|(?P<name>[^\[\]:]+))(?::\d{1,5})?")
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})


class HttpError(RequestError):
    """A request that is answered with an error status.

    Args:
        status: such as 404.
        detail: one line for the client.
        allow: of a 405 the methods that are answered there.
    """

    def __init__(self, status: int, detail: str, allow: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.allow = allow


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a client asks.

    Args:
        method: GET, HEAD or POST.
        path: percent-decoded, without the query.
        query: the first value of each key.
        headers: by name in lower case.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]

    @property
    def bearer(self) -> str:
        """The token of ``Authorization: Bearer``; "" without one."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    @property
    def names_loopback(self) -> bool:
        """Whether the Host header names this machine itself.

        A page of a foreign site can make a browser ask a loopback address (DNS rebinding); the header
        then still has the foreign name.
        """
        host = self.headers.get("host", "")
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found["in_brackets"] or found["name"]
        if name.lower() in ("localhost", "localhost."):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    @property
    def is_of_a_foreign_page(self) -> bool:
        """Whether a browser asks this because a page of another origin wants it (Fetch Metadata).

        Such a page could not read the answer, but would hold the place of a client who can. Who follows
        a link, or is no browser, is nobody's page.
        """
        origin = self.headers.get("sec-fetch-site", "none")
        is_opened = self.headers.get("sec-fetch-dest") == "document"
        return origin not in ("none", "same-origin") and not is_opened


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read a request's head; None when the client went away without one.

    Args:
        reader: made with `HEAD_BYTES_MAX` as its limit.

    Raises:
        HttpError: it is too long, too slow or no HTTP that is spoken here.
    """
    try:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise HttpError(400, "the request ends before its headers do") from None
        return None
    except asyncio.LimitOverrunError:
        raise HttpError(431, f"a request has at most {HEAD_BYTES_MAX} bytes") from None
    except TimeoutError:
        raise HttpError(408, f"the request did not come within {HEAD_S:.0f} s") from None
    return parse_head(head)


def parse_head(head: bytes) -> HttpRequest:
    """Read a request line and headers, up to and with the empty line.

    Raises:
        HttpError: malformed, or a method or version that is not spoken here.
    """
    try:
        first, *lines = head.decode("ascii").split("\r\n")[:-2]
    except UnicodeDecodeError:
        raise HttpError(400, "a head is ASCII") from None
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "not a request line of HTTP/1.1")
    if words[0] not in _METHODS:
        allow = ", ".join(sorted(_METHODS))
        raise HttpError(405, f"{words[0][:16]} is not done here", allow)
    headers = _headers(lines)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise HttpError(413, "a request has no body here")
    path, _, query = words[1].partition("?")
    try:
        values = parse_qs(query, keep_blank_values=True, max_num_fields=16, errors="strict")
        return HttpRequest(
            words[0], unquote(path, errors="strict"), {k: v[0] for k, v in values.items()}, headers
        )
    except ValueError:
        raise HttpError(400, "the address is not percent-encoded text") from None


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(400, "not a header line")
        if name.lower() in headers and name.lower() in ("host", "content-length", "authorization"):
            raise HttpError(400, f"two headers {name}")
        headers[name.lower()] = value.strip()
    return headers
