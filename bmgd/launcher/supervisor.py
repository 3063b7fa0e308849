"""The launcher itself: starts the daemons through the zygote, watches them, and ends them.

Theory of operation. One thread, one `poll`, no event loop to import. A daemon goes

    STARTING --"ready" comes through the pipe--> READY
        `-------- the zygote has reaped it --------+--> ENDED --restart--> STARTING

and the launch as a whole: starting, up, stopping. What is bounded: the start (`START_S`), the end
(`TERM_S`, then SIGKILL), a restart (`REAP_S` for the former process to be gone, then `START_S`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from bmgd.errors import LaunchError
from bmgd.launcher.requests import Request, RequestServer
from bmgd.launcher.zygote import Ended, News, Plan, Signal, Spawn, Spawned, Zygote
from bmgd.types import NodeId

START_S: Final = 60.0
TERM_S: Final = 3.0
KILL_S: Final = 10.0
REAP_S: Final = 2.0
AGAIN_S: Final = 0.3
"""Signals closer than this are one: wrappers (timeout, a closing terminal) send theirs twice."""

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
    state: _State = _State.ENDED
    pid: int | None = None
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
        flush: called after a batch of events.
        began_s: `time.monotonic()` of the command's start.
        between_pid: the process between the daemons, if there is one; its end is the end of all.
    """

    def __init__(
        self,
        zygote: Zygote,
        plan: Plan,
        show: Show,
        flush: Callable[[], None],
        began_s: float,
        between_pid: int | None = None,
    ) -> None:
        self._zygote = zygote
        self._plan = plan
        self._show = show
        self._flush = flush
        self._began_s = began_s
        self._daemons = {node_id: _Daemon() for node_id in range(plan.config.size)}
        self._requests: list[Request] = []
        self._partial = b""
        self._changed = True
        self._up = False
        self._stopping_s: float | None = None
        self._killed = False
        self._code = 0
        self._poll = select.poll()
        self._server = RequestServer(plan.run_dir.launcher_socket, self._poll)
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
        for request in list(self._requests):
            answer = self._progress(request, now_s)
            if answer is not None:
                self._requests.remove(request)
                self._server.answer(request, answer)
        if self._stopping_s is not None:
            if now_s >= self._stopping_s + TERM_S + KILL_S:
                raise LaunchError("a daemon does not end, although it was killed")
            if now_s >= self._stopping_s + TERM_S and not self._killed:
                self._kill()
        elif not self._up and now_s >= self._began_s + START_S:
            missing = [node_id for node_id, d in self._daemons.items() if not d.joined]
            self._event("failed", detail=f"not joined within {START_S:.0f} s: {missing}")
            self._stop(_PARTIAL)

    def _settle(self) -> None:
        up = self._up or all(d.joined and d.known for d in self._daemons.values())
        if self._changed and up:
            self._write_cluster()
        if up and not self._up and self._stopping_s is None:
            self._up = True
            self._event("up", daemons=len(self._daemons))
        self._flush()

    def _timeout_ms(self) -> float | None:
        times = [r.asked_s + (START_S if r.spawned else REAP_S) for r in self._requests]
        if self._stopping_s is not None:
            times.append(self._stopping_s + TERM_S + (KILL_S if self._killed else 0.0))
        elif not self._up:
            times.append(self._began_s + START_S)
        return max(0.0, min(times) - time.monotonic()) * 1000 + 1 if times else None

    # --- daemons ------------------------------------------------------------------------------

    def _spawn(self, ids: tuple[int, ...]) -> None:
        for node_id in ids:
            daemon = self._daemons[node_id]
            daemon.state = _State.STARTING
            daemon.spawned_s = time.monotonic()
        self._zygote.order(Spawn(ids))

    def _on_news(self, news: News) -> None:
        self._changed = True
        match news:
            case Spawned(pairs):
                for node_id, pid in pairs:
                    self._daemons[node_id].pid = pid
            case Ended(rows):
                for node_id, pid, code in rows:
                    self._on_ended(node_id, pid, code)

    def _on_ended(self, node_id: int, pid: int, code: int) -> None:
        daemon = self._daemons[node_id]
        # Its last words may still be in the pipe, and come before its end.
        self._read_events()
        daemon.state, daemon.pid, daemon.ended_with = _State.ENDED, None, code
        self._event("ended", id=node_id, pid=pid, code=code)
        if not daemon.joined and code >= 0 and self._stopping_s is None:
            log = self._plan.run_dir.log(node_id)
            self._event("failed", detail=f"node {node_id} ended before it joined, see {log}")
            self._stop(_FAILED)

    def _progress(self, request: Request, now_s: float) -> dict[str, Any] | None:
        daemon = self._daemons.get(request.node_id)
        if daemon is None:
            return {"error": f"id {request.node_id} is out of range 0..{len(self._daemons) - 1}"}
        if self._stopping_s is not None:
            return {"error": "the cluster is ending"}
        if not request.spawned:
            if daemon.state is _State.ENDED:
                request.spawned = True
                self._spawn((request.node_id,))
            elif now_s >= request.asked_s + REAP_S:
                return {"error": f"node {request.node_id} runs already (pid {daemon.pid})"}
            return None
        if daemon.state is _State.READY and daemon.pid is not None:
            self._write_cluster()
            return {"pid": daemon.pid, "seconds": now_s - daemon.spawned_s}
        if daemon.state is _State.ENDED:
            return {"error": f"node {request.node_id} {how_ended(daemon.ended_with)}"}
        if now_s >= request.asked_s + START_S:
            return {"error": f"node {request.node_id} has not joined within {START_S:.0f} s"}
        return None

    def _all_ended(self) -> bool:
        return all(daemon.state is _State.ENDED for daemon in self._daemons.values())

    def _write_cluster(self) -> None:
        config, run_dir = self._plan.config, self._plan.run_dir
        nodes = [
            {
                "id": node_id,
                "pid": daemon.pid,
                "address": config.peers.address_of(NodeId(node_id)),
                "control": run_dir.control(node_id),
                "listen": self._plan.config_of(node_id).listen,
            }
            for node_id, daemon in self._daemons.items()
        ]
        document = {"cluster": config.cluster, "size": config.size, "launcher": os.getpid()}
        run_dir.write_cluster({**document, "nodes": nodes})
        self._changed = False

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
        self._stopping_s = time.monotonic() - TERM_S
        self._zygote.order(Signal(signal.SIGKILL))


def how_ended(code: int) -> str:
    """An exit code, or minus a signal's number, in words."""
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
