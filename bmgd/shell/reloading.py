"""Files that are read again while a daemon runs: on a signal, on request, and when they have changed.

Theory of operation. The files are looked at once in `LOOK_S`, by their paths, so a replaced file is seen,
and so is one behind a symbolic link or in a directory that is mounted. A change counts when the next
look finds no further change: a file that is being written is not read. All files are checked before
any is used; an error is reported, and nothing changes. What was refused is tried again every `AGAIN_S`,
and another error is reported: a certificate may become valid.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from bmgd.config import Config
from bmgd.config_files import read_again
from bmgd.errors import ConfigError

LOOK_S = 1.0
AGAIN_S = 10.0

_Seen = tuple[tuple[int, ...], ...]


class Reloading:
    """Reads the files of a configuration anew.

    Args:
        config: the configuration as it was read first.
        apply: takes a configuration whose files were read anew, and differ; raises ConfigError if it
            cannot, and changes nothing then.
        note: writes a line of log, a warning: an event and a text.
    """

    def __init__(
        self,
        config: Config,
        apply: Callable[[Config], None],
        note: Callable[[str, str], None],
    ) -> None:
        self._config = config
        self._apply = apply
        self._note = note
        self._paths = config.read_files()
        self._loop = asyncio.get_running_loop()
        self._read = self._last = self._look()
        self._timer: asyncio.TimerHandle | None = None
        self._refused = ""
        """Why what the files hold was not used; "" where it is used."""
        self._again_at = 0.0

    def start(self) -> None:
        """Look at the files from now on, if there are any."""
        if self._paths:
            self._timer = self._loop.call_later(LOOK_S, self._on_timer)

    def stop(self) -> None:
        """Look no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def reload(self) -> bool:
        """Read the files now; returns whether anything differs.

        Raises:
            ConfigError: what they hold cannot be used; nothing was changed.
        """
        self._read = self._last = self._look()
        self._again_at = self._loop.time() + AGAIN_S
        try:
            config = read_again(self._config)
            changed = config != self._config
            if changed:
                # Certificates are looked into only here; where they are refused, the next call says so.
                self._apply(config)
        except ConfigError as error:
            self._refused = str(error)
            raise
        self._refused, self._config = "", config
        return changed

    def try_reload(self, told: str = "") -> None:
        """As `reload`; what came of it is said in the log, but for an error that was told before."""
        try:
            changed = self.reload()
        except ConfigError as error:
            if str(error) != told:
                self._note("reload", f"nothing was changed: {error}")
        else:
            if not changed:
                what = ", ".join(self._paths) or "there are no files"
                self._note("reload", f"read anew, nothing differs: {what}")

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._on_timer)
        now = self._look()
        if now == self._last:
            if now != self._read:
                self.try_reload()
            elif self._refused and self._loop.time() >= self._again_at:
                self.try_reload(told=self._refused)
        self._last = now

    def _look(self) -> _Seen:
        return tuple(_signature(path) for path in self._paths)


def _signature(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)
    except OSError as error:
        return (-(error.errno or 1),)
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
