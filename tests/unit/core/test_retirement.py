"""Joiners' ids that go for good: forgotten, compared, fetched in pages, and never given again."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from bmgd.core.effects import (
    Close,
    Dial,
    Displaced,
    Effect,
    Exit,
    Grant,
    RecordChanged,
    Refuse,
    Send,
)
from bmgd.core.events import (
    DeadlineReached,
    DialFailed,
    Greeted,
    JoinAsked,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.joining.growth import PAGE_PATIENCE_NS
from bmgd.core.membership import retirement
from bmgd.core.membership.comparison import FETCH_NS, PAGE_NS
from bmgd.core.membership.membership import JOINED_MAX, LISTED_SPACE_MAX, Membership, Page
from bmgd.core.membership.retired import DIGEST_MODULUS, retired_hash, retired_sums
from bmgd.core.membership.retirement import AT_ONCE_MAX, GONE_NS, LEFT_NS
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
)
from bmgd.wire.bounds import RECORDS_PER_NOTICE_MAX
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import BUCKETS, Buckets, Heartbeat, Notice, PageAsk, RecordPage

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32 | 5)
FOUNDERS = 8
S = 1_000_000_000
ALL = 2**BUCKETS - 1


def record(status: Status = Status.ALIVE, counter: int = 1, version: int = 0) -> Record:
    return Record(Incarnation(counter << 32), version, status, "joiner:1")


def fresh() -> Membership:
    return Membership(FOUNDERS, PEERS)


def recounted(membership: Membership) -> tuple[int, list[int]]:
    """Digest and buckets, from nothing but the records and the retired ids."""
    other = fresh()
    for node_id, said in sorted(membership.exceptions().items()):
        other.join(node_id, said)
    buckets = list(other.buckets)
    for number in membership.retired:
        at = number % BUCKETS
        buckets[at] = (buckets[at] + retired_hash(number)) % DIGEST_MODULUS
    return sum(buckets) % DIGEST_MODULUS, buckets


# --- the digest of runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (5, 9), (3, 66), (64, 127), (1, 128), (7, 900)]
)
def test_run_counts_as_much_as_its_ids(first: int, last: int) -> None:
    sums = [0] * BUCKETS
    for node_id in range(first, last + 1):
        sums[node_id % BUCKETS] = (sums[node_id % BUCKETS] + retired_hash(node_id)) % DIGEST_MODULUS
    assert retired_sums(first, last) == sums


def test_retired_ids_count_differently() -> None:
    assert len({retired_hash(node_id) for node_id in range(5000)}) == 5000


@pytest.mark.parametrize("seed", range(20))
def test_memberships_that_forget_at_different_times_have_equal_digests(seed: int) -> None:
    random = Random(seed)
    early, late = fresh(), fresh()
    for step in range(300):
        node_id = NodeId(random.randrange(FOUNDERS + 40))
        said = record(random.choice([Status.ALIVE, Status.EXCLUDED, Status.LEFT]), 1 + step // 100)
        if node_id in early.retired:
            continue
        early.join(node_id, said)
        late.join(node_id, said)
        if random.random() < 0.3:
            early.retire(node_id)
        assert (early.digest, early.buckets) == (late.digest, late.buckets)
        assert (early.id_space, early.outside) == (late.id_space, late.outside)
    assert (early.digest, early.buckets) == recounted(early)
    assert early.retired


def test_founder_or_one_that_has_not_left_is_not_forgotten() -> None:
    membership = fresh()
    membership.join(NodeId(3), record(Status.LEFT))
    membership.join(NodeId(9), record(Status.EXCLUDED))
    assert not membership.retire(NodeId(3))
    assert not membership.retire(NodeId(9))
    assert not membership.retire(NodeId(10))


def test_retired_id_is_above_every_record() -> None:
    membership = fresh()
    membership.join(NodeId(8), record(Status.LEFT))
    assert membership.retire(NodeId(8))
    digest = membership.digest
    assert not membership.join(NodeId(8), record(Status.ALIVE, counter=99))
    assert (membership.status_of(NodeId(8)), membership.digest) == (Status.LEFT, digest)
    assert membership.is_gone(NodeId(8))
    assert membership.rank(NodeId(8)) is None


@pytest.mark.parametrize("seed", range(20))
def test_runs_from_elsewhere_are_taken_over(seed: int) -> None:
    """However a run meets records, gaps and other runs, all that is counted stays exact."""
    random = Random(seed)
    membership = fresh()
    for _ in range(60):
        node_id = NodeId(random.randrange(FOUNDERS + 120))
        membership.join(node_id, record(random.choice([Status.ALIVE, Status.DEAD, Status.LEFT])))
        if random.random() < 0.2:
            membership.retire(node_id)
    for _ in range(8):
        first = NodeId(random.randrange(FOUNDERS + 140))
        last = NodeId(first + random.randrange(40))
        expected = [
            (i, r)
            for i, r in sorted(membership.exceptions().items())
            if max(first, FOUNDERS) <= i <= last and r.status is not Status.LEFT
        ]
        moved, done = membership.retire_run(first, last)
        assert (moved, done) == (expected, last) if last >= FOUNDERS else ([], None)
    known = {*membership.exceptions(), *membership.retired, *range(FOUNDERS)}
    assert (membership.digest, membership.buckets) == recounted(membership)
    assert membership._unknown_ids == membership.id_space - len(known)
    inside = [i for i in range(membership.id_space) if membership.in_layout(NodeId(i))]
    assert list(membership.outside) == sorted({*range(membership.id_space)} - {*inside})
    assert membership.gone == [
        i for i, r in sorted(membership.exceptions().items()) if r.status >= Status.DEAD
    ]


def test_run_behind_too_many_unknown_ids_is_not_believed() -> None:
    membership = fresh()
    assert membership.retire_run(NodeId(100_000), NodeId(100_001)) == ([], None)
    assert membership.id_space == FOUNDERS


def test_run_over_many_records_is_taken_over_in_parts() -> None:
    membership = fresh()
    for number in range(FOUNDERS, FOUNDERS + 1000):
        membership.join(NodeId(number), record())
    moved, done = membership.retire_run(NodeId(FOUNDERS), NodeId(FOUNDERS + 999))
    assert len(moved) == RECORDS_PER_NOTICE_MAX
    assert done == FOUNDERS + RECORDS_PER_NOTICE_MAX - 1


def test_million_retired_ids_cost_little() -> None:
    membership = fresh()
    membership.retire_run(NodeId(FOUNDERS), NodeId(FOUNDERS + 10**6 - 1))
    newcomer = NodeId(membership.id_space)
    assert membership.join(newcomer, record())
    assert membership.id_space > LISTED_SPACE_MAX
    assert membership.layout_size == FOUNDERS + 1
    assert membership.rank(newcomer) == FOUNDERS
    assert membership.outside_runs() == [(FOUNDERS, FOUNDERS + 10**6 - 1)]
    assert list(membership.living()) == [*range(FOUNDERS), newcomer]
    assert membership.page(NodeId(0)) == Page(
        ((newcomer, record()),), ((NodeId(FOUNDERS), NodeId(newcomer - 1)),), None
    )


# --- pages ------------------------------------------------------------------------------------------


def fetched(source: Membership, target: Membership, buckets: int = ALL) -> int:
    """Let one membership take over another's pages; returns how many there were."""
    after: NodeId | None = NodeId(0)
    pages = 0
    while after is not None:
        page = source.page(after, buckets)
        assert len(page.records) <= RECORDS_PER_NOTICE_MAX >= len(page.retired)
        rows = [(first, (first, last), None) for first, last in page.retired]
        rows += [(i, None, r) for i, r in page.records]  # type: ignore[misc]
        for node_id, run, said in sorted(rows, key=lambda row: row[0]):
            if run is not None:
                target.retire_run(*run, records_max=10**6)
            else:
                target.join(node_id, said)
        assert page.following is None or page.following > after
        after = page.following
        pages += 1
    return pages


