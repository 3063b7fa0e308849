"""Launch 16 daemons, send messages, kill one, and show how the others hear of it, heal and go on.

It uses the launcher and the client as any user would. Exit code 0 means that all of this was verified:
every message confirmed and received, every survivor told, every link that of the healed graph.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async, until_ended
from bmgd.cli.target import count, port
from bmgd.client import Daemon, connect
from bmgd.config import control_path
from bmgd.errors import BmgdError, ConfigError, LaunchError, innermost
from bmgd.launcher.listening import ListeningProcess
from bmgd.launcher.requests import ask_restart
from bmgd.launcher.rundir import read_members
from bmgd.shell.process import die_with_parent
from bmgd.topology import BinomialGraph

TOPIC: Final = "demo"
DAEMONS_MAX: Final = 64
STEP_S: Final = 60.0
"""No step of the demonstration may take longer."""

PAGE_PAUSE_S: Final = 4.0
"""How long a node stays dead, and then lives, while the page is looked at."""

_POLL_S = 0.005


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    choices = range(3, DAEMONS_MAX + 1)
    parser.add_argument(
        "-n", dest="count", type=int, choices=choices, default=16, metavar="N", help="default 16"
    )
    parser.add_argument(
        "--http", type=port, metavar="PORT", help="serve the page, and go on killing until Ctrl-C"
    )
    parser.add_argument(
        "--rounds", type=count, metavar="K", help="with --http: end after K more deaths"
    )
    parser.add_argument("--json", action="store_true", help="print only the summary, as JSON")


def run(args: Namespace) -> int:
    """Run the demonstration."""
    if args.rounds is not None and args.http is None:
        raise ConfigError("--rounds goes with --http: without a page only one node is killed")
    summary: dict[str, float] = {}

    async def main() -> int:
        with tempfile.TemporaryDirectory(
            prefix="bmgd-demo-", ignore_cleanup_errors=True
        ) as run_dir:
            demo = _Demo(args.count, run_dir, args.http, args.rounds, quiet=args.json)
            summary.update(await demo.run())
            return 0

    try:
        code = run_async(lambda: until_ended(main()))
    except BaseExceptionGroup as group:
        error = innermost(group)
        if not isinstance(error, BmgdError | TimeoutError):
            raise
        text = str(error) or f"a step took longer than {STEP_S:.0f} s"
        print(f"bmgd demo: failed: {text}", file=sys.stderr)
        return 1
    if code:
        return code
    if args.json:
        print_json(summary)
    else:
        print("\nsummary")
        for what, value in summary.items():
            print(f"  {what:44} {value:>9.1f}")
        print("everything was verified")
    return 0


class _Demo:
    """One demonstration.

    Args:
        count: how many daemons.
        run_dir: an empty directory.
        http_port: where the page of node 0 is; None for nowhere.
        rounds: how many more deaths the page shows; None for until Ctrl-C.
        quiet: show nothing on the way.
    """

    def __init__(
        self, count: int, run_dir: str, http_port: int | None, rounds: int | None, *, quiet: bool
    ) -> None:
        self._count = count
        self._run_dir = run_dir
        self._http_port = http_port
        self._rounds = rounds
        self._interrupted = asyncio.Event()
        self._quiet = quiet
        self._began_s = time.monotonic()
        self._events: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._is_over = False
        self._summary: dict[str, float] = {}

    async def run(self) -> dict[str, float]:
        """Tell the whole story; the summary of times in milliseconds by what they measure."""
        self._say(f"launching {self._count} daemons (bmgd launch -n {self._count})")
        launcher = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bmgd", "launch", "--json"),
            *("-n", str(self._count), "--run-dir", self._run_dir),
            *self._http_flags(),
            stdout=PIPE,
            # A demonstration that is killed takes its cluster with it.
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read_events(launcher))
                await self._tell()
                with suppress(ProcessLookupError):
                    launcher.send_signal(signal.SIGINT)
                await reader
            # A terminal's Ctrl-C reaches the launcher too: ours may come when its interpreter ends.
            if await launcher.wait() not in (0, -signal.SIGINT):
                raise LaunchError(f"the launcher ended with {launcher.returncode}")
        finally:
            if launcher.returncode is None:
                with suppress(ProcessLookupError):
                    launcher.kill()
                await launcher.wait()
        self._say("all daemons have ended")
        return self._summary

    async def _tell(self) -> None:
        up = (await self._until("up", 1))[0]
        self._summary[f"command to {self._count} daemons joined, ms"] = up["at"] * 1e3
        self._say(f"all {self._count} joined, {up['at'] * 1e3:.0f} ms after the command")
        if self._http_port is not None:
            self._say(f"the page: http://127.0.0.1:{self._http_port}/#token={self._token}")
        async with AsyncExitStack() as stack:
            daemons = {
                member.id: await stack.enter_async_context(connect(member.control))
                for member in read_members(self._run_dir)
            }
            self._verify(await self._healed(daemons), "the links are those of the binomial graph")
            await self._exchange(daemons, "before the kill")
            await self._show_way(daemons)
            victim = self._count // 3
            survivors = {i: daemon for i, daemon in daemons.items() if i != victim}
            await self._kill(victim, survivors)
            await self._exchange(survivors, "after healing")
            await self._show_way(survivors)
            if self._http_port is not None:
                await self._show_page(survivors)

    def _http_flags(self) -> list[str]:
        """The page's arguments; its token is this demonstration's own."""
        if self._http_port is None:
            return []
        path = os.path.join(self._run_dir, "token")
        self._token = secrets.token_hex(16)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(self._token)
        return ["--http", str(self._http_port), "--http-token-file", path]

    async def _show_page(self, daemons: dict[int, Daemon]) -> None:
        """Kill and restart a node again and again, for whoever looks at the page."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted.set)
        self._say("the page goes on: a node is killed and started again, until Ctrl-C ends it")
        ids = sorted(daemons)[1:]
        done = 0
        while self._rounds is None or done < self._rounds:
            done += 1
            victim = ids[(done * 5) % len(ids)]
            control = read_members(self._run_dir)[victim].control
            with ListeningProcess(control_path(control)) as process:
                self._say(f"killing node {victim}")
                process.kill()
            if await self._pause() or not await self._restarted(victim) or await self._pause():
                break
        loop.remove_signal_handler(signal.SIGINT)

    async def _restarted(self, victim: int) -> bool:
        self._say(f"starting node {victim} again")
        try:
            await asyncio.to_thread(ask_restart, self._run_dir, victim)
        except BmgdError:
            # Ctrl-C in a terminal is the launcher's, too, and it may be the first to hear of it.
            if not await self._pause():
                raise
            return False
        return True

    async def _pause(self) -> bool:
        """Wait a little; whether Ctrl-C came."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PAGE_PAUSE_S):
                await self._interrupted.wait()
        return self._interrupted.is_set()

    # --- the chapters -------------------------------------------------------------------------

    async def _exchange(self, daemons: dict[int, Daemon], when: str) -> None:
        """Every daemon sends to every other; each message is confirmed, and received once."""
        began_s = time.monotonic()
        async with asyncio.timeout(STEP_S), asyncio.TaskGroup() as tasks:
            for node_id, daemon in daemons.items():
                expected = {(i, f"{when}: {i} to {node_id}") for i in daemons if i != node_id}
                tasks.create_task(self._receive(daemon, expected))
                for other in daemons:
                    if other != node_id:
                        payload = f"{when}: {node_id} to {other}".encode()
                        tasks.create_task(daemon.send(other, payload, topic=TOPIC))
        took_ms = (time.monotonic() - began_s) * 1e3
        total = len(daemons) * (len(daemons) - 1)
        self._summary[f"{total} messages {when}, ms"] = took_ms
        self._say(f"every node sent to every other: {total} messages confirmed and received")

    async def _receive(self, daemon: Daemon, expected: set[tuple[int, str]]) -> None:
        async with daemon.subscribe(TOPIC) as messages:
            while expected:
                message = await anext(messages)
                row = (message.source, message.payload.decode())
                self._verify(row in expected, f"{row[1]!r} is received once")
                expected.remove(row)

    async def _show_way(self, daemons: dict[int, Daemon]) -> None:
        """A probe to the node farthest away takes as many hops as the graph needs."""
        ids = sorted(daemons)
        graph = BinomialGraph(len(ids))
        rank = max(range(len(ids)), key=lambda rank: graph.hops(0, rank))
        trace = await daemons[ids[0]].trace(ids[rank])
        hops = len(trace.path) - 1
        self._say(f"a probe went {' -> '.join(map(str, trace.path))}: {hops} hops")
        self._verify(hops == graph.hops(0, rank), f"{graph.hops(0, rank)} hops is the least")

    async def _kill(self, victim: int, survivors: dict[int, Daemon]) -> None:
        """Kill one daemon; wait until every survivor knows and every link is the healed one."""
        with ListeningProcess(control_path(read_members(self._run_dir)[victim].control)) as process:
            self._say(f"killing node {victim} (SIGKILL to process {process.pid})")
            killed_ns = time.monotonic_ns()
            process.kill()
        known = len(self._events)
        told = await self._until(
            "notice",
            len(survivors),
            lambda e: e["peer"] == victim and e["status"] in ("dead", "excluded"),
        )
        times_ms = sorted((event["at_ns"] - killed_ns) / 1e6 for event in told)
        self._verify({event["id"] for event in told} == set(survivors), "every survivor is told")
        self._say(f"all {len(told)} others know, {times_ms[-1]:.1f} ms after the kill")
        healed = await self._healed(survivors)
        self._verify(healed, "the links are those of the healed graph")
        healed_ms = (time.monotonic_ns() - killed_ns) / 1e6
        exact = [e for e in self._events[known:] if e["event"] == "links exact"]
        if {event["id"] for event in exact} == set(survivors):
            # Their own clock is finer than asking them again and again.
            healed_ms = max((event["at_ns"] - killed_ns) / 1e6 for event in exact)
        self._say(f"all links are those of the healed graph, {healed_ms:.1f} ms after the kill")
        self._summary["kill to the first survivor told, ms"] = times_ms[0]
        self._summary["kill to the last survivor told, ms"] = times_ms[-1]
        self._summary["kill to the last link of the healed graph, ms"] = healed_ms

    async def _healed(self, daemons: dict[int, Daemon]) -> bool:
        """Wait until the links of all are exactly those of the binomial graph over them."""
        ids = sorted(daemons)
        graph = BinomialGraph(len(ids))
        wanted = {
            node_id: {ids[neighbor] for neighbor in graph.neighbors(rank)}
            for rank, node_id in enumerate(ids)
        }
        deadline_s = time.monotonic() + STEP_S
        while time.monotonic() < deadline_s:
            rows = await asyncio.gather(*(daemons[i].links() for i in ids))
            if all({link["id"] for link in rows[n]} == wanted[i] for n, i in enumerate(ids)):
                return True
            await asyncio.sleep(_POLL_S)
        return False

    # --- what the launcher tells --------------------------------------------------------------

    async def _read_events(self, launcher: Process) -> None:
        assert launcher.stdout is not None
        async for line in launcher.stdout:
            event = json.loads(line)
            if "event" not in event:
                # Why the launcher ended: its stderr says that too.
                continue
            self._events.append(event)
            self._changed.set()
            self._show_event(event)
        self._is_over = True
        self._changed.set()

    async def _until(
        self,
        name: str,
        count: int,
        matches: Callable[[dict[str, Any]], bool] = lambda _: True,
    ) -> Sequence[dict[str, Any]]:
        """Wait for so many events of that name."""
        try:
            async with asyncio.timeout(STEP_S):
                while True:
                    found = [e for e in self._events if e["event"] == name and matches(e)]
                    if len(found) >= count:
                        return found
                    if self._is_over:
                        raise LaunchError("the launcher ended")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise LaunchError(f"{len(found)} of {count} {name!r} within {STEP_S:.0f} s") from None

    def _show_event(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "ready", "id": node_id}:
                self._say(f"  node {node_id} joined")
            case {"event": "notice", "id": node_id, "peer": peer, "status": status}:
                self._say(f"  node {node_id} hears that node {peer} is {status}")
            case {"event": "ended", "id": node_id, "code": code} if code < 0:
                self._say(f"  node {node_id} was ended by {signal.Signals(-code).name}")
            case {"event": "failed", "detail": detail}:
                raise LaunchError(detail)

    # --- telling and verifying ----------------------------------------------------------------

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(f"{time.monotonic() - self._began_s:7.3f} s  {text}", flush=True)

    def _verify(self, holds: bool, claim: str) -> None:
        if not holds:
            raise LaunchError(f"not true: {claim}")
