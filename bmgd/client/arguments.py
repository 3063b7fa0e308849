"""What a program hands over to be sent: its types, and how it is checked before anything is done."""

from __future__ import annotations

from typing import Literal

from bmgd.errors import RequestError
from bmgd.wire.bounds import LONG_BYTES_MAX, PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX
from bmgd.wire.control import TIMEOUT_S_MAX

Payload = bytes | bytearray | memoryview
Priority = Literal["high", "normal", "bulk"]
"""Of several messages that wait for a link, which goes first."""
Quality = Literal["reliable", "best-effort"]


def checked_payload(payload: object) -> bytes:
    """The bytes of a payload.

    Raises:
        RequestError: it is something else than bytes, or too long.
    """
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise RequestError(
            f"a payload is bytes, not {type(payload).__name__}: encode a text with .encode()"
        )
    size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
    if size > LONG_BYTES_MAX:
        raise RequestError(f"the payload has {size} bytes, at most {LONG_BYTES_MAX} fit")
    return bytes(payload) if size <= PAYLOAD_BYTES_MAX else payload  # type: ignore[return-value]


def check_timeout(timeout: float) -> None:
    """Refuse what is no timeout.

    Args:
        timeout: in seconds.

    Raises:
        RequestError: not above 0, or longer than a day.
    """
    if not 0 < timeout <= TIMEOUT_S_MAX:
        raise RequestError(f"a timeout is a number of seconds above 0, at most {TIMEOUT_S_MAX:.0f}")


def checked_topic(topic: str) -> str:
    """A topic.

    Raises:
        RequestError: it does not have 1 to 255 bytes.
    """
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        raise RequestError("the topic is not valid text") from None
    if not 1 <= length <= TOPIC_BYTES_MAX:
        raise RequestError(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes, not {length}")
    return topic
