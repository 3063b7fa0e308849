"""The cluster of docker-compose.yml under trial: containers in place of child processes.

The control socket of a daemon is reached through ``/proc/PID/root``, which its own user and root may
do; a trial sends messages and follows every daemon as it does on a launched cluster. Links are out of
its reach, so faults of links are refused, and nothing else can listen in a container's place.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bmgd.client import connect
from bmgd.errors import BmgdError, ControlError, NoDaemonError, RequestError
from bmgd.trials.adopting import AdoptingCluster, last_words_in
from bmgd.trials.processes import Adopted

COMMAND_S: Final = 30.0
START_S: Final = 75.0
POLL_S: Final = 0.05
SOCKET: Final = "/run/bmgd/bmgd.sock"
"""Where the image's daemons have their control socket."""

_SERVICE: Final = re.compile(r"node(\d+)")
_LOG_LINES: Final = "40"


@dataclass(frozen=True, slots=True)
class _Container:
    id: str
    process: Adopted | None


class ComposedTrial(AdoptingCluster):
    """The containers of one Compose project, whose services are node0, node1 and so on.

    Args:
        project: its name.

    Raises:
        NoDaemonError: there are no such containers, or no engine answers.
    """

    def __init__(self, project: str) -> None:
        self._project = project
        self._containers: dict[int, _Container] = {}
        self.proxy_path: str | None = None
        self.can_grow = False
        self.refresh()
        if sorted(self._containers) != list(range(len(self._containers))) or not self._containers:
            raise NoDaemonError(f"no services node0, node1 … in the Compose project {project!r}")

    @property
    def size(self) -> int:
        return len(self._containers)

    def refresh(self) -> None:
        label = f"label=com.docker.compose.project={self._project}"
        ids = _docker("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
        for row in json.loads(_docker("inspect", *ids)) if ids else []:
            service = row["Config"]["Labels"].get("com.docker.compose.service", "")
            if match := _SERVICE.fullmatch(service):
                process = _adopted(row["State"]["Pid"], row["Id"])
                self._containers[int(match[1])] = _Container(row["Id"], process)

    def _container(self, node: int) -> _Container:
        try:
            return self._containers[node]
        except KeyError:
            raise NoDaemonError(f"the cluster has no node {node}") from None

    def _known(self, node: int) -> Adopted | None:
        return self._container(node).process

    def control(self, node: int) -> str:
        process = self._container(node).process
        if process is None:
            raise NoDaemonError(f"node {node} does not run")
        return f"unix:/proc/{process.pid}/root{SOCKET}"

    def has_ended(self, node: int) -> bool:
        return not self.is_running(node)

    async def restart(self, node: int) -> None:
        await asyncio.to_thread(_docker, "start", self._container(node).id)
        self.refresh()
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while not await self._is_ready(node):
                    if not self.is_running(node):
                        raise RequestError(f"node {node} ended before it joined")
                    await asyncio.sleep(POLL_S)
                return
        raise RequestError(f"node {node} has not joined within {START_S:g} s")

    async def _is_ready(self, node: int) -> bool:
        try:
            async with connect(self.control(node)) as daemon:
                return bool((await daemon.status())["state"] == "ready")
        except BmgdError:
            return False

    async def grow(self, count: int) -> None:
        raise ControlError("the cluster of docker-compose.yml does not grow")

    def place(self, node: int) -> str | None:
        return None

    def restart_command(self, node: int) -> str:
        return f"docker start {self._container(node).id[:12]}"

    def last_words(self, node: int) -> str:
        try:
            lines = _docker("logs", "--tail", _LOG_LINES, self._container(node).id).splitlines()
        except ControlError:
            return ""
        return last_words_in(lines)


def _adopted(pid: int, container: str) -> Adopted | None:
    if pid == 0:
        return None
    if not os.access(f"/proc/{pid}/root/", os.X_OK):
        raise ControlError("only root, or the containers' user, can reach daemons in containers")
    try:
        return Adopted.of(pid, container=container)
    except NoDaemonError:
        return None


def _docker(*words: str) -> str:
    """What a command of docker wrote.

    Raises:
        NoDaemonError: docker is not installed, or failed.
    """
    try:
        done = subprocess.run(
            ["docker", *words], capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoDaemonError(f"docker {words[0]}: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise NoDaemonError(f"docker {words[0]}: {lines[-1]}")
    # Logs come on stderr as the daemon wrote them.
    return done.stdout + (done.stderr if words[0] == "logs" else "")
