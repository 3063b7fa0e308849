"""Detection and healing times of small histories."""

from __future__ import annotations

from bmgd.chaos.faults import Hog, Join, Kill, Leave, Partition, Restart
from bmgd.chaos.history import (
    Acknowledged,
    Began,
    Died,
    Fact,
    Failed,
    History,
    LeaveAsked,
    LinkedExactly,
    Sent,
    Stopped,
)
from bmgd.chaos.measures import Detection, Measures, Summary
from bmgd.chaos.truth import Truth
from bmgd.types import NodeId, Status
from tests.unit.chaos.histories import S, believed, disturbed, history, life

N0, N1, N2, N3 = map(NodeId, range(4))
MS = 1_000_000


def measures(given: History) -> Measures:
    return Measures(given, Truth.of(given))


def death(at_ns: int, *told_ms: int) -> list[Fact]:
    """Node 3 is killed, and nodes 0, 1, 2 know it after so many milliseconds."""
    told = [believed(at_ns + ms * MS, node, 3) for node, ms in enumerate(told_ms)]
    return [disturbed(at_ns - 1, Kill((N3,))), Died(at_ns, N3, life(3)), *told]


def end(at_ns: int = 60 * S) -> Fact:
    return LinkedExactly(at_ns, N0)


def test_measures_a_death_is_found_when_the_last_one_knows() -> None:
    found = measures(history(*death(10 * S, 5, 30, 20), end())).detections()
    assert found == [Detection("kill", N3, 10 * S, 30 * MS, calm=True, hogged=False)]


def test_measures_a_death_that_one_never_learns_of_is_not_found() -> None:
    found = measures(history(*death(10 * S, 5, 30), end())).detections()
    assert [d.took_ns for d in found] == [None]


def test_measures_a_death_that_was_believed_before_measures_nothing() -> None:
    stopped: list[Fact] = [Stopped(10 * S, N3)]
    stopped += [believed(10 * S + ms * MS, node, 3) for node, ms in enumerate((5, 30, 20))]
    given = history(*stopped, *death(30 * S), end())
    assert [(d.kind, d.took_ns) for d in measures(given).detections()] == [("stop", 30 * MS)]


def test_measures_a_death_after_a_refuted_one_is_measured() -> None:
    told = [believed(10 * S + node, node, 3) for node in range(3)]
    told += [believed(11 * S + node, node, 3, Status.ALIVE) for node in range(3)]
    given = history(*told, *death(30 * S, 5, 30, 20), end())
    assert [(d.kind, d.took_ns) for d in measures(given).detections()] == [("kill", 30 * MS)]


def test_measures_whoever_was_stopped_before_it_knew_is_no_observer() -> None:
    given = history(*death(10 * S, 5, 30), Stopped(10 * S + MS, N2), end())
    assert [d.took_ns for d in measures(given).detections() if d.kind == "kill"] == [30 * MS]


def test_measures_a_restart_before_all_knew_measures_nothing() -> None:
    given = history(*death(10 * S, 5, 30), Began(10 * S + 40 * MS, N3, life(3, 2)), end())
    assert measures(given).detections() == []


def test_measures_deaths_in_a_row_are_not_calm() -> None:
    other: list[Fact] = [disturbed(11 * S, Kill((N2,))), Died(11 * S, N2, life(2))]
    other += [believed(11 * S + 7 * MS, node, 2) for node in (0, 1)]
    found = measures(history(*death(10 * S, 5, 30, 20), *other, end())).detections()
    assert [(d.node, d.calm) for d in found] == [(3, True), (2, False)]


def test_measures_a_hog_makes_it_hogged_and_not_less_calm() -> None:
    given = history(disturbed(9 * S, Hog(2, 5.0)), *death(10 * S, 5, 30, 20), end())
    assert [(d.calm, d.hogged) for d in measures(given).detections()] == [(True, True)]


