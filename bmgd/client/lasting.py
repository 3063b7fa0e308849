"""What is open on a connection that lives through restarts, and is opened again by the next daemon.

Theory of operation. A `Lasting` is the sink of its request. Its own sink, that of the program, is told of
items always, and of an end only where it is final:

    the daemon opens it, the first time or again     it is open
    the daemon goes while it is open                 it is interrupted, and waits to be opened again
    the daemon ends it, or refuses to open it        it is over
    the daemon goes before it was open               nothing: whoever opens it is told by the answer
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bmgd.client.items import Sink
from bmgd.errors import BmgdError, NoDaemonError


class _Opening(Protocol):
    """The connection, as far as this needs it."""

    def open(
        self, verb: str, params: Mapping[str, Any], sink: Sink
    ) -> tuple[int, asyncio.Future[Any]]:
        """Ask the daemon; returns the number of the request and its answer."""

    def let_go(self, lasting: Lasting) -> None:
        """It is over, and not opened again."""


class Lasting:
    """Something that is open, and is opened again after an interruption; the sink of what comes.

    Args:
        connection: on which.
        verb, params: how it is opened.
        sink: takes what comes, while the daemon is there.
        on_opened: gets the number of each request that opens it.
        on_interrupted: told of each interruption.
    """

    def __init__(
        self,
        connection: _Opening,
        verb: str,
        params: Mapping[str, Any],
        sink: Sink,
        on_opened: Callable[[int], None],
        on_interrupted: Callable[[], None] = lambda: None,
    ) -> None:
        self.sink = sink
        self.sequence = 0
        self._connection = connection
        self.verb, self._params = verb, params
        self._on_opened, self._on_interrupted = on_opened, on_interrupted
        self._is_open = False

    def open(self) -> asyncio.Future[Any]:
        """Ask the daemon to open it; returns its answer."""
        self.sequence, answer = self._connection.open(self.verb, self._params, self)
        self._on_opened(self.sequence)
        answer.add_done_callback(self._on_answer)
        return answer

    def _on_answer(self, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._is_open = True
        elif self._is_open and isinstance(error, BmgdError):
            # It was open before, and cannot be again.
            self.on_end(error, {})

    def on_item(self, value: Any) -> None:
        """An item came."""
        self.sink.on_item(value)

    def on_end(self, error: BmgdError | None, fields: Mapping[str, Any]) -> None:
        """It is over, or its daemon is gone for now."""
        if not isinstance(error, NoDaemonError):
            self._connection.let_go(self)
            self._is_open = False
            self.sink.on_end(error, fields)
        elif self._is_open:
            self._on_interrupted()
