"""The process of a daemon is found by its socket, whatever that says to who asks."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from bmgd.errors import NoDaemonError, RequestError
from bmgd.launcher.listening import ListeningProcess

DEADLINE_S = 30.0


def test_process_that_refuses_who_asks_has_not_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "d.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection, suppress(BrokenPipeError):
                connection.sendall(b"you may not")

        refusing = threading.Thread(target=refuse)
        refusing.start()
        with ListeningProcess(path) as process:
            refusing.join(DEADLINE_S)
            assert process.pid == os.getpid()
            assert not process.wait(0)


def test_process_that_ends_after_it_was_asked_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "d.sock")
    script = (
        "import socket, sys\n"
        f"s = socket.socket(socket.AF_UNIX); s.bind({path!r}); s.listen(); print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        with ListeningProcess(path) as process:
            assert process.pid == child.pid
            child.stdin.close()
            assert process.wait(DEADLINE_S)
    with pytest.raises(NoDaemonError):
        ListeningProcess(path)


def test_socket_that_this_user_may_not_use_is_not_taken_for_no_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(RequestError, match=r"may not use the socket /d\.sock: Permission denied"):
        ListeningProcess("/d.sock")
