"""The flight recorder of a daemon: when its recording is written, where, and how many are kept."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bmgd.config import Config, control_path
from bmgd.core.effects import Effect
from bmgd.core.events import Event
from bmgd.core.node import Node
from bmgd.errors import ConfigError, RequestError
from bmgd.flight.recorder import FlightRecorder
from bmgd.flight.values import NotRecordable
from bmgd.version import VERSION

FILES_MAX: Final = 8
"""Recordings of one daemon that are kept in a directory; a further one removes the oldest."""

SUFFIX: Final = ".bmgdrec"
PART: Final = ".part"
"""Behind the name of a file that is not yet whole."""

_UNWRITTEN: Final = (OSError, NotRecordable, MemoryError, ImportError)
"""Why there is no file: none can be written, something cannot be recorded, there is no memory for it, or
another bmgd has been installed since this one was started."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]
Warn = Callable[[str, str], None]
Note = Callable[[int, Event, list[Effect]], None]


class Flight:
    """Notes the steps of a daemon's core, and writes them to a file when asked.

    Args:
        config: `flight_bytes` of it bounds what is kept, 0 for nothing at all.
        spawn: runs a coroutine beside the daemon.
        say, warn: write a line of log.
    """

    def __init__(self, config: Config, spawn: Spawn, say: Warn, warn: Warn) -> None:
        self._config = config
        self._spawn = spawn
        self._say, self._warn = say, warn
        self._recorder: FlightRecorder | None = None
        self._has_failed = False
        self._is_writing = False
        self._part = ""
        self._count = 0

    def begin(
        self, node: Node, config: Config, now_ns: int, make: Callable[[], Node] | None
    ) -> Note | None:
        """Record this core from its first step on; one that was recorded before is forgotten.

        Args:
            make: see `FlightRecorder`.

        Returns:
            What keeps one step that the core has just made; None where nothing is recorded.
        """
        self._config = config
        self._recorder = None
        self._has_failed = False
        if not config.flight_bytes:
            return None
        payloads = config.flight_payloads
        try:
            self._recorder = FlightRecorder(
                node, now_ns, config.flight_bytes, payloads=payloads, make=make
            )
        except MemoryError as error:
            self.give_up(error)
            return None
        return self._recorder.note

    def note_failure(self, now_ns: int, event: Event) -> None:
        """Keep the event on which the core failed."""
        if self._recorder is None:
            return
        try:
            self._recorder.note_failure(now_ns, event)
        except MemoryError as error:
            self.give_up(error)

    def give_up(self, error: MemoryError) -> None:
        """There is no memory for the recorder: its daemon goes on without one, and has what it took."""
        self._recorder = None
        self._has_failed = True
        self._warn("recording", f"the flight recorder failed and records no more: {error!r}")

    # --- writing ------------------------------------------------------------------------------

    def record(self) -> dict[str, object]:
        """Begin to write a file, because a program asked for it; it is there when it is whole.

        Returns:
            ``{"path":…, "steps":…, "seconds":…}``: how many steps, and how long ago the first was.

        Raises:
            RequestError: nothing is recorded, another file is being written, or none can be.
        """
        return self._begin_file("asked")

    def on_signal(self) -> None:
        """USR2: the same, and what comes of it goes to the log."""
        try:
            self._begin_file("usr2")
        except RequestError as error:
            self._warn("recording", str(error))

    def write_now(self, reason: str) -> str:
        """Write a file before this returns, because the process ends; "" when there is none."""
        if self._recorder is None:
            return ""
        path = self._path(reason)
        try:
            with open(path, "xb", opener=_private) as file:
                for piece in self._frames(self._recorder, reason):
                    file.write(piece)
        except _UNWRITTEN as error:
            self._warn("recording", f"cannot be written to {path}: {_why(error)}")
            return ""
        self._clear(path)
        return path

    def _begin_file(self, reason: str) -> dict[str, object]:
        recorder = self._recorder
        if recorder is None:
            started = "the daemon was started with --flight-bytes 0"
            why = "the flight recorder failed, see the log" if self._has_failed else started
            raise RequestError(f"nothing is recorded: {why}")
        if self._is_writing:
            raise RequestError("a recording is being written: ask again when it is there")
        path = self._path(reason)
        self._part = path + PART
        try:
            file = open(self._part, "xb", opener=_private)  # noqa: SIM115 (closed by the task)
        except OSError as error:
            raise RequestError(
                f"no recording can be written to {path} ({error.strerror}):"
                " start the daemon with another --flight-dir"
            ) from None
        self._is_writing = True
        self._spawn(self._write(recorder, file, path, reason))
        began_ns = recorder.segments[0].began_ns
        seconds = round((time.monotonic_ns() - began_ns) / 1e9, 3)
        return {"path": os.path.abspath(path), "steps": recorder.step_count, "seconds": seconds}

    async def _write(self, recorder: FlightRecorder, file: Any, path: str, reason: str) -> None:
        try:
            with file:
                for piece in self._frames(recorder, reason):
                    file.write(piece)
                    # The daemon goes on between two pieces.
                    await asyncio.sleep(0)
            os.replace(path + PART, path)
        except _UNWRITTEN as error:
            self._warn("recording", f"cannot be written to {path}: {_why(error)}")
        else:
            self._say("recording", f"the last steps were written to {path} ({reason})")
            self._clear(path)
        finally:
            self._is_writing = False
            with suppress(OSError):
                os.unlink(path + PART)

    def _frames(self, recorder: FlightRecorder, reason: str) -> Any:
        # Imported when it is needed: a daemon that is never asked pays nothing.
        from bmgd.flight.recording import Head, frames

        clock = (time.monotonic_ns(), time.time_ns())
        head = Head(self._config.id, VERSION, os.getpid(), *clock, reason, recorder.payloads)
        return frames(head, recorder.segments)

    def _clear(self, path: str) -> None:
        """Keep this file and the newest others, and nothing unfinished of daemons that have ended."""
        directory, name = os.path.split(path)
        whole = re.compile(rf"flight-{self._config.id}-\w+-(\d+)-\d+-\w+{re.escape(SUFFIX)}")
        part = re.compile(whole.pattern + re.escape(PART))
        with suppress(OSError):
            entries = list(os.scandir(directory))
            # The clock that gave the times may have been set back: what was just written stays.
            older = [e for e in entries if whole.fullmatch(e.name) and e.name != name]
            older.sort(key=lambda entry: entry.stat().st_mtime_ns)
            stale = older[: -(FILES_MAX - 1)]
            for entry in entries:
                found = part.fullmatch(entry.name)
                if found and entry.path != self._part and not _lives(int(found[1])):
                    stale.append(entry)
            for entry in stale:
                os.unlink(entry.path)

    def _path(self, reason: str) -> str:
        self._count += 1
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"flight-{self._config.id}-{when}-{os.getpid()}-{self._count}-{reason}{SUFFIX}"
        return os.path.join(directory_of(self._config), name)


def directory_of(config: Config) -> str:
    """Where recordings go: --flight-dir, else the state directory, else beside the control socket."""
    if config.flight_dir or config.state_dir:
        return config.flight_dir or config.state_dir
    return os.path.dirname(control_path(config.control)) if config.control else "."


def prepare_directory(config: Config) -> None:
    """Make --flight-dir where there is none: a bug is no time to learn that nothing can be written.

    Raises:
        ConfigError: it cannot be made, or nothing can be written there.
    """
    path = config.flight_dir
    if not path or not config.flight_bytes:
        return
    try:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"flight directory {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"flight directory {path}: no recording can be written there")


def _why(error: OSError | NotRecordable | MemoryError | ImportError) -> str:
    return (isinstance(error, OSError) and error.strerror) or repr(error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lives(pid: int) -> bool:
    """Whether another process has this id: in a container each daemon may have the same one."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
