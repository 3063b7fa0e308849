"""The Unix socket of a daemon: made for its owner, or for groups; never stolen from a living daemon."""

from __future__ import annotations

import os
import socket
import stat

from bmgd.config import control_path
from bmgd.errors import ConfigError

_BACKLOG = 128
_MODE = 0o600


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
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # The mode must be right from the first moment: a chmod after bind would leave a gap.
    umask = os.umask(0o777 & ~_MODE)
    try:
        sock.bind(path)
        if group is not None:
            os.chown(path, -1, group)
        if mode != _MODE:
            os.chmod(path, mode)
        sock.listen(_BACKLOG)
        return sock, os.stat(path).st_ino
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot serve programs at {path}: {error.strerror}") from None
    finally:
        os.umask(umask)


def remove_control_socket(address: str, inode: int) -> None:
    """Remove the socket's path, unless another daemon has put its own there."""
    path = control_path(address)
    try:
        if os.stat(path).st_ino == inode:
            os.unlink(path)
    except FileNotFoundError:
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
