"""What clusters whose daemons are adopted processes have in common, be they children or in containers."""

from __future__ import annotations

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from bmgd.errors import NoDaemonError
from bmgd.trials.processes import Adopted

_ENDING: Final = re.compile(r" ERROR (.*)")
"""Why a daemon cannot go on is the one line that it writes at this level, in text logs."""


class AdoptingCluster(ABC):
    """Looks at the processes of a cluster, and signals them."""

    @abstractmethod
    def refresh(self) -> None:
        """See which processes there are now; adopt those that are new."""

    @abstractmethod
    def _known(self, node: int) -> Adopted | None:
        """The process that a node had when it was last looked at; None for none."""

    def _process(self, node: int) -> Adopted | None:
        """The process that a node has now; None when it has none."""
        process = self._known(node)
        if process is None or not process.is_running():
            # It may have been started again since.
            self.refresh()
            process = self._known(node)
        return process if process is not None and process.is_running() else None

    def is_running(self, node: int) -> bool:
        return self._process(node) is not None

    def is_stopped(self, node: int) -> bool:
        process = self._known(node)
        return process is not None and process.is_stopped()

    def send(self, node: int, number: signal.Signals) -> None:
        process = self._process(node)
        if process is None:
            raise NoDaemonError(f"node {node} does not run")
        process.send(number)


def last_words_in(lines: Iterable[str]) -> str:
    """Why a daemon ended, by the lines of its log; "" when they say nothing of it."""
    ends = [match[1] for line in lines if (match := _ENDING.search(line))]
    return ends[-1] if ends else ""
