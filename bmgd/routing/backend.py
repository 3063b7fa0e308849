"""The choice between the extension and the reference; both give the same answers.

The environment variable BMGD_BACKEND decides: `auto` (the default: the extension where it was
built), `c` or `python`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from bmgd.errors import ConfigError

__all__ = [
    "BACKEND",
    "Snapshot",
    "first_hop",
    "first_hops",
    "hop_count",
    "id_of",
    "link_changes",
    "neighbor_ids",
    "rank_of",
]

if TYPE_CHECKING:
    from types import ModuleType

    from bmgd.routing.reference import (
        Snapshot,
        first_hop,
        first_hops,
        hop_count,
        id_of,
        link_changes,
        neighbor_ids,
        rank_of,
    )

    BACKEND: Literal["c", "python"]
else:

    def _chosen() -> tuple[Literal["c", "python"], ModuleType]:
        from bmgd.routing import reference

        wish = os.environ.get("BMGD_BACKEND", "auto")
        if wish not in ("auto", "c", "python"):
            raise ConfigError(f"BMGD_BACKEND is {wish!r}, not auto, c or python")
        if wish == "python":
            return "python", reference
        try:
            from bmgd import _fastroute
        except ImportError as error:
            if wish == "c":
                raise ConfigError(
                    f"BMGD_BACKEND is c, but the extension cannot be loaded: {error}"
                ) from error
            return "python", reference
        return "c", _fastroute

    BACKEND, _backend = _chosen()
    Snapshot = _backend.Snapshot
    first_hop = _backend.first_hop
    first_hops = _backend.first_hops
    hop_count = _backend.hop_count
    id_of = _backend.id_of
    link_changes = _backend.link_changes
    neighbor_ids = _backend.neighbor_ids
    rank_of = _backend.rank_of
