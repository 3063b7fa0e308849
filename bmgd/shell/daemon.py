"""One daemon: a core, its sockets, its programs, in one task group.

Theory of operation. A founder makes its core at once, a joiner when a contact told it its id
(`becoming.py`). A daemon that loses its id to another makes the next core in the same way, with the same
programs. Whatever happens becomes an event (`stepping.py`), and what the core orders is done by
`carrying_out.py`; here is what begins and ends with the daemon, and what programs and signals ask of it.
What others see of it is told by `telling.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from bmgd.config import Config, http_address
from bmgd.core.commands import Command, Leave, ShowStatus
from bmgd.core.counts import Counts
from bmgd.core.events import CommandIssued, DeadlineReached, KeysChanged
from bmgd.core.node import Node
from bmgd.errors import ConfigError, RequestError, SubscriptionError
from bmgd.routing import BACKEND
from bmgd.shell import early_signals
from bmgd.shell.access import Access
from bmgd.shell.addresses import bind_listener
from bmgd.shell.becoming import Becoming, Life
from bmgd.shell.carrying_out import OWN_REQUEST, CarryingOut
from bmgd.shell.control import ControlServer
from bmgd.shell.ending import Ending
from bmgd.shell.engines import choose_engine
from bmgd.shell.flight import Flight, prepare_directory
from bmgd.shell.node_report import Descriptors
from bmgd.shell.process import set_title
from bmgd.shell.reloading import Reloading
from bmgd.shell.reports import Report
from bmgd.shell.service_manager import ServiceManager
from bmgd.shell.shared_settings import shared_settings
from bmgd.shell.stepping import Stepping
from bmgd.shell.surveying import Surveying
from bmgd.shell.telling import FLUSH_AT_EXIT_S, Telling
from bmgd.shell.topic_rows import topic_rows
from bmgd.shell.transport import Transport
from bmgd.shell.vitals import Vitals
from bmgd.types import Incarnation, NodeState

if TYPE_CHECKING:
    from bmgd.shell.web import Web


class Daemon:
    """One running daemon.

    Args:
        config: what it is told.
        report: gets events as dicts whenever something worth telling the starter happened.

    Raises:
        ConfigError: an address or a directory cannot be used.
    """

    def __init__(self, config: Config, report: Report | None = None) -> None:
        prepare_directory(config)
        self._becoming = Becoming(config)
        self._engine_name, self._make_engine = choose_engine()
        self._access = Access.of(config.control_group, config.control_readonly)
        self._listener = bind_listener(config.listen or self._becoming.settings.address)
        self._held: list[tuple[int, Command]] = []
        self._has_node = False
        """Since it has its first id; a joiner waits for that."""
        self._began_ns = time.monotonic_ns()
        self._manager = ServiceManager(os.environ)
        self.vitals = Vitals()
        self._surveying = Surveying(self, config.cluster)
        self._web: Web | None = None
        self._telling = Telling(
            config, report, self._manager, self._surveying, self._drains_until_ns
        )
        self._ending = Ending(self._telling)
        self._carrying_out = CarryingOut(
            *(self._telling, self._surveying, self._ending),
            self._becoming.keep,
            self._own_answer,
        )
        self._stepping = Stepping(
            self._telling, self._ending, self.vitals, self._carrying_out.carry_out
        )

    @property
    def _config(self) -> Config:
        return self._becoming.config

    async def run(self) -> int:
        """Serve until the core ends the daemon; returns the exit code."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._ending.on_stray_error)
        self._telling.start(self._loop)
        self._warn_of_dates()
        self._reloading = Reloading(self._config, self._on_reloaded, self._telling.warn)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._spawn = tasks.create_task
                self._flight = Flight(
                    self._config, self._spawn, self._telling.say, self._telling.warn
                )
                self._ending.flight = self._flight
                self._handle_signals()
                self._reloading.start()
                await self._open_web()
                if await self._become_member(None):
                    await self._serve()
        finally:
            self._reloading.stop()
            if self._web is not None:
                self._web.close()
            self._listener.close()
            self._becoming.close()
            self._telling.close()
        return self._ending.exit_code or 0

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
        self._web = Web(
            address, config.http_token, self._surveying, self._spawn, self._telling.log.warn
        )
        await self._web.start()
        self._telling.log.line("http", f"the page is at {self._web.url}")

    async def _become_member(self, former: Node | None) -> bool:
        """Make the node, once there is an id for it; False where the daemon ends instead."""
        life = await self._becoming.begin_life(self._ending, self._telling)
        if life is None:
            return False
        if life.joined is not None:
            config = self._config
            self._telling.become(config)
            set_title(f"bmgd: node {config.id}, joined ({config.cluster})", f"bmgd-{config.id}")
        self._make_node(life, former)
        self._surveying.become(self._becoming.settings.id)
        if life.joined is not None:
            await self._open_web()
        return True

    def _make_node(self, life: Life, former: Node | None) -> None:
        """Make the core, its recording and its links."""
        now_ns = time.monotonic_ns()
        seed = secrets.randbits(64)
        joined, settings = life.joined, self._becoming.settings
        told = ((), ()) if joined is None else (joined.records, joined.retired)

        def make() -> Node:
            return Node(settings, life.incarnation, Random(seed), now_ns, *told)

        self._node = make()
        if former is not None:
            self._node.inherit(former)
        # What a joiner was told may be long: it is not held a second time.
        again = make if joined is None else None
        note = self._flight.begin(self._node, self._config, now_ns, again)
        self._transport = self._make_transport(life.incarnation)
        self._carrying_out.begin(self._transport)
        self._stepping.begin(self._node, self._transport, self._flight, note)
        self._has_node = True

    def _make_transport(self, incarnation: Incarnation) -> Transport:
        return Transport(
            self._becoming.identity(),
            self._config.peers.text,
            self._listener,
            self._config.timing.timeout_ms,
            self._stepping.emit_all,
            self._spawn,
            self._telling.log.warn,
            incarnation,
            self._make_engine(),
            self._becoming.tls,
        )

    async def _serve(self) -> None:
        try:
            await self._live()
            while self._ending.displaced is not None and self._ending.await_id():
                former = self._config.id
                self._end_control_if_named()
                if not await self._become_member(self._node):
                    break
                self._telling.report("renumbered", former=former)
                await self._live()
        finally:
            self._stepping.stop()
            if self._telling.control is not None:
                self._telling.control.close()
            self._surveying.close()
            if self._web is not None:
                self._web.close()
            self._transport.stop()
            self._telling.report("exit", code=self._ending.exit_code)

    async def _live(self) -> None:
        """One life as one node, until it ends or another has its id."""
        if self._config.control and self._telling.control is None:
            self._telling.control = ControlServer(
                self._config.control,
                self.issue,
                self.describe,
                self._own_verbs(),
                self._access,
                self._telling.warn,
            )
            await self._telling.control.start()
        self._transport.start()
        self._telling.report("listening")
        self._log_start()
        self._stepping.emit(DeadlineReached())
        held, self._held = self._held, []
        for request, command in held:
            self.issue(request, command)
        await self._ending.ended.wait()
        self._transport.links.flush()
        if not await self._transport.links.settle(FLUSH_AT_EXIT_S):
            self._telling.log.line("flush", "not everything could be written", logging.WARNING)
        if self._ending.displaced is not None:
            # The core that lost its id may have a deadline in the past, and is not stepped any more.
            self._stepping.stop()
            self._surveying.lose_id()
            self._transport.stop()

    def _drains_until_ns(self) -> int:
        return self._node.leave_by_ns

    def _end_control_if_named(self) -> None:
        """A socket that is named after the id goes with it; at another one, programs stay."""
        control = self._telling.control
        if control is None:
            return
        if self._becoming.control_is_named:
            control.close()
            self._telling.control = None
        else:
            control.answers.end_watchers(SubscriptionError("this node is given a new id"))

    def _log_start(self) -> None:
        config = self._config
        address = self._becoming.settings.address
        secret = "with a secret" if config.secrets else "without a secret"
        secret += " under TLS" if config.tls_cert else ""
        self._telling.log.line(
            "listening",
            f"listening on {config.listen or address} as {address}: node {config.id} of {config.size}"
            f" in cluster {config.cluster!r} {secret}, incarnation {self._node.incarnation:#x},"
            f" control {config.control or 'none'}, state {config.state_dir or 'not kept'}",
        )
        if not config.secrets and not config.tls_cert:
            self._telling.log.line(
                "secret",
                "without a secret whoever can reach this port, on this machine every user, can join the"
                " cluster, read its messages and take nodes out of it: give --secret-file",
                logging.WARNING,
            )

    def _warn_of_dates(self) -> None:
        """Say that no link can be made, and why; once the file is another it is read."""
        tls = self._becoming.tls
        problem = "" if tls is None else tls.outside_dates(time.time())
        if problem:
            self._telling.warn("certificate", f"no new link can be made: {problem}; replace it")

    # --- commands -----------------------------------------------------------------------------

    def issue(self, request: int, command: Command) -> None:
        """Hand a program's command to the core; its reply may come before this returns."""
        if not self._has_node:
            self._do_without_node(command)
        elif self._ending.displaced is not None:
            self._issue_without_id(request, command)
        else:
            self._stepping.emit(CommandIssued(request, command))

    def _do_without_node(self, command: Command) -> None:
        """A signal asks for it, while the first id is waited for: no program can."""
        match command:
            case Leave():
                self._ending.end(0, "ended without an id")
            case _:
                self._telling.log.line("status", "this daemon waits for its first id")

    def _issue_without_id(self, request: int, command: Command) -> None:
        """There is no core that could do it: what waits for the next one, and what does not."""
        match command:
            case ShowStatus():
                reply = self._node.status(request)
                if reply.result is not None:
                    reply.result["state"] = NodeState.JOINING.value
                self._carrying_out.carry_out(reply)
                self._telling.tell_programs()
            case Leave() if request == OWN_REQUEST:
                self._ending.end(0, "ended without an id")
            case _ if request != OWN_REQUEST:
                self._held.append((request, command))

    def _own_answer(self, result: Mapping[str, object]) -> None:
        """The answer to what a signal asked for."""
        if "left_over" in result:
            self._telling.log.line("drained", f"left over: {result['left_over'] or 'nothing'}")
        else:
            self._telling.log.line("status", f"{result} {self.describe()}")

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
        topics = topic_rows(self._node.parts.topics.table.topics) if self._has_node else {}
        return {**self.describe_process(), **topics}

    def describe_process(self) -> Mapping[str, object]:
        """What of it reports have too."""
        totals = self._transport.links.totals()
        dropped = (
            "dropped_urgent_frames",
            "dropped_bulk_frames",
            "malformed_frames",
            "oversized_frames",
            "unreturned_frames",
        )
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
            "settings": shared_settings(self._config),
        }

    # --- signals, and reading the files anew --------------------------------------------------

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.issue, OWN_REQUEST, Leave())
        self._loop.add_signal_handler(signal.SIGUSR1, self.issue, OWN_REQUEST, ShowStatus())
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        self._loop.add_signal_handler(signal.SIGUSR2, self._on_usr2)
        early_signals.release()

    def _on_usr2(self) -> None:
        if self._has_node:
            self._flight.on_signal()
        else:
            self._telling.log.line("recording", "nothing is recorded before the first id")

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
        self._becoming.use(config)
        self._telling.config = self._config
        self._warn_of_dates()
        if not self._has_node:
            # The next hello of the joiner is made of them.
            self._telling.log.line("reload", "the files were read anew")
            return
        own = self._transport.own
        own.tls = self._becoming.tls
        own.identity = replace(own.identity, secrets=config.secrets)
        self._telling.log.line(
            "reload", f"links are made under {', '.join(own.keys())} from now on"
        )
        self._stepping.emit(KeysChanged(own.keys()))
