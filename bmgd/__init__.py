"""bmgd joins the hosts of a cluster into a self-healing binomial graph.

These are the public names; each module is imported when one of its names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bmgd import blocking
    from bmgd.client import (
        Change,
        Daemon,
        Drained,
        Interrupted,
        LeftOver,
        Message,
        Missed,
        Program,
        ProgramEnd,
        Stream,
        Trace,
        Writer,
        connect,
    )
    from bmgd.errors import (
        BmgdError,
        ConfigError,
        ControlError,
        DeadError,
        DeliveryError,
        FailedAnswerError,
        GraphError,
        LeavingError,
        NewLifeError,
        NoDaemonError,
        NoQuorumError,
        NoReaderError,
        PartialError,
        QueueFullError,
        ReaderLostError,
        Report,
        RequestError,
        SilentDaemonError,
        SubscriptionError,
        UnreachableError,
        VersionError,
    )
    from bmgd.launcher.rundir import local_address
    from bmgd.version import VERSION as __version__

__all__ = [
    "BmgdError",
    "Change",
    "ConfigError",
    "ControlError",
    "Daemon",
    "DeadError",
    "DeliveryError",
    "Drained",
    "FailedAnswerError",
    "GraphError",
    "Interrupted",
    "LeavingError",
    "LeftOver",
    "Message",
    "Missed",
    "NewLifeError",
    "NoDaemonError",
    "NoQuorumError",
    "NoReaderError",
    "PartialError",
    "Program",
    "ProgramEnd",
    "QueueFullError",
    "ReaderLostError",
    "Report",
    "RequestError",
    "SilentDaemonError",
    "Stream",
    "SubscriptionError",
    "Trace",
    "UnreachableError",
    "VersionError",
    "Writer",
    "__version__",
    "blocking",
    "connect",
    "local_address",
]

_OF_CLIENT = frozenset(
    {
        "Change",
        "Daemon",
        "Drained",
        "Interrupted",
        "LeftOver",
        "Message",
        "Missed",
        "Program",
        "ProgramEnd",
        "Stream",
        "Trace",
        "Writer",
        "connect",
    }
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'bmgd' has no attribute {name!r}")
    if name == "__version__":
        from bmgd.version import VERSION

        return VERSION
    if name == "blocking":
        return importlib.import_module("bmgd.blocking")
    if name == "local_address":
        from bmgd.launcher import rundir as module
    elif name in _OF_CLIENT:
        from bmgd import client as module  # type: ignore[no-redef]
    else:
        from bmgd import errors as module  # type: ignore[no-redef]
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
