"""A payload that stays in its file until it is sent, piece by piece."""

from __future__ import annotations

import os

from bmgd.errors import RequestError
from bmgd.wire.bounds import LONG_BYTES_MAX, PAYLOAD_BYTES_MAX


class FilePayload:
    """What a file held when it was opened.

    It is read and not mapped: a mapped file that another process cuts short ends this one by SIGBUS.

    Args:
        descriptor: of the file, open until the payload is sent.
        size: in bytes.
        name: what an error calls it.
    """

    def __init__(self, descriptor: int, size: int, name: str) -> None:
        self._descriptor = descriptor
        self._size = size
        self._name = name

    def __len__(self) -> int:
        return self._size

    def checked(self) -> bytes | FilePayload:
        """This payload, or its bytes where they go in one piece.

        Raises:
            RequestError: it is too long, or as `piece`.
        """
        if self._size > LONG_BYTES_MAX:
            raise RequestError(f"the payload has {self._size} bytes, at most {LONG_BYTES_MAX} fit")
        return self if self._size > PAYLOAD_BYTES_MAX else self.piece(0, self._size)

    def piece(self, at: int, size: int) -> bytes:
        """The bytes from a place on.

        Args:
            at: the place, 0..len.
            size: how many; fewer only at the end.

        Raises:
            RequestError: the file cannot be read, or has become shorter.
        """
        wanted = min(size, self._size - at)
        try:
            found = os.pread(self._descriptor, wanted, at)
        except OSError as error:
            raise RequestError(f"{self._name} cannot be read: {error.strerror}") from None
        if len(found) < wanted:
            raise RequestError(f"{self._name} has become shorter while it was sent")
        return found
