"""The settings that all nodes of a cluster should have alike, and which of them differ.

A node cannot refuse another one for them: they may be changed by restarting one daemon after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bmgd.config import Config
from bmgd.policy import HealingPolicy

NAMES: Final = ("healing", "reconstruction", "quorum", "heartbeat_ms", "timeout_ms", "ask_ms")


def shared_settings(config: Config) -> list[str]:
    """``["healing=every-death", …]``, in the order of `NAMES`."""
    timing = config.timing
    values = (
        *(HealingPolicy.parse(config.healing), config.reconstruction, config.quorum),
        *(timing.heartbeat_ms, timing.timeout_ms, timing.ask_ms),
    )
    return [f"{name}={value}" for name, value in zip(NAMES, values, strict=True)]


def differing(reports: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that nodes have otherwise than others, as far as reports have them.

    Args:
        reports: of nodes of any release; `settings` of one may be anything.
    """
    told = (report.get("settings") for report in reports)
    kinds = {tuple(each) for each in told if isinstance(each, list)}
    if len(kinds) < 2:
        return []
    values: dict[str, set[str]] = {name: set() for name in NAMES}
    for kind in kinds:
        for each in kind:
            name, _, value = str(each).partition("=")
            if name in values:
                values[name].add(value)
    return [name for name in NAMES if len(values[name]) > 1]
