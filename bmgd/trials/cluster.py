"""Clusters that a trial can be made on: what all of them can do, and the launched one."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from bmgd.errors import ControlError, NoDaemonError, RequestError
from bmgd.launcher.requests import CONNECTIONS_MAX, ask_grow, ask_restart
from bmgd.launcher.rundir import Member, RunDir, read_members
from bmgd.trials.adopting import AdoptingCluster, last_words_in
from bmgd.trials.processes import Adopted, is_there

_TAIL_BYTES: Final = 4096


class TrialCluster(Protocol):
    """A running cluster, as a trial sees it.

    Attributes:
        proxy_path: the socket of its fault proxy; None without one.
        can_grow: whether new nodes can join it.
    """

    proxy_path: str | None
    can_grow: bool

    @property
    def size(self) -> int:
        """How many nodes it has by now; their ids are below."""

    def control(self, node: int) -> str:
        """The control address of a daemon.

        Raises:
            NoDaemonError: it does not run.
        """

    def refresh(self) -> None:
        """See which processes there are now; adopt those that are new."""

    def is_running(self, node: int) -> bool:
        """Whether its process is there, stopped or not."""

    def has_ended(self, node: int) -> bool:
        """Whether it surely has no process: one that cannot be told from another's has not ended."""

    def is_stopped(self, node: int) -> bool:
        """Whether its process is stopped."""

    def send(self, node: int, number: signal.Signals) -> None:
        """Send a signal to a daemon, verified to be one of this cluster.

        Raises:
            NoDaemonError: it does not run.
            ControlError: it cannot be signalled, or is not what it was.
        """

    async def restart(self, node: int) -> None:
        """Start a daemon again that has ended; returns once it has joined.

        Raises:
            ControlError: it cannot be started, or does not join.
        """

    async def grow(self, count: int) -> None:
        """Let new nodes join, all at once; returns once they are members.

        Raises:
            ControlError: they cannot be started, or do not join.
        """

    def place(self, node: int) -> str | None:
        """Where a daemon listens, ``host:port``; None where no other process could."""

    def last_words(self, node: int) -> str:
        """Why a daemon ended, as it wrote into its log; "" when it wrote nothing of it."""

    def restart_command(self, node: int) -> str:
        """What an operator types to start a daemon again that has ended."""


class LaunchedTrial(AdoptingCluster):
    """A cluster of `bmgd launch`.

    Args:
        run_dir: its run directory.

    Raises:
        NoDaemonError: no cluster runs there.
        RequestError: its daemons are another user's, whom this one may not signal.
    """

    def __init__(self, run_dir: str) -> None:
        self._place = RunDir.at(run_dir)
        self._members: dict[int, Member] = {}
        self._adopted: dict[int, Adopted] = {}
        self.refresh()
        self._check_permitted()
        path = self._place.between_socket
        self.proxy_path = path if os.path.exists(path) else None
        self.can_grow = True
        # asyncio's own has six threads on two cores: a few that wait would hold all others up.
        self._asking = ThreadPoolExecutor(CONNECTIONS_MAX, "asking the launcher")

    @property
    def size(self) -> int:
        return max(self._members, default=-1) + 1

    def refresh(self) -> None:
        self._members = {member.id: member for member in read_members(self._place.path)}
        for node, member in self._members.items():
            known = self._adopted.get(node)
            if member.pid is None:
                self._adopted.pop(node, None)
            elif known is None or known.pid != member.pid or not known.is_running():
                self._adopt(node, member.pid)

    def _adopt(self, node: int, pid: int) -> None:
        self._adopted.pop(node, None)
        # It may have just ended, or have just begun and not opened its log: then it is not taken for
        # one of this cluster yet, and gets no signal.
        with suppress(ControlError):
            self._adopted[node] = Adopted.of(pid, self._place.log(node))

    def _check_permitted(self) -> None:
        for node, member in self._members.items():
            if member.pid is not None and node not in self._adopted and not _may_signal(member.pid):
                raise RequestError(
                    f"process {member.pid} of node {node} is another user's: make the trial as that user"
                )

    def control(self, node: int) -> str:
        return self._member(node).control

    def _member(self, node: int) -> Member:
        try:
            return self._members[node]
        except KeyError:
            raise NoDaemonError(f"the cluster has no node {node}") from None

    def _known(self, node: int) -> Adopted | None:
        return self._adopted.get(node)

    def has_ended(self, node: int) -> bool:
        if self.is_running(node):
            return False
        # A joiner that was just given an id, or another one, is not adopted under it yet.
        member = self._members.get(node)
        return member is None or member.pid is None or not is_there(member.pid)

    async def restart(self, node: int) -> None:
        await self._ask(partial(ask_restart, self._place.path, node))
        self.refresh()

    async def _ask(self, ask: Callable[[], object]) -> None:
        """The launcher answers when a daemon has joined, or after a minute: each waits in a thread."""
        await asyncio.get_running_loop().run_in_executor(self._asking, ask)

    async def grow(self, count: int) -> None:
        await self._ask(partial(ask_grow, self._place.path, count))
        self.refresh()

    def last_words(self, node: int) -> str:
        try:
            with open(self._place.log(node), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return last_words_in(lines)

    def restart_command(self, node: int) -> str:
        return f"bmgd restart {node} --run-dir {shlex.quote(self._place.path)}"

    def place(self, node: int) -> str | None:
        member = self._member(node)
        return member.listen or member.address


def _may_signal(pid: int) -> bool:
    """Whether this user may signal a process; also where there is none any more."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except OSError:
        pass
    return True
