"""A payload that stays in its file until it is sent, piece by piece."""

from __future__ import annotations

import os

from bmgd.client.arguments import check_size
from bmgd.errors import RequestError


class FilePayload:
    """What a file held when it was opened, more than goes in one piece.

    It is read and not mapped: a mapped file that another process cuts short ends this one by SIGBUS.

    Args:
        descriptor: of the file, open until the payload is sent.
        size: in bytes.
        name: what an error calls it.

    Raises:
        RequestError: it is too long.
    """

    def __init__(self, descriptor: int, size: int, name: str) -> None:
        check_size(size)
        self._descriptor = descriptor
        self._size = size
        self._name = name

    def __len__(self) -> int:
        return self._size

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
