"""Each checker is silent on a good history and fires on one that was doctored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bmgd.chaos.checkers import CHECKERS, check
from bmgd.chaos.faults import Cut, Partition, Slow, Takeover
from bmgd.chaos.history import (
    Acknowledged,
    Began,
    DeclaredDead,
    Delivered,
    Died,
    EvictAsked,
    Exited,
    Fact,
    Failed,
    History,
    LinkOpened,
    Noted,
    Reads,
    Renewed,
    Sent,
    Stopped,
    Unread,
)
from bmgd.types import Incarnation, NodeId, Status
from tests.unit.chaos.histories import S, believed, disturbed, history, life, showed

N0, N1, N2, N3 = map(NodeId, range(4))
NONE = Incarnation(0)

SENT = Sent(2 * S, N0, life(0), 1, N1, NONE, 1)
TAKEN = Delivered(2 * S + 1, N1, life(1), N0, NONE, 1)
DONE = Acknowledged(2 * S + 2, N0, 1, 1)
DEAD = Died(5 * S, N3, life(3))
VERDICT = DeclaredDead(5 * S + 9, N2, N3, life(3), "refused")
TOLD = [believed(5 * S + 10 + n, n, 3) for n in (0, 1, 2)]
REST = [showed(20 * S, n, (0, 1, 2), [m for m in (0, 1, 2) if m != n]) for n in (0, 1, 2)]
GOOD: list[Fact] = [SENT, TAKEN, DONE, DEAD, VERDICT, *TOLD, *REST]


def doctored(change: Callable[[list[Fact]], None]) -> History:
    """The good history after a change to it."""
    facts = list(GOOD)
    change(facts)
    return history(*facts)


def found(given: History) -> set[str]:
    """The names of the checkers that fired."""
    return {violation.checker for violation in check(given)}


def test_checkers_are_silent_on_a_good_history() -> None:
    assert found(history(*GOOD)) == set()


def _replaced(old: Fact, **changes: Any) -> Callable[[list[Fact]], None]:
    def change(facts: list[Fact]) -> None:
        facts[facts.index(old)] = replace(old, **changes)

    return change


def _added(*more: Fact) -> Callable[[list[Fact]], None]:
    return lambda facts: facts.extend(more)


def _removed(old: Fact) -> Callable[[list[Fact]], None]:
    return lambda facts: facts.remove(old)


def in_flow(*order: int) -> list[Fact]:
    """Two messages of one flow, read in this order."""
    sent = [Sent(6 * S, N0, life(0), n, N1, NONE, n, "stream", flow=9) for n in (11, 12)]
    taken = [Delivered(7 * S, N1, life(1), N0, NONE, n) for n in order]
    return [*sent, *taken, *(Acknowledged(7 * S, N0, n, n) for n in (11, 12))]


def unsent(*, taken: bool) -> list[Fact]:
    """A message that failed, and its program was told that nobody has it."""
    sent = replace(SENT, at_ns=6 * S, request=2, payload_id=2)
    failed = Failed(7 * S, N0, 2, 2, "UnreachableError", sent=False)
    return [sent, failed, *([replace(TAKEN, at_ns=8 * S, payload_id=2)] if taken else [])]


def broadcast_read_by_two_processes(kind: str) -> list[Fact]:
    """A message to all is read, its reader's process ends, and the next one reads it too."""
    later = Incarnation(life(3) + 1)
    return [
        replace(SENT, destination=N3, kind=kind, request=3, payload_id=3),
        Delivered(3 * S, N3, life(3), N0, NONE, 3),
        Acknowledged(3 * S, N0, 3, 3),
        Began(6 * S, N3, later),
        Delivered(7 * S, N3, later, N0, NONE, 3),
    ]


