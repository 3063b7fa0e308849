"""A process that has imported everything a daemon needs, and forks daemons.

A daemon that begins by fork is there within a millisecond and shares the memory of the imports with
all others. The zygote has no event loop and no thread when it forks, so a child inherits nothing
half done. It is the parent of the daemons: it alone knows surely which process ids are theirs, so
it also signals them. What it is told, and tells, is in `bmgd.launcher.orders`.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from bmgd.config import Config
from bmgd.dataclass import dataclass
from bmgd.launcher.child import EVENTS_FD, finish_process, take_descriptors
from bmgd.launcher.orders import (
    NOT_FORKED,
    ORDER_BYTES_MAX,
    Ended,
    News,
    Order,
    Signal,
    Spawn,
    Spawned,
    SpawnJoiners,
)
from bmgd.launcher.plan import Plan
from bmgd.shell.process import die_with_parent, set_title

Report = Callable[[Sequence[Mapping[str, object]]], None]
Target = Callable[[Config, Report], int]
Load = Callable[[], Target]
"""Imports what a daemon needs and returns what a child runs; its result is the exit code."""

EVENT_BYTES_MAX: Final = select.PIPE_BUF
"""Longer writes into the pipe could be torn apart by those of other daemons."""

PIPE_BYTES: Final = 1 << 20

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals that the zygote ignores, and that end a daemon which has not begun yet."""


@dataclass(frozen=True, slots=True)
class Zygote:
    """The launcher's handle on its zygote.

    Args:
        pid: of the zygote.
        channel: `Order` out, `News` in; at its end the zygote is gone.
        events: read end of the pipe into which the daemons write one JSON object a line.
    """

    pid: int
    channel: socket.socket
    events: int

    def order(self, order: Order) -> None:
        """Give an order."""
        # A zygote that is gone is noticed when its news are read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.channel.send(pickle.dumps(order))

    def news(self) -> News | None:
        """The next news; None at the end."""
        try:
            data = self.channel.recv(ORDER_BYTES_MAX)
        except ConnectionResetError:
            return None
        return cast(News, pickle.loads(data)) if data else None


