"""What the daemons of a launch are told."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from bmgd.config import Config
from bmgd.dataclass import dataclass
from bmgd.launcher.rundir import RunDir
from bmgd.peers import PeerList, split_address

LAUNCH_MAX: Final = 4096
"""Daemons of one launch, those added later included."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """A daemon that is no founder.

    Args:
        number: below 0 and its own, in each of its processes, whatever its id becomes.
        address: what it advertises.
        listen: where it listens; "" for where it advertises.
        node_id: the id that it had; -1 for none.
    """

    number: int
    address: str
    listen: str = ""
    node_id: int = -1

    @property
    def known_as(self) -> int:
        """Its id, or its number while it has none."""
        return self.number if self.node_id < 0 else self.node_id


@dataclass(frozen=True, slots=True)
class Plan:
    """What every daemon is told, except its id and control address.

    Args:
        listen: where the founders listen, by id; empty where they listen at what they advertise.
        spares: what joiners advertise and where they listen, as long as there are some left.
    """

    config: Config
    run_dir: RunDir
    listen: tuple[str, ...] = ()
    spares: tuple[tuple[str, str], ...] = ()

    def config_of(self, node_id: int) -> Config:
        """The configuration of one daemon."""
        state_dir = self.config.state_dir
        return replace(
            self.config,
            id=node_id,
            listen=self.listen[node_id] if node_id < len(self.listen) else "",
            advertise="",
            control=self.run_dir.control(node_id),
            state_dir=os.path.join(state_dir, f"node-{node_id}") if state_dir else "",
        )

    def config_of_joiner(self, joiner: Joiner, contacts: tuple[str, ...]) -> Config:
        """The configuration of a daemon that is not one of the founders."""
        _, port = split_address(joiner.address)
        state_dir = self.config.state_dir
        return replace(
            self.config,
            id=joiner.node_id,
            size=1,
            peers=PeerList(),
            join=contacts,
            listen=joiner.listen or joiner.address,
            advertise=joiner.address,
            control=self.run_dir.control_of_any,
            state_dir=os.path.join(state_dir, f"port-{port}") if state_dir else "",
        )
