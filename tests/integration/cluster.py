"""Clusters of real daemons for tests: start them, hurt them, compare them with the papers' graph.

Nothing here sleeps for a time and hopes: `until` polls a condition quickly, and fails with what is
still wrong when its deadline, generous for a loaded machine, has passed. When a test fails, the ends
of all logs are part of the failure; when it passes, no daemon may have ended or logged a traceback
behind its back.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pytest

from bmgd.client import Daemon, Message, connect
from bmgd.errors import ControlError, NoDaemonError
from bmgd.healing import link_diff
from bmgd.launcher.planning import SPARES
from bmgd.launcher.requests import ask_restart
from bmgd.launcher.rundir import Member, read_members
from bmgd.topology import BinomialGraph
from tests.integration.forking import Forked, fork
from tests.integration.ports import free_base_port

DEADLINE_S = 30.0
POLL_S = 0.02
TAIL_LINES = 12
STOPS_MAX = 3
COMPLAINTS_SHOWN = 8
JOINERS_MAX = 8
"""Ports that a founded cluster keeps free behind those of its founders."""

Process = subprocess.Popen[bytes] | Forked
Status = dict[str, Any]
Event = dict[str, Any]
Pair = tuple[int, int]
Condition = Callable[[], Awaitable[list[str]]]
"""Tells what is still wrong; nothing when it holds."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """The event loop and the routing backend that daemons run on."""

    loop: str
    backend: str

    def __str__(self) -> str:
        return f"{self.loop}-{self.backend}"


FLAVOURS = [Flavour(loop, backend) for loop in ("uvloop", "asyncio") for backend in ("c", "python")]
BOTH_ENDS = [Flavour("uvloop", "c"), Flavour("asyncio", "python")]
in_all_flavours = pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
in_two_flavours = pytest.mark.parametrize("flavour", BOTH_ENDS, ids=str)


# --- waiting --------------------------------------------------------------------------------------


async def until(what: str, condition: Condition, within_s: float = DEADLINE_S) -> float:
    """Wait until a condition holds; returns the seconds that it took.

    Raises:
        AssertionError: it did not hold within `within_s`; the message has the last complaints.
    """
    began_s = time.monotonic()
    while complaints := await condition():
        if time.monotonic() - began_s > within_s:
            shown = "\n  ".join(complaints[:COMPLAINTS_SHOWN])
            more = len(complaints) - COMPLAINTS_SHOWN
            rest = f"\n  and {more} more" if more > 0 else ""
            raise AssertionError(f"{what}: not within {within_s:g} s:\n  {shown}{rest}")
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began_s


async def linked_exactly(cluster: Cluster, members: Collection[int]) -> float:
    """Wait until these ids, and nobody else, are one cluster with exactly its links."""
    alive = sorted(members)
    graph = BinomialGraph(len(alive))
    wanted = {i: [alive[r] for r in graph.neighbors(alive.index(i))] for i in alive}

    async def condition() -> list[str]:
        try:
            seen = await cluster.statuses(alive)
        except ControlError as error:
            return [str(error)]
        wrong = []
        for node_id, status in seen.items():
            linked = sorted(row["id"] for row in status["links"])
            if (status["state"], status["alive"]) != ("ready", alive):
                wrong.append(f"node {node_id} is {status['state']}, holds {status['alive']}")
            elif linked != sorted(wanted[node_id]):
                wrong.append(f"node {node_id} is linked to {linked}, not {wanted[node_id]}")
        digests = {status["digest"] for status in seen.values()}
        return wrong or ([] if len(digests) == 1 else ["the digests differ"])

    return await until(f"{len(alive)} linked exactly", condition)


async def until_true(
    what: str, predicate: Callable[[], bool], within_s: float = DEADLINE_S
) -> float:
    """Wait until a plain predicate holds; as `until`."""

    async def condition() -> list[str]:
        return [] if predicate() else ["it does not hold"]

    return await until(what, condition, within_s)


async def ended(process: Process, within_s: float = DEADLINE_S) -> int:
    """Wait until a process has ended; returns its exit code, or minus the signal's number."""
    await until_true("the process ends", lambda: process.poll() is not None, within_s)
    assert process.returncode is not None
    return process.returncode


