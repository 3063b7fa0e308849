"""Who does not hear whom."""

from __future__ import annotations

from bmgd.sim.blockade import Blockade, Slowness
from bmgd.types import NodeId

A, B, C, D = map(NodeId, range(4))


def test_blockade_cuts_one_way_or_both() -> None:
    blockade = Blockade()
    blockade.cut(A, B, one_way=True)
    blockade.cut(A, C, one_way=False)
    assert [blockade.blocks(*way) for way in ((A, B), (B, A), (A, C), (C, A))] == [1, 0, 1, 1]
    blockade.mend(C, A)
    assert [blockade.blocks(*way) for way in ((A, B), (A, C), (C, A))] == [1, 0, 0]


def test_blockade_parts_groups_and_leaves_the_others() -> None:
    blockade = Blockade()
    blockade.part(((A,), (B, C)), one_way=False)
    assert blockade.blocks(A, B)
    assert blockade.blocks(C, A)
    assert not blockade.blocks(B, C)
    assert not blockade.blocks(D, A)
    assert not blockade.blocks(A, D)
    assert blockade.touched() == {A, B, C}
    blockade.mend_all()
    assert not blockade.blocks(A, B)
    assert blockade.touched() == set()


def test_blockade_mended_for_a_pair_parts_the_others_still() -> None:
    blockade = Blockade()
    blockade.part(((A,), (B, C)), one_way=False)
    blockade.mend(B, A)
    assert not blockade.blocks(A, B)
    assert not blockade.blocks(B, A)
    assert blockade.blocks(A, C)
    blockade.part(((A,), (B,)), one_way=False)
    assert blockade.blocks(A, B)


def test_blockade_one_way_partition_lets_the_first_group_hear() -> None:
    blockade = Blockade()
    blockade.part(((A,), (B,), (C,)), one_way=True)
    assert not blockade.blocks(B, A)
    assert blockade.blocks(A, B)
    assert blockade.blocks(B, C)


def test_blockade_slowness_adds_up_and_counts_bytes() -> None:
    blockade = Blockade()
    assert blockade.delay_of(A, B, 1000) == 0
    blockade.slow_way(A, B, Slowness(5, 0))
    blockade.slow_node(B, Slowness(2, 1_000_000_000))
    assert blockade.delay_of(A, B, 1000) == 5 + 2 + 1000
    assert blockade.delay_of(B, A, 0) == 7
    assert blockade.delay_of(A, C, 1000) == 0
    blockade.mend(A, B)
    assert blockade.delay_of(A, B, 0) == 2