def test_measures_a_leave_counts_from_its_command() -> None:
    facts: list[Fact] = [disturbed(10 * S, Leave((N3,))), LeaveAsked(10 * S, N3)]
    facts += [believed(10 * S + 9 * MS, node, 3, Status.LEFT) for node in (0, 1, 2)]
    assert [(d.kind, d.took_ns) for d in measures(history(*facts, end())).detections()] == [
        ("leave", 9 * MS)
    ]


def test_measures_one_cut_off_alone_is_found_by_the_others() -> None:
    parted = disturbed(10 * S, Partition(((N3,), (N0, N1, N2))))
    told = [believed(12 * S + node, node, 3) for node in (0, 1, 2)]
    found = measures(history(parted, *told, end())).detections()
    assert [(d.kind, d.node, d.took_ns, d.calm) for d in found] == [("cut off", 3, 2 * S + 2, True)]


def test_measures_two_cut_off_at_once_are_found_by_those_who_hear_of_it() -> None:
    parted = disturbed(10 * S, Partition(((N2,), (N3,), (N0, N1))))
    told = [believed(12 * S + node, node, about) for node in (0, 1) for about in (2, 3)]
    late = believed(20 * S, 3, 2)
    found = measures(history(parted, *told, late, end())).detections()
    assert [(d.node, d.took_ns) for d in found] == [(2, 2 * S + 1), (3, 2 * S + 1)]


def test_measures_healing_ends_with_the_last_link_exact() -> None:
    exact = [LinkedExactly(10 * S + (40 + node) * MS, NodeId(node)) for node in (0, 1, 2)]
    given = history(*death(10 * S, 5, 30, 20), *exact, end())
    healings = measures(given).healings()
    # The plan's next fault is none, so the last word of node 0 is the history's end.
    assert list(healings) == ["kill"]
    later = disturbed(20 * S, Restart((N3,)))
    given = history(*death(10 * S, 5, 30, 20), *exact, later, end())
    assert measures(given).healings() == {"kill": [42 * MS + 1]}


def test_measures_healing_waits_for_those_who_joined() -> None:
    begun = Began(10 * S + MS, NodeId(4), life(4))
    exact = [LinkedExactly(10 * S + (40 + node) * MS, NodeId(node)) for node in range(5)]
    given = history(disturbed(10 * S, Join(1)), begun, *exact, disturbed(20 * S, Restart((N3,))))
    assert measures(given).healings() == {"join": [44 * MS]}
    given = history(
        disturbed(10 * S, Join(1)), begun, *exact[:4], disturbed(20 * S, Restart((N3,)))
    )
    assert measures(given).healings() == {}


def test_measures_faults_count_what_was_done() -> None:
    given = history(*death(10 * S, 5), disturbed(20 * S, Kill((N0, N1))), end())
    assert measures(given).faults() == {"kill": 1}


def test_summary_uses_the_nearest_rank() -> None:
    assert Summary.of(range(MS, 101 * MS, MS)) == Summary(100, 50.0, 99.0, 100.0)
    assert Summary.of([]) == Summary(0, 0.0, 0.0, 0.0)
    assert Summary.of([7 * MS]) == Summary(1, 7.0, 7.0, 7.0)


def test_measures_account_for_every_message() -> None:
    facts: list[Fact] = []
    for number, outcome in enumerate(("taken", "failed", "sender ended", "taken"), 1):
        at_ns = number * S
        facts.append(Sent(at_ns, N0, life(0), number, N1, life(1), number))
        if outcome == "taken":
            facts.append(Acknowledged(at_ns + 1, N0, number, number))
        elif outcome == "failed":
            facts.append(Failed(at_ns + 1, N0, number, number, "PeerDeadError"))
    found = measures(history(*facts, end())).deliveries()
    assert found["sender_ended"] == 1
    assert found["sent"] == (
        found["acknowledged"] + sum(found["failed"].values()) + found["sender_ended"]
    )
