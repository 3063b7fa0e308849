"""The engines that the tests of the link layer run over, and the frames that they are given."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from bmgd.frameheader import ROUTED_FIRST
from bmgd.linklayer import LinkEngine, LinkLayer
from bmgd.routing import BACKEND, Snapshot
from bmgd.wire.codec import encode, encode_header
from bmgd.wire.link_messages import Goodbye, Notice, Ping


def _engines() -> dict[str, Callable[[], LinkEngine]]:
    """Every engine that can be had here, by name; the one in C joins where it was built."""
    found: dict[str, Callable[[], LinkEngine]] = {"layer": LinkLayer}
    for name, module in (("python", "bmgd.shell.engine"), ("c", "bmgd._engine")):
        if name == "c" and BACKEND != "c":
            continue
        try:
            loaded: Any = importlib.import_module(module)
        except ImportError:
            continue
        found[name] = loaded.Engine
    return found


ENGINES: Final = _engines()
SELF: Final = 0
"""The id of the node whose layer is tested."""


def snapshot(links: dict[int, int], generation: int = 1, size: int = 8) -> Snapshot:
    """A snapshot of node 0 of `size`, with links by the ids at their other ends."""
    return Snapshot(generation, SELF, size, (), sorted(links.items()))


def data(to: int, text: str = "", priority: int = 2, source: int = 5) -> bytes:
    """A routed frame; the layer looks at nothing behind its header."""
    header = encode_header(
        ROUTED_FIRST, priority=priority, hop_budget=9, destination=to, source=source
    )
    payload = text.encode()
    body = b"\x92\xc4\x20" + header + b"\xc5" + len(payload).to_bytes(2, "big") + payload
    return len(body).to_bytes(4, "big") + body


def ping(number: int) -> bytes:
    """A frame for the other end of a link."""
    return encode(Ping(number))


def notice(*records: Any) -> bytes:
    """A frame that is flooded."""
    return encode(Notice(tuple(records)))


def goodbye(reason: str = "") -> bytes:
    """The last frame of a link."""
    return encode(Goodbye(reason))


def body(frame: bytes) -> bytes:
    """A frame without its length prefix."""
    return frame[4:]


def hopped(frame: bytes) -> bytes:
    """A routed frame as a relay passes it on: with one hop less."""
    changed = bytearray(frame)
    changed[4 + 3 + 3] -= 1
    return bytes(changed)