@pytest.mark.parametrize("seed", range(10))
def test_pages_make_memberships_equal(seed: int) -> None:
    random = Random(seed)
    source, target = fresh(), fresh()
    for number in range(FOUNDERS, FOUNDERS + 3000):
        source.join(NodeId(number), record(random.choice([Status.ALIVE, Status.LEFT])))
        if random.random() < 0.5:
            source.retire(NodeId(number))
        if random.random() < 0.3:
            target.join(NodeId(number), record())
    pages = fetched(source, target)
    assert pages >= 3000 // 2 // RECORDS_PER_NOTICE_MAX
    assert (target.digest, target.id_space) == (source.digest, source.id_space)
    assert target.outside == source.outside


def test_page_has_only_the_buckets_that_are_asked_for() -> None:
    source = fresh()
    for number in range(FOUNDERS, FOUNDERS + 200):
        source.join(NodeId(number), record())
    page = source.page(NodeId(0), 1 << 7 | 1 << 9)
    assert {i % BUCKETS for i, _ in page.records} == {7, 9}
    assert page.following is None


# --- nodes ------------------------------------------------------------------------------------------


def node_of(node_id: int = 0, *, takes_new_id: bool = False) -> Node:
    """A ready node, linked to node 1 over link 1."""
    settings = Settings(
        NodeId(node_id), FOUNDERS, PEERS, "joiner:1", takes_new_id=takes_new_id, start_ns=1
    )
    node = Node(settings, LIFE, Random(0), 0)
    node.step(0, DeadlineReached())
    address = PEERS.address_of(NodeId(1))
    node.step(1, LinkUp(LinkId(1), NodeId(1), LIFE, address, UNKNOWN_INCARNATION, 1))
    node.step(2, DeadlineReached())
    return node


