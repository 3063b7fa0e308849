"""Processes that a trial may signal: verified before every signal to be what they were taken for.

A process id alone names nobody: it may have been given to another process since. So a daemon is
*adopted* with its start time, and before each signal it is pinned (pidfd) and looked at again:
the same start time, writing its log into the cluster's run directory (or, in a container, in that
container's control group). Only then the signal goes, through the pin.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bmgd.errors import ControlError, NoDaemonError
from bmgd.shell.process_stat import START_TICKS, STATE, process_stat


@dataclass(frozen=True, slots=True)
class Adopted:
    """A process of a cluster, as it was first seen.

    Args:
        pid: its id.
        started_ticks: when it started, in the kernel's ticks since boot.
        log: the file that it must be writing its log to; "" for a process in a container.
        container: the full id of the container that it must be in; "" for none.
    """

    pid: int
    started_ticks: int
    log: str
    container: str = ""

    @classmethod
    def of(cls, pid: int, log: str = "", container: str = "") -> Adopted:
        """Adopt a process that writes its log to a file, or is in a container.

        Raises:
            NoDaemonError: there is no such process.
            ControlError: it is another one.
        """
        adopted = cls(pid, _started_ticks(pid), os.path.realpath(log) if log else "", container)
        pidfd = adopted._pin()
        os.close(pidfd)
        return adopted

    def send(self, number: signal.Signals) -> None:
        """Send a signal, once it is sure that this is still the process that was adopted.

        Raises:
            NoDaemonError: it has ended.
            ControlError: the process with that id is another one, or may not be signalled.
        """
        pidfd = self._pin()
        try:
            signal.pidfd_send_signal(pidfd, number)
        except OSError as error:
            raise ControlError(f"cannot signal process {self.pid}: {error.strerror}") from None
        finally:
            os.close(pidfd)

    def is_running(self) -> bool:
        """Whether it is still there, stopped or not."""
        try:
            os.close(self._pin())
        except (NoDaemonError, ControlError):
            return False
        return True

    def is_stopped(self) -> bool:
        """Whether it was stopped by a signal."""
        with suppress(NoDaemonError):
            return _stat(self.pid)[STATE] in (b"T", b"t")
        return False

    def _pin(self) -> int:
        """A pidfd of this very process; whoever gets it closes it."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            raise NoDaemonError(f"process {self.pid} has ended") from None
        try:
            self._look()
            # Still there after it was looked at: what was seen is of the process that is pinned.
            if _has_ended(pidfd):
                raise NoDaemonError(f"process {self.pid} has ended")
        except (NoDaemonError, ControlError):
            os.close(pidfd)
            raise
        return pidfd

    def _look(self) -> None:
        if _started_ticks(self.pid) != self.started_ticks:
            raise ControlError(f"process {self.pid} is not the one that was there before")
        try:
            log = os.readlink(f"/proc/{self.pid}/fd/2") if self.log else ""
            groups = Path(f"/proc/{self.pid}/cgroup").read_text()
        except OSError:
            raise NoDaemonError(f"process {self.pid} has ended") from None
        if log != self.log:
            raise ControlError(f"process {self.pid} is no daemon of this cluster: it logs to {log}")
        if self.container not in groups:
            raise ControlError(f"process {self.pid} is not in container {self.container[:12]}")


def is_there(pid: int) -> bool:
    """Whether any process has this id, and has not ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        return not _has_ended(pidfd)
    finally:
        os.close(pidfd)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _started_ticks(pid: int) -> int:
    return int(_stat(pid)[START_TICKS])


def _stat(pid: int) -> list[bytes]:
    try:
        return process_stat(pid)
    except OSError:
        raise NoDaemonError(f"process {pid} has ended") from None
