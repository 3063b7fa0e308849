"""The forwarding snapshot: next hops and the relay's splitter, in both backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bmgd import _fastroute
from bmgd import frameheader as header
from bmgd.errors import GraphError
from bmgd.routing import reference
from bmgd.topology import BinomialGraph

Snapshot = _fastroute.Snapshot | reference.Snapshot
Make = Callable[[int, int, int, Sequence[int], Sequence[tuple[int, int]]], Snapshot]

both_backends = pytest.mark.parametrize(
    "make",
    [pytest.param(_fastroute.Snapshot, id="c"), pytest.param(reference.Snapshot, id="python")],
)


def linked_to_neighbors(make: Make, size: int, own: int) -> Snapshot:
    """Every neighbor is linked; the link id is 1000 + the peer's id."""
    neighbors = reference.neighbor_ids(own, size, ())
    return make(1, own, size, (), [(peer, 1000 + peer) for peer in neighbors])


def frame(
    destination: int = 0,
    *,
    kind: int = 0x40,
    flags: int = 0,
    budget: int = 9,
    source: int = 1,
    tail: bytes = b"",
) -> bytes:
    packed = header.HEADER.pack(kind, flags, 0, budget, destination, source, 0, 0, 0)
    body = b"\x92\xc4\x20" + packed + tail
    return len(body).to_bytes(4, "big") + body


def spent(whole: bytes) -> bytes:
    """The frame with one hop less in its budget."""
    at = header.LENGTH_BYTES + header.BODY_PREFIX_BYTES + header.HOP_BUDGET_AT
    return whole[:at] + bytes((whole[at] - 1,)) + whole[at + 1 :]


@both_backends
def test_attributes_are_read_only(make: Make) -> None:
    snapshot = make(5, 4, 10, (1, 2), ())
    names = ("generation", "self_id", "id_space", "layout_size", "rank")
    assert [getattr(snapshot, name) for name in names] == [5, 4, 10, 8, 2]
    for name in names:
        with pytest.raises(AttributeError):
            setattr(snapshot, name, 1)


@both_backends
@pytest.mark.parametrize(
    "arguments",
    [
        (-1, 0, 10, (), ()),
        (2**63, 0, 10, (), ()),
        (0, 10, 10, (), ()),
        (0, -1, 10, (), ()),
        (0, 0, 0, (), ()),
        (0, 0, 2**31 + 1, (), ()),
        (0, 0, 10, (10,), ()),
        (0, 0, 10, (-1,), ()),
        (0, 0, 10, (3, 2), ()),
        (0, 0, 10, (3, 3), ()),
        (0, 0, 10, (), ((0, 1),)),
        (0, 0, 10, (), ((-1, 1),)),
        (0, 0, 10, (), ((2**31, 1),)),
        (0, 0, 10, (), ((1, 0),)),
        (0, 0, 10, (), ((1, 2**63),)),
        (0, 0, 10, (), ((1, 1), (1, 2))),
        (0, 0, 10, (), ((1, 1), (2, 1))),
        (0, 0, 10, (), ((1, 2, 3),)),
    ],
)
def test_construction_refuses_nonsense(
    make: Make, arguments: tuple[int, int, int, Sequence[int], Sequence[tuple[int, int]]]
) -> None:
    with pytest.raises(ValueError):
        make(*arguments)


@both_backends
def test_next_hop_is_one_hop_closer(make: Make) -> None:
    for size in (2, 3, 5, 8, 12, 23, 64, 97):
        graph = BinomialGraph(size)
        snapshot = linked_to_neighbors(make, size, 1)
        for to in range(size):
            if to != 1:
                peer = snapshot.next_hop(to, -1, to) - 1000
                assert peer in graph.next_hops(1, to)


@both_backends
def test_next_hop_spreads_flows_over_every_optimal_neighbor(make: Make) -> None:
    snapshot = linked_to_neighbors(make, 1024, 0)
    expected = {1000 + rank for rank in BinomialGraph(1024).next_hops(0, 341)}
    assert len(expected) > 3
    chosen = [snapshot.next_hop(341, -1, flow) for flow in range(1000)]
    assert set(chosen) == expected
    fair = 1000 / len(expected)
    assert all(0.7 * fair < chosen.count(link) < 1.4 * fair for link in expected)


@both_backends
def test_next_hop_keeps_the_path_of_a_flow(make: Make) -> None:
    for flow in range(50):
        first, second = (linked_to_neighbors(make, 1024, 0) for _ in range(2))
        assert first.next_hop(341, -1, flow) == second.next_hop(341, -1, flow)