def told(node: Node, now_ns: int, *rows: tuple[int, Record]) -> list[Effect]:
    notice = Notice(tuple((NodeId(i), said) for i, said in rows))
    return node.step(now_ns, Received(LinkId(1), notice))


def pass_time(node: Node, from_ns: int, until_ns: int) -> list[Effect]:
    """Reach every deadline in a time; node 1 is heard all the while."""
    effects: list[Effect] = []
    now_ns, sequence = from_ns, 0
    while now_ns < until_ns:
        due_ns = node.deadline_ns
        now_ns = min(until_ns, now_ns + S // 2 if due_ns is None else max(now_ns, due_ns))
        sequence += 1
        beat = Heartbeat(sequence, 2**63, node.parts.context.membership.digest)
        effects += node.step(now_ns, Received(LinkId(1), beat))
        effects += node.step(now_ns, DeadlineReached())
    return effects


def sent(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "LEFT_NS", 10 * S)
    monkeypatch.setattr(retirement, "GONE_NS", 30 * S)


def test_who_has_left_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 60 * S <= LEFT_NS < GONE_NS
    shorten(monkeypatch)
    node = node_of()
    told(node, 3, (8, record()), (9, record()))
    told(node, 4, (8, record(Status.LEFT)))
    membership = node.parts.context.membership
    digest = membership.digest
    pass_time(node, 5, 9 * S)
    assert NodeId(8) in membership.exceptions()
    pass_time(node, 9 * S, 11 * S)
    assert list(membership.retired) == [8]
    assert (NodeId(9) in membership.exceptions(), membership.digest) == (True, digest)


def test_who_comes_back_in_time_keeps_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    node = node_of()
    told(node, 3, (8, record()))
    told(node, 4, (8, record(Status.LEFT)))
    told(node, 5, (8, record(Status.ALIVE, counter=2)))
    pass_time(node, 6, 20 * S)
    assert not node.parts.context.membership.retired


def test_who_is_gone_for_long_is_written_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    node = node_of()
    told(node, 3, (8, record()), (9, record()))
    told(node, 4, (5, record(Status.EXCLUDED)), (8, record(Status.EXCLUDED)))
    effects = pass_time(node, 5, 32 * S)
    notices = [m for m in sent(effects) if isinstance(m, Notice)]
    assert [m.records for m in notices] == [((8, record(Status.LEFT)),)]
    assert node.parts.context.membership.status_of(NodeId(5)) is Status.EXCLUDED


@pytest.mark.parametrize("node_id", [2, 9])
def test_only_the_lowest_living_founder_gives_ids_up(
    monkeypatch: pytest.MonkeyPatch, node_id: int
) -> None:
    shorten(monkeypatch)
    node = node_of(node_id)
    told(node, 3, (8, record()))
    told(node, 4, (8, record(Status.EXCLUDED)))
    pass_time(node, 5, 60 * S)
    assert node.parts.context.membership.status_of(NodeId(8)) is Status.EXCLUDED


def test_records_of_those_who_have_left_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "LEFT_MAX", 5)
    node = node_of()
    told(node, 3, *((i, record(Status.LEFT)) for i in range(8, 20)))
    assert list(node.parts.context.membership.retired) == list(range(8, 15))
    # Nothing else is kept of them.
    assert sorted(node.parts.context.moved_ns) == [0, *range(15, 20)]


