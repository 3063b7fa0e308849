"""The extension and the reference forward alike: every answer, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from bmgd import _fastroute
from bmgd import frameheader as header
from bmgd.routing import reference

Links = list[tuple[int, int]]
Chunk = tuple[int, list[tuple[int, bytes]], list[bytes], str | None]


def random_layout(random: Random) -> tuple[int, int, list[int], Links]:
    """(self id, id space, outside, links), the space between 1 and 2**31."""
    space = random.choice(
        (random.randint(1, 40), random.randint(1, 5000), 1 << random.randint(0, 31))
    )
    absent = random.choice((0, 0, random.randint(0, min(space, 300))))
    outside = sorted(random.sample(range(space), absent))
    own = random.randrange(space)
    peers: set[int] = set()
    if own not in outside:
        neighbors = reference.neighbor_ids(own, space, outside)
        peers.update(id for id in neighbors if random.random() < random.choice((0.3, 0.9, 1)))
    peers.update(random.randrange(min(space + 3, 2**31)) for _ in range(random.randint(0, 5)))
    peers.discard(own)
    ordered = sorted(peers)
    random.shuffle(ordered)
    ids = random.sample(range(1, 2**40), len(ordered))
    return own, space, outside, list(zip(ordered, ids, strict=True))


def both(
    layout: tuple[int, int, list[int], Links],
) -> tuple[_fastroute.Snapshot, reference.Snapshot]:
    return _fastroute.Snapshot(7, *layout), reference.Snapshot(7, *layout)


def random_frame(random: Random, space: int, busy: list[int]) -> bytes:
    """A well-formed frame, mostly routed, mostly to an id that exists."""
    fields = (
        random.choice(
            (random.randint(0x40, 0x7F), random.randint(0x40, 0x7F), random.randint(1, 0x7F))
        ),
        random.choice((0, 0, 0, 4, 0xFC, random.randrange(256))),
        random.randrange(256),
        random.choice((0, 1, 255, random.randrange(256))),
        random.choice((random.randrange(space), random.choice(busy), random.randrange(2**32))),
        random.randrange(2**32),
        random.randrange(2**64),
        random.randrange(2**32),
        random.randrange(2**64),
    )
    rest = random.randbytes(random.choice((0, 0, 3, random.randint(0, 400))))
    body = bytes((random.randint(0x91, 0x9F), 0xC4, 32)) + header.HEADER.pack(*fields) + rest
    return len(body).to_bytes(4, "big") + body


def pieces(random: Random, stream: bytes) -> Iterator[bytes]:
    """The stream as a socket might hand it over."""
    at = 0
    while at < len(stream):
        size = random.choice((1, random.randint(1, 60), random.randint(1, 4000), len(stream)))
        yield stream[at : at + size]
        at += size


def assert_split_alike(
    fast: _fastroute.Snapshot, slow: reference.Snapshot, buffer: bytearray, end: int, back: int
) -> Chunk:
    fast_buffer, slow_buffer = bytearray(buffer), bytearray(buffer)
    answer = fast.split(fast_buffer, end, back)
    assert answer == slow.split(slow_buffer, end, back)
    assert fast_buffer == slow_buffer
    return answer


@pytest.mark.parametrize("seed", range(150))
def test_split_answers_alike_for_well_formed_streams(seed: int) -> None:
    random = Random(seed)
    own, space, _, links = layout = random_layout(random)
    fast, slow = both(layout)
    busy = [own, *(peer for peer, _ in links)]
    frames = [random_frame(random, space, busy) for _ in range(random.randint(1, 120))]
    back = random.choice((-1, *busy))
    held, parsed = bytearray(), 0
    for piece in pieces(random, b"".join(frames)):
        held += piece
        slack = random.randbytes(random.randint(0, 9))
        consumed, runs, core, error = assert_split_alike(fast, slow, held + slack, len(held), back)
        assert error is None
        assert sum(len(run) for _, run in runs) + sum(len(body) + 4 for body in core) == consumed
        del held[:consumed]
        parsed += consumed
    assert parsed == sum(map(len, frames))
    assert not held


@pytest.mark.parametrize("seed", range(150))
def test_split_answers_alike_for_damaged_streams(seed: int) -> None:
    random = Random(1000 + seed)
    own, space, _, links = layout = random_layout(random)
    fast, slow = both(layout)
    busy = [own, *(peer for peer, _ in links)]
    for _ in range(10):
        count = random.randint(1, 30)
        stream = bytearray(b"".join(random_frame(random, space, busy) for _ in range(count)))
        for _ in range(random.randint(1, 6)):
            stream[random.randrange(len(stream))] = random.randrange(256)
        assert_split_alike(fast, slow, stream, random.randint(0, len(stream)), -1)


def test_split_answers_alike_for_random_bytes() -> None:
    random = Random(2)
    for _ in range(400):
        layout = random_layout(random)
        fast, slow = both(layout)
        for _ in range(10):
            noise = bytearray(random.randbytes(random.randint(0, 300)))
            # A plausible start lets the noise get past the length and the array's first bytes.
            known = bytes((0, 0, 0, random.randint(30, 90), 0x92, 0xC4, 0x20))
            noise[: len(known)] = known[: random.randint(0, len(known))]
            assert_split_alike(fast, slow, noise, random.randint(0, len(noise)), -1)


def test_split_answers_alike_for_more_frames_and_links_than_fit_on_the_stack() -> None:
    random = Random(3)
    space = 5000
    links = [(peer, peer + 1) for peer in range(1, 700)]
    fast, slow = both((0, space, [], links))
    busy = [peer for peer, _ in links]
    stream = bytearray(b"".join(random_frame(random, space, busy) for _ in range(4000)))
    consumed, runs, core, error = assert_split_alike(fast, slow, stream, len(stream), 5)
    assert (consumed, error) == (len(stream), None)
    assert len(runs) > 300
    assert len(core) > 300


def test_next_hop_answers_alike() -> None:
    random = Random(4)
    answers = set()
    for _ in range(1500):
        own, space, outside, links = layout = random_layout(random)
        fast, slow = both(layout)
        assert [getattr(fast, name) for name in ("generation", "self_id", "id_space")] == [
            7,
            own,
            space,
        ]
        assert (fast.layout_size, fast.rank) == (slow.layout_size, slow.rank)
        assert fast.layout_size == space - len(outside)
        for _ in range(20):
            to = random.choice((random.randrange(space), random.randrange(2**32)))
            back = random.choice((-1, own, *(peer for peer, _ in links)))
            flow = random.choice((random.randrange(2**64), random.randrange(1000)))
            answer = fast.next_hop(to, back, flow)
            assert answer == slow.next_hop(to, back, flow)
            answers.add(answer)
    assert len(answers) > 1000


def test_ranks_and_neighbors_answer_alike() -> None:
    random = Random(5)
    for _ in range(2000):
        own, space, outside, _ = random_layout(random)
        assert _fastroute.id_of(own, outside) == reference.id_of(own, outside)
        if own in outside:
            for backend in (_fastroute, reference):
                with pytest.raises(ValueError, match="outside"):
                    backend.rank_of(own, outside)
                with pytest.raises(ValueError, match="outside"):
                    backend.neighbor_ids(own, space, outside)
            continue
        assert _fastroute.rank_of(own, outside) == reference.rank_of(own, outside)
        expected = reference.neighbor_ids(own, space, outside)
        assert _fastroute.neighbor_ids(own, space, tuple(outside)) == expected
        changes = reference.link_changes(space, own, outside)
        assert _fastroute.link_changes(space, own, outside) == changes