@both_backends
def test_next_hop_avoids_where_the_message_came_from(make: Make) -> None:
    snapshot = linked_to_neighbors(make, 1024, 0)
    optimal = BinomialGraph(1024).next_hops(0, 341)
    for back in optimal:
        chosen = {snapshot.next_hop(341, back, flow) for flow in range(200)}
        assert chosen == {1000 + rank for rank in optimal if rank != back}


@both_backends
def test_next_hop_is_none_where_the_only_live_one_is_where_the_message_came_from(
    make: Make,
) -> None:
    (only, *_) = BinomialGraph(1024).next_hops(0, 341)
    snapshot = make(1, 0, 1024, (), [(only, 8)])
    assert snapshot.next_hop(341) == 8
    assert snapshot.next_hop(341, only) == -1


@both_backends
def test_next_hop_never_leaves_the_shortest_paths(make: Make) -> None:
    optimal = BinomialGraph(1024).next_hops(0, 341)
    others = [rank for rank in BinomialGraph(1024).neighbors(0) if rank not in optimal]
    snapshot = make(1, 0, 1024, (), [(rank, rank) for rank in others])
    assert snapshot.next_hop(341) == -1


@both_backends
def test_next_hop_takes_a_direct_link_wherever_it_comes_from(make: Make) -> None:
    snapshot = make(1, 0, 1024, (), [(341, 5), (1, 6)])
    assert snapshot.next_hop(341) == 5
    assert snapshot.next_hop(341, 341) == 5


@both_backends
def test_next_hop_is_none_without_ranks_and_to_oneself(make: Make) -> None:
    links = [(1, 11), (3, 13), (12, 14)]
    snapshot = make(1, 0, 10, (3,), links)
    assert [snapshot.next_hop(to) for to in (0, 3, 10, 12, 2**32 - 1)] == [-1] * 5
    outsider = make(1, 3, 10, (3,), [(1, 11)])
    assert outsider.rank == -1
    assert [outsider.next_hop(to) for to in range(10)] == [-1] * 10
    assert make(1, 0, 1, (), ()).next_hop(0) == -1
    assert make(1, 0, 1, (0,), ()).next_hop(0) == -1


@both_backends
def test_next_hop_refuses_what_is_out_of_range(make: Make) -> None:
    snapshot = make(1, 0, 10, (), [(1, 11)])
    for arguments in ((-1,), (2**32,), (1, -2), (1, 2**32), (1, -1, -1), (1, -1, 2**64)):
        with pytest.raises(GraphError):
            snapshot.next_hop(*arguments)


@both_backends
def test_split_relays_with_one_hop_less_in_one_run_per_link(make: Make) -> None:
    snapshot = make(1, 0, 8, (), [(1, 11), (2, 12)])
    frames = [frame(1, tail=b"a"), frame(2, budget=1), frame(1, budget=255, tail=b"b" * 900)]
    buffer = bytearray(b"".join(frames))
    consumed, runs, core, error = snapshot.split(buffer, len(buffer), -1)
    assert (consumed, core, error) == (len(buffer), [], None)
    assert runs == [(11, spent(frames[0]) + spent(frames[2])), (12, spent(frames[1]))]


@both_backends
@pytest.mark.parametrize(
    "for_core",
    [
        frame(0),
        frame(1, kind=0x01),
        frame(1, kind=0x3F, budget=0),
        frame(1, flags=header.FLAG_CAREFUL),
        frame(1, flags=header.FLAG_RECORD),
        frame(1, flags=0xFF),
        frame(1, budget=0),
        frame(5),
        frame(3),
        frame(2**32 - 1),
    ],
)
def test_split_leaves_frames_for_the_core_as_they_are(make: Make, for_core: bytes) -> None:
    snapshot = make(1, 0, 8, (3,), [(1, 11)])
    relayed = frame(1, flags=0xFC)
    buffer = bytearray(for_core + relayed + for_core)
    consumed, runs, core, error = snapshot.split(buffer, len(buffer), -1)
    assert (consumed, error) == (len(buffer), None)
    assert core == [for_core[4:]] * 2
    assert runs == [(11, spent(relayed))]


@both_backends
def test_split_does_not_send_back_where_frames_came_from(make: Make) -> None:
    (only, *_) = BinomialGraph(1024).next_hops(0, 341)
    snapshot = make(1, 0, 1024, (), [(only, 8)])
    whole = frame(341)
    assert snapshot.split(bytearray(whole), len(whole), -1)[1] == [(8, spent(whole))]
    assert snapshot.split(bytearray(whole), len(whole), only)[2] == [whole[4:]]