# --- the graph that must be there -----------------------------------------------------------------


def ordered_pairs(ids: Iterable[int]) -> list[Pair]:
    """Every pair of two different ids, in both directions."""
    chosen = sorted(ids)
    return [(a, b) for a in chosen for b in chosen if a != b]


def wanted_links(size: int, layout: Collection[int], node_id: int) -> list[int]:
    """The neighbors of an id in the healed graph, by both roads: ranks, and Algorithm 1."""
    ids = sorted(layout)
    by_rank = [ids[rank] for rank in BinomialGraph(len(ids)).neighbors(ids.index(node_id))]
    added, removed = link_diff(size, node_id, sorted(set(range(size)) - set(layout)))
    by_difference = (set(BinomialGraph(size).neighbors(node_id)) - set(removed)) | set(added)
    assert sorted(by_difference) == by_rank, f"Algorithm 1 differs from the graph at {node_id}"
    return by_rank


def hops(layout: Collection[int], a: int, b: int) -> int:
    """The hops between two ids in the graph over a layout."""
    ids = sorted(layout)
    return BinomialGraph(len(ids)).hops(ids.index(a), ids.index(b))


def wrong_links(statuses: Mapping[int, Status], wanted: Mapping[int, list[int]]) -> list[str]:
    """What differs from the wanted links, and where two ends tell different things of one link."""
    complaints = []
    ends: dict[Pair, tuple[int, int]] = {}
    for node_id, status in statuses.items():
        rows = status["links"]
        if [row["id"] for row in rows] != wanted[node_id]:
            have = [row["id"] for row in rows]
            complaints.append(f"node {node_id} has links {have}, wanted are {wanted[node_id]}")
        for row in rows:
            ends[node_id, row["id"]] = (row["dialled_by"], row["incarnation"])
    for (a, b), (dialled_by, incarnation) in ends.items():
        if ends.get((b, a), (None,))[0] != dialled_by:
            complaints.append(f"nodes {a} and {b} differ about who dialled their link")
        if b in statuses and statuses[b]["incarnation"] != incarnation:
            complaints.append(f"node {a} is linked to a former life of {b}")
    return complaints


def wrong_views(statuses: Mapping[int, Status], alive: Collection[int], size: int) -> list[str]:
    """Which daemons are not ready, or believe something else than who lives and who is dead."""
    complaints = []
    dead = sorted(set(range(size)) - set(alive))
    for node_id, status in statuses.items():
        if status["state"] != "ready":
            complaints.append(f"node {node_id} is {status['state']}")
        if (status["alive"], status["dead"], status["left"]) != (sorted(alive), dead, []):
            complaints.append(f"node {node_id} believes dead: {status['dead']}, not {dead}")
    if len({status["digest"] for status in statuses.values()}) > 1:
        complaints.append("digests differ")
    return complaints


def check_optimal(paths: Mapping[Pair, tuple[int, ...]], layout: Collection[int]) -> None:
    """Assert that every path has the optimal length, and that each step is a link of the graph."""
    ids = sorted(layout)
    size = max(ids) + 1
    linked = {a: set(wanted_links(size, ids, a)) for a in ids}
    for (a, b), path in paths.items():
        assert (path[0], path[-1]) == (a, b), f"the path from {a} to {b} is {path}"
        assert len(path) - 1 == hops(ids, a, b), f"{path} is not optimal: {hops(ids, a, b)} hops"
        for here, there in pairwise(path):
            assert there in linked[here], f"{path} steps from {here} to {there} without a link"


# --- clusters -------------------------------------------------------------------------------------