def test_gone_joiners_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "GONE_MAX", 3)
    node = node_of()
    told(node, 3, *((i, record(Status.EXCLUDED)) for i in range(8, 12)))
    pass_time(node, 4, S)
    statuses = [node.parts.context.membership.status_of(NodeId(i)) for i in range(8, 12)]
    assert statuses == [Status.LEFT, *[Status.EXCLUDED] * 3]


def test_retirement_of_many_at_once_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are due together, one step gives up and forgets no more than one turn does."""
    shorten(monkeypatch)
    node, many = node_of(), range(8, 1508)
    for number in many:
        told(node, 3, (number, record(Status.EXCLUDED)))
    pass_time(node, 4, 29 * S)
    membership = node.parts.context.membership
    written, forgotten, now_ns = [], [0], 29 * S
    while len(membership.retired) < len(many):
        now_ns = max(now_ns, node.deadline_ns or 0)
        beat = Heartbeat(1, 2**63, membership.digest)
        node.step(now_ns, Received(LinkId(1), beat))
        effects = node.step(now_ns, DeadlineReached())
        written.append(sum(isinstance(effect, RecordChanged) for effect in effects))
        forgotten.append(len(membership.retired))
    assert (sum(written), max(written)) == (len(many), AT_ONCE_MAX)
    assert max(b - a for a, b in pairwise(forgotten)) == AT_ONCE_MAX
    assert now_ns < 42 * S


def test_own_id_in_a_run_makes_a_joiner_take_a_new_one() -> None:
    node = node_of(9, takes_new_id=True)
    page = RecordPage((), ((NodeId(8), NodeId(20)),))
    effects = node.step(3, Received(LinkId(1), page))
    assert any(isinstance(effect, Displaced) for effect in effects)


def test_who_refuses_a_retired_id_is_asked_first_for_a_new_one() -> None:
    """Alone for long, a joiner holds everybody gone; the lowest of them are it in truth."""
    node = node_of(90, takes_new_id=True)
    others = [(i, Record(LIFE, 0, Status.EXCLUDED, f"other{i}:1")) for i in range(80) if i != 1]
    told(node, 3, *others)
    told(node, 4, (1, record(Status.LEFT)))
    node.step(5, LinkDown(LinkId(1), Evidence.GOODBYE))
    failed = DialFailed(NodeId(79), Evidence.REJECTED, Refusal.RETIRED)
    (displaced,) = [e for e in node.step(6, failed) if isinstance(e, Displaced)]
    assert displaced.contacts[0] == "other79:1"


def test_own_id_of_a_founder_in_a_run_says_nothing() -> None:
    node = node_of(3)
    effects = node.step(3, Received(LinkId(1), RecordPage((), ((NodeId(0), NodeId(20)),))))
    assert not any(isinstance(effect, Exit) for effect in effects)
    assert list(node.parts.context.membership.retired) == list(range(FOUNDERS, 21))


def begun_with_its_id_retired(*, takes_new_id: bool) -> list[Effect]:
    """What a node orders as it begins that is told that its own id is retired."""
    settings = Settings(NodeId(20), FOUNDERS, PEERS, "joiner:1", takes_new_id=takes_new_id)
    rows = ((NodeId(21), record()),)
    node = Node(settings, LIFE, Random(0), 0, rows, ((NodeId(FOUNDERS), NodeId(20)),))
    effects = pass_time(node, 0, S)
    assert not [e for e in effects if isinstance(e, Send | Dial | RecordChanged)]
    return effects


def test_own_id_retired_as_it_begins_makes_a_joiner_take_a_new_one() -> None:
    effects = begun_with_its_id_retired(takes_new_id=True)
    (displaced,) = [effect for effect in effects if isinstance(effect, Displaced)]
    assert {PEERS.address_of(NodeId(0)), "joiner:1"} <= set(displaced.contacts)


def test_own_id_retired_as_it_begins_ends_who_was_told_its_id() -> None:
    effects = begun_with_its_id_retired(takes_new_id=False)
    assert [e.code for e in effects if isinstance(e, Exit)] == [1]


def test_own_id_given_up_by_record_makes_a_joiner_take_a_new_one() -> None:
    node = node_of(9, takes_new_id=True)
    effects = told(node, 3, (9, Record(LIFE, 0, Status.LEFT, "joiner:1")))
    assert any(isinstance(effect, Displaced) for effect in effects)


def test_evicted_joiner_ends() -> None:
    node = node_of(9, takes_new_id=True)
    effects = told(node, 3, (9, Record(LIFE, 2**32 - 1, Status.LEFT, "joiner:1")))
    assert [e.code for e in effects if isinstance(e, Exit)] == [1]


def test_hello_under_a_retired_id_is_refused_as_that() -> None:
    node = node_of()
    node.step(3, Received(LinkId(1), RecordPage((), ((NodeId(8), NodeId(20)),))))
    greeted = Greeted(LinkId(5), NodeId(9), LIFE, "joiner:1", UNKNOWN_INCARNATION, 1)
    effects = node.step(4, greeted)
    assert [e.refusal for e in effects if isinstance(e, Refuse)] == [Refusal.RETIRED]
    effects = node.step(5, JoinAsked(LinkId(6), NodeId(9), LIFE, "joiner:1"))
    assert [e.refusal for e in effects if isinstance(e, Refuse)] == [Refusal.RETIRED]


def test_programs_hear_of_known_ids_that_are_retired_elsewhere() -> None:
    node = node_of()
    told(node, 3, (8, record()), (9, record(Status.LEFT)))
    effects = node.step(4, Received(LinkId(1), RecordPage((), ((NodeId(8), NodeId(500)),))))
    changes = [e for e in effects if isinstance(e, RecordChanged)]
    assert [(c.id, c.record.status) for c in changes] == [(8, Status.LEFT)]
    assert changes[0].revision == node.parts.context.membership.revision


# --- fetching ---------------------------------------------------------------------------------------


def differing(node: Node, now_ns: int, link: int = 1) -> list[Effect]:
    """The peer's buckets are others, all of them."""
    return node.step(now_ns, Received(LinkId(link), Buckets((7,) * BUCKETS, answer=False)))


