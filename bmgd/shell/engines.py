"""The choice of the engine of links: in C where it was built, else in Python; both do the same.

The environment variable BMGD_ENGINE decides: `c`, `python`, or nothing for whichever there is. The
engine in C reads the snapshots of the extension, so it needs that too (BMGD_BACKEND).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, Final, Literal

from bmgd.errors import ConfigError
from bmgd.linklayer import LinkEngine
from bmgd.routing import BACKEND
from bmgd.shell.engine import Engine

EngineName = Literal["c", "python"]

_METHODS: Final = tuple(name for name in vars(LinkEngine) if not name.startswith("_"))


def choose_engine() -> tuple[EngineName, Callable[[], LinkEngine]]:
    """The engine's name, and what makes one.

    Raises:
        ConfigError: BMGD_ENGINE has another value, or asks for an engine that cannot be had.
    """
    wish = os.environ.get("BMGD_ENGINE", "")
    if wish not in ("", "c", "python"):
        raise ConfigError(f"BMGD_ENGINE is {wish!r}, not c or python")
    if wish == "python":
        return "python", Engine
    found, why_not = _engine_in_c()
    if found is not None:
        return "c", found
    if wish == "c":
        raise ConfigError(f"BMGD_ENGINE is c, but {why_not}")
    return "python", Engine


def _engine_in_c() -> tuple[Callable[[], LinkEngine] | None, str]:
    """The engine in C, or why there is none."""
    if BACKEND != "c":
        return None, f"the routing is in {BACKEND} (BMGD_BACKEND)"
    try:
        module: Any = importlib.import_module("bmgd._engine")
    except ImportError as error:
        return None, f"the extension cannot be loaded: {error}"
    made: Any = getattr(module, "Engine", None)
    missing = [name for name in _METHODS if not hasattr(made, name)]
    if missing:
        return None, f"the extension that was built has no {', '.join(missing)}"
    return made, ""
