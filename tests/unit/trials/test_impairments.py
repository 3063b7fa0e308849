"""Cuts have a direction, partitions are cuts, and the slowest word counts."""

from __future__ import annotations

from bmgd.trials.impairments import Impairments, Slowness


def test_impairments_cut_holds_both_directions() -> None:
    impairments = Impairments()
    impairments.cut([(1, 2)])
    assert impairments.holds(1, 2)
    assert impairments.holds(2, 1)
    assert not impairments.holds(1, 3)


def test_impairments_cut_one_way_holds_what_the_first_sends() -> None:
    impairments = Impairments()
    impairments.cut([(1, 2)], one_way=True)
    assert impairments.holds(1, 2)
    assert not impairments.holds(2, 1)


def test_impairments_one_way_cut_severs_new_connections_of_both() -> None:
    impairments = Impairments()
    impairments.cut([(1, 2)], one_way=True)
    assert impairments.severs(1, 2)
    assert impairments.severs(2, 1)


def test_impairments_partition_spares_groups_and_ids_in_none() -> None:
    impairments = Impairments()
    impairments.part([[0, 1], [2, 3], [4]])
    assert not impairments.severs(0, 1)
    assert all(impairments.holds(a, b) for a, b in [(0, 2), (3, 1), (2, 4), (4, 0)])
    assert not impairments.severs(0, 5)


def test_impairments_one_way_partition_lets_group_0_hear() -> None:
    impairments = Impairments()
    impairments.part([[0, 1], [2], [3]], one_way=True)
    assert not impairments.holds(2, 0)
    assert impairments.holds(0, 2)
    assert impairments.holds(2, 3)
    assert impairments.holds(3, 2)


def test_impairments_mend_of_a_link_leaves_the_others() -> None:
    impairments = Impairments()
    impairments.part([[0, 1], [2, 3]])
    impairments.slow([(0, 2)], [], Slowness(1.0))
    impairments.mend([(2, 0)])
    assert not impairments.severs(0, 2)
    assert impairments.slowness(0, 2) is None
    assert impairments.severs(1, 2)


def test_impairments_mend_of_all_leaves_nothing() -> None:
    impairments = Impairments()
    impairments.cut([(0, 1)])
    impairments.slow([(0, 2)], [3], Slowness(1.0))
    impairments.mend()
    assert impairments == Impairments()


def test_impairments_slowest_word_counts() -> None:
    impairments = Impairments()
    impairments.slow([(1, 0)], [2], Slowness(0.1, 500))
    impairments.slow([], [0], Slowness(0.3))
    assert impairments.slowness(0, 1) == Slowness(0.3)
    assert impairments.slowness(1, 2) == Slowness(0.1, 500)
    assert impairments.slowness(1, 3) is None
