"""Membership: a true join, its digest, and the layout that follows from it."""

from __future__ import annotations

import hashlib
import struct
from itertools import permutations
from random import Random

import pytest

from bmgd.core.membership.allowance import ID_GAP_MAX
from bmgd.core.membership.membership import Membership, record_hash
from bmgd.core.membership.retired import retired_hash
from bmgd.peers import PeerList
from bmgd.topology import BinomialGraph
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.link_messages import BUCKETS

PEERS = PeerList(template="host{id}:7400")
SIZE = 12
Row = tuple[NodeId, Record]


def new(size: int = SIZE) -> Membership:
    return Membership(size, PEERS)


def joined(rows: list[Row], size: int = SIZE) -> Membership:
    membership = new(size)
    for node_id, record in rows:
        membership.join(node_id, record)
    return membership


def random_rows(random: Random, count: int) -> list[Row]:
    """Records from so small a range that many compete for an id, and some are equal."""
    return [
        (
            NodeId(random.randrange(SIZE + 4)),
            Record(
                Incarnation(random.randrange(3)),
                random.randrange(3),
                random.choice(list(Status)),
                random.choice(("a:1", "b:1", PEERS.address_of(NodeId(3)))),
            ),
        )
        for _ in range(count)
    ]


def seen(membership: Membership) -> tuple[object, ...]:
    """Everything that two equal memberships must agree on."""
    return (
        membership.exceptions(),
        membership.digest,
        membership.buckets,
        membership.id_space,
        membership.outside,
    )


def record(
    status: Status = Status.DEAD, incarnation: int = 1, version: int = 0, address: str = "a:1"
) -> Record:
    return Record(Incarnation(incarnation), version, status, address)


# --- the join -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100))
def test_membership_join_is_the_same_in_any_order_and_grouping(seed: int) -> None:
    random = Random(seed)
    rows = random_rows(random, random.randrange(40))
    expected = seen(joined(rows))
    for _ in range(5):
        shuffled = random.sample(rows, len(rows))
        assert seen(joined(shuffled)) == expected
        # Two halves that were joined apart and then into each other, records only.
        cut = random.randrange(len(rows) + 1)
        one, other = joined(shuffled[:cut]), joined(shuffled[cut:])
        for node_id, found in list(other.exceptions().items()):
            one.join(node_id, found)
        assert seen(one) == expected


@pytest.mark.parametrize("seed", range(50))
def test_membership_join_again_changes_nothing(seed: int) -> None:
    rows = random_rows(Random(seed), 30)
    membership = joined(rows)
    before, revision = seen(membership), membership.revision
    assert not any(membership.join(node_id, found) for node_id, found in rows)
    assert seen(membership) == before
    assert membership.revision == revision


def test_membership_join_takes_the_greatest_field_by_field() -> None:
    ascending = [
        record(Status.LEFT, 1, 9),
        record(Status.EXPECTED, 2, 0),
        record(Status.ALIVE, 2, 0),
        record(Status.DEAD, 2, 0),
        record(Status.EXCLUDED, 2, 0),
        record(Status.EXCLUDED, 2, 0, "b:1"),
        record(Status.LEFT, 2, 0),
        record(Status.ALIVE, 2, 1),
    ]
    membership = new()
    assert [membership.join(NodeId(3), found) for found in ascending] == [True] * len(ascending)
    assert membership.get(NodeId(3)) == ascending[-1]
    assert membership.revision == len(ascending)
    assert not any(membership.join(NodeId(3), found) for found in ascending)


def test_membership_join_ends_alike_in_every_order_of_competing_records() -> None:
    rows = [
        (NodeId(3), record(Status.EXCLUDED, 1)),
        (NodeId(3), record(Status.ALIVE, 1, 1)),
        (NodeId(3), record(Status.ALIVE, 2, 0)),
        (NodeId(14), record(Status.ALIVE, 1)),
        (NodeId(13), record(Status.LEFT, 1)),
    ]
    outcomes = [seen(joined(list(order))) for order in permutations(rows)]
    assert all(outcome == outcomes[0] for outcome in outcomes)


# --- the digest -------------------------------------------------------------------------------------


