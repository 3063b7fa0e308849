"""Histories: facts in order, and the same facts again from a file."""

from __future__ import annotations

import pytest

from bmgd.chaos.history import Began, Believed, Died, Fact, History, Sent, from_line, to_line
from bmgd.errors import PlanError
from bmgd.types import Incarnation, NodeId, Status

LIFE = Incarnation(1 << 32 | 5)


def test_history_facts_survive_being_written() -> None:
    facts: list[Fact] = [
        Began(0, NodeId(1), LIFE),
        Sent(5, NodeId(1), LIFE, 1, NodeId(2), Incarnation(0), 77),
        Believed(9, NodeId(1), NodeId(2), LIFE, 3, Status.EXCLUDED, "sim2:7400", 1),
    ]
    again = [from_line(to_line(fact)) for fact in facts]
    assert again == facts
    assert isinstance(again[2], Believed)
    assert again[2].status is Status.EXCLUDED


@pytest.mark.parametrize(
    "line",
    ["", "[]", '{"fact":"Dance"}', '{"fact":"Died"}', '{"at_ns":1}', "[" * 100_000],
    ids=["empty", "list", "unknown", "incomplete", "no-fact", "nested"],
)
def test_history_line_that_is_no_fact_is_refused(line: str) -> None:
    with pytest.raises(PlanError, match="not a fact"):
        from_line(line)


def test_history_gives_facts_by_their_class_in_order() -> None:
    history = History()
    for at_ns in (3, 1, 2):
        history.add(Died(at_ns, NodeId(at_ns), LIFE))
    history.add(Began(2, NodeId(9), LIFE))
    history.sort()
    assert [fact.node for fact in history.of(Died)] == [1, 2, 3]
    assert [fact.node for fact in history.of(Died, Began)] == [1, 2, 9, 3]
    assert len(history) == 4