def start_zygote(load: Load) -> Zygote:
    """Fork the zygote. Call it before the process has a loop, a thread or much memory.

    Args:
        load: called once, in the zygote.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    events, events_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    # Daemons drop events that do not fit, and hundreds of them may start or hear at once.
    with suppress(PermissionError):
        fcntl.fcntl(events, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    launcher_pid = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        finish_process(lambda: _zygote_main(launcher_pid, theirs, ours, events, events_in, load))
    theirs.close()
    os.close(events_in)
    return Zygote(pid, ours, events)


# --- in the zygote --------------------------------------------------------------------------------


def _zygote_main(
    launcher_pid: int,
    channel: socket.socket,
    others: socket.socket,
    events: int,
    events_in: int,
    load: Load,
) -> int:
    die_with_parent(launcher_pid)
    # Not in the terminal's foreground group: Ctrl-C reaches the launcher alone.
    os.setsid()
    others.close()
    os.close(events)
    set_title("bmgd: zygote", "bmgd-zygote")
    wake, wake_in = socket.socketpair()
    wake.setblocking(False)
    wake_in.setblocking(False)
    signal.set_wakeup_fd(wake_in.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    target = load()
    _make_ready_to_share()
    return _Forker(channel, wake, events_in, target).serve()


def _make_ready_to_share() -> None:
    """What is here now is shared by all daemons until one writes to it: see that few of them have to.

    The collector would write to all that it looks at. The interpreter's cache of looked up names writes
    to a name when it lets go of it: each daemon would do so with what the imports have left there.
    """
    gc.collect()
    sys._clear_type_cache()
    gc.freeze()


class _Forker:
    """The zygote's work: orders in, children out."""

    def __init__(
        self, channel: socket.socket, wake: socket.socket, events_in: int, target: Target
    ) -> None:
        self._channel = channel
        self._wake = wake
        self._events_in = events_in
        self._target = target
        self._plan: Plan | None = None
        self._children: dict[int, int] = {}

    def serve(self) -> int:
        """Carry out orders until the launcher closes the channel."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake.fileno() in ready:
                self._wake.recv(4096)
                self._reap()
            if self._channel.fileno() in ready:
                try:
                    data = self._channel.recv(ORDER_BYTES_MAX)
                except ConnectionResetError:
                    # The launcher closed with news unread: gone all the same.
                    return 0
                if not data:
                    return 0
                self._obey(pickle.loads(data))

    def _obey(self, order: Order) -> None:
        match order:
            case Plan():
                self._plan = order
            case Spawn(ids):
                log = self._told.run_dir.log
                self._fork_all([(i, log(i), self._told.config_of(i)) for i in ids])
            case SpawnJoiners(joiners, contacts):
                told = self._told
                self._fork_all(
                    [
                        (j.number, told.run_dir.log(j.known_as), told.config_of_joiner(j, contacts))
                        for j in joiners
                    ]
                )
            case Signal(number):
                for pid in self._children:
                    os.kill(pid, number)

    @property
    def _told(self) -> Plan:
        assert self._plan is not None
        return self._plan

    def _fork_all(self, rows: list[tuple[int, str, Config]]) -> None:
        """Fork daemons: the number, the log and the configuration of each."""
        pairs, unforked = [], []
        for number, log, config in rows:
            try:
                pairs.append((number, self._fork(number, log, config)))
            except OSError as error:
                unforked.append((number, 0, NOT_FORKED))
                _say_why(log, error)
        self._tell(Spawned(tuple(pairs)))
        if unforked:
            self._tell(Ended(tuple(unforked)))

    def _fork(self, number: int, log: str, config: Config) -> int:
        zygote_pid = os.getpid()
        # The child is born with the zygote's deafness to them: those that come so early must wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            pid = os.fork()
            if pid == 0:
                finish_process(
                    lambda: _daemon_main(
                        zygote_pid, config, number, log, self._events_in, self._target
                    )
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        self._children[pid] = number
        return pid

    def _reap(self) -> None:
        rows = []
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            rows.append((self._children.pop(pid), pid, os.waitstatus_to_exitcode(status)))
        if rows:
            self._tell(Ended(tuple(rows)))

    def _tell(self, news: News) -> None:
        self._channel.send(pickle.dumps(news))


def _say_why(log: str, error: OSError) -> None:
    """Say in the log of a daemon why it was not forked."""
    with suppress(OSError), open(log, "a", encoding="utf-8") as file:
        file.write(f"cannot start this daemon: {error.strerror}\n")


# --- in a daemon ----------------------------------------------------------------------------------


def _daemon_main(
    zygote_pid: int, config: Config, number: int, log: str, events_in: int, target: Target
) -> int:
    die_with_parent(zygote_pid)
    signal.set_wakeup_fd(-1)
    for inherited in (signal.SIGCHLD, *_ENDING):
        signal.signal(inherited, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    os.setsid()
    take_descriptors(log, events_in)
    if config.join:
        set_title(f"bmgd: joining ({config.cluster})", "bmgd-joining")
    else:
        set_title(f"bmgd: node {number} of {config.size} ({config.cluster})", f"bmgd-{number}")
    return target(config, _reporter(number))


def _reporter(number: int) -> Report:
    # A joiner's id comes with its events; the launcher must know whose it is.
    own: dict[str, Any] = {"number": number} if number < 0 else {}

    def report(events: Sequence[Mapping[str, object]]) -> None:
        lines = b""
        for event in events:
            line = (
                json.dumps({"id": number, **event, **own}, separators=(",", ":")).encode() + b"\n"
            )
            if len(line) > EVENT_BYTES_MAX:
                event = {"id": number, "event": "too long an event", **own}
                line = json.dumps(event).encode() + b"\n"
            if len(lines) + len(line) > EVENT_BYTES_MAX:
                _write_events(lines)
                lines = b""
            lines += line
        _write_events(lines)

    return report


def _write_events(lines: bytes) -> None:
    # The launcher may be stopped or gone; a daemon does not wait for its audience.
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(EVENTS_FD, lines)