def digested(node_id: NodeId, record: Record) -> Record:
    """A record without what does not count in the digest."""
    if node_id >= SIZE and record.status is Status.LEFT:
        return Record(Incarnation(0), 0, Status.LEFT, "")
    return record


def worth(node_id: NodeId, record: Record) -> int:
    """What a record counts in the digest."""
    if node_id >= SIZE and record.status is Status.LEFT:
        return retired_hash(node_id)
    return record_hash(node_id, record)


def test_membership_digests_are_equal_exactly_when_the_records_are() -> None:
    random = Random("digests")
    by_digest: dict[int, dict[NodeId, Record]] = {}
    by_records: dict[tuple[Row, ...], int] = {}
    for _ in range(3000):
        membership = joined(random_rows(random, random.randrange(5)))
        records = {i: digested(i, r) for i, r in membership.exceptions().items()}
        assert by_digest.setdefault(membership.digest, records) == records
        key = tuple(sorted(records.items()))
        assert by_records.setdefault(key, membership.digest) == membership.digest
    assert len(by_digest) == len(by_records) > 1000


@pytest.mark.parametrize("seed", range(30))
def test_membership_digest_is_the_sum_of_its_records_hashes(seed: int) -> None:
    membership = joined(random_rows(Random(seed), 60))
    rows = membership.exceptions().items()
    assert membership.digest == sum(worth(i, r) for i, r in rows) % 2**128
    for number in range(BUCKETS):
        mine = [worth(i, r) for i, r in rows if i % BUCKETS == number]
        assert membership.buckets[number] == sum(mine) % 2**128


def test_membership_digest_of_the_baseline_is_zero() -> None:
    assert new(1).digest == new(2**31).digest == 0
    assert new().buckets == [0] * BUCKETS


def test_membership_record_hash_is_the_one_of_the_contract() -> None:
    address = "host3:7400"
    fixed = struct.pack(">IQIB", 3, 0x0000_0001_0000_5EED, 2, 1)
    assert len(fixed) == 17
    wanted = hashlib.blake2b(fixed + address.encode(), digest_size=16).hexdigest()
    found = record_hash(NodeId(3), Record(Incarnation(0x1_0000_5EED), 2, Status.ALIVE, address))
    assert f"{found:032x}" == wanted == "579a29e5e1469ebe9c1ca04e0bbcc1f6"


def test_membership_record_hash_differs_in_every_field() -> None:
    base = Record(Incarnation(1), 1, Status.ALIVE, "a:1")
    others = [
        base._replace(incarnation=Incarnation(2)),
        base._replace(version=2),
        base._replace(status=Status.DEAD),
        base._replace(address="a:2"),
    ]
    hashes = {record_hash(NodeId(3), found) for found in (base, *others)}
    assert len(hashes | {record_hash(NodeId(4), base)}) == 6


# --- the baseline -----------------------------------------------------------------------------------


def test_membership_expects_every_founder_at_its_template_address() -> None:
    membership = new()
    assert membership.get(NodeId(11)) == Record(Incarnation(0), 0, Status.EXPECTED, "host11:7400")
    assert membership.get(NodeId(12)) is None
    assert membership.status_of(NodeId(0)) is Status.EXPECTED
    assert membership.status_of(NodeId(12)) is None
    assert membership.exceptions() == {}
    assert (membership.id_space, membership.layout_size, membership.outside) == (12, 12, [])


def test_membership_of_the_greatest_size_keeps_no_table() -> None:
    membership = new(2**31)
    membership.join(NodeId(2**31 - 1), record())
    assert membership.rank(NodeId(2**31 - 2)) == 2**31 - 2
    assert len(membership.exceptions()) == 1


def test_membership_record_equal_to_the_baseline_is_none() -> None:
    membership = new()
    assert not membership.join(NodeId(3), Record(Incarnation(0), 0, Status.EXPECTED, "host3:7400"))
    assert membership.exceptions() == {}
    assert membership.digest == 0


