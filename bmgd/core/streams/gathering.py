"""What is told of a message to many: who confirmed it, who did not and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bmgd.errors import BmgdError, DeliveryError
from bmgd.types import NodeId


@dataclass(slots=True, eq=False)
class Gathering:
    """The outcomes of one multicast as they come.

    Args:
        left: destinations without one.
    """

    left: int
    confirmed: list[NodeId] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    def settle(self, destination: NodeId, error: BmgdError | None) -> None:
        """One destination has its outcome."""
        self.left -= 1
        if error is None:
            self.confirmed.append(destination)
        else:
            sent = isinstance(error, DeliveryError) and error.sent
            self.failed.append(failure_of(destination, error, sent=sent))

    def report(self) -> dict[str, Any]:
        """For the program."""
        self.failed.sort(key=lambda failure: failure["id"])
        return {"confirmed": sorted(self.confirmed), "failed": self.failed}


def failure_of(node_id: NodeId, error: BmgdError, *, sent: bool) -> dict[str, Any]:
    """Why one node is not among those that confirmed."""
    detail = error.detail if isinstance(error, DeliveryError) else str(error)
    return {"id": node_id, "error": type(error).__name__, "detail": detail, "sent": sent}
