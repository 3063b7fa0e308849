"""cluster.json as the launcher keeps it: who runs, with which process, and where."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from bmgd.config import http_address
from bmgd.errors import ConfigError
from bmgd.launcher.daemons import Daemons

WRITE_AGAIN_S: Final = 1.0
"""Where cluster.json could not be written it is tried again so much later."""


class ClusterFile:
    """The file of one launch.

    Args:
        daemons: whom it is about; it says whether the file must be written.
        failed: told once why the file cannot be written, until it can be.
    """

    def __init__(self, daemons: Daemons, failed: Callable[[str], None]) -> None:
        self.is_ours: Callable[[], bool] = lambda: True
        """Whether the run directory is still this launcher's; of another's nothing is overwritten."""
        self.again_s = 0.0
        """When to write what could not be written; 0: nothing is left over."""
        self._daemons = daemons
        self._failed = failed

    def write(self) -> None:
        """Write it, if that can be done; else `again_s` says when to try again."""
        if not self.is_ours():
            self._daemons.changed = False
            return
        config, run_dir = self._daemons.plan.config, self._daemons.plan.run_dir
        nodes = [
            {
                "id": node_id,
                "pid": daemon.pid,
                "address": daemon.address,
                "control": run_dir.control(node_id),
                "listen": daemon.listen,
                "http": self._url(node_id),
            }
            for node_id, daemon in sorted(self._daemons.by_id.items())
            if node_id >= 0
        ]
        document = {"cluster": config.cluster, "size": config.size, "launcher": os.getpid()}
        try:
            run_dir.write_cluster({**document, "nodes": nodes})
        except OSError as error:
            # A full disk does not end a cluster; who looks for it reads the former file meanwhile.
            if not self.again_s:
                self._failed(f"cannot write cluster.json: {error.strerror}")
            self.again_s = time.monotonic() + WRITE_AGAIN_S
        else:
            self.again_s = 0.0
        self._daemons.changed = bool(self.again_s)

    def _url(self, node_id: int) -> str:
        config = self._daemons.plan.config
        if not config.http:
            return ""
        try:
            return f"http://{http_address(replace(config, id=node_id))}/"
        except ConfigError:
            # An id can be above the number of daemons, and the port that it gives above all ports.
            return ""