def test_membership_knows_the_highest_life_from_links_and_records() -> None:
    membership = new()
    assert membership.incarnation(NodeId(3)) == 0
    membership.meet_life(NodeId(3), Incarnation(5))
    membership.meet_life(NodeId(3), Incarnation(4))
    assert membership.incarnation(NodeId(3)) == 5
    assert membership.digest == 0
    membership.join(NodeId(3), record(incarnation=7))
    assert membership.incarnation(NodeId(3)) == 7
    membership.meet_life(NodeId(3), Incarnation(9))
    assert membership.incarnation(NodeId(3)) == 9


# --- the layout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", Status)
def test_membership_layout_loses_exactly_the_excluded_and_the_left(status: Status) -> None:
    membership = joined([(NodeId(3), record(status))])
    gone = status in (Status.EXCLUDED, Status.LEFT)
    assert membership.in_layout(NodeId(3)) is not gone
    assert membership.outside == ([3] if gone else [])
    assert membership.is_gone(NodeId(3)) is (status >= Status.DEAD)


@pytest.mark.parametrize("seed", range(60))
def test_membership_outside_and_ranks_agree_with_the_records(seed: int) -> None:
    random = Random(seed)
    membership = new()
    for node_id, found in random_rows(random, 60):
        membership.join(node_id, found)
        ids = range(membership.id_space)
        inside = [i for i in ids if membership.in_layout(NodeId(i))]
        assert membership.outside == [i for i in ids if i not in inside]
        assert membership.layout_size == len(inside)
        assert [membership.rank(NodeId(i)) for i in inside] == list(range(len(inside)))
        assert all(membership.rank(NodeId(i)) is None for i in membership.outside)
        assert membership.id_space == 1 + max([SIZE - 1, *membership.exceptions()])


@pytest.mark.parametrize("seed", range(20))
def test_membership_neighbors_are_those_of_the_graph_over_the_ranks(seed: int) -> None:
    membership = joined(random_rows(Random(seed), 12))
    inside = [i for i in range(membership.id_space) if membership.in_layout(NodeId(i))]
    assert len(inside) > 1
    graph = BinomialGraph(len(inside))
    for rank, node_id in enumerate(inside):
        wanted = tuple(sorted(inside[neighbor] for neighbor in graph.neighbors(rank)))
        assert membership.neighbors(NodeId(node_id)) == wanted
    assert all(membership.neighbors(NodeId(i)) == () for i in membership.outside)


def test_membership_life_after_exclusion_is_in_the_layout_again() -> None:
    membership = joined([(NodeId(3), record(Status.EXCLUDED))])
    assert membership.join(NodeId(3), record(Status.ALIVE, version=1))
    assert membership.outside == []
    assert membership.rank(NodeId(3)) == 3


def test_membership_id_beyond_the_founders_makes_the_space_grow() -> None:
    membership = joined([(NodeId(SIZE + 2), record(Status.ALIVE))])
    assert membership.id_space == SIZE + 3
    assert membership.outside == [SIZE, SIZE + 1]
    assert membership.rank(NodeId(SIZE + 2)) == SIZE
    assert membership.status_of(NodeId(SIZE)) is None
    assert membership.is_gone(NodeId(SIZE))


def test_membership_does_not_believe_in_an_id_too_far_above_the_highest() -> None:
    membership = new()
    assert not membership.join(NodeId(SIZE + ID_GAP_MAX), record())
    assert not membership.join(NodeId(2**31 - 1), record())
    assert seen(membership) == seen(new())
    assert membership.join(NodeId(SIZE + ID_GAP_MAX - 1), record())
    assert membership.id_space == SIZE + ID_GAP_MAX
    assert not membership.join(NodeId(SIZE + ID_GAP_MAX + 1), record())
    assert membership.join(NodeId(SIZE + ID_GAP_MAX), record())
    assert membership.join(NodeId(SIZE), record())
    assert membership.join(NodeId(SIZE + ID_GAP_MAX + 2), record())


def test_membership_grows_without_gaps_as_far_as_records_go() -> None:
    membership = new()
    for node_id in range(SIZE, SIZE + 2 * ID_GAP_MAX):
        assert membership.join(NodeId(node_id), record())
    assert membership.layout_size == SIZE + 2 * ID_GAP_MAX
