"""Ends that no core tells of so: evictions, exits, and what a leave leaves over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bmgd.core.commands import Evict, Leave
from bmgd.core.effects import Exit, Reply
from bmgd.core.events import CommandIssued
from bmgd.errors import RequestError
from bmgd.types import NodeId
from tests.unit.core.clusters import S

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER = NodeId(4)
REQUEST = 10**6
Forgery = Callable[["Forger"], None]


def _evicted(target: int, result: object = None, error: str = "") -> Forgery:
    def forge(f: Forger) -> None:
        f.step(CommandIssued(REQUEST, Evict(NodeId(target), S)))
        f.deadline(Reply(REQUEST, result, RequestError(error) if error else None))

    return forge


def ended_and_runs(f: Forger) -> None:
    f.network.stop(PEER)
    f.network.issue(5, Evict(PEER, 60 * S))
    f.network.run(0.01)
    assert f.scene.violations == []
    (request,) = [r for r in _evictions(f) if f.host.replies.get(r) is None]
    f.deadline(Reply(request, {"id": PEER, "was": "expected", "ended": True}))


def _evictions(f: Forger) -> list[int]:
    (checker,) = [c for c in f.scene.checkers if c.name == "evictions-are-told"]
    return list(checker._asked[f.journal.place])  # type: ignore[attr-defined]


def _left_over(told: dict[str, Any]) -> Forgery:
    def forge(f: Forger) -> None:
        f.step(
            CommandIssued(REQUEST, Leave(S)), [Reply(REQUEST, told), Exit(0, "left the cluster")]
        )

    return forge


def _told(*rows: dict[str, Any], drained: bool = False, **counts: int) -> dict[str, Any]:
    return {"drained": drained, "unconfirmed": 0, "unread": 0, "left_over": list(rows)} | counts


UNREAD = {"kind": "unread", "topic": "t", "messages": 2}
ASKED = {"kind": "unanswered", "messages": 2}
FORGERIES_OF_ENDS: list[tuple[str, Forgery]] = [
    *(
        ("evictions-are-told", forge)
        for forge in (
            _evicted(3, {"id": 2, "was": "expected", "ended": False}),
            _evicted(3, {"id": 3, "was": "dead", "ended": False}),
            _evicted(3, {"id": 3, "was": "expected", "ended": False}),
            _evicted(3, error="no node has the id 3"),
            _evicted(5, {"id": 5, "was": "expected", "ended": True}),
            _evicted(99, {"id": 99, "was": "expected", "ended": True}),
            ended_and_runs,
        )
    ),
    *(
        ("exits-have-a-reason", lambda f, code=code, reason=reason: f.deadline(Exit(code, reason)))
        for code, reason in (
            (2, "this node was evicted from the cluster"),
            (1, "left the cluster"),
            (1, "a whim"),
            (1, "another life has the id 4"),
        )
    ),
    *(
        ("leaving-drains", _left_over(told))
        for told in (
            _told(UNREAD, unread=2, drained=True),
            _told(UNREAD, unread=1),
            _told(),
            _told(UNREAD | {"messages": 0}),
            _told(UNREAD | {"kind": "lost"}, unread=2),
            _told(ASKED, unconfirmed=2),
        )
    ),
]
