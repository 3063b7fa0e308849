"""Streams that are kept open: which one is closed when there are too many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from bmgd.client.kept_streams import KEPT_MAX, KeptStreams
from bmgd.client.outgoing import Outgoing


@dataclass(eq=False)
class FakeStream:
    """What `KeptStreams` asks of a stream."""

    is_unused: bool = True
    over: bool = False

    def finish(self) -> None:
        self.over = True


def kept(streams: KeptStreams[Outgoing], key: int, stream: FakeStream) -> FakeStream:
    return cast(FakeStream, streams.get(key, lambda: cast(Outgoing, stream)))


def test_kept_streams_give_the_same_stream_until_it_is_over() -> None:
    streams: KeptStreams[Outgoing] = KeptStreams()
    first, second = FakeStream(), FakeStream()
    assert kept(streams, 1, first) is first
    assert kept(streams, 1, second) is first
    first.over = True
    assert kept(streams, 1, second) is second
    assert len(streams) == 1


def test_kept_streams_close_the_unused_one_that_is_idle_for_longest() -> None:
    streams: KeptStreams[Outgoing] = KeptStreams()
    made = [FakeStream() for _ in range(KEPT_MAX)]
    for key, stream in enumerate(made):
        kept(streams, key, stream)
    made[0].is_unused = False
    # The second is used again, so the third is idle for longest.
    kept(streams, 1, FakeStream())
    kept(streams, KEPT_MAX, FakeStream())
    assert [stream.over for stream in made[:4]] == [False, False, True, False]
    assert len(streams) == KEPT_MAX


def test_kept_streams_that_were_all_used_at_a_time_are_trimmed_when_they_are_not() -> None:
    streams: KeptStreams[Outgoing] = KeptStreams()
    made = [FakeStream(is_unused=False) for _ in range(KEPT_MAX + 3)]
    for key, stream in enumerate(made):
        kept(streams, key, stream)
    made[2].is_unused = True
    streams.trim(cast(Outgoing, made[1]))
    assert not any(stream.over for stream in made)
    streams.trim(cast(Outgoing, made[2]))
    assert [key for key, stream in enumerate(made) if stream.over] == [2]
    for stream in made:
        stream.is_unused = True
    streams.trim(cast(Outgoing, made[3]))
    assert [key for key, stream in enumerate(made) if stream.over] == [0, 1, 2]
    assert len(streams) == KEPT_MAX


def test_kept_streams_never_close_one_that_is_used() -> None:
    streams: KeptStreams[Outgoing] = KeptStreams()
    made = [FakeStream(is_unused=False) for _ in range(KEPT_MAX + 1)]
    for key, stream in enumerate(made):
        kept(streams, key, stream)
    assert not any(stream.over for stream in made)
    assert len(streams) == KEPT_MAX + 1
    streams.close_all()
    assert all(stream.over for stream in made)
    assert len(streams) == 0