@both_backends
def test_split_takes_the_path_that_next_hop_takes(make: Make) -> None:
    snapshot = linked_to_neighbors(make, 1024, 0)
    for source in range(100):
        whole = frame(341, source=source)
        ((link, _),) = snapshot.split(bytearray(whole), len(whole), -1)[1]
        assert link == snapshot.next_hop(341, -1, header.flow_of(source, 341))


@both_backends
def test_split_waits_for_the_rest_of_a_frame(make: Make) -> None:
    snapshot = make(1, 0, 8, (), [(1, 11)])
    whole = frame(1) + frame(0)
    first = len(frame(1))
    for end in range(len(whole)):
        consumed, runs, core, error = snapshot.split(bytearray(whole), end, -1)
        assert (consumed, len(runs), core, error) == (
            (0, 0, [], None) if end < first else (first, 1, [], None)
        )


@both_backends
@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        ((34).to_bytes(4, "big"), header.BAD_LENGTH),
        ((83_969).to_bytes(4, "big"), header.BAD_LENGTH),
        (b"\xff\xff\xff\xff", header.BAD_LENGTH),
        (b"\0\0\0\0", header.BAD_LENGTH),
        (frame().replace(b"\x92", b"\x90", 1), header.BAD_HEADER),
        (frame().replace(b"\x92", b"\xa0", 1), header.BAD_HEADER),
        (frame().replace(b"\xc4", b"\xc5", 1), header.BAD_HEADER),
        (frame().replace(b"\xc4\x20", b"\xc4\x1f", 1), header.BAD_HEADER),
        (frame(kind=0x00), header.BAD_KIND),
        (frame(kind=0x80), header.BAD_KIND),
        (frame(kind=0xFF), header.BAD_KIND),
    ],
)
def test_split_stops_at_malformed_bytes(make: Make, damaged: bytes, reason: str) -> None:
    snapshot = make(1, 0, 8, (), [(1, 11)])
    sound = frame(1) + frame(0)
    buffer = bytearray(sound + damaged + frame(1))
    consumed, runs, core, error = snapshot.split(buffer, len(buffer), -1)
    assert (consumed, error) == (len(sound), reason)
    assert runs == [(11, spent(frame(1)))]
    assert core == [frame(0)[4:]]
    assert buffer[len(sound) :] == damaged + frame(1)


@both_backends
def test_split_takes_the_shortest_and_the_longest_frame(make: Make) -> None:
    snapshot = make(1, 0, 8, (), [(1, 11)])
    longest = frame(1, tail=bytes(header.FRAME_BYTES_MAX - header.BODY_BYTES_MIN))
    for whole in (frame(1), longest):
        assert snapshot.split(bytearray(whole), len(whole), -1) == (
            len(whole),
            [(11, spent(whole))],
            [],
            None,
        )


@both_backends
def test_split_refuses_an_end_beyond_the_buffer(make: Make) -> None:
    snapshot = make(1, 0, 8, (), ())
    for end, back in ((11, -1), (-1, -1), (2**70, -1), (0, -2), (0, 2**32)):
        with pytest.raises(GraphError):
            snapshot.split(bytearray(10), end, back)


@both_backends
@pytest.mark.parametrize("count", [1023, 1024, 1025, 5000])
def test_split_takes_any_number_of_the_shortest_frames(make: Make, count: int) -> None:
    """The scratch space of the extension is counted in frames of this length."""
    snapshot = make(1, 0, 8, (), [(1, 11)])
    for to, is_relayed in ((1, True), (0, False)):
        stream = frame(to) * count
        assert len(stream) == count * (header.LENGTH_BYTES + header.BODY_BYTES_MIN)
        consumed, runs, core, error = snapshot.split(bytearray(stream), len(stream), -1)
        assert (consumed, error) == (len(stream), None)
        assert runs == ([(11, spent(frame(1)) * count)] if is_relayed else [])
        assert core == ([] if is_relayed else [frame(0)[4:]] * count)


@both_backends
@pytest.mark.parametrize("count", [127, 128, 129, 1000])
def test_split_takes_any_number_of_links(make: Make, count: int) -> None:
    """The scratch space of the extension is on the stack up to a number of links."""
    snapshot = make(1, 0, 2000, (), [(peer, 5000 + peer) for peer in range(1, count + 1)])
    stream = b"".join(frame(peer) for peer in range(count, 0, -1))
    consumed, runs, core, error = snapshot.split(bytearray(stream), len(stream), -1)
    assert (consumed, core, error) == (len(stream), [], None)
    assert runs == [(5000 + peer, spent(frame(peer))) for peer in range(count, 0, -1)]
