"""One daemon: a core, its sockets, its programs, in one task group.

Theory of operation. Everything that happens becomes an event in one queue. One place takes events
out, steps the core and carries out the effects, in order; so the core is never re-entered, whoever
calls. Outboxes are written when the queue is empty, so all frames of one wake-up leave together; then
programs are told, for a neighbor waits longer for what it gets next than a program beside it. When
the core's deadline comes, the sockets are read first: no peer is judged silent while its bytes wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bmgd.config import Config, http_address
from bmgd.core.commands import Command, Leave, ShowStatus
from bmgd.core.counts import Counts
from bmgd.core.effects import (
    AbsorbHeartbeats,
    Announce,
    AskContact,
    Close,
    Deliver,
    Dial,
    Displaced,
    Effect,
    Exit,
    ForwardingChanged,
    Grant,
    Joined,
    Observed,
    ProgramsChanged,
    RecordChanged,
    Refuse,
    Renewed,
    Reply,
    Reported,
    ReportWanted,
    Send,
    StreamEnded,
    StreamMoved,
    TellMissed,
    Welcome,
)
from bmgd.core.events import CommandIssued, DeadlineReached, Event, KeysChanged
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.errors import BmgdError, ConfigError, InvariantError, RequestError, SubscriptionError
from bmgd.linkevents import OWN_LACK
from bmgd.routing import BACKEND
from bmgd.shell.access import Access
from bmgd.shell.addresses import bind_listener
from bmgd.shell.advice import advice_on, with_advice
from bmgd.shell.control import ControlServer, ForPrograms
from bmgd.shell.early_log import begin
from bmgd.shell.engines import choose_engine
from bmgd.shell.flight import Flight
from bmgd.shell.joining import Birth
from bmgd.shell.log import DaemonLog
from bmgd.shell.node_report import Descriptors
from bmgd.shell.process import allow_descriptors, look_for_garbage_rarely, set_title
from bmgd.shell.reloading import Reloading
from bmgd.shell.reports import Report, Reports
from bmgd.shell.service_manager import ServiceManager
from bmgd.shell.state import StateDirectory
from bmgd.shell.surveying import Surveying
from bmgd.shell.tls import TlsSide
from bmgd.shell.transport import Transport
from bmgd.shell.vitals import Vitals
from bmgd.types import UNKNOWN_INCARNATION, Incarnation
from bmgd.wire.hello import Identity

if TYPE_CHECKING:
    from bmgd.shell.web import Web

FLUSH_AT_EXIT_S = 0.5
_REPORTED = frozenset(
    {
        "ready",
        "suspected",
        "verdict",
        "quorum lost",
        "quorum regained",
        "vetoed",
        "refuted",
        "new life",
        "links exact",
    }
)
_OWN_REQUEST = 0
"""The request number of commands that the daemon itself issues; programs' numbers begin at 1."""


