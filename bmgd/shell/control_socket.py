"""The Unix socket of a daemon: made for its owner, or for groups; never stolen from a living daemon."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bmgd.config import control_path
from bmgd.errors import ConfigError

_BACKLOG = 128
_MODE = 0o600
_ALONE_S = 2.0
_ALONE_PAUSE_S = 0.01
"""For so long a daemon that begins waits for others that do, and so long between two looks."""


def bind_control_socket(
    address: str, mode: int = _MODE, group: int | None = None
) -> tuple[socket.socket, int]:
    """Bind and listen at a control address; a socket that nobody serves any more is replaced.

    Args:
        address: ``unix:PATH``.
        mode: of the path, in the end; others than the owner come in last.
        group: that the path is to have, or None for that of the process.

    Returns:
        The listening socket, and the inode of its path.

    Raises:
        ConfigError: the path is too long, not writable, another's, or served by a living daemon.
    """
    path = control_path(address)
    with _alone_in(os.path.dirname(path) or "."):
        _remove_stale(path)
        return _bind(path, mode, group)


@contextmanager
def _alone_in(directory: str) -> Iterator[None]:
    """Keep other daemons that begin from replacing a socket here meanwhile.

    A socket that is bound and does not listen yet looks like that of a dead daemon.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # Nobody may read it, or it is not there: then binding says so.
        yield
        return
    try:
        until_s = time.monotonic() + _ALONE_S
        while not _is_locked(descriptor) and time.monotonic() < until_s:
            time.sleep(_ALONE_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _bind(path: str, mode: int, group: int | None) -> tuple[socket.socket, int]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # The mode must be right from the first moment: a chmod after bind would leave a gap.
    umask = os.umask(0o777 & ~_MODE)
    is_bound = False
    try:
        sock.bind(path)
        is_bound = True
        if group is not None:
            os.chown(path, -1, group)
        if mode != _MODE:
            os.chmod(path, mode)
        sock.listen(_BACKLOG)
        return sock, os.stat(path).st_ino
    except OSError as error:
        sock.close()
        if is_bound:
            os.unlink(path)
        raise ConfigError(f"cannot serve programs at {path}: {error.strerror}") from None
    finally:
        os.umask(umask)


def remove_control_socket(address: str, inode: int) -> None:
    """Remove the socket's path, unless another daemon has put its own there."""
    path = control_path(address)
    try:
        if os.stat(path).st_ino == inode:
            os.unlink(path)
    except OSError:
        # It is gone, or its directory takes no change any more: the next daemon replaces it.
        pass


def _remove_stale(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot serve programs at {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"cannot serve programs at {path}: there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except BlockingIOError:
            raise ConfigError(f"another daemon serves programs at {path}") from None
        except OSError as error:
            raise ConfigError(f"cannot serve programs at {path}: {error.strerror}") from None
        else:
            raise ConfigError(f"another daemon serves programs at {path}")
