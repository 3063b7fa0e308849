"""`bmgd run` and `bmgd launch`, forked from a process that has imported them.

A command that is started anew imports everything, which is most of what a small cluster costs a test
in CPU time. Here one process for each set of variables imports once, and forks for each start. Tests
that are about the process itself (launcher, service manager, upgrades, commands) run the command.

    test -> forker    a packet for each start, with what is to be stdout and stderr; one for each poll
    forker -> test    the process id; the exit code, or None
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from bmgd.launcher.child import finish_process

ROOT: Final = Path(__file__).parents[2]
POLL_S: Final = 0.01
DESCRIPTORS: Final = 64
"""More than the process that forks has open."""
PACKET_BYTES_MAX: Final = 1 << 17

_forkers: dict[frozenset[tuple[str, str]], _Forker] = {}
"""One for each set of BMGD_ variables: they choose what is imported."""


class Forked:
    """A process of the forker, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, forker: _Forker, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._forker = forker

    def poll(self) -> int | None:
        """The exit code, or minus the signal's number; None while it runs."""
        if self.returncode is None:
            self.returncode = self._forker.ask({"poll": self.pid})["code"]
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait until it has ended; TimeoutExpired after so many seconds."""
        end_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired("a forked daemon", timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class _Forker:
    """The process that forks, seen from the test."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # It ends when the socket does, so with the process that asks it.
            subprocess.Popen(
                [sys.executable, "-m", "tests.integration.forking", str(theirs.fileno())],
                cwd=ROOT,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
            )

    def ask(self, question: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        socket.send_fds(self._socket, [json.dumps(question).encode()], descriptors)
        answer = self._socket.recv(PACKET_BYTES_MAX)
        assert answer, "the process that forks daemons has ended"
        found: dict[str, Any] = json.loads(answer)
        return found


def fork(
    words: Sequence[str], environment: Mapping[str, str], out: IO[bytes], log: IO[bytes]
) -> Forked:
    """Start `bmgd` with these words.

    Args:
        environment: all its variables.
        out, log: its stdout and its stderr.
    """
    key = frozenset((k, v) for k, v in environment.items() if k.startswith("BMGD_"))
    forker = _forkers.get(key)
    if forker is None:
        forker = _forkers[key] = _Forker(environment)
    question = {"words": list(words), "environment": dict(environment)}
    return Forked(forker, int(forker.ask(question, [out.fileno(), log.fileno()])["pid"]))


# --- the process that forks -----------------------------------------------------------------------


def _become(words: list[str], environment: dict[str, str], streams: Sequence[int]) -> None:
    from bmgd.cli import main

    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *streams)):
        os.dup2(descriptor, number)
    os.closerange(3, DESCRIPTORS)
    finish_process(lambda: main(words))


def _serve(asking: socket.socket) -> None:
    running: set[int] = set()
    while True:
        data, streams, _, _ = socket.recv_fds(asking, PACKET_BYTES_MAX, 2)
        if not data:
            break
        question = json.loads(data)
        if "poll" in question:
            pid, status = os.waitpid(question["poll"], os.WNOHANG)
            running.discard(pid)
            answer = {"code": os.waitstatus_to_exitcode(status) if pid else None}
        else:
            pid = os.fork()
            if not pid:
                _become(question["words"], question["environment"], streams)
            running.add(pid)
            answer = {"pid": pid}
            for descriptor in streams:
                os.close(descriptor)
        asking.send(json.dumps(answer).encode())
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    import uvloop  # noqa: F401 (all of it before the first fork)

    import bmgd.cli.launch
    import bmgd.cli.run
    import bmgd.launcher.launch
    import bmgd.shell.run
    import bmgd.shell.web  # noqa: F401

    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
