"""What others ask of a launcher, over its socket."""

from __future__ import annotations

import errno
import select
import socket
import threading
from pathlib import Path

import pytest

from bmgd.errors import ConfigError, RequestError, SilentDaemonError
from bmgd.launcher import requests, rundir
from bmgd.launcher.plan import LAUNCH_MAX
from bmgd.launcher.requests import RequestServer, ask_grow, ask_restart
from bmgd.launcher.rundir import RunDir


def test_growth_by_all_that_a_launch_may_have_is_answered_whole(tmp_path: Path) -> None:
    poll = select.poll()
    server = RequestServer(RunDir.at(str(tmp_path)).launcher_socket, poll)
    ids = list(range(1_000_000_000, 1_000_000_000 + LAUNCH_MAX))

    def serve() -> None:
        while True:
            requests = server.on_ready({fd for fd, _ in poll.poll(10_000)})
            if requests:
                server.answer(requests[0], {"ids": ids, "seconds": 1.0})
                return

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        assert ask_grow(str(tmp_path), LAUNCH_MAX)["ids"] == ids
    finally:
        serving.join()


def test_launcher_that_does_not_answer_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ASK_S", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(RunDir.at(str(tmp_path)).launcher_socket)
        listening.listen()
        with pytest.raises(SilentDaemonError, match="has not answered"):
            ask_restart(str(tmp_path), 1)


@pytest.mark.parametrize(
    "answer", [b"{}", b'{"ids": 3, "seconds": 1}', b"[1]", b"x", b"[" * 60_000], ids=lambda a: a[:9]
)
def test_answer_that_no_launcher_gives_is_an_error(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(RunDir.at(str(tmp_path)).launcher_socket)
        listening.listen()

        def serve() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer + b"\n")

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(RequestError, match="another answer than a launcher"):
            ask_grow(str(tmp_path), 1)
        with pytest.raises(RequestError, match="another answer than a launcher"):
            ask_restart(str(tmp_path), 1)
        serving.join()


def test_launcher_that_this_user_may_not_ask_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(RequestError, match=r"may not ask the launcher: .*: Permission denied"):
        ask_grow(str(tmp_path), 1)
    with pytest.raises(RequestError, match=r"may not ask the launcher: .*: Permission denied"):
        ask_restart(str(tmp_path), 1)


def test_run_directory_that_could_be_anothers_is_asked_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "_shared_default", lambda: str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="others can write"):
        ask_grow(str(tmp_path), 1)


def test_connection_that_asks_nothing_makes_room_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "CONNECTIONS_MAX", 2)
    poll = select.poll()
    path = RunDir.at(str(tmp_path)).launcher_socket
    server = RequestServer(path, poll)
    connections = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(3)]
    for connection in connections:
        connection.settimeout(10.0)
        connection.connect(path)
        assert server.on_ready({fd for fd, _ in poll.poll(10_000)}) == []
    assert connections[0].recv(1) == b""
    connections[2].sendall(b'{"grow": 1}\n')
    (request,) = server.on_ready({fd for fd, _ in poll.poll(10_000)})
    server.answer(request, {"ids": [1], "seconds": 1.0})
    assert connections[2].recv(4096) == b'{"ids": [1], "seconds": 1.0}\n'
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"[" * 4000, id="too deep"),
        b'{"restart": true}',
        b'{"restart": false}',
        b'{"restart": -1}',  # a joiner that has no id yet has such a number
        b'{"restart": 1.0}',
        b'{"grow": true}',
        b'{"grow": 0}',
    ],
)
def test_request_that_is_none_is_told_so_and_ends_nothing(tmp_path: Path, line: bytes) -> None:
    poll = select.poll()
    path = RunDir.at(str(tmp_path)).launcher_socket
    server = RequestServer(path, poll)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10.0)
        connection.connect(path)
        connection.sendall(line + b"\n")
        for _ in range(2):  # it is accepted, and read
            assert server.on_ready({fd for fd, _ in poll.poll(10_000)}) == []
        assert connection.recv(4096) == b'{"error": "not a request"}\n'
