"""What was true at each moment follows from the truths of a history."""

from __future__ import annotations

from bmgd.chaos.faults import Cut, Hog, Mend, Partition, Slow
from bmgd.chaos.history import (
    Began,
    Died,
    EvictAsked,
    Exited,
    JoinAsked,
    Mended,
    Resumed,
    Stopped,
)
from bmgd.chaos.truth import Truth
from bmgd.types import UNKNOWN_INCARNATION, NodeId
from tests.unit.chaos.histories import S, disturbed, history, life

N1 = NodeId(1)


def test_truth_follows_lives() -> None:
    truth = Truth.of(history(Died(5 * S, N1, life(1)), Began(7 * S, N1, life(1, 2))))
    first, second = truth.life_at(N1, 4 * S), truth.life_at(N1, 8 * S)
    assert first is not None
    assert second is not None
    assert (first.incarnation, second.incarnation) == (life(1), life(1, 2))
    assert truth.life_at(N1, 6 * S) is None
    assert truth.is_over(N1, life(1))
    assert not truth.is_over(N1, life(1, 2))
    assert truth.ended_within(N1, 4 * S, 6 * S)
    assert not truth.ended_within(N1, 6 * S, 8 * S)


def test_truth_of_a_life_that_ended_unseen() -> None:
    """A joiner was killed before anybody could read which life it was."""
    n9 = NodeId(9)
    truth = Truth.of(history(Died(5 * S, n9, UNKNOWN_INCARNATION), Began(7 * S, n9, life(9, 2))))
    assert truth.ended_within(n9, 4 * S, 6 * S)
    assert n9 not in truth.given_twice


def test_truth_knows_an_id_that_was_given_twice() -> None:
    n9 = NodeId(9)
    truth = Truth.of(history(Began(5 * S, n9, life(9)), Began(7 * S, n9, life(9, 2))))
    assert truth.given_twice == {n9}


def test_truth_a_stopped_node_does_not_run_through() -> None:
    truth = Truth.of(history(Stopped(2 * S, N1), Resumed(3 * S, N1)))
    assert truth.stopped_within(N1, 1 * S, 2 * S)
    assert not truth.stopped_within(N1, 3 * S, 9 * S)
    assert not truth.runs_through(N1, 1 * S, 4 * S)
    assert truth.runs_through(N1, 3 * S, 4 * S)


def test_truth_follows_cuts_until_they_are_mended() -> None:
    parted = Partition(((NodeId(0), N1), (NodeId(2), NodeId(3))))
    truth = Truth.of(
        history(
            disturbed(1 * S, parted),
            disturbed(2 * S, Mend(((NodeId(2), N1),))),
            disturbed(3 * S, Cut(((N1, NodeId(0)),), one_way=True)),
            Mended(4 * S),
        )
    )
    assert len(truth.impaired_within(1 * S, 1 * S)) == 4
    assert (1, 2) not in truth.impaired_within(int(2.5 * S), int(2.5 * S))
    assert (0, 1) in truth.impaired_within(int(3.5 * S), int(3.5 * S))
    assert truth.impaired_within(5 * S, 6 * S) == []


def test_truth_knows_slow_nodes_and_hogs() -> None:
    slow = Slow(nodes=(N1,), delay_ms=100.0)
    truth = Truth.of(history(disturbed(1 * S, slow), disturbed(2 * S, Hog(1, 3.0)), Mended(4 * S)))
    assert truth.is_slow_within(N1, 2 * S, 2 * S)
    assert not truth.is_slow_within(N1, 4 * S, 9 * S)
    assert truth.hogged_within(3 * S, 3 * S)
    assert not truth.hogged_within(4 * S, 9 * S)


def test_truth_takes_a_joiner_for_slow_when_one_of_them_is() -> None:
    """A plan calls joiners by the order in which they come, which is not that of their ids."""
    first, second = NodeId(4), NodeId(5)
    slow = disturbed(2 * S, Slow(nodes=(first,), delay_ms=100.0))
    began = [Began(1 * S, node, life(node)) for node in (first, second)]
    assert not Truth.of(history(*began, slow)).is_slow_within(second, 3 * S, 3 * S)
    truth = Truth.of(history(JoinAsked(0, first, N1), *began, slow))
    assert truth.is_slow_within(second, 3 * S, 3 * S)
    assert not truth.is_slow_within(second, 1 * S, 1 * S)
    assert not truth.is_slow_within(N1, 3 * S, 3 * S)


def test_truth_knows_who_was_sent_away() -> None:
    """The end is seen late on a busy machine: what asked for it was seen before."""
    facts = (EvictAsked(5 * S, N1, NodeId(2)), Exited(9 * S, N1, life(1), 1, "evicted"))
    truth = Truth.of(history(*facts))
    present = truth.life_at(N1, 6 * S)
    assert present is not None
    assert truth.is_ending(N1, present, 6 * S)
    assert not truth.is_ending(N1, present, 4 * S)


def test_truth_mended_ends_all_that_was_slow_and_hogged() -> None:
    slow = Slow(nodes=(N1,), delay_ms=20.0)
    given = history(
        disturbed(1 * S, slow),
        disturbed(2 * S, slow),
        disturbed(1 * S, Hog(1, 60.0)),
        disturbed(2 * S, Hog(1, 1.0)),
        Mended(4 * S),
    )
    truth = Truth.of(given)
    assert truth.is_slow_within(N1, 1 * S, 4 * S - 1)
    assert not truth.is_slow_within(N1, 5 * S, 9 * S)
    assert not truth.hogged_within(5 * S, 9 * S)
