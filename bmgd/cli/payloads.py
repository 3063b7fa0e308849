"""What a command sends: an argument, what stdin has, or what a file holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from bmgd.cli.standard_input import standard_input
from bmgd.errors import ConfigError, RequestError
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

if TYPE_CHECKING:
    from bmgd.client.arguments import Payload
    from bmgd.client.file_payload import FilePayload

KEPT_BYTES_MAX: Final = 1 << 30
"""Of a message that has no size before it is read, and is kept in memory until it is sent."""


def payload_of(text: str, bytes_max: int = KEPT_BYTES_MAX) -> bytes:
    """The message: the argument itself, or what stdin has where it is ``-``.

    Args:
        text: the argument.
        bytes_max: of what stdin has.

    Raises:
        ConfigError: stdin is closed, or cannot be read.
        RequestError: it has more.
    """
    if text != "-":
        return os.fsencode(text)
    return _kept(standard_input().buffer, "standard input", bytes_max)


@contextmanager
def file_payload(path: Path) -> Iterator[Payload | FilePayload]:
    """What a file holds, as long as it is to be sent; a long one is read piece by piece.

    One that shows no size, as a pipe does, or a short one, is read at once, whatever its size.

    Raises:
        ConfigError: it cannot be read.
        RequestError: it is read at once, and has more than `KEPT_BYTES_MAX` bytes.
    """
    from bmgd.client.file_payload import FilePayload

    name = f"--file {path}"
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > PAYLOAD_BYTES_MAX:
            yield FilePayload(file.fileno(), size, name)
        else:
            yield _kept(file, name, KEPT_BYTES_MAX)


def _kept(source: BinaryIO, name: str, bytes_max: int) -> bytes:
    try:
        # One byte more than fits shows that it is too much, however much follows.
        payload = source.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror or error}") from None
    if len(payload) > bytes_max:
        by = " by best effort" if bytes_max == PAYLOAD_BYTES_MAX else ""
        raise RequestError(f"the payload has more than {bytes_max} bytes, the most that fit{by}")
    return payload
