"""What a program hands over to be sent: its types, and how it is checked before anything is done."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Final, Literal, SupportsIndex, get_args

from bmgd.errors import RequestError
from bmgd.routing.id_sets import ID_SET_SPACE, runs_in, set_of_runs
from bmgd.types import NODE_ID_MAX
from bmgd.wire.bounds import ENTRIES_MAX, LONG_BYTES_MAX, PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX
from bmgd.wire.control import TIMEOUT_S_MAX
from bmgd.wire.program_news import NAME_BYTES_MAX

DEFAULT_TOPIC: Final = "default"
Payload = bytes | bytearray | memoryview
Priority = Literal["high", "normal", "bulk"]
"""Of several messages that wait for a link, which goes first."""
Quality = Literal["reliable", "best-effort"]
QUALITIES: Final = get_args(Quality)


def checked_payload(payload: object) -> bytes:
    """The bytes of a payload.

    Raises:
        RequestError: it is something else than bytes, or too long.
    """
    if not isinstance(payload, bytes | bytearray | memoryview):
        advice = ": encode a text with .encode()" if isinstance(payload, str) else ""
        raise RequestError(f"a payload is bytes, not {type(payload).__name__}{advice}")
    size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
    check_size(size)
    if size <= PAYLOAD_BYTES_MAX:
        return bytes(payload)
    if isinstance(payload, memoryview):
        # Pieces are cut by bytes, whatever the view's items are.
        payload = payload.cast("B") if payload.c_contiguous else payload.tobytes()
    return payload  # type: ignore[return-value]


def check_size(size: int) -> None:
    """Refuse a payload of more bytes than any message has.

    Raises:
        RequestError: it is too long.
    """
    if size > LONG_BYTES_MAX:
        raise RequestError(f"the payload has {size} bytes, at most {LONG_BYTES_MAX} fit")


def check_destination(destination: object) -> None:
    """Refuse what is no id; whether a node has it, its daemon knows.

    Raises:
        RequestError: no whole number, or one that no id can be.
    """
    if not isinstance(destination, int) or isinstance(destination, bool):
        raise RequestError(f"a destination is the id of a node, not {type(destination).__name__}")
    if not 0 <= destination <= NODE_ID_MAX:
        raise RequestError(f"a destination is a node id in 0..{NODE_ID_MAX}")


def check_timeout(timeout: float) -> None:
    """Refuse what is no timeout.

    Args:
        timeout: in seconds.

    Raises:
        RequestError: no number, not above 0, or longer than a day.
    """
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= TIMEOUT_S_MAX:
        raise RequestError(f"a timeout is a number of seconds above 0, at most {TIMEOUT_S_MAX:.0f}")


def check_credit(what: str, credit: int, most: int) -> None:
    """Refuse what is no credit.

    Args:
        what: what the error calls it.
        credit: how many of something may wait.
        most: the highest that is one.

    Raises:
        RequestError: no whole number in 1..most.
    """
    if not isinstance(credit, int) or not 1 <= credit <= most:
        raise RequestError(f"{what} is a whole number in 1..{most}, not {credit}")


def check_bound(what: str, size: int) -> None:
    """Refuse what is no bound of bytes.

    Args:
        what: what the error calls it.
        size: in bytes.

    Raises:
        RequestError: no whole number, or below 0.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise RequestError(f"{what} is a whole number of bytes, 0 or more")


def checked_word(what: str, word: str) -> str:
    """A text that names something; what it may be its daemon knows.

    Args:
        what: what the error calls it.

    Raises:
        RequestError: it is no text.
    """
    if not isinstance(word, str):
        raise RequestError(f"{what} is a text, not {type(word).__name__}")
    return word


def check_quality(quality: str) -> None:
    """Refuse what is no quality of a message.

    Raises:
        RequestError: another word, or no text.
    """
    if checked_word("a quality", quality) not in QUALITIES:
        raise RequestError("a quality is reliable or best-effort")


def checked_topic(topic: str) -> str:
    """A topic.

    Raises:
        RequestError: it is no text of 1 to 255 bytes.
    """
    return _checked_text("topic", topic, TOPIC_BYTES_MAX)


def checked_name(name: str) -> str:
    """The name of a program.

    Raises:
        RequestError: it is no text of 1 to 255 bytes.
    """
    return _checked_text("program's name", name, NAME_BYTES_MAX)


def _checked_text(what: str, text: str, bytes_max: int) -> str:
    try:
        length = len(checked_word(f"a {what}", text).encode())
    except UnicodeEncodeError:
        raise RequestError(f"the {what} is not valid text") from None
    if not 1 <= length <= bytes_max:
        raise RequestError(f"a {what} has 1 to {bytes_max} bytes, not {length}")
    return text


def id_ranges(destinations: Iterable[int | range]) -> list[tuple[int, int]]:
    """The node ids of a multicast, as (first, last), ascending.

    Raises:
        RequestError: something else than ids and ranges of them, or none.
    """
    if not isinstance(destinations, Iterable):
        raise RequestError(
            f"destinations are node ids and ranges of them, not {destinations!r}: put it into a list"
        )
    runs: list[tuple[int, int]] = []
    for item in destinations:
        ids = item if isinstance(item, range) else _one_id(item)
        # Its ends are enough: a range may be longer than anybody has time to walk through.
        if ids and not (0 <= ids[0] < ID_SET_SPACE and 0 <= ids[-1] < ID_SET_SPACE):
            shown = f"{ids[0]}..{ids[-1]}" if len(ids) > 1 else ids[0]
            raise RequestError(f"destinations are node ids below {ID_SET_SPACE}, not {shown}")
        if ids.step != 1:
            runs += ((each, each) for each in ids)
        elif ids:
            runs.append((ids[0], ids[-1]))
    if not runs:
        raise RequestError("a multicast needs a destination")
    return runs_in(set_of_runs(runs))


def listed(ranges: list[tuple[int, int]]) -> list[int]:
    """The ids of a reliable multicast, ascending; not walked through where they are too many.

    Args:
        ranges: as `id_ranges` gave them.

    Raises:
        RequestError: they are too many.
    """
    if sum(last + 1 - first for first, last in ranges) > ENTRIES_MAX:
        raise RequestError(f"a reliable multicast has at most {ENTRIES_MAX} destinations")
    return [each for first, last in ranges for each in range(first, last + 1)]


def _one_id(item: object) -> range:
    # True would be node 1.
    if isinstance(item, bool) or not isinstance(item, SupportsIndex):
        raise RequestError(f"destinations are node ids and ranges of them, not {item!r}")
    return range(index(item), index(item) + 1)
