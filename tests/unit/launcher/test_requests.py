"""What others ask of a launcher, over its socket."""

from __future__ import annotations

import select
import socket
import threading
from pathlib import Path

import pytest

from bmgd.launcher.requests import RequestServer, ask_grow
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.zygote import LAUNCH_MAX


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
