"""The zygote's work, with a host that has no process left and signals that come early."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
from pathlib import Path

import pytest

from bmgd.config import Config
from bmgd.launcher.orders import NOT_FORKED, Ended, Spawn, Spawned
from bmgd.launcher.plan import Plan
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.zygote import _Forker
from bmgd.peers import PeerList


def test_zygote_tells_whom_it_could_not_fork_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = iter([101, None, 103])

    def fork() -> int:
        pid = next(forks)
        if pid is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return pid

    monkeypatch.setattr(os, "fork", fork)
    run_dir = RunDir.at(str(tmp_path))
    config = Config(id=0, size=3, peers=PeerList.parse("127.0.0.1:{7400+id}", 3))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        forker = _Forker(theirs, ours, -1, lambda *_: 0)
        forker._obey(Plan(config, run_dir))
        forker._obey(Spawn((0, 1, 2)))
        news = [pickle.loads(ours.recv(4096)) for _ in range(2)]
    assert news == [Spawned(((0, 101), (2, 103))), Ended(((1, 0, NOT_FORKED),))]
    log = Path(run_dir.log(1)).read_text()
    assert log == f"cannot start this daemon: {os.strerror(errno.EAGAIN)}\n"


def test_daemon_that_is_to_end_before_it_has_begun_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_fork = os.fork

    def fork() -> int:
        pid = real_fork()
        if pid == 0:
            # The launcher's order to end all comes before this child has done anything.
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    monkeypatch.setattr(os, "fork", fork)
    config = Config(id=0, size=1, peers=PeerList.parse("127.0.0.1:{7400+id}", 1))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    former = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as in the zygote
    try:
        with ours, theirs:
            forker = _Forker(theirs, ours, ours.fileno(), lambda *_: 7)
            forker._obey(Plan(config, RunDir.at(str(tmp_path))))
            forker._obey(Spawn((0,)))
            ((_, pid),) = pickle.loads(ours.recv(4096)).pairs
            _, status = os.waitpid(pid, 0)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
