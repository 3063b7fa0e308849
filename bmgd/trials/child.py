"""Processes that a trial starts itself: hogs, and those that take over a dead daemon's port.

    python -m bmgd.trials.child hog SECONDS PARENT
    python -m bmgd.trials.child mute HOST:PORT PARENT       accepts for ever, never says a word
    python -m bmgd.trials.child stranger HOST:PORT PARENT   the daemon of another cluster

Each dies with the trial, however that ends.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bmgd.config import Config
from bmgd.errors import ConfigError, NoDaemonError
from bmgd.peers import PeerList
from bmgd.shell.addresses import bind_listener
from bmgd.shell.process import die_with_parent, set_title
from bmgd.trials.priority import be_ordinary

STRANGERS_CLUSTER: Final = "stranger of a trial"
LISTENING_S: Final = 5.0
ENDING_S: Final = 5.0
KEPT_MAX: Final = 4096
"""Connections that the mute one holds open; the oldest closes."""


# --- in the child ---------------------------------------------------------------------------------


def _hog(seconds: float) -> int:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass
    return 0


def _mute(address: str) -> int:
    listener = bind_listener(address)
    listener.setblocking(True)
    print("listening", flush=True)
    kept: list[socket.socket] = []
    while True:
        connection, _ = listener.accept()
        kept = [*kept[-KEPT_MAX:], connection]


def _stranger(address: str) -> int:
    from bmgd.shell.run import run_daemon

    config = Config(
        id=0, size=1, peers=PeerList.parse(address, 1), cluster=STRANGERS_CLUSTER, log_level="error"
    )

    def report(events: Sequence[Mapping[str, object]]) -> None:
        if any(event["event"] == "listening" for event in events):
            print("listening", flush=True)

    return run_daemon(config, report=report)


def main() -> int:
    """Be one of them."""
    what, argument, parent = sys.argv[1:]
    die_with_parent(int(parent))
    be_ordinary()
    set_title(f"bmgd: {what} of a trial", f"bmgd-{what}")
    match what:
        case "hog":
            return _hog(float(argument))
        case "mute":
            return _mute(argument)
    return _stranger(argument)


# --- in the trial ---------------------------------------------------------------------------------


class Child:
    """One of them, seen by the trial that started it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, what: str, argument: str) -> Child:
        """Start one; one that listens does so when this returns.

        Raises:
            NoDaemonError: it does not come to listen.
        """
        import os

        words = ["-m", "bmgd.trials.child", what, argument, str(os.getpid())]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        child = cls(process)
        if what != "hog":
            await child._listening(argument)
        return child

    async def _listening(self, address: str) -> None:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(LISTENING_S):
                if await self._process.stdout.readline():
                    return
                await self._process.wait()
        except TimeoutError:
            await self.end()
        raise NoDaemonError(f"nothing came to listen at {address} in place of a dead daemon")

    async def end(self) -> None:
        """Kill it and wait for its end."""
        if self._process.returncode is None:
            self._process.kill()
        async with asyncio.timeout(ENDING_S):
            await self._process.wait()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConfigError as error:
        print(f"bmgd: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
