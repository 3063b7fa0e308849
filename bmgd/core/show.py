"""What a node shows of itself to programs: plain dicts and lists, ready for JSON."""

from __future__ import annotations

from typing import Any

from bmgd.core.context import Context
from bmgd.core.links import Links
from bmgd.core.membership.membership import Membership
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId, Status
from bmgd.wire.features import names_of

SHOWN_IDS_MAX = 2**18
"""A larger id space is not listed: one request would hold up the daemon."""


def show_status(context: Context, links: Links) -> dict[str, Any]:
    """The core's part of `bmgd status --json`. Complexity: O(N)."""
    membership = context.membership
    alive: list[int] = []
    dead: list[int] = []
    left: list[int] = []
    for node_id in membership.known_ids():
        status = membership.status_of(node_id)
        if status is None:
            continue
        column = alive if status <= Status.ALIVE else left if status is Status.LEFT else dead
        column.append(node_id)
    return {
        "id": context.id,
        "incarnation": context.incarnation,
        "version": context.version,
        "state": context.state.value,
        "founding_size": membership.founding_size,
        "layout_size": membership.layout_size,
        "rank": membership.rank(context.id),
        "alive": alive,
        "dead": dead,
        "left": left,
        "retired": len(membership.retired),
        "links": show_links(context, links),
        "digest": f"{membership.digest:032x}",
        "revision": membership.revision,
        "features": names_of(context.compatibility.common),
        "older": context.compatibility.older(),
    }


def show_links(context: Context, links: Links) -> list[dict[str, Any]]:
    """A dict for every link that is up, sorted by peer."""
    rows = sorted(links.table.values(), key=lambda link: (link.peer, link.id))
    return [
        {
            "id": link.peer,
            "dialled_by": link.dialled_by,
            "state": "accused" if link.accused_ns else "up",
            "incarnation": link.incarnation,
            "key": link.key,
            "silent_ms": (context.now_ns - link.heard_ns) // 1_000_000,
        }
        for link in rows
    ]


def is_isolated(links: Links, counted: int) -> bool:
    """Whether this node has no link, though there are others.

    Args:
        counted: how many ids have not left, this node's and the dead included. Whether those that are
            held dead have died, or this node is cut off from them, cannot be told from here.
    """
    return not links.by_peer and counted > 1


def show_members(context: Context) -> dict[str, Any]:
    """``{"revision":…, "members":[…]}`` with a dict for every id of the id space, sorted by id."""
    membership = context.membership
    members = []
    for node_id in membership.known_ids():
        record = membership.get(node_id)
        if record is None:
            continue
        is_self = node_id == context.id
        life = context.incarnation if is_self else membership.incarnation(node_id)
        since_ns = context.moved_ns.get(node_id, context.began_ns)
        members.append(
            {
                "id": node_id,
                "status": _shown_status(record.status, life),
                "incarnation": life,
                "version": record.version,
                "address": record.address,
                "for_ms": (context.now_ns - since_ns) // 1_000_000,
            }
        )
    return {"revision": membership.revision, "members": members}


def _shown_status(status: Status, life: Incarnation) -> str:
    """A founder's first life is no record: it is expected until this node meets it."""
    if status is Status.EXPECTED and life != UNKNOWN_INCARNATION:
        return Status.ALIVE.name.lower()
    return status.name.lower()


def gone_text(membership: Membership, node_id: NodeId) -> str:
    """What programs are told of a node that is gone, in the same words everywhere."""
    status = membership.status_of(node_id)
    if status is None:
        return "it is no member"
    return "it has left" if status is Status.LEFT else "it is dead"
