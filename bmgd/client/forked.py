"""A process that is forked from a program has no part in its connections.

A daemon takes the end of a connection for the end of its program. A child that holds the socket too,
such as a worker of `multiprocessing`, would keep its parent registered after the parent was killed. So in
each child the descriptors of all connections become ones of /dev/null: who closes them there closes
nothing else.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_SOCKETS: Final[dict[int, tuple[int, int]]] = {}
"""Of open connections: the descriptors, each with the device and inode of its socket."""


def keep_from_children(descriptor: int) -> None:
    """Children that are forked from now on do not hold this socket."""
    status = os.fstat(descriptor)
    _SOCKETS[descriptor] = status.st_dev, status.st_ino


def forget(descriptor: int) -> None:
    """It is closed, or about to be."""
    _SOCKETS.pop(descriptor, None)


def _let_go() -> None:
    """This process is a child: it lets go of its parent's sockets."""
    sockets = dict(_SOCKETS)
    _SOCKETS.clear()
    if not sockets:
        return
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor, (device, inode) in sockets.items():
        # Closed by another thread at this moment, it may be one of another file by now.
        with suppress(OSError):
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == (device, inode):
                os.dup2(null, descriptor, inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_let_go)
