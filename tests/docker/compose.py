"""A cluster of containers, started from docker-compose.yml as a user would.

Nothing here sleeps for a time and hopes: `until` polls a condition, and fails with what is still wrong,
and the ends of all logs, when its deadline has passed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bmgd.topology import BinomialGraph
from tests.docker.engine import ROOT, compose_command, logs_of, output_of, run

SIZE = 9
"""As in docker-compose.yml. Eight survivors of nine do not all know each other: healing shows."""

DEADLINE_S = 60.0
POLL_S = 0.1
TAIL_LINES = 25
CONTROL = "unix:/run/bmgd/bmgd.sock"

Status = dict[str, Any]


class Cluster:
    """The containers of one Compose project.

    Args:
        image: what they run.
        secret: the path of the cluster's secret.
        files: of Compose, in the root of the source.
        variables: that these files have, but for image and secret.
    """

    def __init__(
        self, image: str, secret: Path, files: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        self.project = f"bmgd-test-{os.getpid()}-{secrets.token_hex(4)}"
        self.network = f"{self.project}_overlay"
        self.image = image
        self.ids = range(SIZE)
        self._compose = [
            *compose_command(),
            *("--project-name", self.project),
            *(word for name in files for word in ("--file", str(ROOT / name))),
        ]
        secrets_of = {"OVERLAY_SECRETS": str(secret.parent)}
        self._environment = {"OVERLAY_IMAGE": image, **secrets_of, **variables}
        self._containers: dict[int, str] = {}

    def compose(self, *words: str) -> str:
        """Run a command of Compose; returns what it wrote on stdout."""
        return output_of(*self._compose, *words, environment=self._environment)

    # --- single containers --------------------------------------------------------------------

    def container(self, node: int) -> str:
        """The id of a node's container, running or not."""
        if node not in self._containers:
            self._containers[node] = output_of(
                "docker", "ps", "--all", "--quiet", "--no-trunc",
                "--filter", f"label=com.docker.compose.project={self.project}",
                "--filter", f"label=com.docker.compose.service=node{node}",
            )  # fmt: skip
        return self._containers[node]

    def inspect(self, node: int, what: str) -> str:
        """A field of `docker inspect`, by its template."""
        return output_of("docker", "inspect", "--format", what, self.container(node))

    def address(self, node: int) -> str:
        """A node's address on the cluster's network; "" while it has none."""
        return self.inspect(node, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")

    def kill(self, node: int) -> float:
        """Kill a container; returns the time at which this began, in seconds since the epoch."""
        began_s = time.time()
        run("docker", "kill", self.container(node))
        return began_s

    def start(self, node: int) -> None:
        """Start a container again that was killed or stopped."""
        self.compose("start", f"node{node}")

    def cut_off(self, node: int) -> float:
        """Take a container off the network; returns the time at which this began."""
        began_s = time.time()
        run("docker", "network", "disconnect", self.network, self.container(node))
        return began_s

    def reconnect(self, node: int) -> None:
        """Put it back, under the name by which the others know it."""
        alias = f"node{node}"
        run("docker", "network", "connect", "--alias", alias, self.network, self.container(node))

    # --- daemons ------------------------------------------------------------------------------

    def bmgd(self, node: int, *words: str, stdin: bytes = b"") -> bytes:
        """Run a command of bmgd inside a node's container; returns what it wrote on stdout."""
        command = ("bmgd", words[0], *words[1:], "--control", CONTROL)
        return run(
            "docker", "exec", "--interactive", self.container(node), *command, stdin=stdin
        ).stdout

    def status(self, node: int) -> Status | None:
        """A daemon's status; None while it does not answer."""
        command = ("bmgd", "status", "--json", "--control", CONTROL)
        done = run("docker", "exec", self.container(node), *command, check=False)
        if done.returncode != 0:
            return None
        status: Status = json.loads(done.stdout)
        return status

    def statuses(self, nodes: Collection[int]) -> dict[int, Status | None]:
        """The status of several daemons, asked at the same time."""
        with ThreadPoolExecutor(4) as pool:
            return dict(zip(nodes, pool.map(self.status, nodes), strict=True))

    def carried(self, source: int, destination: int, payload: bytes, topic: str) -> bytes:
        """Send a message from one container; what is read in the other, of this source and topic."""
        self.bmgd(
            source, "send", str(destination), "--topic", topic, "--timeout", "20", stdin=payload
        )
        taken = self.bmgd(
            destination, "recv", "--topic", topic, "--count", "1", "--timeout", "20", "--json"
        )
        message = json.loads(taken)
        assert (message["source"], message["topic"]) == (source, topic)
        return str(message["payload"]).encode()

    def recorded_after_s(self, witness: int, peer: int, status: str, since_s: float) -> float:
        """How long after `since_s` a daemon logged a status of a peer, by the engine's clock."""
        line = re.compile(rf"(\S+) .* record peer {peer} .*\({status}\)")
        for match in filter(None, map(line.match, logs_of(self.container(witness)))):
            # Nanoseconds are more than Python's clock has.
            stamp = datetime.strptime(match[1][:26], "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC)
            if stamp.timestamp() >= since_s:
                return stamp.timestamp() - since_s
        raise AssertionError(f"node {witness} never logged that node {peer} is {status}")

    # --- waiting ------------------------------------------------------------------------------

    def until(self, wrong: Callable[[], list[str]], deadline_s: float = DEADLINE_S) -> None:
        """Poll until nothing is wrong any more.

        Raises:
            AssertionError: something still is at the deadline.
        """
        end_s = time.monotonic() + deadline_s
        while complaints := wrong():
            if time.monotonic() > end_s:
                tails = "\n".join(self._tails())
                raise AssertionError(
                    f"still wrong after {deadline_s} s: {'; '.join(complaints)}\n{tails}"
                )
            time.sleep(POLL_S)

    def settled(self, *, dead: Collection[int] = (), left: Collection[int] = ()) -> None:
        """Wait until all others are ready, agree on who is gone, and have exactly the healed links."""
        alive = [node for node in self.ids if node not in (*dead, *left)]

        def wrong() -> list[str]:
            complaints = []
            for node, status in self.statuses(alive).items():
                complaints += _complaints(node, status, alive, sorted(dead), sorted(left))
            return complaints

        self.until(wrong)

    def healthy(self) -> None:
        """Wait until the engine's health checks pass everywhere."""

        def wrong() -> list[str]:
            states = {node: self.inspect(node, "{{.State.Health.Status}}") for node in self.ids}
            return [
                f"node {node} is {state}" for node, state in states.items() if state != "healthy"
            ]

        self.until(wrong)

    def _tails(self) -> Iterator[str]:
        for node in self.ids:
            yield f"--- node {node}"
            yield from logs_of(self.container(node))[-TAIL_LINES:]

    def check_logs(self) -> None:
        """No daemon may have logged a traceback, whatever happened to it.

        Raises:
            AssertionError: one has.
        """
        for node in self.ids:
            lines = logs_of(self.container(node))
            assert not [line for line in lines if "Traceback" in line], "\n".join(lines)


def healed_neighbors(node: int, alive: Collection[int]) -> list[int]:
    """The neighbors that a node must have when only these are in the graph."""
    members = sorted(alive)
    graph = BinomialGraph(len(members))
    return sorted(members[rank] for rank in graph.neighbors(members.index(node)))


def _complaints(
    node: int, status: Status | None, alive: list[int], dead: list[int], left: list[int]
) -> list[str]:
    if status is None:
        return [f"node {node} does not answer"]
    neighbors = healed_neighbors(node, alive)
    expected = {
        "id": node,
        "state": "ready",
        "layout_size": len(alive),
        "alive": alive,
        "dead": dead,
        "left": left,
        "neighbors": neighbors,
    }
    found = {name: status[name] for name in expected}
    # Sorted and not a set: two links of one pair are one too many.
    found["links"] = sorted(link["id"] for link in status["links"])
    expected["links"] = neighbors
    return [
        f"node {node}: {name} is {found[name]}, not {value}"
        for name, value in expected.items()
        if found[name] != value
    ]


@contextmanager
def composed(
    image: str,
    secret: Path,
    *,
    files: Sequence[str] = ("docker-compose.yml",),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Cluster]:
    """A started cluster; its containers, volumes and network are removed at the end."""
    cluster = Cluster(image, secret, files, variables)
    try:
        cluster.compose("up", "-d", "--no-build", "--no-recreate")
        yield cluster
        cluster.check_logs()
    finally:
        cluster.compose("down", "--volumes", "--timeout", "0")


@contextmanager
def helper(cluster: Cluster, *options: str, command: Collection[str]) -> Iterator[str]:
    """Another container on the cluster's network; yields its id, and removes it at the end."""
    container = output_of(
        "docker", "run", "--detach", "--network", cluster.network, *options, cluster.image, *command
    )
    try:
        yield container
    finally:
        run("docker", "rm", "--force", "--volumes", container)
