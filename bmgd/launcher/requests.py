"""What others ask of a running launcher, over its Unix socket: one JSON line each way.

    {"restart": 3}  ->   <-  {"pid": 4711, "seconds": 0.05}   or   {"error": "…"}
    {"grow": 2}     ->   <-  {"ids": [16, 17], "seconds": 0.1}

Bounded: `CONNECTIONS_MAX` at a time (one more takes the place of the oldest that has asked nothing yet,
or is closed), `LINE_BYTES_MAX` a request (a longer one is closed), and each is answered within the
launcher's own deadlines. Where the host has no descriptor left for one who asks, he waits in the kernel's
queue, and `ACCEPT_PAUSE_S` pass between two tries.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from bmgd.errors import LaunchError, NoDaemonError, RequestError, SilentDaemonError
from bmgd.launcher.rundir import RunDir, check_own

CONNECTIONS_MAX: Final = 64
LINE_BYTES_MAX: Final = 4096
ANSWER_BYTES_MAX: Final = 1 << 16
"""The ids of all joiners that a launch may have fit into it, however high they are."""
ASK_S: Final = 85.0
ACCEPT_PAUSE_S: Final = 0.5


@dataclass(slots=True, eq=False)
class Request:
    """A restart, or a growth, that somebody waits for.

    Args:
        node_id: which daemon; -1 for a growth.
        grow: how many joiners; 0 for a restart.
        joiners: their numbers, once they were started; of a restart that of its daemon.
        connection: where the answer goes.
        asked_s: `time.monotonic()` of its arrival.
        spawned: whether the daemon was started for it.
    """

    node_id: int
    connection: socket.socket
    asked_s: float
    spawned: bool = False
    grow: int = 0
    joiners: tuple[int, ...] = ()


class RequestServer:
    """The launcher's socket.

    Args:
        path: where to listen.
        poll: the launcher's; every descriptor of this server is registered there.
        tell: is told why nobody can be let in at present, once until somebody could.
    """

    def __init__(
        self, path: str, poll: select.poll, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._poll = poll
        self._tell = tell
        self._is_told = False
        self.again_s = 0.0
        """When `on_time` is to be called, by `time.monotonic()`; 0 for not at all."""
        self._connections: dict[int, tuple[socket.socket, bytes]] = {}
        self._unasked: dict[int, None] = {}
        """Of these nothing whole has come, the oldest first."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        umask = os.umask(0o177)
        try:
            self._socket.bind(path)
            self._socket.listen(CONNECTIONS_MAX)
        except OSError as error:
            raise LaunchError(f"cannot listen at {path}: {error.strerror}") from None
        finally:
            os.umask(umask)
        poll.register(self._socket, select.POLLIN)

    def on_ready(self, ready: set[int]) -> list[Request]:
        """Read what came; the requests that are complete now."""
        if self._socket.fileno() in ready:
            self._accept()
        return [
            request
            for fd in list(self._connections)
            if fd in ready and (request := self._read(fd)) is not None
        ]

    def on_time(self, now_s: float) -> None:
        """Let people in again, once the pause is over."""
        if self.again_s and now_s >= self.again_s:
            self.again_s = 0.0
            self._poll.register(self._socket, select.POLLIN)

    def answer(self, request: Request, document: dict[str, Any]) -> None:
        """Answer a request and close its connection."""
        # Who asked may have gone away; what was asked is done all the same.
        with suppress(OSError):
            request.connection.send(json.dumps(document).encode() + b"\n")
        self._drop(request.connection.fileno())

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # No descriptor, or no memory: who asks stays in the queue, and would wake the poll at once.
            self._poll.unregister(self._socket)
            self.again_s = time.monotonic() + ACCEPT_PAUSE_S
            if not self._is_told:
                self._tell(f"cannot take a request: {error.strerror}")
            self._is_told = True
            return
        self._is_told = False
        if len(self._connections) >= CONNECTIONS_MAX:
            if not self._unasked:
                connection.close()
                return
            oldest = next(iter(self._unasked))
            self._poll.unregister(oldest)
            self._drop(oldest)
        connection.setblocking(False)
        self._unasked[connection.fileno()] = None
        self._connections[connection.fileno()] = (connection, b"")
        self._poll.register(connection, select.POLLIN)

    def _read(self, fd: int) -> Request | None:
        connection, before = self._connections[fd]
        try:
            data = before + connection.recv(LINE_BYTES_MAX)
        except OSError:
            data = before
        if b"\n" in data:
            # Until it is answered, nothing more is read from it.
            self._poll.unregister(fd)
            del self._unasked[fd]
            return self._parse(connection, data)
        if data == before or len(data) > LINE_BYTES_MAX:
            self._poll.unregister(fd)
            self._drop(fd)
        else:
            self._connections[fd] = (connection, data)
        return None

    def _parse(self, connection: socket.socket, line: bytes) -> Request | None:
        try:
            match json.loads(line):
                case {"restart": bool()} | {"grow": bool()}:
                    pass  # Python counts them as 0 and 1.
                case {"restart": int(node_id)} if node_id >= 0:
                    return Request(node_id, connection, time.monotonic())
                case {"grow": int(count)} if count > 0:
                    return Request(-1, connection, time.monotonic(), grow=count)
        except (ValueError, RecursionError):
            pass
        request = Request(-1, connection, 0.0)
        self.answer(request, {"error": "not a request"})
        return None

    def _drop(self, fd: int) -> None:
        connection, _ = self._connections.pop(fd)
        self._unasked.pop(fd, None)
        connection.close()


