"""Who may use a daemon's control socket, by what the kernel says of the process at the other end.

The daemon's own user and root may do everything. `--control-group` lets the members of a group do so too,
`--control-readonly` lets those of another look, but change nothing. The mode of the socket keeps others
out where it can (a socket has one group). What the kernel says of the process counts in any case.
"""

from __future__ import annotations

import grp
import os
import socket
import struct
from enum import IntEnum
from typing import Final

from bmgd.dataclass import dataclass
from bmgd.errors import ConfigError

READ_ONLY: Final = frozenset(
    {
        "hello",
        "status",
        "members",
        "links",
        "ping",
        "trace",
        "membership",
        "monitor",
        "cluster",
        "programs",
    }
)
"""The verbs of those who may only look: none of them changes a node, a message or a reader."""

_CREDENTIALS: Final = struct.Struct("iII")
_SO_PEERGROUPS: Final = 59
_GROUP_MAX: Final = 2**32 - 2
"""One more stands for no change."""
_GROUPS_BYTES_MAX: Final = 1024
"""The most that `socket.getsockopt` takes: 256 groups."""
_OWNER, _ONE_GROUP, _EVERYBODY = 0o600, 0o660, 0o666


class Level(IntEnum):
    """What a program may do."""

    NOTHING = 0
    LOOK = 1
    EVERYTHING = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket, when it connected.

    Args:
        groups: all groups that it is in.
    """

    pid: int
    uid: int
    groups: frozenset[int]

    def __str__(self) -> str:
        return f"uid {self.uid} (pid {self.pid})"


def peer_of(sock: socket.socket) -> Peer:
    """Ask the kernel who is at the other end."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    try:
        others = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES_MAX)
    except OSError:
        # A kernel before 4.13, or a process in more groups: the main group alone counts.
        others = b""
    return Peer(pid, uid, frozenset((gid, *(g for (g,) in struct.iter_unpack("I", others)))))


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what.

    Args:
        uid: the daemon's user.
        group: whose members may do everything; None for nobody.
        readers: whose members may look; None for nobody.
    """

    uid: int
    group: int | None = None
    readers: int | None = None

    @classmethod
    def of(cls, group: str, readers: str) -> Access:
        """From names or numbers of groups, "" for none.

        Raises:
            ConfigError: there is no such group.
        """
        return cls(
            os.geteuid(),
            _number_of(group, "--control-group"),
            _number_of(readers, "--control-readonly"),
        )

    def level(self, peer: Peer) -> Level:
        """What this process may do."""
        if peer.uid in (0, self.uid) or self.group in peer.groups:
            return Level.EVERYTHING
        return Level.LOOK if self.readers in peer.groups else Level.NOTHING

    @property
    def mode(self) -> int:
        """The mode that the socket needs."""
        groups = {self.group, self.readers} - {None}
        return (_OWNER, _ONE_GROUP, _EVERYBODY)[len(groups)]

    @property
    def owner(self) -> int | None:
        """The group that the socket is to have, or None for the daemon's own."""
        return self.group if self.readers in (None, self.group) else self.readers


def _number_of(name: str, flag: str) -> int | None:
    if not name:
        return None
    try:
        number = int(name) if name.isascii() and name.isdigit() else grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise ConfigError(f"{flag}: there is no group {name[:80]!r}") from None
    if number > _GROUP_MAX:
        raise ConfigError(f"{flag}: a group has a number up to {_GROUP_MAX}, not {name[:80]}")
    return number