LIES: list[tuple[str, Callable[[list[Fact]], None]]] = [
    ("delivered at most once", _added(replace(TAKEN, at_ns=3 * S))),
    ("delivered only to those addressed", _replaced(TAKEN, node=N2, incarnation=life(2))),
    ("delivered only to those addressed", _replaced(TAKEN, source=N2)),
    ("delivered only to those addressed", _replaced(TAKEN, payload_id=77)),
    ("delivered only to those addressed", _replaced(SENT, addressed=Incarnation(1))),
    ("delivered in the order of its flow", _added(*in_flow(12, 11))),
    ("not delivered when it failed unsent", _added(*unsent(taken=True))),
    ("acknowledged only if delivered", _removed(TAKEN)),
    ("every message has one outcome", _removed(DONE)),
    ("every message has one outcome", _added(Failed(3 * S, N0, 1, 1, "DeadError"))),
    ("records only grow", _added(believed(6 * S, 0, 3, Status.ALIVE))),
    ("no false death", _added(DeclaredDead(6 * S, N2, N1, life(1), "silence"))),
    ("nobody ends by itself", _replaced(DEAD, at_ns=5 * S)),
    ("memberships are equal and true at the end", _replaced(REST[1], alive=(N0, N1, N2, N3))),
    ("memberships are equal and true at the end", _replaced(REST[1], alive=(N1, N2))),
    ("memberships are equal and true at the end", _replaced(REST[1], digest="1")),
    ("memberships are equal and true at the end", _replaced(REST[1], state="joining")),
    ("memberships are equal and true at the end", _removed(REST[2])),
    ("links exact at the end", _replaced(REST[0], links=(N1,))),
    ("links exact at the end", _replaced(REST[0], links=(N1, N1, N2))),
    ("links exact at the end", _replaced(REST[0], links=(N1,), neighbors=(N1,))),
    ("nobody alone at the end", _replaced(REST[0], links=())),
]


def test_checkers_are_silent_on_order_that_is_kept_and_on_what_failed_unsent() -> None:
    assert found(doctored(_added(*in_flow(11, 12), *unsent(taken=False)))) == set()


@pytest.mark.parametrize(("reads_s", "missed"), [(1, True), (3, False)])
def test_checkers_demand_broadcasts_of_programs_that_read_when_they_were_sent(
    reads_s: int, missed: bool
) -> None:
    facts: list[Fact] = [replace(SENT, kind="broadcast"), Reads(reads_s * S, N1), DONE]
    names = found(doctored(lambda good: good.__setitem__(slice(0, 3), facts)))
    assert ("acknowledged only if delivered" in names) == missed


@pytest.mark.parametrize(("kind", "again"), [("broadcast", False), ("send", True)])
def test_checkers_know_that_a_new_process_is_owed_broadcasts(kind: str, again: bool) -> None:
    names = found(doctored(_added(*broadcast_read_by_two_processes(kind))))
    assert ("delivered at most once" in names) == again


@pytest.mark.parametrize(("name", "lie"), LIES)
def test_checkers_fire_on_a_doctored_history(name: str, lie: Callable[[list[Fact]], None]) -> None:
    given = doctored(lie)
    if name == "nobody ends by itself":
        facts = [fact for fact in given if not isinstance(fact, Died)]
        given = History([*facts, Exited(5 * S, N3, life(3), 1, "a bug")])
        given.sort()
    assert name in found(given)


def test_checkers_each_fire_in_one_of_these_tests() -> None:
    assert {name for name, _ in LIES} == set(CHECKERS)


def test_checkers_take_an_eviction_for_no_end_by_itself() -> None:
    facts = [fact for fact in GOOD if not isinstance(fact, Died | DeclaredDead)]
    evicted: list[Fact] = [EvictAsked(5 * S, N3, N0), Exited(5 * S + 1, N3, life(3), 1, "evicted")]
    assert found(history(*facts, *evicted)) == set()


def test_checkers_excuse_an_end_among_strangers_only() -> None:
    end = Exited(5 * S + 1, N3, life(3), 1, "every neighbor refuses this node: wrong cluster")
    facts = [fact for fact in GOOD if not isinstance(fact, Died | DeclaredDead)]
    assert found(history(*facts, end)) == {"nobody ends by itself"}
    assert found(history(*facts, end, disturbed(5 * S, Takeover((N0,), answers=True)))) == set()


def test_checkers_excuse_an_end_of_who_was_declared_dead_only() -> None:
    end = Exited(
        7 * S, N2, life(2), 1, "this node was declared dead, and --on-declared-dead is exit"
    )
    facts = [fact for fact in GOOD if fact.at_ns < 7 * S]
    assert "nobody ends by itself" in found(history(*facts, end))
    declared = replace(believed(6 * S, 0, 2, Status.DEAD), incarnation=life(2))
    assert "nobody ends by itself" not in found(history(*facts, declared, end))


@pytest.mark.parametrize(("renewed_s", "excused"), [(3, True), (1, False)])
def test_checkers_excuse_what_a_process_took_before_it_began_a_new_life(
    renewed_s: int, excused: bool
) -> None:
    """Though its source gave up before that was confirmed."""
    renewed = Renewed(renewed_s * S, N1, life(1, 2))
    sent = Sent(2 * S, N0, life(0), 2, N1, life(1), 2)
    failed = Failed(2 * S + 5, N0, 2, 2, "DeadError")
    taken = Delivered(4 * S, N1, life(1, 2), N0, life(0), 2)
    found_by = found(history(*GOOD, renewed, sent, failed, taken))
    assert ("delivered only to those addressed" in found_by) != excused


