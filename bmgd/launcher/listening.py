"""The process of a daemon, found by its control socket, to be killed and waited for."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time

from bmgd.errors import ControlError, NoDaemonError, RequestError
from bmgd.shell.process_stat import process_began_s

_CONNECT_S = 5.0
_PEER_CREDENTIALS = struct.Struct("=iII")


class ListeningProcess:
    """The process that listens at a control socket.

    The kernel tells who listens, so neither a stale file nor a process id that was given out again
    can name another process; and it works for a daemon that is stopped.

    Args:
        path: of the socket.

    Raises:
        NoDaemonError: nobody listens there.
        RequestError: this user may not use the socket, or not see who listens.
    """

    def __init__(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_CONNECT_S)
            asked_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            try:
                probe.connect(path)
                options = probe.getsockopt(
                    socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
                )
                self.pid: int = _PEER_CREDENTIALS.unpack(options)[0]
                self._pidfd = os.pidfd_open(self.pid)
            except PermissionError as error:
                raise RequestError(
                    f"this user may not use the socket {path}: {error.strerror}"
                ) from None
            except OSError as error:
                raise NoDaemonError(f"no daemon at {path}: {error.strerror or error}") from None
        # The number may have been given out again meanwhile; the socket says nothing of that, as a
        # daemon that refuses this user closes it.
        if _readable(self._pidfd, 0) or _is_younger(self.pid, asked_s):
            os.close(self._pidfd)
            raise NoDaemonError(f"the daemon at {path} has just ended")

    def __enter__(self) -> ListeningProcess:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pidfd)

    def kill(self) -> None:
        """Send SIGKILL."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except OSError as error:
            raise ControlError(f"cannot kill process {self.pid}: {error.strerror}") from None

    def wait(self, within_s: float) -> bool:
        """Wait until the process has ended; False when it has not."""
        return _readable(self._pidfd, within_s)


def _is_younger(pid: int, moment_s: float) -> bool:
    """Whether a process began after a moment of CLOCK_BOOTTIME, or is gone."""
    try:
        return process_began_s(pid) > moment_s
    except OSError:
        return True


def _readable(source: socket.socket | int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
