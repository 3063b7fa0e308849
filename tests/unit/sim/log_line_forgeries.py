"""Lines of the log that no core writes: of other peers, lives and causes than those that there were."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bmgd.core.effects import Effect, Observed, Refuse, Renewed
from bmgd.core.events import Backlog, DeadlineReached, DialFailed, KeysChanged, LinkDown
from bmgd.types import Evidence, Incarnation, NodeId
from bmgd.wire.hello import Refusal

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER, OTHER = NodeId(4), NodeId(3)
Forgery = Callable[["Forger"], None]


def _lines(*lines: Effect) -> Forgery:
    return lambda f: f.deadline(*lines)


def lost_link_of_another(f: Forger) -> None:
    line = Observed("link down", OTHER, f.life, Evidence.EOF.value)
    f.step(LinkDown(f.link, Evidence.EOF), [line])


def lost_link_with_another_cause(f: Forger) -> None:
    line = Observed("link down", PEER, f.life, Evidence.RESET.value)
    f.step(LinkDown(f.link, Evidence.EOF), [line])


def lost_link_without_a_line(f: Forger) -> None:
    f.step(LinkDown(f.link, Evidence.EOF))


def refused_by_another(f: Forger) -> None:
    line = Observed("rejected", OTHER, detail=Refusal.BUSY.text)
    f.step(DialFailed(PEER, Evidence.REJECTED, Refusal.BUSY), [line])


def more_links_to_renew(f: Forger) -> None:
    f.step(KeysChanged(("new",)), [Observed("keys changed", detail="99 links to be renewed")])


def fewer_bytes(f: Forger) -> None:
    f.step(Backlog(f.link, 9), [Observed("backlog", detail=f"link {f.link}: 8 bytes")])


def late_by_nothing(f: Forger) -> None:
    f.step(DeadlineReached(), [Observed("late", detail="500 ms")])


def _miscounted(table: str) -> Forgery:
    def forge(f: Forger) -> None:
        counts = getattr(f.inside.context.counts, table)
        counts[next(iter(counts))] += 1
        f.scene.at_rest()

    return forge


LIFE = Incarnation(1 << 32)
FORGERIES_OF_LOG_LINES: list[tuple[str, Forgery]] = [
    *(
        ("log-lines-are-true", forge)
        for forge in (
            lost_link_of_another,
            lost_link_with_another_cause,
            lost_link_without_a_line,
            refused_by_another,
            more_links_to_renew,
            fewer_bytes,
            late_by_nothing,
            _lines(Observed("nonsense")),
            _lines(Observed("leaving")),
            _lines(Observed("link up", PEER)),
            _lines(Observed("link up", PEER, LIFE)),
            _lines(Observed("links exact", detail="links")),
            _lines(Observed("links exact", detail="1 links")),
            _lines(Observed("ready", detail="9 links")),
            _lines(Observed("assigned", OTHER, LIFE)),
            _lines(Observed("joiner", OTHER)),
            _lines(Observed("healed", detail="1 dead leave the graph")),
            _lines(Observed("given up", OTHER, LIFE)),
            _lines(Observed("evicted", OTHER, LIFE)),
            _lines(Observed("contested", OTHER, LIFE, "messages name another life of it")),
            _lines(Observed("claimed", NodeId(5), LIFE, "at sim5:7400")),
            _lines(Observed("refuted", OTHER, LIFE, "dead")),
            _lines(Observed("displaced", NodeId(5), LIFE, "another life has the id 5")),
            _lines(Observed("vetoed", OTHER, detail="by 2")),
            _lines(Observed("quorum lost", detail="4 of 8 live")),
            _lines(Observed("refused", PEER, LIFE, "busy"), Refuse(9, Refusal.LEFT, LIFE)),  # type: ignore[arg-type]
            _lines(Renewed(LIFE)),
        )
    ),
    *(("counts-are-true", _miscounted(name)) for name in ("closed", "events", "failed", "lost")),
]
