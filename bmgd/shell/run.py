"""One daemon in this process, from the choice of its event loop to its exit code."""

from __future__ import annotations

import asyncio
import logging
from types import ModuleType

from bmgd.config import Config
from bmgd.errors import BmgdError, ConfigError, Ungrouped
from bmgd.shell.daemon import Daemon
from bmgd.shell.early_log import begin
from bmgd.shell.process import allow_descriptors, look_for_garbage_rarely
from bmgd.shell.reports import Report


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
    uvloop = _uvloop_or_none(config.loop)
    factory = uvloop.new_event_loop if uvloop is not None else None
    try:
        allow_descriptors()
        daemon = Daemon(config, report)
        with Ungrouped(), asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(daemon.run())
    except BmgdError as error:
        logging.getLogger("bmgd").error("%s", error)
        return 1
