"""What a daemon keeps in its state directory: the counter of its lives, and a joiner's id."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from bmgd.core.events import Granted
from bmgd.core.settings import Settings
from bmgd.errors import ConfigError
from bmgd.peers import PeerList
from bmgd.types import COUNTER_MAX, NODE_ID_MAX, Incarnation, NodeId, counter_of

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is read of a file at most: a joiner keeps the list of founders, which can be long."""


class StateDirectory:
    """Keeps the counter of the last incarnation of one id.

    Args:
        path: the directory, made if it is missing; "" keeps nothing.
        node_id: the id whose lives are counted; two daemons never count the same at once.

    Raises:
        ConfigError: another daemon has it, or the directory or the file in it cannot be used.
    """

    def __init__(self, path: str, node_id: int) -> None:
        self._file = Path(path, f"incarnation-{node_id}") if path else None
        self._lock = -1
        if self._file is not None:
            self._lock = _lock(self._file)

    def close(self) -> None:
        """Let another daemon have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def begin_life(self) -> Incarnation:
        """An incarnation above the one that is kept, which is kept in its turn."""
        counter = min(self._read() + 1, COUNTER_MAX)
        incarnation = Incarnation(counter << 32 | secrets.randbits(32))
        self.keep(incarnation)
        return incarnation

    def keep(self, incarnation: Incarnation) -> None:
        """Remember a life before anybody else hears of it."""
        if self._file is not None:
            _replace(self._file, str(counter_of(incarnation)))

    def _read(self) -> int:
        if self._file is None:
            return 0
        content = _read_kept(self._file)
        if content is None:
            return 0
        digits = content.strip()
        is_number = digits.isdigit() and len(digits) <= len(str(COUNTER_MAX))
        if not is_number or int(digits) > COUNTER_MAX:
            shown = content[:40].decode(errors="replace")
            raise ConfigError(f"{self._file}: not an incarnation counter: {shown!r}")
        return int(digits)


class JoinedState:
    """Keeps what a joiner was granted, so that it comes back as the same member.

    Args:
        path: the directory, made if it is missing; "" keeps nothing.
        cluster: its name.

    Raises:
        ConfigError: another daemon has it, or the directory cannot be used.
    """

    def __init__(self, path: str, cluster: str) -> None:
        self._file = Path(path, "joined.json") if path else None
        self._cluster = cluster
        self._lock = -1 if self._file is None else _lock(self._file)

    def close(self) -> None:
        """Let another daemon have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def read(self) -> Granted | None:
        """What was kept; None without anything.

        Raises:
            ConfigError: the file cannot be read, is not one of this class, or of another cluster.
        """
        content = None if self._file is None else _read_kept(self._file)
        if content is None:
            return None
        of_another = ""
        try:
            match json.loads(content):
                case {"id": bool()} | {"size": bool()}:
                    pass  # Python counts them as 0 and 1.
                case {"cluster": str(name)} if name != self._cluster:
                    of_another = name
                case {"id": int(node_id), "size": int(size), "peers": str(text)} if (
                    0 <= node_id <= NODE_ID_MAX and 1 <= size <= NODE_ID_MAX + 1
                ):
                    return Granted(NodeId(node_id), size, PeerList.parse(text, size))
        except ConfigError as error:
            raise ConfigError(f"{self._file}: not what a joiner keeps: {error}") from None
        except (ValueError, RecursionError):
            pass
        if of_another:
            text = f"of the cluster {of_another!r}, and this one is {self._cluster!r}"
            raise ConfigError(f"{self._file}: {text}")
        raise ConfigError(f"{self._file}: not what a joiner keeps")

    def keep(self, settings: Settings) -> None:
        """Remember an id before anybody else hears of its life."""
        if self._file is not None:
            kept = {"id": settings.id, "size": settings.founding_size, "peers": settings.peers.text}
            _replace(self._file, json.dumps(kept | {"cluster": self._cluster}))

    def check_is_of(self, kept: Granted, size: int) -> None:
        """Refuse an id that was granted by a cluster with another number of founders.

        In a cluster that was made anew the same id may be a founder's.

        Raises:
            ConfigError: it has another one.
        """
        if kept.founding_size != size:
            whose = f"node {kept.id} of a cluster of {kept.founding_size} founders"
            raise ConfigError(
                f"{self._file}: {whose}, and this one has {size}: give --id {kept.id} to be that node"
                " here too, or another --state-dir"
            )


def _lock(file: Path) -> int:
    """Make the directory of a file, and lock the file for this process."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(file.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(f"state directory {file.parent}: another daemon has it") from error
    except OSError as error:
        raise ConfigError(f"state directory {file.parent}: {error.strerror}") from error
    return lock


def _read_kept(file: Path) -> bytes | None:
    """The beginning of a file, which is more than any that is kept has; None where there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        # A pipe would be waited for.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{file}: no regular file")
        with open(descriptor, "rb", closefd=False) as kept:
            return kept.read(KEPT_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    fresh = file.with_suffix(".new")
    try:
        # Somebody else's link with this name would let the text into a file of his choice.
        fresh.unlink(missing_ok=True)
        with open(fresh, "x", opener=_no_link) as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError as error:
        raise ConfigError(f"{fresh}: {error.strerror}") from error