class Cluster(ABC):
    """Daemons on this machine; `launched` and `founded` make them.

    Attributes:
        size: the founding size.
        base_port: the port of daemon 0.
        directory: where logs and sockets lie.
        gone: ids that the test has killed and not started again.
        stopped: ids that got SIGSTOP and not SIGCONT.
    """

    def __init__(self, size: int, directory: Path, base_port: int) -> None:
        self.size = size
        self.directory = directory
        self.base_port = base_port
        self.gone: set[int] = set()
        self.stopped: set[int] = set()
        self._clients: dict[int, tuple[AsyncExitStack, Daemon]] = {}
        self._opening = asyncio.Lock()

    # --- where things are -------------------------------------------------------------------------

    @abstractmethod
    def pid(self, node_id: int) -> int:
        """The process id of a daemon that runs."""

    @abstractmethod
    def control(self, node_id: int) -> str:
        """The control address of a daemon."""

    def log(self, node_id: int) -> str:
        """What a daemon has logged."""
        path = self.directory / f"node-{node_id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def tails(self) -> str:
        """The ends of all logs."""
        parts = []
        for path in sorted(self.directory.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            parts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(parts)

    @property
    def alive(self) -> list[int]:
        """The ids that the test has not killed."""
        return [node_id for node_id in range(self.size) if node_id not in self.gone]

    # --- talking ----------------------------------------------------------------------------------

    async def daemon(self, node_id: int) -> Daemon:
        """A connection to a daemon, kept for the next call."""
        async with self._opening:
            if node_id not in self._clients:
                stack = AsyncExitStack()
                daemon = await stack.enter_async_context(connect(self.control(node_id)))
                self._clients[node_id] = (stack, daemon)
            return self._clients[node_id][1]

    async def hang_up(self, node_id: int) -> None:
        """Close the kept connection to a daemon, if there is one."""
        stack, _ = self._clients.pop(node_id, (None, None))
        if stack is not None:
            await stack.aclose()

    async def status(self, node_id: int) -> Status:
        """The status of a daemon."""
        try:
            return await (await self.daemon(node_id)).status()
        except NoDaemonError:
            await self.hang_up(node_id)
            raise

    async def statuses(self, ids: Iterable[int] | None = None) -> dict[int, Status]:
        """The statuses of daemons, by default of all that run, asked at the same time."""
        chosen = [i for i in self.alive if i not in self.stopped] if ids is None else list(ids)
        found = await asyncio.gather(*(self.status(node_id) for node_id in chosen))
        return dict(zip(chosen, found, strict=True))

    async def traces(self, pairs: Iterable[Pair]) -> dict[Pair, tuple[int, ...]]:
        """The ways that real probes took."""
        chosen = list(pairs)

        async def trace(a: int, b: int) -> tuple[int, ...]:
            return (await (await self.daemon(a)).trace(b, timeout=DEADLINE_S)).path

        paths = await asyncio.gather(*(trace(a, b) for a, b in chosen))
        return dict(zip(chosen, paths, strict=True))

    @asynccontextmanager
    async def reading(self, node_id: int, topic: str) -> AsyncIterator[list[Message]]:
        """Collect the messages of a topic, until the daemon dies or the block ends."""
        taken: list[Message] = []
        async with (await self.daemon(node_id)).subscribe(topic) as stream:

            async def collect() -> None:
                with suppress(NoDaemonError):
                    async for message in stream:
                        taken.append(message)

            task = asyncio.create_task(collect())
            try:
                yield taken
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def exchange(self, ids: Iterable[int] | None = None) -> None:
        """Send from every node to every other, and assert that each message came exactly once."""
        chosen = self.alive if ids is None else sorted(ids)
        topic = f"exchange {random.getrandbits(32):08x}"
        async with AsyncExitStack() as stack:
            taken = {i: await stack.enter_async_context(self.reading(i, topic)) for i in chosen}

            async def send(a: int, b: int) -> None:
                payload = f"{a} to {b}".encode()
                await (await self.daemon(a)).send(b, payload, topic=topic, timeout=DEADLINE_S)

            await asyncio.gather(*(send(a, b) for a, b in ordered_pairs(chosen)))
            await asyncio.gather(*(self.status(i) for i in chosen))
            want = {i: sorted(f"{a} to {i}".encode() for a in chosen if a != i) for i in chosen}
            await until_true(
                "all messages read", lambda: all(len(taken[i]) >= len(want[i]) for i in chosen)
            )
            got = {i: sorted(message.payload for message in taken[i]) for i in chosen}
            assert got == want

    # --- waiting ----------------------------------------------------------------------------------

    async def at_rest(
        self, *, layout: Collection[int] | None = None, within_s: float = DEADLINE_S
    ) -> dict[int, Status]:
        """Wait until all that run agree on who lives, and have exactly the links of the graph.

        Args:
            layout: the ids that the graph is over; by default those not killed.

        Returns:
            The statuses at that moment.
        """
        seen: dict[int, Status] = {}
        over = self.alive if layout is None else sorted(layout)
        wanted = {i: wanted_links(self.size, over, i) for i in self.alive}
        linked = {i: [peer for peer in wanted[i] if peer not in self.gone] for i in self.alive}

        async def condition() -> list[str]:
            try:
                seen.update(await self.statuses(self.alive))
            except ControlError as error:
                return [str(error)]
            wrong = wrong_views(seen, self.alive, self.size) + wrong_links(seen, linked)
            for node_id, status in seen.items():
                if status["neighbors"] != wanted[node_id]:
                    wrong.append(f"node {node_id} wants {status['neighbors']}")
            return wrong

        await until("the cluster at rest", condition, within_s)
        return seen

    async def command(self, *words: str, within_s: float = DEADLINE_S) -> tuple[int, str]:
        """Run a command until it ends; returns its exit code and what it wrote.

        Raises:
            AssertionError: it has not ended within `within_s`; then it is killed.
        """
        process = await asyncio.create_subprocess_exec(
            *_command(list(words)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(FLAVOURS[0]),
            # `bmgd chaos` hurries, and all of its session with it: not the tests beside it.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(within_s):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            output, _ = await process.communicate()
            raise AssertionError(f"not ended within {within_s:g} s:\n{output.decode()}") from None
        assert process.returncode is not None
        return process.returncode, output.decode()

    # --- hurting ----------------------------------------------------------------------------------

    async def kill(self, *ids: int) -> int:
        """SIGKILL daemons at the same time; returns the monotonic time of it in nanoseconds."""
        pids = [self.pid(node_id) for node_id in ids]
        self.gone.update(ids)
        at_ns = time.monotonic_ns()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for node_id in ids:
            await self.hang_up(node_id)
        return at_ns

    def stop(self, node_id: int) -> int:
        """SIGSTOP a daemon; returns the monotonic time of it in nanoseconds."""
        self.stopped.add(node_id)
        os.kill(self.pid(node_id), signal.SIGSTOP)
        return time.monotonic_ns()

    def go_on(self, node_id: int) -> None:
        """SIGCONT a stopped daemon."""
        os.kill(self.pid(node_id), signal.SIGCONT)
        self.stopped.discard(node_id)

    # --- the end ----------------------------------------------------------------------------------

    def _check_logs(self) -> None:
        for path in sorted(self.directory.glob("*.log")):
            text = path.read_text(errors="replace")
            assert "Traceback" not in text, f"{path.name} has a traceback:\n{text[-4000:]}"

    @abstractmethod
    async def _end_cleanly(self) -> None:
        """End the daemons."""

    @abstractmethod
    def _end_by_force(self) -> None:
        """End the daemons."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """End the daemons when the block ends; put the logs' tails into its failure."""
        try:
            with ExitStack() as stack:
                stack.push(self._note_tails)
                yield self
                for node_id in list(self.stopped):
                    self.go_on(node_id)
                for node_id in list(self._clients):
                    await self.hang_up(node_id)
                await self._end_cleanly()
                self._check_logs()
        finally:
            for node_id in list(self._clients):
                await self.hang_up(node_id)
            self._end_by_force()

    def _note_tails(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.tails())


# --- clusters of the launcher ---------------------------------------------------------------------


class LaunchedCluster(Cluster):
    """Daemons of one `bmgd launch`.

    Attributes:
        events: what the launcher has printed, in order.
    """

    def __init__(
        self,
        size: int,
        directory: Path,
        base_port: int,
        process: Process,
        printed: asyncio.StreamReader,
    ) -> None:
        super().__init__(size, directory, base_port)
        self.events: list[Event] = []
        self._process = process
        self._reading = asyncio.create_task(self._read(printed))

    async def _read(self, printed: asyncio.StreamReader) -> None:
        async for line in printed:
            self.events.append(json.loads(line))

    def _member(self, node_id: int) -> Member:
        return read_members(str(self.directory))[node_id]

    def pid(self, node_id: int) -> int:
        pid = self._member(node_id).pid
        assert pid is not None, f"node {node_id} is not running"
        return pid

    def control(self, node_id: int) -> str:
        return self._member(node_id).control

    async def joined(self) -> None:
        """Wait for the line that says that all have joined."""

        async def condition() -> list[str]:
            if (code := self._process.poll()) is not None:
                raise AssertionError(f"the launcher ended with {code}")
            return [] if self.found("up") else [f"last event: {self.events[-1:]}"]

        await until("all joined", condition, 60.0)

    async def restart(self, node_id: int) -> float:
        """Start a killed daemon again; returns the seconds until it was ready."""
        answer = await asyncio.to_thread(ask_restart, str(self.directory), node_id)
        self.gone.discard(node_id)
        return float(answer["seconds"])

    def found(self, kind: str, since_ns: int = 0, **fields: object) -> list[Event]:
        """The events of a kind with these fields, not before a monotonic time."""
        return [
            event
            for event in self.events
            if event["event"] == kind
            and event.get("at_ns", since_ns) >= since_ns
            and fields.items() <= event.items()
        ]

    async def reported(self, kind: str, since_ns: int = 0, **fields: object) -> list[Event]:
        """The same, once there is one: daemons report later than they answer programs."""
        await until_true(f"{kind} is reported", lambda: bool(self.found(kind, since_ns, **fields)))
        return self.found(kind, since_ns, **fields)

    async def told_of(self, peer: int, since_ns: int, status: str = "excluded") -> float:
        """Wait until every other daemon has heard of a record; milliseconds until the last had."""
        others = {i for i in self.alive if i not in self.stopped} - {peer}

        def told() -> dict[int, int]:
            found = self.found("notice", since_ns, peer=peer, status=status)
            return {event["id"]: event["at_ns"] for event in reversed(found)}

        async def condition() -> list[str]:
            return [f"node {i} has not heard of {peer}" for i in sorted(others - told().keys())]

        await until(f"told that {peer} is {status}", condition)
        return max(told()[i] - since_ns for i in others) / 1e6

    async def stop_and_find(self, node_id: int, most_ms: float) -> float:
        """SIGSTOP a daemon; milliseconds until every other daemon had heard of it.

        Where that is not below `most_ms`, a busy machine may not have let the others run: then the
        daemon goes on, and is stopped once more, `STOPS_MAX` times at most.
        """
        for number in range(STOPS_MAX):
            if number:
                self.go_on(node_id)
                await self.at_rest()
            found_ms = await self.told_of(node_id, self.stop(node_id))
            if found_ms < most_ms:
                break
        return found_ms

    async def _none_is_lost(self) -> list[str]:
        # A start that follows a death is in the list behind it: only the last word counts.
        ends = {e["id"]: e for e in self.found("ended")}
        listening = {e["id"]: e for e in self.found("listening")}
        lost = [i for i in self.alive if i in ends and ends[i]["at"] > listening[i]["at"]]
        return [f"node {i} ended by itself" for i in lost]

    async def _end_cleanly(self) -> None:
        # The launcher prints what it was told of a start after its answer to who asked for it.
        await until("no daemon is lost", self._none_is_lost)
        self._process.send_signal(signal.SIGINT)
        assert await ended(self._process) == 0
        async with asyncio.timeout(DEADLINE_S):
            await self._reading

    def _end_by_force(self) -> None:
        self._reading.cancel()
        self._process.kill()


@asynccontextmanager
async def launched(
    size: int, directory: Path, *flags: str, flavour: Flavour = FLAVOURS[0], toml: str = ""
) -> AsyncIterator[LaunchedCluster]:
    """A cluster of `bmgd launch` whose daemons have joined.

    Args:
        flags: further arguments of the command.
        toml: the text of a configuration file, or "".
    """
    behind_proxy = "--fault-proxy" in flags
    base_port = free_base_port(2 * (size + SPARES) if behind_proxy else size + JOINERS_MAX)
    words = ["launch", "-n", str(size), "--run-dir", str(directory), "--json"]
    words += ["--base-port", str(base_port), "--log-level", "debug", "--loop", flavour.loop]
    words += [*flags, *_config(directory, toml)]
    printed, stdout = await _pipe()
    with stdout, (directory / "launcher.log").open("wb") as log:
        process = fork(words, _environment(flavour), stdout, log)
    cluster = LaunchedCluster(size, directory, base_port, process, printed)
    async with cluster.running():
        await cluster.joined()
        yield cluster


async def _pipe() -> tuple[asyncio.StreamReader, IO[bytes]]:
    """What reads a pipe, and the end to write into, which is another process's."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", buffering=0)
    )
    return reader, os.fdopen(write, "wb", buffering=0)


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "bmgd", *words]


def _environment(flavour: Flavour) -> dict[str, str]:
    foreign = {name: value for name, value in os.environ.items() if not name.startswith("BMGD_")}
    return {**foreign, "BMGD_BACKEND": flavour.backend}


def _config(directory: Path, toml: str) -> list[str]:
    if not toml:
        return []
    path = directory / "config.toml"
    path.write_text(toml)
    return ["--config", str(path)]


# --- clusters of single daemons -------------------------------------------------------------------


class FoundedCluster(Cluster):
    """Daemons that are started one by one with `bmgd run`.

    Args:
        flags: arguments that all of them share.
    """

    def __init__(
        self, size: int, directory: Path, base_port: int, flavour: Flavour, flags: list[str]
    ) -> None:
        super().__init__(size, directory, base_port)
        self.gone = set(range(size))
        self._flavour = flavour
        self._flags = flags
        self._processes: dict[int, Process] = {}

    def pid(self, node_id: int) -> int:
        process = self._processes[node_id]
        assert process.poll() is None, f"node {node_id} ended with {process.returncode}"
        return process.pid

    def control(self, node_id: int) -> str:
        return f"unix:{self.directory}/node-{node_id}.sock"

    def start(self, *ids: int, flags: Iterable[str] = ()) -> None:
        """Start daemons; does not wait for anything."""
        for node_id in ids:
            # A process that was killed must have given its port back.
            if node_id in self._processes:
                self._processes[node_id].wait(DEADLINE_S)
            words = ["run", "--id", str(node_id), "--control", self.control(node_id)]
            with (self.directory / f"node-{node_id}.log").open("ab") as log:
                self._processes[node_id] = self.begin([*words, *self._flags, *flags], log)
            self.gone.discard(node_id)

    def begin(self, words: list[str], log: IO[bytes]) -> Process:
        """Start a daemon."""
        return fork(words, _environment(self._flavour), log, log)

    def spawn(self, words: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a command with the cluster's environment; whoever calls ends it."""
        return subprocess.Popen(
            _command(words), stdin=subprocess.DEVNULL, stderr=log, env=_environment(self._flavour)
        )

    async def left(self, node_id: int) -> None:
        """Wait until a daemon that was told to leave has ended well."""
        code = await ended(self._processes[node_id])
        assert code == 0, f"node {node_id} ended with {code}"
        self.gone.add(node_id)
        await self.hang_up(node_id)

    async def listening(self, node_id: int) -> None:
        """Wait until a daemon answers its programs, and so listens to its peers."""

        async def condition() -> list[str]:
            self.pid(node_id)
            try:
                await self.status(node_id)
            except ControlError as error:
                return [str(error)]
            return []

        await until(f"node {node_id} listens", condition)

    async def _end_cleanly(self) -> None:
        for node_id in self.alive:
            os.kill(self.pid(node_id), signal.SIGTERM)
        for node_id in self.alive:
            code = await ended(self._processes[node_id])
            assert code == 0, f"node {node_id} ended with {code}"

    def _end_by_force(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE_S)


@asynccontextmanager
async def founded(
    size: int,
    directory: Path,
    *flags: str,
    flavour: Flavour = FLAVOURS[0],
    toml: str = "",
    peers: str = "",
) -> AsyncIterator[FoundedCluster]:
    """A cluster of `bmgd run`, of which none is started yet.

    Args:
        flags: further arguments of every daemon.
        toml: the text of a configuration file, or "".
        peers: as in `bmgd run --peers`; by default consecutive free ports.
    """
    base_port = free_base_port(size + JOINERS_MAX)
    shared = ["--size", str(size), "--peers", peers or f"127.0.0.1:{{{base_port}+id}}"]
    shared += ["--log-level", "debug", "--loop", flavour.loop, *flags, *_config(directory, toml)]
    cluster = FoundedCluster(size, directory, base_port, flavour, shared)
    async with cluster.running():
        yield cluster
