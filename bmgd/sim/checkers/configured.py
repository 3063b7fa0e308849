"""What a core is set to is what its daemon was told.

Few options are drawn in one run, and checkers that read a core's settings believe them: so all options of
a run are read a second time here, for a founder and for joiners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Final

from bmgd.config import Config
from bmgd.core.settings import Settings
from bmgd.policy import HealingPolicy
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NO_ID

_ROLES: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"id": 1},
    {"id": 5, "join": ("a:1",)},
    {"id": -1, "join": ("a:1",)},
)
"""Options beside those of the run: two founders, and joiners with and without an id."""


class SettingsAreAsConfigured(Checker):
    """Each option, and each number of detection, is for the core what its daemon was told."""

    name: ClassVar[str] = "settings-are-as-configured"
    events: ClassVar[Kinds] = ()
    before_events: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._has_looked = False

    def on_boot(self, journal: Journal) -> None:
        if self._has_looked:
            return
        self._has_looked = True
        for role in _ROLES:
            config = replace(self.scene.network.config, **role)
            settings = Settings.of(config)
            for name, stated in _told(config).items():
                there = getattr(settings, name)
                if (type(stated), stated) != (type(there), there):
                    self.violate(journal, f"{name} is {there}, was told {stated}")


def _told(config: Config) -> dict[str, object]:
    """What a daemon is told, by the names that its core has for it."""
    timing = config.timing
    return {
        "id": config.id if config.id >= 0 else NO_ID,
        "founding_size": config.size,
        "healing": HealingPolicy.parse(config.healing),
        "reconstructs": {"naive": True, "adaptive": False}[config.reconstruction],
        "refutes": {"refute": True, "exit": False}[config.on_declared_dead],
        "quorum": {"majority": True, "off": False}[config.quorum],
        "proxied": config.proxied,
        "takes_new_id": config.join != () and config.id < 0,
        "queue_messages": config.queue_messages,
        **{
            f"{field.name[:-3]}_ns": getattr(timing, field.name) * 1_000_000
            for field in fields(timing)
        },
    }
