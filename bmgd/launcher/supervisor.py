"""The launcher itself: starts the daemons through the zygote, watches them, and ends them.

Theory of operation. One thread, one `poll`, no event loop to import. A daemon goes

    STARTING --"ready" comes through the pipe--> READY
        `-------- the zygote has reaped it --------+--> ENDED --restart--> STARTING

and the launch as a whole: starting, up, stopping. A daemon that was added is a joiner: it has a number
below 0 until its first event tells its id. What is bounded: the start (`START_S`), the end (`leave_ms`
and `TERM_MORE_S`, then SIGKILL), a restart (`REAP_S` for the former process to be gone, then `START_S`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from bmgd.config import CONTACTS_MAX, check, http_address
from bmgd.config_files import secrets_now
from bmgd.errors import ConfigError, LaunchError
from bmgd.launcher.ports import choose_base_port
from bmgd.launcher.requests import Request, RequestServer
from bmgd.launcher.zygote import (
    JOINERS_MAX,
    LAUNCH_MAX,
    NOT_FORKED,
    Ended,
    Joiner,
    News,
    Plan,
    Signal,
    Spawn,
    Spawned,
    SpawnJoiners,
    Zygote,
)
from bmgd.peers import split_address
from bmgd.types import NodeId

START_S: Final = 75.0
"""Longer than `start_ms` of any profile: a node may wait so long for a founder that nobody remembers."""

TERM_MORE_S: Final = 3.0
"""How much longer than `leave_ms` a daemon may take to leave."""

KILL_S: Final = 10.0
REAP_S: Final = 2.0
AGAIN_S: Final = 0.3
"""Signals closer than this are one: wrappers (timeout, a closing terminal) send theirs twice."""

FLUSH_AGAIN_S: Final = 0.1
"""What could not be written, as nobody reads it, is tried again so much later."""

WRITE_AGAIN_S: Final = 1.0
"""Where cluster.json could not be written it is tried again so much later."""

Show = Callable[[dict[str, Any]], None]
"""Is told every event: a dict with ``event`` and ``at`` (seconds since the command began)."""

_READ_BYTES = 1 << 16
_FAILED = 1
_PARTIAL = 4


class _State(Enum):
    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"


@dataclass(slots=True)
class _Daemon:
    address: str
    listen: str = ""
    state: _State = _State.ENDED
    pid: int | None = None
    number: int = 0
    spawned_s: float = 0.0
    joined: bool = False
    ended_with: int = 0

    @property
    def known(self) -> bool:
        """Whether its process id is known, or it has none."""
        return self.pid is not None or self.state is _State.ENDED


class Supervisor:
    """Runs one local cluster until it is told to stop.

    Args:
        zygote: as `start_zygote` gave it.
        plan: what the daemons are told; its run directory is prepared.
        show: shown every event as it happens.
        flush: called after a batch of events, and again as long as it returns that something is left.
        began_s: `time.monotonic()` of the command's start.
        between_pid: the process between the daemons, if there is one; its end is the end of all.
    """

    def __init__(
        self,
        zygote: Zygote,
        plan: Plan,
        show: Show,
        flush: Callable[[], bool],
        began_s: float,
        between_pid: int | None = None,
    ) -> None:
        self.holds_run_dir: Callable[[], bool] = lambda: True
        """Whether the run directory is still this launcher's; of another's nothing is overwritten."""
        self._zygote = zygote
        self._plan = plan
        self._show = show
        self._flush = flush
        self._is_left = False
        self._began_s = began_s
        peers = plan.config.peers
        self._daemons = {
            i: _Daemon(peers.address_of(NodeId(i)), plan.config_of(i).listen, number=i)
            for i in range(plan.config.size)
        }
        self._ids: dict[int, int] = {}
        self._joiner_count = 0
        self._requests: list[Request] = []
        self._partial = b""
        self._changed = True
        self._write_again_s = 0.0
        self._up = False
        self._stopping_s: float | None = None
        self._killed = False
        self._term_s = TERM_MORE_S + plan.config.timing.leave_ms / 1000
        self._code = 0
        self._poll = select.poll()
        self._server = RequestServer(
            plan.run_dir.launcher_socket,
            self._poll,
            lambda detail: self._event("failed", detail=detail),
        )
        self._signals = _signal_socket()
        self._between = -1 if between_pid is None else os.pidfd_open(between_pid)

    def run(self) -> int:
        """Start the daemons, and serve until all have ended after a signal.

        Returns:
            The exit code: 0, or 1 or 4 when not all daemons joined.

        Raises:
            LaunchError: the zygote ended, or a daemon cannot be ended.
        """
        for fd in (self._zygote.channel.fileno(), self._zygote.events, self._signals.fileno()):
            self._poll.register(fd, select.POLLIN)
        if self._between >= 0:
            self._poll.register(self._between, select.POLLIN)
        self._zygote.order(self._plan)
        self._spawn(tuple(self._daemons))
        while self._stopping_s is None or not self._all_ended():
            self._on_ready({fd for fd, _ in self._poll.poll(self._timeout_ms())})
            self._on_time(time.monotonic())
            self._settle()
        return self._code

    # --- one turn of the loop -----------------------------------------------------------------

    def _on_ready(self, ready: set[int]) -> None:
        if self._zygote.events in ready:
            self._read_events()
        if self._zygote.channel.fileno() in ready:
            news = self._zygote.news()
            if news is None:
                raise LaunchError("the zygote ended, and all daemons with it")
            self._on_news(news)
        if self._between in ready:
            log = self._plan.run_dir.between_log
            raise LaunchError(f"the process between the daemons ended, see {log}")
        if self._signals.fileno() in ready:
            for _ in self._signals.recv(64):
                self._on_signal()
        self._requests += self._server.on_ready(ready)

    def _on_time(self, now_s: float) -> None:
        self._server.on_time(now_s)
        for request in list(self._requests):
            answer = self._progress(request, now_s)
            if answer is not None:
                self._requests.remove(request)
                self._server.answer(request, answer)
        if self._stopping_s is not None:
            if now_s >= self._stopping_s + self._term_s + KILL_S:
                raise LaunchError("a daemon does not end, although it was killed")
            if now_s >= self._stopping_s + self._term_s and not self._killed:
                self._kill()
        elif not self._up and now_s >= self._began_s + START_S:
            missing = [node_id for node_id, d in self._daemons.items() if not d.joined]
            self._event("failed", detail=f"not joined within {START_S:.0f} s: {missing}")
            self._stop(_PARTIAL)

    def _settle(self) -> None:
        up = self._up or all(d.joined and d.known for d in self._daemons.values())
        if self._changed and up and time.monotonic() >= self._write_again_s:
            self._write_cluster()
        if up and not self._changed and not self._up and self._stopping_s is None:
            self._up = True
            self._event("up", daemons=len(self._daemons))
        self._is_left = self._flush()

    def _timeout_ms(self) -> float | None:
        times = [r.asked_s + (START_S if r.spawned else REAP_S) for r in self._requests]
        if self._write_again_s > time.monotonic():
            times.append(self._write_again_s)
        if self._is_left:
            times.append(time.monotonic() + FLUSH_AGAIN_S)
        if self._server.again_s:
            times.append(self._server.again_s)
        if self._stopping_s is not None:
            times.append(self._stopping_s + self._term_s + (KILL_S if self._killed else 0.0))
        elif not self._up:
            times.append(self._began_s + START_S)
        return max(0.0, min(times) - time.monotonic()) * 1000 + 1 if times else None

    # --- daemons ------------------------------------------------------------------------------

    def _spawn(self, ids: tuple[int, ...]) -> None:
        for node_id in ids:
            daemon = self._daemons[node_id]
            daemon.state = _State.STARTING
            daemon.spawned_s = time.monotonic()
        founders = tuple(i for i in ids if 0 <= i < self._plan.config.size)
        joiners = tuple(
            Joiner(daemon.number, daemon.address, daemon.listen, max(i, -1))
            for i in ids
            if i not in founders and (daemon := self._daemons[i])
        )
        if founders:
            self._zygote.order(Spawn(founders))
        for at in range(0, len(joiners), JOINERS_MAX):
            self._zygote.order(SpawnJoiners(joiners[at : at + JOINERS_MAX], self._contacts()))

    def _renew_secrets(self) -> None:
        """Those who begin from now on prove what the secret file holds now: it may have changed.

        Raises:
            ConfigError: it cannot be read, or what it holds cannot be used.
        """
        config = self._plan.config
        secrets = secrets_now(config)
        if secrets != config.secrets:
            self._plan = replace(self._plan, config=replace(config, secrets=secrets))
            self._zygote.order(self._plan)

    def _contacts(self) -> tuple[str, ...]:
        """Some members that run, for joiners to ask; were there none, the founders."""
        ready = [d.address for d in self._daemons.values() if d.state is _State.READY]
        return tuple(ready or [d.address for d in self._daemons.values()])[:CONTACTS_MAX]

    def _add_joiners(self, count: int) -> tuple[int, ...]:
        """Begin `count` daemons, on ports above all others where there are some; returns their numbers.

        Numbers are below 0.

        Raises:
            LaunchError: there are not so many ports.
            ConfigError: nor for their pages; or a joiner cannot be configured as the founders are, or
                its secrets cannot be read.
        """
        self._renew_secrets()
        config = self._plan.config
        spares = [address for spare in self._plan.spares for address in spare]
        addresses = [*(d.address for d in self._daemons.values()), *self._plan.listen, *spares]
        # Those of daemons that have ended too: they start again there.
        taken = {split_address(address)[1] for address in addresses}
        if config.http:
            ends = (0, len(self._daemons) + count - 1)
            pages = [split_address(http_address(replace(config, id=i)))[1] for i in ends]
            taken.update(range(pages[0], pages[1] + 1))
        ways = list(self._plan.spares[self._joiner_count :][:count])
        if direct := count - len(ways):
            base = choose_base_port(direct, None, max(taken) + 1, taken)
            ways += [(f"127.0.0.1:{base + i}", "") for i in range(direct)]
        check(self._plan.config_of_joiner(Joiner(-1, *ways[0], -1), self._contacts()))
        numbers = []
        for address, listen in ways:
            self._joiner_count += 1
            numbers.append(-self._joiner_count)
            self._daemons[numbers[-1]] = _Daemon(address, listen, number=numbers[-1])
        self._spawn(tuple(numbers))
        return tuple(numbers)

    def _renumber(self, former: int, node_id: int) -> None:
        """A joiner was given an id, or another one."""
        daemon = self._daemons.pop(former)
        occupant = self._daemons.pop(node_id, None)
        if occupant is not None:
            # That one was given another id too, and its event is on its way.
            self._ids.pop(occupant.number, None)
            self._daemons[occupant.number] = occupant
        self._daemons[node_id] = daemon
        self._ids[daemon.number] = node_id
        run_dir = self._plan.run_dir
        # Without room for the new name, the former one stays.
        with suppress(OSError):
            os.replace(run_dir.log(former), run_dir.log(node_id))
        self._changed = True

    def _on_news(self, news: News) -> None:
        self._changed = True
        match news:
            case Spawned(pairs):
                for number, pid in pairs:
                    self._daemons[self._ids.get(number, number)].pid = pid
            case Ended(rows):
                for number, pid, code in rows:
                    # Its last words may still be in the pipe, and come before its end.
                    self._read_events()
                    self._on_ended(self._ids.get(number, number), pid, code)

    def _on_ended(self, node_id: int, pid: int, code: int) -> None:
        daemon = self._daemons[node_id]
        daemon.state, daemon.pid, daemon.ended_with = _State.ENDED, None, code
        self._event("ended", id=node_id, pid=pid, code=code)
        if not daemon.joined and code >= 0 and self._stopping_s is None and not self._up:
            log = self._plan.run_dir.log(node_id)
            self._event("failed", detail=f"node {node_id} ended before it joined, see {log}")
            self._stop(_FAILED)

    def _progress(self, request: Request, now_s: float) -> dict[str, Any] | None:
        if self._stopping_s is not None:
            return {"error": "the cluster is ending"}
        if request.grow:
            return self._progress_of_growth(request, now_s)
        node_id = next((self._ids.get(n, n) for n in request.joiners), request.node_id)
        daemon = self._daemons.get(node_id)
        if daemon is None:
            return {"error": f"id {request.node_id} is out of range 0..{max(self._daemons)}"}
        if not request.spawned:
            if daemon.state is _State.ENDED:
                try:
                    self._renew_secrets()
                except ConfigError as error:
                    return {"error": str(error)}
                request.spawned, request.joiners = True, (daemon.number,)
                self._spawn((request.node_id,))
            elif now_s >= request.asked_s + REAP_S:
                return {"error": f"node {request.node_id} runs already (pid {daemon.pid})"}
            return None
        if daemon.state is _State.READY and daemon.pid is not None:
            self._write_cluster()
            if node_id != request.node_id:
                return {"error": f"node {request.node_id} was given another id: {node_id}"}
            return {"pid": daemon.pid, "seconds": now_s - daemon.spawned_s}
        if daemon.state is _State.ENDED:
            code, log = daemon.ended_with, self._plan.run_dir.log(node_id)
            where = "" if code < 0 or code == NOT_FORKED else f"; {log} says why"
            return {"error": f"node {request.node_id} {how_ended(code)}{where}"}
        if now_s >= request.asked_s + START_S:
            return {"error": f"node {request.node_id} has not joined within {START_S:.0f} s"}
        return None

    def _progress_of_growth(self, request: Request, now_s: float) -> dict[str, Any] | None:
        if not request.spawned:
            if not self._up:
                return {"error": "the cluster has not joined yet"}
            if len(self._daemons) + request.grow > LAUNCH_MAX:
                return {"error": f"a launch has at most {LAUNCH_MAX} daemons"}
            try:
                request.joiners = self._add_joiners(request.grow)
            except (LaunchError, ConfigError) as error:
                return {"error": str(error)}
            except OSError as error:
                return {"error": f"cannot look for free ports: {error.strerror}"}
            request.spawned = True
            return None
        ids = [self._ids.get(number, number) for number in request.joiners]
        daemons = [self._daemons[node_id] for node_id in ids]
        if all(daemon.state is not _State.STARTING and daemon.known for daemon in daemons):
            lost = [i for i in ids if self._daemons[i].state is _State.ENDED]
            for number in (i for i in lost if i < 0):
                del self._daemons[number]
            if self._changed:
                self._write_cluster()
            if lost:
                log = self._plan.run_dir.log(lost[0])
                return {"error": f"{len(lost)} of {request.grow} joiners ended; {log} says why"}
            return {"ids": sorted(ids), "seconds": now_s - request.asked_s}
        if now_s >= request.asked_s + START_S:
            return {"error": f"not all joiners are members within {START_S:.0f} s"}
        return None

    def _all_ended(self) -> bool:
        return all(daemon.state is _State.ENDED for daemon in self._daemons.values())

    def _write_cluster(self) -> None:
        if not self.holds_run_dir():
            self._changed = False
            return
        config, run_dir = self._plan.config, self._plan.run_dir
        nodes = [
            {
                "id": node_id,
                "pid": daemon.pid,
                "address": daemon.address,
                "control": run_dir.control(node_id),
                "listen": daemon.listen,
                "http": self._url(node_id),
            }
            for node_id, daemon in sorted(self._daemons.items())
            if node_id >= 0
        ]
        document = {"cluster": config.cluster, "size": config.size, "launcher": os.getpid()}
        try:
            run_dir.write_cluster({**document, "nodes": nodes})
        except OSError as error:
            # A full disk does not end a cluster; who looks for it reads the former file meanwhile.
            if not self._write_again_s:
                self._event("failed", detail=f"cannot write cluster.json: {error.strerror}")
            self._write_again_s = time.monotonic() + WRITE_AGAIN_S
        else:
            self._write_again_s = 0.0
        self._changed = bool(self._write_again_s)

    def _url(self, node_id: int) -> str:
        config = self._plan.config
        if not config.http:
            return ""
        try:
            return f"http://{http_address(replace(config, id=node_id))}/"
        except ConfigError:
            # An id can be above the number of daemons, and the port that it gives above all ports.
            return ""

    # --- events -------------------------------------------------------------------------------

    def _read_events(self) -> None:
        while True:
            try:
                data = os.read(self._zygote.events, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                self._on_event(json.loads(line))

    def _on_event(self, event: dict[str, Any]) -> None:
        number = event.pop("number", event["id"])
        known_as = self._ids.get(number, number)
        if event["id"] < 0:
            event["id"] = known_as
        elif event["id"] != known_as and known_as in self._daemons:
            self._renumber(known_as, event["id"])
        daemon = self._daemons[event["id"]]
        if event["event"] == "ready" and daemon.state is _State.STARTING:
            daemon.state = _State.READY
            daemon.joined = True
        if self._stopping_s is not None and event["event"] == "notice":
            # Everybody hears of everybody's end: N * N lines that nobody wants to read.
            return
        self._show({**event, "at": time.monotonic() - self._began_s})

    def _event(self, event: str, **details: object) -> None:
        self._show({"event": event, **details, "at": time.monotonic() - self._began_s})

    # --- the end ------------------------------------------------------------------------------

    def _on_signal(self) -> None:
        if self._stopping_s is None:
            self._stop(0)
        elif not self._killed and time.monotonic() - self._stopping_s > AGAIN_S:
            self._kill()

    def _stop(self, code: int) -> None:
        if self._stopping_s is None:
            self._code = code
            self._stopping_s = time.monotonic()
            self._event("stopping")
            self._zygote.order(Signal(signal.SIGTERM))

    def _kill(self) -> None:
        self._killed = True
        self._stopping_s = time.monotonic() - self._term_s
        self._zygote.order(Signal(signal.SIGKILL))


def how_ended(code: int) -> str:
    """An exit code, or minus a signal's number, in words."""
    if code == NOT_FORKED:
        return "could not be started, its log says why"
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _signal_socket() -> socket.socket:
    """A socket that gets a byte for every signal that asks the launcher to stop."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return ours