def test_checkers_excuse_nothing_that_was_for_the_life_of_a_former_process() -> None:
    lives: list[Fact] = [
        Died(3 * S, N1, life(1)),
        Began(4 * S, N1, life(1, 2)),
        Renewed(5 * S, N1, life(1, 3)),
    ]
    sent = Sent(2 * S, N0, life(0), 2, N1, life(1), 2)
    taken = Delivered(6 * S, N1, life(1, 3), N0, life(0), 2)
    assert "delivered only to those addressed" in found(history(*GOOD, *lives, sent, taken))


@pytest.mark.parametrize(
    ("sent_s", "displaced", "excused"), [(2, N1, True), (4, N1, False), (2, N0, False)]
)
def test_checkers_excuse_what_a_process_took_before_it_became_another_node(
    sent_s: int, displaced: NodeId, excused: bool
) -> None:
    lives: list[Fact] = [
        Noted(3 * S, displaced, "displaced", "its id was given twice"),
        Died(3 * S, N1, life(1)),
        Began(5 * S, NodeId(9), life(9)),
    ]
    sent = Sent(sent_s * S, N0, life(0), 2, N1, life(1), 2)
    taken = Delivered(6 * S, NodeId(9), life(9), N0, life(0), 2)
    found_by = found(history(*GOOD, *lives, sent, taken))
    assert ("delivered only to those addressed" in found_by) != excused


def test_checkers_know_a_process_that_began_with_a_lower_life_than_the_one_before() -> None:
    """It kept no state. What it took in its first life it hands out in its second."""
    lives: list[Fact] = [
        Died(2 * S, N1, life(1)),
        Began(2 * S, N1, Incarnation(life(1) + 9)),
        Died(3 * S, N1, Incarnation(life(1) + 9)),
        Began(3 * S, N1, Incarnation(life(1) + 5)),
        Renewed(5 * S, N1, life(1, 2)),
    ]
    sent = Sent(4 * S, N0, life(0), 2, N1, Incarnation(life(1) + 5), 2)
    taken = Delivered(6 * S, N1, life(1, 2), N0, life(0), 2)
    assert "delivered only to those addressed" not in found(history(*GOOD, *lives, sent, taken))


def test_checkers_excuse_a_slow_nodes_verdict() -> None:
    verdict = DeclaredDead(7 * S, N0, N1, life(1), "silence")
    slow = disturbed(5 * S, Slow(nodes=(N0,), delay_ms=200))
    assert found(history(*GOOD, slow, verdict)) == set()


def test_checkers_excuse_a_message_that_its_reader_took_into_death() -> None:
    sent = Sent(5 * S - 9, N0, life(0), 2, N3, NONE, 2)
    assert found(history(*GOOD, sent, Acknowledged(5 * S - 3, N0, 2, 2))) == set()


def test_checkers_excuse_no_message_that_was_acknowledged_long_before_the_end() -> None:
    sent = Sent(1 * S, N0, life(0), 2, N3, NONE, 2)
    given = history(*GOOD, sent, Acknowledged(2 * S, N0, 2, 2))
    assert found(given) == {"acknowledged only if delivered"}


def test_checkers_excuse_only_what_was_unread_where_the_history_tells_it() -> None:
    sent = Sent(5 * S - 9, N0, life(0), 2, N3, NONE, 2)
    acknowledged = Acknowledged(5 * S - 3, N0, 2, 2)
    lost = Unread(5 * S, N3, life(3), (2,))
    assert found(history(*GOOD, sent, acknowledged, lost)) == set()
    other = Unread(5 * S, N3, life(3), (1,))
    given = history(*GOOD, sent, acknowledged, other)
    assert found(given) == {"acknowledged only if delivered"}


def test_checkers_want_no_outcome_from_a_source_that_ended() -> None:
    sent = Sent(5 * S + 1, N3, life(3), 2, N0, NONE, 2)
    assert found(history(*GOOD, sent)) == set()


@pytest.mark.parametrize("late_s", [0.5, 1.5])
def test_checkers_excuse_the_verdict_on_a_node_that_was_sent_away(late_s: float) -> None:
    """However late its end is seen: it began to end when it was evicted."""
    facts = [fact for fact in GOOD if not isinstance(fact, Died | DeclaredDead)]
    at_ns = 5 * S + int(late_s * S)
    evicted: list[Fact] = [EvictAsked(5 * S, N3, N0), Exited(at_ns, N3, life(3), 1, "evicted")]
    assert found(history(*facts, *evicted, VERDICT)) == set()


