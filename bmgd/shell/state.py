"""What a daemon keeps between its lives: the incarnation counter, if it has a state directory."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from bmgd.errors import ConfigError
from bmgd.types import Incarnation, counter_of

_COUNTER_MAX = 2**32 - 1


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
            try:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.open(
                    self._file.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600
                )
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(f"state directory {path}: another daemon has it") from error
            except OSError as error:
                raise ConfigError(f"state directory {path}: {error.strerror}") from error

    def close(self) -> None:
        """Let another daemon have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def begin_life(self) -> Incarnation:
        """An incarnation above the one that is kept, which is kept in its turn."""
        counter = self._read() + 1
        if counter > _COUNTER_MAX:
            raise ConfigError(f"{self._file}: no incarnation is left")
        incarnation = Incarnation(counter << 32 | secrets.randbits(32))
        self.keep(incarnation)
        return incarnation

    def keep(self, incarnation: Incarnation) -> None:
        """Remember a life before anybody else hears of it."""
        if self._file is None:
            return
        fresh = self._file.with_suffix(".new")
        try:
            with fresh.open("w") as file:
                file.write(f"{counter_of(incarnation)}\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
        except OSError as error:
            raise ConfigError(f"{fresh}: {error.strerror}") from error

    def _read(self) -> int:
        if self._file is None:
            return 0
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            return 0
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._file}: {error}") from error
        if not text.strip().isdigit() or int(text) > _COUNTER_MAX:
            raise ConfigError(f"{self._file}: not an incarnation counter: {text[:40]!r}")
        return int(text)
