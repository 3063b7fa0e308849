"""Whether a node serves programs: one rule for the daemon's `/readyz` and for `bmgd check`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def unready(facts: Mapping[str, Any]) -> str:
    """Why a node is not ready to serve programs; "" when it is.

    Args:
        facts: its status or its report.
    """
    if facts["state"] == "leaving":
        return "leaving: it drains, and takes no new messages"
    if facts["state"] != "ready":
        return f"{facts['state']}: not a member"
    quorum = facts.get("quorum")
    if facts.get("stands_aside") or (quorum is not None and not quorum["holds"]):
        return "stands aside: this side of a partition has lost the quorum"
    if facts["isolated"]:
        return "cut off from everybody: no link is up"
    return ""