def ask_restart(run_dir: str, node_id: int) -> dict[str, Any]:
    """Let the launcher of a run directory start a daemon again, and wait until it has joined.

    Returns:
        ``{"pid":…, "seconds":…}``

    Raises:
        NoDaemonError: no launcher runs there.
        SilentDaemonError: the launcher does not answer in time.
        RequestError: the daemon still runs, does not join, or the cluster has no such id; or this user
            may not ask.
        ConfigError: the run directory could be another user's.
    """
    match _ask(run_dir, {"restart": node_id}):
        case {"pid": int(), "seconds": int() | float()} as answer:
            return answer
    raise RequestError(_NO_ANSWER)


def ask_grow(run_dir: str, count: int) -> dict[str, Any]:
    """Let the launcher of a run directory start joiners, and wait until all are members.

    Returns:
        ``{"ids":[…], "seconds":…}``, ids sorted.

    Raises:
        NoDaemonError: no launcher runs there.
        SilentDaemonError: the launcher does not answer in time.
        RequestError: they are too many, or not all of them joined; or this user may not ask.
        ConfigError: the run directory could be another user's.
    """
    match _ask(run_dir, {"grow": count}):
        case {"ids": [*ids], "seconds": int() | float()} as answer if all(
            isinstance(each, int) for each in ids
        ):
            return answer
    raise RequestError(_NO_ANSWER)


_NO_ANSWER: Final = "what listens at the launcher's socket gives another answer than a launcher"


def _ask(run_dir: str, question: dict[str, int]) -> dict[str, Any]:
    check_own(run_dir)
    path = RunDir.at(run_dir).launcher_socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ASK_S)
        try:
            connection.connect(path)
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise SilentDaemonError(
                f"the launcher has not answered for {ASK_S:.0f} s", sent=True
            ) from None
        except ConnectionResetError:
            raise RequestError("the launcher has closed the connection: too many ask it") from None
        except PermissionError as error:
            raise RequestError(
                f"this user may not ask the launcher: {path}: {error.strerror}"
            ) from None
        except OSError as error:
            raise NoDaemonError(
                f"no launcher runs in {run_dir} ({error.strerror}): give the --run-dir of a bmgd launch"
            ) from None
    if not line:
        raise NoDaemonError(f"the launcher in {run_dir} ended")
    try:
        answer: object = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    match answer:
        case {"error": str(text)}:
            raise RequestError(text)
        case dict():
            return answer
    raise RequestError(_NO_ANSWER)