def test_checkers_do_not_excuse_the_verdict_on_a_node_that_was_to_end_and_did_not() -> None:
    facts = [fact for fact in GOOD if not isinstance(fact, Died | DeclaredDead)]
    assert "no false death" in found(history(*facts, EvictAsked(5 * S, N3, N0), VERDICT))


def test_checkers_excuse_the_verdict_on_a_stopped_node() -> None:
    verdict = DeclaredDead(7 * S, N0, N1, life(1), "silence")
    assert found(history(*GOOD, Stopped(5 * S, N1), verdict)) == set()


def test_checkers_do_not_excuse_a_verdict_by_one_cut_link() -> None:
    verdict = DeclaredDead(7 * S, N0, N1, life(1), "silence")
    cut = disturbed(5 * S, Cut(((N0, N1),)))
    met = LinkOpened(4 * S, N0, N2, life(2))
    assert found(history(*GOOD, met, cut, verdict)) == {"no false death"}


def test_checkers_excuse_a_verdict_by_one_cut_link_of_who_has_met_nobody() -> None:
    """A founder that lost its state knows of no joiner who could be asked."""
    cut = disturbed(5 * S, Cut(((N0, N1),)))
    facts: list[Fact] = [cut, Died(6 * S, N0, life(0)), Began(7 * S, N0, life(0, 2))]
    verdict = DeclaredDead(30 * S, N0, N1, NONE, "no answer")
    met = LinkOpened(29 * S, N0, N2, life(2))
    assert found(history(*facts, verdict)) == set()
    assert found(history(*facts, met, verdict)) == {"no false death"}


def test_checkers_excuse_a_verdict_by_one_cut_link_when_nobody_else_could_be_asked() -> None:
    verdict = DeclaredDead(7 * S, N0, N1, life(1), "silence")
    cut = disturbed(5 * S, Cut(((N0, N1),)))
    assert found(history(cut, verdict, nodes=2)) == set()
    died = [Died(4 * S, N2, life(2)), Died(4 * S, N3, life(3))]
    assert found(history(*died, cut, verdict)) == set()


def test_checkers_excuse_a_verdict_by_one_cut_link_when_all_who_could_be_asked_are_slow() -> None:
    verdict = DeclaredDead(7 * S, N0, N1, life(1), "silence")
    cut = disturbed(5 * S, Cut(((N0, N1),)))
    slow = disturbed(5 * S, Slow(nodes=(N2,), delay_ms=200))
    met = LinkOpened(4 * S, N0, N2, life(2))
    assert found(history(met, cut, slow, verdict, nodes=3)) == set()
    assert found(history(met, cut, slow, verdict, nodes=4)) == {"no false death"}


def test_checkers_excuse_verdicts_across_a_partition() -> None:
    verdict = DeclaredDead(7 * S, N0, N1, life(1), "silence")
    parted = disturbed(5 * S, Partition(((N0, N2), (N1, N3))))
    assert found(history(*GOOD, parted, verdict)) == set()


def test_checkers_do_not_excuse_the_false_death_of_a_new_life_for_the_former_ones_death() -> None:
    begun = Began(6 * S, N3, life(3, 2))
    verdict = DeclaredDead(20 * S, N0, N3, life(3, 2), "silence")
    assert "no false death" in found(history(*GOOD, begun, verdict))


def test_checkers_let_records_begin_anew_with_a_process() -> None:
    facts: list[Fact] = [believed(3 * S, 1, 3), Died(4 * S, N1, life(1))]
    facts += [Began(5 * S, N1, life(1, 2)), believed(6 * S, 1, 3, Status.EXPECTED)]
    assert "records only grow" not in found(history(*facts))


def test_what_an_unheard_life_took_is_lost_with_it() -> None:
    """A process that nobody had heard of took a message and was killed."""
    took = Sent(7 * S, N0, life(0), 2, N3, NONE, 2)
    facts = [*GOOD[:8], took, Acknowledged(7 * S + 1, N0, 2, 2)]
    assert found(history(*facts, *REST)) == {"acknowledged only if delivered"}
    assert found(history(*facts, Died(8 * S, N3, life(3)), *REST)) == {
        "acknowledged only if delivered"
    }
    assert found(history(*facts, Died(8 * S, N3, NONE), *REST)) == set()
