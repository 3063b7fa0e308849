"""The launcher itself: has the daemons started through the zygote, watches them, and ends them.

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
from typing import Any, Final

from bmgd.errors import LaunchError
from bmgd.launcher.cluster_file import ClusterFile
from bmgd.launcher.daemons import START_S, Daemons, State
from bmgd.launcher.orders import Ended, News, Signal, Spawned
from bmgd.launcher.plan import Plan
from bmgd.launcher.ports import ReservedPorts
from bmgd.launcher.progress import grow, look_again_s, restart
from bmgd.launcher.requests import Request, RequestServer
from bmgd.launcher.zygote import Zygote

TERM_MORE_S: Final = 3.0
"""How much longer than `leave_ms` a daemon may take to leave."""

KILL_S: Final = 10.0
AGAIN_S: Final = 0.3
"""Signals closer than this are one: wrappers (timeout, a closing terminal) send theirs twice."""

FLUSH_AGAIN_S: Final = 0.1
"""What could not be written, as nobody reads it, is tried again so much later."""

Show = Callable[[dict[str, Any]], None]
"""Is told every event: a dict with ``event`` and ``at`` (seconds since the command began)."""

_READ_BYTES = 1 << 16
_FAILED = 1
_PARTIAL = 4


class Supervisor:
    """Runs one local cluster until it is told to stop.

    Args:
        zygote: as `start_zygote` gave it.
        plan: what the daemons are told; its run directory is prepared.
        ports: the launch's, those of joiners too.
        show: shown every event as it happens.
        flush: called after a batch of events, and again as long as it returns that something is left.
        began_s: `time.monotonic()` of the command's start.
        between_pid: the process between the daemons, if there is one; its end is the end of all.
    """

    def __init__(
        self,
        zygote: Zygote,
        plan: Plan,
        ports: ReservedPorts,
        show: Show,
        flush: Callable[[], bool],
        began_s: float,
        between_pid: int | None = None,
    ) -> None:
        self._zygote = zygote
        self._show = show
        self._flush = flush
        self._is_left = False
        self._began_s = began_s
        self._daemons = Daemons(zygote, plan, ports)
        self.cluster_file = ClusterFile(
            self._daemons, lambda detail: self._event("failed", detail=detail)
        )
        self._requests: list[Request] = []
        self._answers: list[tuple[Request, dict[str, Any]]] = []
        self._partial = b""
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
        self._zygote.order(self._daemons.plan)
        self._daemons.spawn(tuple(self._daemons.by_id))
        while self._stopping_s is None or not self._daemons.all_ended:
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
            log = self._daemons.plan.run_dir.between_log
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
                self._answers.append((request, answer))
        if self._stopping_s is not None:
            if now_s >= self._stopping_s + self._term_s + KILL_S:
                raise LaunchError("a daemon does not end, although it was killed")
            if now_s >= self._stopping_s + self._term_s and not self._killed:
                self._kill()
        elif not self._up and now_s >= self._began_s + START_S:
            missing = [node_id for node_id, d in self._daemons.by_id.items() if not d.joined]
            self._event("failed", detail=f"not joined within {START_S:.0f} s: {missing}")
            self._stop(_PARTIAL)

    def _settle(self) -> None:
        up = self._up or all(d.joined and d.known for d in self._daemons.by_id.values())
        if self._daemons.changed and up and time.monotonic() >= self.cluster_file.again_s:
            self.cluster_file.write()
        if up and not self._daemons.changed and not self._up and self._stopping_s is None:
            self._up = True
            self._event("up", daemons=len(self._daemons.by_id))
        self._is_left = self._flush()
        # Whoever is answered finds the lines about it printed.
        answers, self._answers = self._answers, []
        for request, answer in answers:
            self._server.answer(request, answer)

    def _timeout_ms(self) -> float | None:
        times = [look_again_s(request) for request in self._requests]
        if self.cluster_file.again_s > time.monotonic():
            times.append(self.cluster_file.again_s)
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

    def _on_news(self, news: News) -> None:
        self._daemons.changed = True
        match news:
            case Spawned(pairs):
                for number, pid in pairs:
                    self._daemons.by_id[self._daemons.id_of(number)].pid = pid
            case Ended(rows):
                for number, pid, code in rows:
                    # Its last words may still be in the pipe, and come before its end.
                    self._read_events()
                    self._on_ended(self._daemons.id_of(number), pid, code)

    def _on_ended(self, node_id: int, pid: int, code: int) -> None:
        daemon = self._daemons.by_id[node_id]
        daemon.state, daemon.pid, daemon.ended_with = State.ENDED, None, code
        self._event("ended", id=node_id, pid=pid, code=code)
        if not daemon.joined and code >= 0 and self._stopping_s is None and not self._up:
            log = self._daemons.plan.run_dir.log(node_id)
            self._event("failed", detail=f"node {node_id} ended before it joined, see {log}")
            self._stop(_FAILED)

    def _progress(self, request: Request, now_s: float) -> dict[str, Any] | None:
        if self._stopping_s is not None:
            return {"error": "the cluster is ending"}
        if request.grow and not self._up:
            return {"error": "the cluster has not joined yet"}
        carry_out = grow if request.grow else restart
        return carry_out(self._daemons, request, now_s, self.cluster_file.write)

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
        known_as = self._daemons.id_of(number)
        if event["id"] < 0:
            event["id"] = known_as
        elif event["id"] != known_as and known_as in self._daemons.by_id:
            self._daemons.renumber(known_as, event["id"])
        daemon = self._daemons.by_id[event["id"]]
        if event["event"] == "ready" and daemon.state is State.STARTING:
            daemon.state = State.READY
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


def _signal_socket() -> socket.socket:
    """A socket that gets a byte for every signal that asks the launcher to stop."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return ours
