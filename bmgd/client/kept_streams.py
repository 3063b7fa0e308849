"""Streams that a connection keeps open for what comes next: so many, the one used last at the end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from bmgd.client.outgoing import Outgoing

KEPT_MAX: Final = 64
"""Streams kept open; beyond, the unused one that is idle for longest is closed."""

S = TypeVar("S", bound=Outgoing)


class KeptStreams(Generic[S]):
    """One open stream for each key.

    There may be more than `KEPT_MAX` while none of them is unused: a stream with something underway
    is never closed. When something of one has its outcome, `trim` is called.
    """

    def __init__(self) -> None:
        self._streams: dict[Hashable, S] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[S]:
        return iter(list(self._streams.values()))

    def get(self, key: Hashable, make: Callable[[], S]) -> S:
        """The stream of a key, made where there is none or it is over.

        O(1); O(`KEPT_MAX`) when one must be closed first.
        """
        stream = self._streams.pop(key, None)
        if stream is None or stream.over:
            if len(self._streams) >= KEPT_MAX:
                self._close_unused()
            stream = make()
        self._streams[key] = stream
        return stream

    def trim(self, used: Outgoing) -> None:
        """Close the unused ones beyond `KEPT_MAX`: a connection has no more than 1024 in all.

        O(1) while there is more of the one that was used.
        """
        if used.is_unused:
            while len(self._streams) > KEPT_MAX and self._close_unused():
                pass

    def close_all(self) -> None:
        """Close every one; what was put is still sent."""
        for stream in self:
            stream.finish()
        self._streams.clear()

    def _close_unused(self) -> bool:
        for key, stream in self._streams.items():
            if stream.is_unused or stream.over:
                del self._streams[key]
                stream.finish()
                return True
        return False