def test_differing_records_are_fetched_page_by_page_over_one_link() -> None:
    node = node_of()
    address = PEERS.address_of(NodeId(2))
    node.step(3, LinkUp(LinkId(2), NodeId(2), LIFE, address, UNKNOWN_INCARNATION, 2))
    assert [m for m in sent(differing(node, 4)) if isinstance(m, PageAsk)] == [
        PageAsk(NodeId(0), ALL)
    ]
    assert not [m for m in sent(differing(node, 5, link=2)) if isinstance(m, PageAsk)]
    rows = tuple((NodeId(i), record()) for i in range(8, 264))
    page = RecordPage(rows, (), NodeId(264))
    effects = node.step(S // 2, Received(LinkId(1), page))
    asked = [e for e in effects if isinstance(e, Send) and isinstance(e.message, PageAsk)]
    assert asked == [Send(LinkId(1), PageAsk(NodeId(264), ALL))]
    # The first page is news for others, a later one is not.
    assert any(isinstance(m, Notice) for m in sent(effects))
    more = RecordPage(tuple((NodeId(i), record()) for i in range(264, 300)), (), None)
    effects = node.step(S, Received(LinkId(1), more))
    assert not any(isinstance(m, Notice | PageAsk) for m in sent(effects))
    assert node.parts.context.membership.id_space == 300
    assert [m for m in sent(differing(node, S + 1, link=2)) if isinstance(m, PageAsk)]


def test_page_that_does_not_come_is_waited_for_a_bounded_time() -> None:
    node = node_of()
    differing(node, 4)
    assert not [m for m in sent(differing(node, 5)) if isinstance(m, PageAsk)]
    assert [m for m in sent(differing(node, 4 + PAGE_NS)) if isinstance(m, PageAsk)]


def test_page_is_asked_of_another_where_the_link_is_lost() -> None:
    node = node_of()
    address = PEERS.address_of(NodeId(2))
    node.step(3, LinkUp(LinkId(2), NodeId(2), LIFE, address, UNKNOWN_INCARNATION, 2))
    differing(node, 4)
    node.step(5, LinkDown(LinkId(1), Evidence.TIMED_OUT))
    assert [m for m in sent(differing(node, 6, link=2)) if isinstance(m, PageAsk)]


def test_page_is_asked_of_another_where_this_node_closed_the_link() -> None:
    node = node_of()
    address, later = PEERS.address_of(NodeId(1)), Incarnation(LIFE + 2**32)
    differing(node, 4)
    effects = node.step(5, LinkUp(LinkId(2), NodeId(1), later, address, UNKNOWN_INCARNATION, 2))
    assert any(isinstance(e, Close) and e.link == 1 for e in effects)
    # What had come before the goodbye is taken over, and nothing more asked for on this link.
    page = RecordPage(((NodeId(8), record()),), (), NodeId(9))
    effects = node.step(6, Received(LinkId(1), page))
    assert node.parts.context.membership.get(NodeId(8)) == record()
    assert not any(isinstance(m, PageAsk) for m in sent(effects))
    assert [m for m in sent(differing(node, 7, link=2)) if isinstance(m, PageAsk)]


def test_what_is_about_to_be_told_is_told_as_a_later_page_has_it() -> None:
    node = node_of()
    address = PEERS.address_of(NodeId(2))
    node.step(3, LinkUp(LinkId(2), NodeId(2), LIFE, address, UNKNOWN_INCARNATION, 2))
    differing(node, S)
    # The first page goes out at once, what comes within 5 ms is gathered.
    node.step(S + 1, Received(LinkId(1), RecordPage(((NodeId(8), record()),), (), NodeId(9))))
    told(node, S + 2, (9, record(Status.DEAD)))
    refuted = record()._replace(version=1)
    node.step(S + 3, Received(LinkId(1), RecordPage(((NodeId(9), refuted),), (), None)))
    effects = node.step(S + 6_000_000, DeadlineReached())
    rows = [row for m in sent(effects) if isinstance(m, Notice) for row in m.records]
    assert rows
    assert set(rows) == {(NodeId(9), refuted)}


def with_two_links() -> Node:
    node = node_of()
    address = PEERS.address_of(NodeId(2))
    node.step(3, LinkUp(LinkId(2), NodeId(2), LIFE, address, UNKNOWN_INCARNATION, 2))
    return node


def asked(effects: list[Effect]) -> list[tuple[LinkId, NodeId]]:
    """Which pages are asked for, and over which links."""
    sends = [effect for effect in effects if isinstance(effect, Send)]
    return [(e.link, e.message.after) for e in sends if isinstance(e.message, PageAsk)]


@pytest.mark.parametrize("following", [0, 17, 263, 264])
def test_fetch_ends_at_a_page_that_does_not_go_on(following: int) -> None:
    node = with_two_links()
    differing(node, 4)
    rows = tuple((NodeId(i), record()) for i in range(8, 264))
    effects = node.step(5, Received(LinkId(1), RecordPage(rows, (), NodeId(264))))
    assert asked(effects) == [(1, 264)]
    effects = node.step(6, Received(LinkId(1), RecordPage((), (), NodeId(following))))
    assert asked(effects) == []
    assert asked(differing(node, 7, link=2)) == [(2, 0)]


@pytest.mark.parametrize("way", ["no page", "one that does not go on", "the last at once"])
def test_fetch_from_a_peer_that_lies_holds_up_no_other_for_long(way: str) -> None:
    """One that says without end that its buckets differ, and has nothing."""
    node = with_two_links()
    following = {"one that does not go on": NodeId(0), "the last at once": None}
    is_asked, asked_of_other = False, 0
    for tick in range(1, 60 * 50):
        now_ns = tick * S // 50
        if is_asked and way in following:
            node.step(now_ns, Received(LinkId(1), RecordPage((), (), following[way])))
        is_asked = bool(asked(differing(node, now_ns, link=1)))
        # The other one finds that the digests differ once in a second.
        if tick % 50 == 0 and asked(differing(node, now_ns, link=2)):
            asked_of_other += 1
            node.step(now_ns, Received(LinkId(2), RecordPage((), (), None)))
    assert asked_of_other > 10


def test_fetch_of_many_pages_ends_after_a_while_if_another_peer_waits() -> None:
    node, now_ns, after = with_two_links(), 4, NodeId(0)
    differing(node, now_ns)
    while now_ns < FETCH_NS:
        after, now_ns = NodeId(after + 1), now_ns + S
        page = RecordPage((), (), after)
        assert asked(node.step(now_ns, Received(LinkId(1), page))) == [(1, after)]
    assert asked(differing(node, now_ns, link=2)) == []
    page = RecordPage((), (), NodeId(after + 1))
    assert asked(node.step(now_ns + S, Received(LinkId(1), page))) == []
    assert asked(differing(node, now_ns + S, link=1)) == []
    assert asked(differing(node, now_ns + S, link=2)) == [(2, 0)]


def test_fetch_keeps_few_of_those_that_rest() -> None:
    node, now_ns = node_of(), 4
    for link in range(2, 300):
        address = PEERS.address_of(NodeId(2))
        node.step(now_ns, LinkUp(LinkId(link), NodeId(2), LIFE, address, UNKNOWN_INCARNATION, link))
        differing(node, now_ns, link=link)
        differing(node, now_ns, link=1)
        node.step(now_ns, Received(LinkId(link), RecordPage((), (), None)))
        node.step(now_ns, LinkDown(LinkId(link), Evidence.GOODBYE))
        now_ns += S
    assert len(node.parts.comparison._rests_until_ns) < 8


def test_hundred_thousand_records_never_go_in_one_step() -> None:
    """A member asks for all that a large cluster has: each answer is a page, whatever differs."""
    node = node_of()
    membership = node.parts.context.membership
    for number in range(FOUNDERS, FOUNDERS + 100_000):
        membership.join(NodeId(number), record())
    effects = node.step(3, Received(LinkId(1), Buckets((7,) * BUCKETS, answer=True)))
    assert not any(isinstance(m, Notice) for m in sent(effects))
    answer = sent(node.step(4, Received(LinkId(1), PageAsk(NodeId(0), ALL))))
    assert [len(m.records) for m in answer if isinstance(m, RecordPage)] == [RECORDS_PER_NOTICE_MAX]


# --- joiners ----------------------------------------------------------------------------------------


def test_joiner_is_told_page_by_page() -> None:
    node = node_of()
    for number in range(FOUNDERS, FOUNDERS + 600):
        node.parts.context.membership.join(NodeId(number), record())
    effects = node.step(3, JoinAsked(LinkId(6), NodeId(700), LIFE, "joiner:1"))
    assert [e for e in effects if isinstance(e, Grant)] == [Grant(LinkId(6), NodeId(700))]
    after: NodeId | None = NodeId(0)
    counts = []
    while after is not None:
        effects = node.step(4, Received(LinkId(6), PageAsk(after, ALL)))
        (page,) = [m for m in sent(effects) if isinstance(m, RecordPage)]
        counts.append(len(page.records))
        after = page.following
    # With the record of the contact itself.
    assert counts == [256, 256, 89]


def test_stranger_is_told_nothing() -> None:
    node = node_of()
    assert not sent(node.step(3, Received(LinkId(6), PageAsk(NodeId(0), ALL))))


def test_joiner_that_asks_no_more_is_let_go_of() -> None:
    node = node_of()
    node.step(3, JoinAsked(LinkId(6), NodeId(700), LIFE, "joiner:1"))
    effects = pass_time(node, 4, 4 + PAGE_PATIENCE_NS)
    assert Close(LinkId(6), "granted") in effects


def test_no_id_is_given_where_too_many_have_a_record() -> None:
    node = node_of()
    membership = node.parts.context.membership
    membership._ids.extend(range(10**6, 10**6 + JOINED_MAX))
    for link in node.parts.links.table.values():
        link.agreed = True
    node.step(3, JoinAsked(LinkId(6), None, LIFE, "joiner:1"))
    before = membership.id_space
    pass_time(node, 4, S // 4)
    assert membership.id_space == before


def test_ids_above_all_known_ones_are_retired_at_a_rate() -> None:
    membership = fresh()
    membership.allowance.limit(0)
    last = NodeId(FOUNDERS + 2**23)
    assert membership.retire_run(NodeId(FOUNDERS), last)[1] == FOUNDERS + 2**22 - 1
    membership.allowance.limit(100 * 10**9)
    assert membership.retire_run(NodeId(FOUNDERS), last)[1] == FOUNDERS + 2**22 - 1 + 400_000
