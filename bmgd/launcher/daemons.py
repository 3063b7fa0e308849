"""The daemons of a launch: what is known of each, and how they are started, again or as joiners."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from bmgd.config import CONTACTS_MAX, check, http_address
from bmgd.config_files import secrets_now
from bmgd.errors import ConfigError
from bmgd.launcher.orders import JOINERS_MAX, NOT_FORKED, Spawn, SpawnJoiners
from bmgd.launcher.plan import Joiner, Plan
from bmgd.launcher.ports import ReservedPorts
from bmgd.launcher.zygote import Zygote
from bmgd.peers import split_address
from bmgd.types import NodeId

START_S: Final = 75.0
"""Longer than `start_ms` of any profile: a node may wait so long for a founder that nobody remembers."""


class State(Enum):
    """How far a daemon is."""

    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"


@dataclass(slots=True)
class Daemon:
    """What is known of one.

    Args:
        address: where others reach it.
        listen: where it listens, if that is elsewhere.
        state: how far it is.
        pid: its process, while there is one whose number is known.
        number: what its events are marked with: a founder's id, or below 0.
        spawned_s: when it was last started.
        joined: whether it has ever been a member.
        ended_with: its last exit code, or minus a signal's number.
    """

    address: str
    listen: str = ""
    state: State = State.ENDED
    pid: int | None = None
    number: int = 0
    spawned_s: float = 0.0
    joined: bool = False
    ended_with: int = 0

    @property
    def known(self) -> bool:
        """Whether its process id is known, or it has none."""
        return self.pid is not None or self.state is State.ENDED


class Daemons:
    """All daemons of a launch, by id; a joiner has its number, below 0, until it has an id.

    Args:
        zygote: is told whom to start.
        plan: what the daemons are told.
        ports: where those of joiners are chosen.
    """

    def __init__(self, zygote: Zygote, plan: Plan, ports: ReservedPorts) -> None:
        self.plan = plan
        peers = plan.config.peers
        self.by_id = {
            i: Daemon(peers.address_of(NodeId(i)), plan.config_of(i).listen, number=i)
            for i in range(plan.config.size)
        }
        self.changed = True
        """Whether cluster.json does not say what is here."""
        self._zygote = zygote
        self._ports = ports
        self._ids: dict[int, int] = {}
        self._joiner_count = 0

    @property
    def all_ended(self) -> bool:
        """Whether none runs, or is being started."""
        return all(daemon.state is State.ENDED for daemon in self.by_id.values())

    def id_of(self, number: int) -> int:
        """The id of who has that number, or the number as long as it has none."""
        return self._ids.get(number, number)

    def spawn(self, ids: tuple[int, ...]) -> None:
        """Order the zygote to start them."""
        for node_id in ids:
            daemon = self.by_id[node_id]
            daemon.state = State.STARTING
            daemon.spawned_s = time.monotonic()
        founders = tuple(i for i in ids if 0 <= i < self.plan.config.size)
        joiners = tuple(
            Joiner(daemon.number, daemon.address, daemon.listen, max(i, -1))
            for i in ids
            if i not in founders and (daemon := self.by_id[i])
        )
        if founders:
            self._zygote.order(Spawn(founders))
        for at in range(0, len(joiners), JOINERS_MAX):
            self._zygote.order(SpawnJoiners(joiners[at : at + JOINERS_MAX], self._contacts()))

    def renew_secrets(self) -> None:
        """Those who begin from now on prove what the secret file holds now: it may have changed.

        Raises:
            ConfigError: it cannot be read, or what it holds cannot be used.
        """
        config = self.plan.config
        secrets = secrets_now(config)
        if secrets != config.secrets:
            self.plan = replace(self.plan, config=replace(config, secrets=secrets))
            self._zygote.order(self.plan)

    def _contacts(self) -> tuple[str, ...]:
        """Some members that run, for joiners to ask; were there none, the founders."""
        ready = [d.address for d in self.by_id.values() if d.state is State.READY]
        return tuple(ready or [d.address for d in self.by_id.values()])[:CONTACTS_MAX]

    def add_joiners(self, count: int) -> tuple[int, ...]:
        """Begin `count` daemons, on ports above all others where there are some; returns their numbers.

        Numbers are below 0.

        Raises:
            LaunchError: there are not so many ports.
            ConfigError: nor for their pages; or a joiner cannot be configured as the founders are, or
                its secrets cannot be read.
        """
        self.renew_secrets()
        config = self.plan.config
        spares = [address for spare in self.plan.spares for address in spare]
        addresses = [*(d.address for d in self.by_id.values()), *self.plan.listen, *spares]
        # Those of daemons that have ended too: they start again there.
        taken = {split_address(address)[1] for address in addresses}
        if config.http:
            ends = (0, len(self.by_id) + count - 1)
            pages = [split_address(http_address(replace(config, id=i)))[1] for i in ends]
            taken.update(range(pages[0], pages[1] + 1))
        ways = list(self.plan.spares[self._joiner_count :][:count])
        chosen = range(0)
        if direct := count - len(ways):
            base = self._ports.choose(direct, None, max(taken) + 1, taken)
            chosen = range(base, base + direct)
            ways += [(f"127.0.0.1:{port}", "") for port in chosen]
        try:
            check(self.plan.config_of_joiner(Joiner(-1, *ways[0], -1), self._contacts()))
        except ConfigError:
            self._ports.give_up(chosen)
            raise
        numbers = []
        for address, listen in ways:
            self._joiner_count += 1
            numbers.append(-self._joiner_count)
            self.by_id[numbers[-1]] = Daemon(address, listen, number=numbers[-1])
        self.spawn(tuple(numbers))
        return tuple(numbers)

    def renumber(self, former: int, node_id: int) -> None:
        """A joiner was given an id, or another one."""
        daemon = self.by_id.pop(former)
        occupant = self.by_id.pop(node_id, None)
        if occupant is not None:
            # That one was given another id too, and its event is on its way.
            self._ids.pop(occupant.number, None)
            self.by_id[occupant.number] = occupant
        self.by_id[node_id] = daemon
        self._ids[daemon.number] = node_id
        run_dir = self.plan.run_dir
        # Without room for the new name, the former one stays.
        with suppress(OSError):
            os.replace(run_dir.log(former), run_dir.log(node_id))
        self.changed = True


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
