"""Segments as tests write them, and the messages in those that come."""

from __future__ import annotations

from dataclasses import replace

from bmgd.core.effects import Deliver
from bmgd.types import Incarnation, NodeId
from bmgd.wire.batch import pack_messages, unpack_messages
from bmgd.wire.routes import Route
from bmgd.wire.stream_messages import Segment, SegmentFlag


def segment(
    route: Route,
    *payloads: bytes,
    stream: int = 1,
    number: int = 1,
    floor: int = 1,
    topic: str = "t",
    replaces: int = 0,
    flags: int = 0,
) -> Segment:
    """A segment with these messages: the first one of its stream opens it."""
    opens = number == 1
    return Segment(
        replace(route, sequence=stream << 32 | number),
        flags | (SegmentFlag.OPEN if opens else 0),
        topic if opens else "",
        replaces if opens else 0,
        floor,
        len(payloads),
        0,
        pack_messages(payloads) if payloads else b"",
    )


def delivered(request: int, source: NodeId, topic: str, *payloads: bytes) -> Deliver:
    """The handing out of these messages, of a life that does not matter."""
    return Deliver(request, source, Incarnation(1), topic, len(payloads), pack_messages(payloads))


def payloads_of(deliver: Deliver) -> list[bytes]:
    """The messages that were handed out."""
    return unpack_messages(deliver.body, deliver.count) if deliver.count else []