class Daemon:
    """One running daemon.

    Args:
        config: what it is told.
        report: gets events as dicts whenever something worth telling the starter happened.

    Raises:
        ConfigError: an address or a directory cannot be used.
    """

    def __init__(self, config: Config, report: Report | None = None) -> None:
        self._config = config
        self._report_to = report
        self._reports: Reports | None = None
        self._settings = Settings.of(config)
        self._log = DaemonLog(config.id, config.log_level, config.log_format)
        self._tls = TlsSide(config) if config.tls_cert else None
        self._state = self._birth = None
        if config.join:
            self._birth = Birth(config, self._settings, self._tls)
        else:
            self._state = StateDirectory(config.state_dir, config.id)
        self._engine_name, self._make_engine = choose_engine()
        self._access = Access.of(config.control_group, config.control_readonly)
        self._listener = bind_listener(config.listen or self._settings.address)
        self._control: ControlServer | None = None
        self._events: deque[Event] = deque()
        self._happened: deque[tuple[int, Observed | RecordChanged]] = deque()
        self._untold: deque[ForPrograms] = deque()
        self._stepping = False
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at_ns = 0
        self._exit_code: int | None = None
        self._displaced: Displaced | None = None
        self._held: list[tuple[int, Command]] = []
        self._began_ns = time.monotonic_ns()
        self._manager = ServiceManager(os.environ)
        self.vitals = Vitals()
        self._surveying = Surveying(self, config.cluster)
        self._web: Web | None = None

    async def run(self) -> int:
        """Serve until the core ends the daemon; returns the exit code."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_stray_error)
        self._ended = asyncio.Event()
        self._reports = Reports(self._report_to, self._loop)
        self._manager.start(self._loop)
        self._reloading = Reloading(self._config, self._on_reloaded, self._warn)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._spawn = tasks.create_task
                self._flight = Flight(self._config, self._spawn, self._say, self._warn)
                await self._open_web()
                if await self._become_member(None):
                    await self._serve()
        finally:
            if self._web is not None:
                self._web.close()
            self._listener.close()
            for kept in (self._state, self._birth):
                if kept is not None:
                    kept.close()
            self._reports.flush()
            self._manager.close()
            self._log.close()
        return self._exit_code or 0

    async def _open_web(self) -> None:
        """Open the HTTP port; one that is named after the id waits until there is one."""
        config = self._config
        if not config.http or (self._web is not None and "{" not in config.http):
            return
        if self._web is not None:
            self._web.close()
            self._web = None
        if config.join and not self._surveying.is_member and "{" in config.http:
            return
        from bmgd.shell.web import Web

        address = http_address(config)
        self._web = Web(address, config.http_token, self._surveying, self._spawn, self._log.warn)
        await self._web.start()
        self._log.line("http", f"the page is at {self._web.url}")

    async def _become_member(self, former: Node | None) -> bool:
        """Make the node: a founder at once, a joiner once a contact told it how; False if none did."""
        incarnation = UNKNOWN_INCARNATION
        joined: Joined | None = None
        if self._birth is not None:
            if self._state is not None:
                self._state.close()
            born = await self._birth.join(self._displaced, self._joiner_observed)
            if isinstance(born, Exit):
                self._end(born.code, born.reason)
                return False
            self._displaced = None
            joined, self._settings, incarnation = born, born.settings, born.incarnation
            self._config = replace(
                self._config,
                id=self._settings.id,
                size=self._settings.founding_size,
                peers=self._settings.peers,
                control=self._birth.control_of(self._settings.id),
            )
            self._state = self._birth.state
            self._log.close()
            self._log = DaemonLog(self._config.id, self._config.log_level, self._config.log_format)
            set_title(
                f"bmgd: node {self._config.id}, joined ({self._config.cluster})",
                f"bmgd-{self._config.id}",
            )
        elif self._state is not None:
            incarnation = self._state.begin_life()
        now_ns = time.monotonic_ns()
        seed = secrets.randbits(64)
        told = ((), ()) if joined is None else (joined.records, joined.retired)
        settings = self._settings

        def make() -> Node:
            return Node(settings, incarnation, Random(seed), now_ns, *told)

        self._node = make()
        if former is not None:
            self._node.inherit(former)
        # What a joiner was told may be long: it is not held a second time.
        again = make if joined is None else None
        self._note = self._flight.begin(self._node, self._config, now_ns, again)
        self._transport = self._make_transport(incarnation)
        self._surveying.become(self._settings.id)
        if self._birth is not None:
            await self._open_web()
        return True

    def _say(self, event: str, text: str) -> None:
        self._log.line(event, text)

    def _warn(self, event: str, text: str) -> None:
        self._log.warn(event, text)

    def _joiner_observed(self, observed: Observed) -> None:
        self._log.observed(with_advice(observed, self._config))

    def _make_transport(self, incarnation: Incarnation) -> Transport:
        identity = Identity(
            cluster=self._config.cluster,
            founding_size=self._config.size,
            fingerprint=self._config.peers.fingerprint(),
            id=self._settings.id,
            address=self._settings.address,
            secrets=self._config.secrets,
            features=self._settings.features,
            has_tls=self._tls is not None,
        )
        return Transport(
            identity,
            self._config.peers.text,
            self._listener,
            self._config.timing.timeout_ms,
            self._emit_all,
            self._spawn,
            self._log.warn,
            incarnation,
            self._make_engine(),
            self._tls,
        )

    async def _serve(self) -> None:
        self._handle_signals()
        self._reloading.start()
        try:
            await self._live()
            while self._displaced is not None:
                former = self._config.id
                self._end_control_if_named()
                if not await self._become_member(self._node):
                    break
                self._report("renumbered", former=former)
                await self._live()
        finally:
            self._reloading.stop()
            if self._wake is not None:
                self._wake.cancel()
            if self._control is not None:
                self._control.close()
            self._surveying.close()
            if self._web is not None:
                self._web.close()
            self._transport.stop()
            self._report("exit", code=self._exit_code)

    async def _live(self) -> None:
        """One life as one node, until it ends or another has its id."""
        if self._config.control and self._control is None:
            self._control = ControlServer(
                self._config.control,
                self.issue,
                self.describe,
                self._own_verbs(),
                self._access,
                self._warn,
            )
            await self._control.start()
        self._transport.start()
        self._report("listening")
        self._log_start()
        self._emit(DeadlineReached())
        held, self._held = self._held, []
        for request, command in held:
            self.issue(request, command)
        await self._ended.wait()
        self._transport.links.flush()
        if not await self._transport.links.settle(FLUSH_AT_EXIT_S):
            self._log.line("flush", "not everything could be written", logging.WARNING)
        if self._displaced is not None:
            self._transport.stop()
            self._ended.clear()

    def _end_control_if_named(self) -> None:
        """A socket that is named after the id goes with it; at another one, programs stay."""
        if self._control is None or self._birth is None:
            return
        if self._birth.control_is_named:
            self._control.close()
            self._control = None
        else:
            self._control.end_watchers(SubscriptionError("this node is given a new id"))

    def _log_start(self) -> None:
        config = self._config
        listening = config.listen or self._settings.address
        secret = "with a secret" if config.secrets else "without a secret"
        secret += " under TLS" if config.tls_cert else ""
        self._log.line(
            "listening",
            f"listening on {listening} as {self._settings.address}: node {config.id} of {config.size}"
            f" in cluster {config.cluster!r} {secret}, incarnation {self._node.incarnation:#x},"
            f" control {config.control or 'none'}, state {config.state_dir or 'not kept'}",
        )
        if not config.secrets and not config.tls_cert:
            self._log.line(
                "secret",
                "without a secret whoever can reach this port, on this machine every user, can join the"
                " cluster, read its messages and take nodes out of it: give --secret-file",
                logging.WARNING,
            )

    # --- the queue of events ------------------------------------------------------------------

    def issue(self, request: int, command: Command) -> None:
        """Hand a program's command to the core; its reply may come before this returns."""
        if self._displaced is not None:
            self._held.append((request, command))
        else:
            self._emit(CommandIssued(request, command))

    def _emit(self, event: Event) -> None:
        self._emit_all((event,))

    def _emit_all(self, events: Iterable[Event]) -> None:
        self._events.extend(events)
        if self._stepping:
            return
        self._stepping = True
        if self._events:
            self._events.extendleft(self._transport.links.absorbed())
        try:
            while True:
                while self._events:
                    self._step(self._events.popleft())
                # Without an event too: relayed frames wait to be written.
                self._transport.links.flush()
                if self._untold:
                    self._tell_programs()
                if self._happened:
                    self._show_what_happened()
                if not self._events:
                    break
        except (InvariantError, MemoryError) as error:
            self._end_loudly(error)
        except ConfigError as error:
            self._end(1, str(error))
        finally:
            # Where a step has failed, what came of those before it.
            if self._untold:
                self._tell_programs()
            self._stepping = False
        self._plan_wake()

    def _step(self, event: Event) -> None:
        if self._exit_code is not None or self._displaced is not None:
            return
        began_ns = time.monotonic_ns()
        try:
            effects = self._node.step(began_ns, event)
        except InvariantError:
            self._flight.note_failure(began_ns, event)
            raise
        if self._note is not None:
            self._note(began_ns, event, effects)
        for effect in effects:
            self._carry_out(effect)
        self.vitals.steps.observe(time.monotonic_ns() - began_ns)

    def _carry_out(self, effect: Effect) -> None:
        transport = self._transport
        match effect:
            case Send(link, message):
                transport.links.send(link, message)
            case Deliver() | StreamMoved():
                self._untold.append(effect)
            case Observed() | RecordChanged():
                self._happened.append((time.monotonic_ns(), effect))
            case ForwardingChanged(snapshot):
                transport.links.publish(snapshot)
            case AbsorbHeartbeats(digest, links):
                transport.links.absorb_heartbeats(digest, links)
            case Dial():
                transport.dials.dial(effect)
            case Welcome():
                transport.hellos.welcome(effect)
            case Refuse():
                transport.hellos.refuse(effect)
            case Grant():
                transport.hellos.grant(effect)
            case Close(link, reason):
                transport.close(link, reason)
            case Reply(request) if request < 0:
                self._surveying.reply(effect)
            case Reply(request) if request == _OWN_REQUEST:
                if effect.result is not None:
                    self._own_answer(effect.result)
            case Reply() | Announce() | TellMissed() | ProgramsChanged() | StreamEnded():
                self._untold.append(effect)
            case Renewed(incarnation):
                self._keep(incarnation)
                transport.own.incarnation = incarnation
            case Displaced():
                self._displaced = effect
                self._ended.set()
            case ReportWanted():
                self._surveying.report_wanted(effect)
            case Reported():
                self._surveying.reported(effect)
            case AskContact() | Joined():
                raise InvariantError("a node asks no contact")
            case Exit(code, reason):
                self._end(code, reason)

    def _tell_programs(self) -> None:
        """Pass on what the last steps have for programs, in order."""
        untold, control = self._untold, self._control
        while untold:
            effect = untold.popleft()
            if control is not None:
                control.tell(effect)

    def _own_answer(self, result: Mapping[str, object]) -> None:
        """The answer to what a signal asked for."""
        if "left_over" in result:
            self._log.line("drained", f"left over: {result['left_over'] or 'nothing'}")
        else:
            self._log.line("status", f"{result} {self.describe()}")

    def _keep(self, incarnation: Incarnation) -> None:
        """Keep a new life before anybody hears of it.

        Raises:
            ConfigError: it cannot be kept; nothing more of its step may be carried out.
        """
        if self._state is None:
            return
        try:
            self._state.keep(incarnation)
        except ConfigError as error:
            raise ConfigError(f"the new life cannot be kept: {error}") from error

    def _plan_wake(self) -> None:
        deadline_ns = self._node.deadline_ns
        if deadline_ns is None or self._ended.is_set():
            return
        if self._wake is not None:
            if self._wake_at_ns <= deadline_ns:
                return
            self._wake.cancel()
        self._wake_at_ns = deadline_ns
        # Whole milliseconds, rounded up: uvloop rounds to them, and too early would be again and again.
        delay_ms = -(-max(0, deadline_ns - time.monotonic_ns()) // 1_000_000)
        self._wake = self._loop.call_later(delay_ms / 1e3, self._on_wake)

    def _on_wake(self) -> None:
        self.vitals.lag.observe(max(0, time.monotonic_ns() - self._wake_at_ns))
        # Until all that is due is done nothing is planned: it would be a further wake-up for nothing.
        self._wake_at_ns = 0
        if self._is_due():
            self._transport.drain()
            # What came may have put the deadline off.
            if self._is_due():
                self._emit(DeadlineReached())
        self._wake = None
        self._plan_wake()

    def _is_due(self) -> bool:
        deadline_ns = self._node.deadline_ns
        return deadline_ns is not None and deadline_ns <= time.monotonic_ns()

    # --- what others see ----------------------------------------------------------------------

    def _show_what_happened(self) -> None:
        """Tell the log, the starter and the programs, after the neighbors have been told."""
        while self._happened:
            at_ns, effect = self._happened.popleft()
            if isinstance(effect, Observed):
                self._observed(effect, at_ns)
            else:
                self._record_changed(effect, at_ns)

    def _observed(self, observed: Observed, at_ns: int) -> None:
        self._log.observed(with_advice(observed, self._config))
        self._surveying.observed(observed)
        if self._control is not None:
            self._control.observed(observed, at_ns)
        if observed.event == "ready":
            self._manager.ready(f"node {self._config.id} is ready, {observed.detail}")
        elif observed.event == "leaving":
            left_ns = max(0, self._node.leave_by_ns - time.monotonic_ns())
            self._manager.stopping(left_ns / 1e9 + FLUSH_AT_EXIT_S)
        elif observed.event in ("quorum lost", "quorum regained"):
            self._manager.status(f"node {self._config.id}: {observed.event}")
        if observed.event in _REPORTED:
            self._report(observed.event, at_ns, peer=observed.peer, detail=observed.detail)

    def _record_changed(self, changed: RecordChanged, at_ns: int) -> None:
        status = changed.record.status.name.lower()
        self._log.record(changed.id, changed.record.incarnation, status)
        self._surveying.record_changed(changed)
        if self._control is not None:
            self._control.record_changed(changed, at_ns)
        if changed.id != self._config.id:
            self._report("notice", at_ns, peer=changed.id, status=status)

    def _report(self, event: str, at_ns: int | None = None, **fields: object) -> None:
        if self._report_to is not None and self._reports is not None:
            at_ns = at_ns or time.monotonic_ns()
            self._reports.put({"event": event, "id": self._config.id, "at_ns": at_ns} | fields)

    # --- what reports are made of, see `surveying.Inside` -------------------------------------

    @property
    def counts(self) -> Counts:
        """What the core has counted."""
        return self._node.counts

    def descriptors(self) -> Descriptors:
        """Of every link that is up: its id, its descriptor, and the bytes in its outbox."""
        return self._transport.links.descriptors()

    def totals(self) -> Mapping[str, int]:
        """What the engine of links has counted."""
        return self._transport.links.totals()

    def describe(self) -> Mapping[str, object]:
        """The shell's part of `status`."""
        totals = self._transport.links.totals()
        dropped = ("dropped_urgent_frames", "dropped_bulk_frames", "malformed_frames")
        return {
            "backend": BACKEND,
            "engine": self._engine_name,
            "loop": "uvloop" if type(self._loop).__module__.startswith("uvloop") else "asyncio",
            "pid": os.getpid(),
            "uptime_s": round((time.monotonic_ns() - self._began_ns) / 1e9, 3),
            "relayed_runs": totals["relayed_runs"],
            "dropped_frames": sum(totals[name] for name in dropped),
            "backlog_bytes": totals["backlog_bytes"],
            "keys": list(self._transport.own.keys()),
            "http": "" if self._web is None else self._web.url,
        }

    # --- ending -------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.issue, _OWN_REQUEST, Leave())
        self._loop.add_signal_handler(signal.SIGUSR1, self.issue, _OWN_REQUEST, ShowStatus())
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        self._loop.add_signal_handler(signal.SIGUSR2, self._flight.on_signal)

    def _on_hangup(self) -> None:
        self._manager.reloading()
        self._reloading.try_reload()
        self._manager.reloaded()

    def _own_verbs(self) -> Mapping[str, Callable[[], Mapping[str, object]]]:
        """What programs may ask of the shell itself."""
        return {
            "reload": self._reload,
            "record": self._flight.record,
            "cluster": self._surveying.shown,
        }

    def _reload(self) -> Mapping[str, object]:
        """A program asks to read the files anew."""
        try:
            changed = self._reloading.reload()
        except ConfigError as error:
            raise RequestError(f"nothing was changed: {error}") from error
        return {"changed": changed, "keys": list(self._transport.own.keys())}

    def _on_reloaded(self, config: Config) -> None:
        """The files hold something else: hellos speak of it, and links follow, one after the other."""
        tls = TlsSide(config) if config.tls_cert else None
        self._tls = tls
        self._config = replace(self._config, secrets=config.secrets)
        if self._birth is not None:
            self._birth.use(config, tls)
        own = self._transport.own
        own.tls = tls
        own.identity = replace(own.identity, secrets=config.secrets)
        self._log.line("reload", f"links are made under {', '.join(own.keys())} from now on")
        self._emit(KeysChanged(own.keys()))

    def _end(self, code: int, reason: str) -> None:
        if self._exit_code is None:
            self._exit_code = code
            if code:
                # What led to it stands before it.
                self._show_what_happened()
                advice = advice_on(reason.rpartition(": ")[2], self._config)
                reason = f"{reason}: {advice}" if advice else reason
            self._log.end(reason, logging.ERROR if code else logging.INFO)
            self._report("ending", code=code, detail=reason)
            self._ended.set()

    def _end_loudly(self, error: BaseException | None) -> None:
        if isinstance(error, MemoryError):
            self._end(1, "no memory is left: this daemon cannot go on")
            return
        logging.getLogger("bmgd").critical("a bug in bmgd ends this daemon", exc_info=error)
        if self._exit_code is None and (path := self._flight.write_now("bug")):
            self._log.line("recording", f"what led to it is in {path}: bmgd replay", logging.ERROR)
        self._end(1, f"a bug in bmgd: {error!r}")

    def _on_stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in OWN_LACK:
            # The loop could not accept a program, and tries again in a second; uvloop says nothing.
            self._warn("accept", f"programs wait: {error.strerror}")
            return
        if self._exit_code is not None and isinstance(error, OSError | ValueError):
            # asyncio tries so too when the socket has been closed meanwhile.
            self._warn("exit", f"while ending: {error!r}")
            return
        self._end_loudly(error)


def _uvloop_or_none(wish: str) -> ModuleType | None:
    if wish == "asyncio":
        return None
    try:
        import uvloop
    except ImportError as error:
        if wish == "uvloop":
            raise ConfigError(f"--loop uvloop: {error}") from error
        return None
    return uvloop


def run_daemon(config: Config, *, report: Report | None = None) -> int:
    """Run one daemon until it ends.

    Args:
        config: what it is told.
        report: see `Daemon`.

    Returns:
        The exit code: 0 after leaving, 1 when the daemon had to end.
    """
    begin(config.log_format)
    look_for_garbage_rarely()
    allow_descriptors()
    uvloop = _uvloop_or_none(config.loop)
    factory = uvloop.new_event_loop if uvloop is not None else None
    try:
        daemon = Daemon(config, report)
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(daemon.run())
    except BmgdError as error:
        logging.getLogger("bmgd").error("%s", error)
        return 1
    except BaseExceptionGroup as group:
        expected, rest = group.split(BmgdError)
        if rest is not None or expected is None:
            raise
        logging.getLogger("bmgd").error("%s", expected.exceptions[0])
        return 1
