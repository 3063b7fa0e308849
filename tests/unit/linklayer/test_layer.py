"""The link layer: what happens to a frame that came, and to one that goes, over every engine there is."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from bmgd.frameheader import ROUTED_FIRST
from bmgd.linklayer import LinkEngine, LinkLayer
from bmgd.linklayer.contract import (
    BACKLOG_HIGH_BYTES,
    BACKLOG_LOW_BYTES,
    BACKLOGGED,
    BULK,
    CLOSED,
    CONTROL,
    DROPPED,
    END,
    FRAME,
    GOODBYE,
    HIGH,
    KNOWN_NOTICES_MAX,
    MALFORMED,
    NO_LINK,
    OVER_BOUND,
    PUT,
    RAW,
    RETURNED,
    URGENT,
    WRITABLE,
    WRITTEN,
)
from bmgd.linklayer.frames import frame_end
from bmgd.linklayer.outbox import (
    BULK_BYTES_MAX,
    BULK_TURN_BYTES,
    CONTROL_BYTES_MAX,
    HIGH_BYTES_MAX,
    URGENT_BYTES_MAX,
)
from bmgd.routing import Snapshot
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Heartbeat
from tests.unit.linklayer.engines import (
    ENGINES,
    body,
    data,
    goodbye,
    hopped,
    notice,
    ping,
    snapshot,
)

LEFT, RIGHT = 11, 12
"""The links to the nodes 1 and 2."""
ALL = 1 << 30


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[LinkEngine]:
    """An engine with two links that are up."""
    make: Callable[[], LinkEngine] = ENGINES[request.param]
    engine = make()
    engine.adopt(-1, LEFT, 1)
    engine.adopt(-1, RIGHT, 2)
    engine.publish(snapshot({1: LEFT, 2: RIGHT}))
    yield engine
    for link in (LEFT, RIGHT):
        engine.close(link)


def taken(engine: LinkEngine, link: int, limit: int = ALL) -> bytes:
    """What a link writes next."""
    return engine.take(link, limit)


# --- frames that came -------------------------------------------------------------------------------


def test_layer_relays_a_frame_by_the_snapshot_and_takes_one_hop_off(engine: LinkEngine) -> None:
    engine.feed(LEFT, data(2, "x"))
    assert engine.poll() == []
    assert taken(engine, RIGHT) == hopped(data(2, "x"))
    totals = engine.totals()
    assert (totals["relayed_runs"], totals["relayed_frames"]) == (1, 1)
    assert totals["relayed_bytes"] == totals["sent_bytes"] == len(data(2, "x"))


def test_layer_relays_by_who_is_at_the_other_end_of_a_link_now(engine: LinkEngine) -> None:
    third = 13
    engine.adopt(-1, third, -1)
    # Node 1 of 8: to node 4 it is two hops by node 0 and by node 2.
    engine.publish(Snapshot(2, 1, 8, (), [(0, RIGHT), (2, third)]))
    engine.promote(LEFT, 5)
    engine.feed(LEFT, data(4, "x"))
    assert taken(engine, RIGHT) == hopped(data(4, "x"))
    engine.promote(LEFT, 0)
    engine.feed(LEFT, data(4, "x"))
    assert taken(engine, RIGHT) == b""
    assert taken(engine, third) == hopped(data(4, "x"))
    engine.close(third)


@pytest.mark.parametrize("arguments", [((), {"now": 1}), ((1,), {"now_ns": 1}), ((1, 2), {})])
def test_layer_refuses_arguments_that_a_call_does_not_have(
    engine: LinkEngine, arguments: tuple[tuple[int, ...], dict[str, int]]
) -> None:
    with pytest.raises(TypeError):
        engine.poll(*arguments[0], **arguments[1])


def test_layer_looks_at_each_frame_of_many_that_are_nearly_alike(engine: LinkEngine) -> None:
    alike = data(2, "a")
    spent, local = bytearray(alike), bytearray(alike)
    spent[4 + 3 + 3] = 0
    local[4 + 3] = ROUTED_FIRST - 1
    for_core = [bytes(spent), bytes(local)]
    back, urgent = data(1, "a"), data(2, "a", priority=0)
    passed = [data(2, "ab"), data(2, "a", source=6)]
    strange = [*for_core, back, urgent, *passed]
    engine.feed(LEFT, b"".join(alike * 3 + frame for frame in strange) + alike[:-1])
    assert engine.poll() == [(LEFT, FRAME, body(frame)) for frame in for_core]
    assert taken(engine, LEFT) == hopped(back)
    bulk = hopped(alike) * 3 * len(strange)
    for number, frame in enumerate(passed):
        at = len(alike) * 3 * (len(strange) - 1 + number) + sum(map(len, passed[:number]))
        bulk = bulk[:at] + hopped(frame) + bulk[at:]
    assert taken(engine, RIGHT) == hopped(urgent) + bulk
    engine.feed(LEFT, alike[-1:])
    assert taken(engine, RIGHT) == hopped(alike)


def test_layer_sends_a_flow_another_way_with_the_next_snapshot(engine: LinkEngine) -> None:
    engine.feed(LEFT, data(2))
    assert taken(engine, RIGHT) == hopped(data(2))
    engine.publish(snapshot({1: RIGHT, 2: LEFT}, 2))
    engine.feed(LEFT, data(2))
    assert taken(engine, LEFT) == hopped(data(2))


def test_layer_hands_what_is_for_this_node_to_the_core_in_order(engine: LinkEngine) -> None:
    engine.feed(LEFT, ping(1) + data(0, "x") + ping(2))
    assert engine.poll() == [
        (LEFT, FRAME, body(ping(1))),
        (LEFT, FRAME, body(data(0, "x"))),
        (LEFT, FRAME, body(ping(2))),
    ]


def test_layer_hands_all_frames_to_the_core_before_the_first_snapshot() -> None:
    for make in ENGINES.values():
        engine = make()
        engine.adopt(-1, LEFT, 1)
        engine.feed(LEFT, data(2))
        assert engine.poll() == [(LEFT, FRAME, body(data(2)))]


def test_layer_joins_frames_that_come_in_pieces(engine: LinkEngine) -> None:
    for byte in ping(1) + data(2, "abc") + ping(2):
        engine.feed(LEFT, bytes((byte,)))
    assert engine.poll() == [(LEFT, FRAME, body(ping(1))), (LEFT, FRAME, body(ping(2)))]
    assert taken(engine, RIGHT) == hopped(data(2, "abc"))


def test_layer_returns_what_its_snapshot_leads_to_a_link_that_is_gone(engine: LinkEngine) -> None:
    engine.close(RIGHT)
    engine.feed(LEFT, data(2, "a") + data(2, "b"))
    assert engine.poll() == [
        (LEFT, RETURNED, body(hopped(data(2, "a")))),
        (LEFT, RETURNED, body(hopped(data(2, "b")))),
    ]
    assert engine.totals()["returned_frames"] == 2


def test_layer_returns_what_its_snapshot_leads_to_a_link_that_was_shut(engine: LinkEngine) -> None:
    engine.shut(RIGHT, goodbye())
    engine.feed(LEFT, data(2, "a"))
    assert engine.poll() == [(LEFT, RETURNED, body(hopped(data(2, "a"))))]
    assert taken(engine, RIGHT) == goodbye()


def test_layer_sends_nothing_back_once_it_knows_who_is_at_the_other_end() -> None:
    for make in ENGINES.values():
        engine = make()
        engine.adopt(-1, LEFT, -1)
        engine.publish(snapshot({1: LEFT}))
        engine.feed(LEFT, data(3))
        assert taken(engine, LEFT) == hopped(data(3))
        engine.promote(LEFT, 1)
        engine.feed(LEFT, data(3))
        assert engine.poll() == [(LEFT, FRAME, body(data(3)))]
        engine.promote(RIGHT, 1)


RECORD = (NodeId(3), Record(Incarnation(1 << 32), 0, Status.DEAD, "h:1"))


def test_layer_absorbs_a_known_notice_and_counts_its_link_as_heard(engine: LinkEngine) -> None:
    told = notice(RECORD)
    engine.feed(LEFT, told)
    assert engine.poll() == [(LEFT, FRAME, body(told))]
    engine.feed(RIGHT, told)
    assert engine.poll() == [(RIGHT, FRAME, body(told))]
    engine.know(body(told))
    engine.feed(RIGHT, told)
    assert engine.poll() == []
    assert engine.totals()["absorbed_frames"] == 1
    assert engine.heard() == (RIGHT,)
    assert engine.heard() == ()


def test_layer_forgets_the_notice_that_it_has_known_longest(engine: LinkEngine) -> None:
    def told(number: int) -> bytes:
        return notice((NodeId(number), RECORD[1]))

    for number in range(KNOWN_NOTICES_MAX):
        engine.know(body(told(number)))
    engine.know(body(told(0)))  # Known already: makes no room.
    engine.feed(LEFT, told(0))
    assert engine.poll() == []
    engine.know(body(told(KNOWN_NOTICES_MAX)))
    engine.feed(LEFT, told(0))
    engine.feed(LEFT, told(1))
    assert engine.poll() == [(LEFT, FRAME, body(told(0)))]


DIGEST = 12345 << 90


def beat(sequence: int, echo: int, digest: int = DIGEST, *, answer: bool = True) -> bytes:
    return encode(Heartbeat(sequence, echo, digest, answer))


def absorb(engine: LinkEngine, *links: int, digest: int = DIGEST) -> None:
    engine.absorb_heartbeats(digest.to_bytes(16, "big"), links)


def test_layer_absorbs_equal_heartbeats_and_keeps_the_highest_of_each_link(
    engine: LinkEngine,
) -> None:
    absorb(engine, LEFT, RIGHT, 999)
    engine.feed(LEFT, beat(70_000, 5) + beat(300, 2**64 - 1, answer=False) + beat(9, 0))
    engine.feed(RIGHT, beat(1, 0))
    assert engine.poll(7_000) == []
    engine.feed(RIGHT, beat(2, 1))
    assert engine.absorbed_heartbeats() == ((LEFT, 7_000, 70_000, 2**64 - 1, 3),)
    assert engine.poll(8_000) == []
    assert engine.absorbed_heartbeats() == ((RIGHT, 8_000, 2, 1, 2),)
    assert engine.absorbed_heartbeats() == ()
    assert engine.totals()["absorbed_frames"] == 5
    assert engine.heard() == ()


def test_layer_leaves_heartbeats_to_the_core_that_it_was_not_told_to_absorb(
    engine: LinkEngine,
) -> None:
    engine.feed(LEFT, beat(1, 0))
    absorb(engine, RIGHT)
    engine.feed(LEFT, beat(2, 0))
    engine.feed(RIGHT, beat(1, 0, DIGEST + 1))
    absorb(engine, LEFT)
    engine.feed(RIGHT, beat(2, 0))
    left, right = (LEFT, FRAME), (RIGHT, FRAME)
    assert [(link, what) for link, what, _ in engine.poll()] == [left, left, right, right]
    assert engine.absorbed_heartbeats() == ()


@pytest.mark.parametrize(
    "changed",
    [
        lambda frame: frame[:4] + b"\x96" + frame[5:] + b"\xc0",
        lambda frame: frame[:-1] + b"\x01",
        lambda frame: frame + b"\xc0",
        lambda frame: frame[:-1],
        lambda frame: frame[:39] + b"\x00" + frame[40:],
        lambda frame: frame[:39] + b"\xd0\x05" + frame[40:],
        lambda frame: frame[:39] + b"\xff" + frame[40:],
        lambda frame: frame[:40] + b"\xcf",
        lambda frame: frame[:39],
        lambda frame: frame[:41] + b"\xc4\x0f" + frame[44:],
        lambda frame: frame[:7] + b"\x05" + frame[8:],
    ],
)
def test_layer_absorbs_nothing_that_is_not_surely_an_equal_heartbeat(
    engine: LinkEngine, changed: Callable[[bytes], bytes]
) -> None:
    absorb(engine, LEFT)
    made = changed(beat(1, 2))
    frame = (len(made) - 4).to_bytes(4, "big") + made[4:]
    engine.feed(LEFT, frame)
    told = engine.poll()
    assert [(link, what) for link, what, _ in told] in ([(LEFT, FRAME)], [(LEFT, MALFORMED)])
    assert engine.absorbed_heartbeats() == ()


def test_layer_takes_a_number_of_a_heartbeat_in_each_width(engine: LinkEngine) -> None:
    absorb(engine, LEFT)
    frame = beat(1, 2)
    for prefix in (b"\xcc", b"\xcd\0", b"\xce\0\0\0", b"\xcf" + bytes(7)):
        made = frame[4:39] + prefix + frame[39:]
        engine.feed(LEFT, len(made).to_bytes(4, "big") + made)
    assert engine.poll(3) == []
    assert engine.absorbed_heartbeats() == ((LEFT, 3, 1, 2, 4),)


def test_layer_absorbs_nothing_on_a_link_that_was_shut_and_forgets_what_ended(
    engine: LinkEngine,
) -> None:
    absorb(engine, LEFT, RIGHT)
    engine.feed(RIGHT, beat(1, 0))
    engine.shut(LEFT, goodbye())
    absorb(engine, LEFT, RIGHT)
    engine.feed(LEFT, beat(1, 0))
    assert [what for _, what, _ in engine.poll()] == [FRAME]
    engine.close(RIGHT)
    assert engine.absorbed_heartbeats() == ()


def test_layer_refuses_a_digest_of_another_length(engine: LinkEngine) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        engine.absorb_heartbeats(bytes(15), ())


def test_layer_hears_a_link_whose_frames_were_relayed(engine: LinkEngine) -> None:
    engine.feed(LEFT, data(2))
    assert engine.heard() == (LEFT,)
    engine.feed(LEFT, ping(1))
    assert engine.heard() == ()


@pytest.mark.parametrize("bytes_", [b"\0\0\0\x01x", b"\0\0\0\x23" + bytes(35), b"\xff" * 8])
def test_layer_ends_a_link_on_bytes_that_are_no_frames(engine: LinkEngine, bytes_: bytes) -> None:
    engine.put(LEFT, data(1, "unsent"), BULK)
    engine.feed(LEFT, ping(1) + bytes_ + ping(2))
    frame, malformed, returned = engine.poll()
    assert frame == (LEFT, FRAME, body(ping(1)))
    assert malformed[:2] == (LEFT, MALFORMED)
    assert isinstance(malformed[2], str)
    assert returned == (LEFT, RETURNED, body(data(1, "unsent")))
    engine.feed(LEFT, ping(3))
    assert engine.poll() == []
    assert engine.put(LEFT, ping(1), CONTROL) == NO_LINK


# --- frames that go ---------------------------------------------------------------------------------


def test_layer_lets_control_and_urgent_frames_overtake_bulk(engine: LinkEngine) -> None:
    engine.put(LEFT, data(1, "bulk"), BULK)
    engine.put(LEFT, ping(1), CONTROL)
    engine.put(LEFT, data(1, "urgent", 0), URGENT)
    engine.put(LEFT, b"raw", RAW)
    assert taken(engine, LEFT) == b"raw" + ping(1) + data(1, "urgent", 0) + data(1, "bulk")


def test_layer_lets_high_frames_overtake_bulk_and_control_overtake_them(engine: LinkEngine) -> None:
    high = data(1, "high", 1)
    engine.put(LEFT, data(1, "a") + data(1, "b"), BULK)
    begun = taken(engine, LEFT, 9)
    engine.put(LEFT, high, HIGH)
    engine.put(LEFT, ping(1), CONTROL)
    assert begun + taken(engine, LEFT) == data(1, "a") + ping(1) + high + data(1, "b")
    # Relayed ones too.
    engine.feed(LEFT, data(2, "a") + data(2, "b", 3) + data(2, "c", 1))
    passed = [hopped(frame) for frame in (data(2, "c", 1), data(2, "a"), data(2, "b", 3))]
    assert taken(engine, RIGHT) == b"".join(passed)


def test_layer_drops_high_frames_at_a_bound_of_their_own(engine: LinkEngine) -> None:
    each = data(1, "x" * 60_000, 1)
    fits = HIGH_BYTES_MAX // len(each)
    assert [engine.put(LEFT, each, HIGH) for _ in range(fits)] == [PUT] * fits
    assert engine.put(LEFT, each, HIGH) == DROPPED
    assert engine.put(LEFT, data(1), BULK) == PUT
    assert engine.put(LEFT, data(1, "", 0), URGENT) == PUT


@pytest.mark.parametrize("piece_bytes", [999, 70_001, 1_500_000])
@pytest.mark.parametrize("text_bytes", [2000, 60_000])
def test_layer_keeps_an_eighth_of_a_link_for_bulk_that_others_overtake(
    engine: LinkEngine, text_bytes: int, piece_bytes: int
) -> None:
    high, bulk = data(1, "h" * 5000, 1), data(1, "b" * text_bytes)
    count = 400_000 // len(bulk)
    engine.put(LEFT, bulk * count, BULK)
    got = bytearray()
    while len(got) < 8 * 400_000 + 2 * BULK_TURN_BYTES:
        while engine.put(LEFT, high, HIGH) == PUT:
            pass
        got += taken(engine, LEFT, piece_bytes)
    written, at, sent, passed = bytes(got), 0, 0, 0
    while sent < count * len(bulk):
        end = frame_end(written, at)
        sent, passed = (
            (sent + end - at, passed) if written[at:end] == bulk else (sent, passed + end - at)
        )
        assert passed < 7 * sent + BULK_TURN_BYTES + len(high)
        turns = 1 + passed // BULK_TURN_BYTES
        assert 7 * sent <= passed + 7 * len(bulk) * turns
        at = end


def test_layer_lets_control_overtake_behind_the_frame_that_was_begun(engine: LinkEngine) -> None:
    run = data(1, "first") + data(1, "second") + data(1, "third")
    engine.put(LEFT, run, BULK)
    begun = taken(engine, LEFT, len(data(1, "first")) + 10)
    engine.put(LEFT, ping(1), CONTROL)
    rest = taken(engine, LEFT)
    assert begun + rest == data(1, "first") + data(1, "second") + ping(1) + data(1, "third")


def test_layer_writes_the_same_bytes_in_pieces_of_any_size(engine: LinkEngine) -> None:
    frames = [data(1, "x" * n) for n in (0, 1, 300, 5)]
    for size in range(1, 60):
        engine.put(LEFT, b"".join(frames), BULK)
        engine.put(LEFT, ping(7), CONTROL)
        got = b""
        while some := taken(engine, LEFT, size):
            assert len(some) <= size
            got += some
        assert got == ping(7) + b"".join(frames)
    assert engine.backlog(LEFT) == 0


def test_layer_drops_bulk_at_its_bound_and_counts_each_frame_once(engine: LinkEngine) -> None:
    each = data(1, "x" * 60_000)
    fits = BULK_BYTES_MAX // len(each)
    assert [engine.put(LEFT, each, BULK) for _ in range(fits)] == [PUT] * fits
    assert engine.put(LEFT, each * 3, BULK) == DROPPED
    assert engine.put(LEFT, ping(1), CONTROL) == PUT
    totals = engine.totals()
    assert (totals["dropped_bulk_frames"], totals["dropped_urgent_frames"]) == (3, 0)
    assert totals["backlog_bytes"] == fits * len(each) + len(ping(1)) == engine.backlog(LEFT)


def test_layer_drops_relayed_frames_at_the_same_bound(engine: LinkEngine) -> None:
    each = data(2, "x" * 60_000)
    fits = BULK_BYTES_MAX // len(each)
    for _ in range(fits + 2):
        engine.feed(LEFT, each)
    assert engine.totals()["dropped_bulk_frames"] == 2
    assert engine.totals()["relayed_frames"] == fits
    assert [what for _, what, _ in engine.poll()] == [BACKLOGGED]


def test_layer_gives_urgent_frames_of_others_half_of_the_room_of_control(
    engine: LinkEngine,
) -> None:
    urgent = data(1, "x" * 60_000, 0)
    fits = URGENT_BYTES_MAX // len(urgent)
    assert [engine.put(LEFT, urgent, URGENT) for _ in range(fits)] == [PUT] * fits
    assert engine.put(LEFT, urgent, URGENT) == DROPPED
    assert engine.totals()["dropped_urgent_frames"] == 1
    assert engine.put(LEFT, ping(1), CONTROL) == PUT
    room = CONTROL_BYTES_MAX - fits * len(urgent) - len(ping(1))
    assert [engine.put(LEFT, urgent, CONTROL) for _ in range(room // len(urgent))][-1] == PUT
    assert engine.put(LEFT, urgent, CONTROL) == OVER_BOUND
    assert engine.put(LEFT, bytes(CONTROL_BYTES_MAX + 1), RAW) == OVER_BOUND
    assert engine.put(LEFT, data(1), BULK) == PUT


def test_layer_tells_a_backlog_once_and_when_it_is_written(engine: LinkEngine) -> None:
    each = data(1, "x" * 60_000)
    while engine.backlog(LEFT) <= BACKLOG_HIGH_BYTES:
        assert engine.poll() == []
        engine.put(LEFT, each, BULK)
    engine.put(LEFT, each, BULK)
    ((link, what, size),) = engine.poll()
    assert (link, what) == (LEFT, BACKLOGGED)
    assert isinstance(size, int)
    assert size > BACKLOG_HIGH_BYTES
    while engine.backlog(LEFT) > BACKLOG_LOW_BYTES:
        assert engine.poll() == []
        taken(engine, LEFT, 1000)
    assert engine.poll() == [(LEFT, WRITABLE, engine.backlog(LEFT))]


def test_layer_says_which_links_have_something_to_take(engine: LinkEngine) -> None:
    engine.put(RIGHT, ping(1), CONTROL)
    engine.put(LEFT, ping(1), CONTROL)
    engine.put(RIGHT, ping(2), CONTROL)
    assert engine.waiting() == (RIGHT, LEFT)
    assert engine.waiting() == ()
    engine.shut(LEFT, goodbye())
    assert engine.waiting() == (LEFT,)


# --- how links end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, errno.ECONNRESET])
def test_layer_returns_the_unsent_of_a_link_that_ended(engine: LinkEngine, number: int) -> None:
    engine.put(LEFT, data(1, "b"), BULK)
    engine.put(LEFT, ping(1), CONTROL)
    engine.put(LEFT, data(1, "u", 0), URGENT)
    engine.finish(LEFT, number)
    assert engine.poll() == [
        (LEFT, END, number),
        (LEFT, RETURNED, body(data(1, "u", 0))),
        (LEFT, RETURNED, body(data(1, "b"))),
    ]
    engine.finish(LEFT, number)
    assert engine.poll() == []


def test_layer_returns_whole_frames_behind_a_half_written_one_and_that_one(
    engine: LinkEngine,
) -> None:
    frames = [data(1, "one"), data(1, "two"), data(1, "three")]
    engine.put(LEFT, b"".join(frames), BULK)
    taken(engine, LEFT, len(frames[0]) + 3)
    # The other end has the first whole; of the second it can never see the end.
    assert engine.close(LEFT) == [body(frames[1]), body(frames[2])]
    assert engine.totals()["returned_frames"] == 2
    assert engine.close(LEFT) == []


def test_layer_says_goodbye_behind_everything_that_was_put(engine: LinkEngine) -> None:
    engine.put(LEFT, data(1, "bulk"), BULK)
    engine.put(LEFT, ping(1), CONTROL)
    engine.shut(LEFT, goodbye("done"))
    assert engine.put(LEFT, ping(2), CONTROL) == NO_LINK
    assert taken(engine, LEFT, 5) + taken(engine, LEFT) == (
        ping(1) + data(1, "bulk") + goodbye("done")
    )
    assert engine.poll() == [(LEFT, WRITTEN, None)]
    engine.finish(LEFT, 0)
    assert engine.poll() == [(LEFT, CLOSED, None)]


def test_layer_reads_a_shut_link_until_the_other_end_has_closed(engine: LinkEngine) -> None:
    engine.shut(LEFT, goodbye())
    engine.feed(LEFT, ping(1) + data(2, "x"))
    taken(engine, LEFT)
    engine.feed(LEFT, ping(2))
    assert engine.poll() == [
        (LEFT, FRAME, body(ping(1))),
        (LEFT, WRITTEN, None),
        (LEFT, FRAME, body(ping(2))),
    ]
    assert taken(engine, RIGHT) == hopped(data(2, "x"))
    engine.feed(LEFT, goodbye())
    assert engine.poll() == [(LEFT, CLOSED, None)]


def test_layer_reads_nothing_behind_a_goodbye(engine: LinkEngine) -> None:
    engine.put(LEFT, data(1, "unsent"), BULK)
    engine.feed(LEFT, ping(1) + goodbye("bye") + ping(2))
    assert engine.poll() == [
        (LEFT, FRAME, body(ping(1))),
        (LEFT, GOODBYE, body(goodbye("bye"))),
        (LEFT, RETURNED, body(data(1, "unsent"))),
    ]


def test_layer_writes_its_rest_when_both_ends_say_goodbye_at_once(engine: LinkEngine) -> None:
    engine.put(LEFT, data(1, "bulk"), BULK)
    engine.shut(LEFT, goodbye("mine"))
    engine.feed(LEFT, goodbye("theirs"))
    engine.finish(LEFT, 0)
    engine.feed(LEFT, ping(1))
    assert engine.poll() == []
    assert taken(engine, LEFT) == data(1, "bulk") + goodbye("mine")
    assert engine.poll() == [(LEFT, CLOSED, None)]


def test_layer_returns_the_rest_of_a_shut_link_whose_other_end_is_gone(engine: LinkEngine) -> None:
    engine.put(LEFT, data(1, "bulk"), BULK)
    engine.shut(LEFT, goodbye())
    engine.finish(LEFT, errno.EPIPE)
    assert engine.poll() == [(LEFT, RETURNED, body(data(1, "bulk"))), (LEFT, CLOSED, None)]


def test_layer_gives_the_owner_the_rest_of_a_shut_link_that_it_closes(engine: LinkEngine) -> None:
    engine.put(LEFT, data(1, "bulk"), BULK)
    engine.shut(LEFT, goodbye())
    assert engine.close(LEFT) == [body(data(1, "bulk"))]
    assert engine.poll() == []


def test_layer_knows_nothing_of_a_link_that_is_gone(engine: LinkEngine) -> None:
    engine.close(LEFT)
    engine.shut(LEFT, goodbye())
    engine.finish(LEFT, 0)
    engine.feed(LEFT, ping(1))
    assert engine.take(LEFT, ALL) == b""
    assert engine.backlog(LEFT) == 0
    assert engine.waiting() == engine.heard() == ()
    assert engine.flush() is False
    assert engine.totals()["links"] == 1


def test_layer_refuses_a_link_id_that_is_in_use_or_out_of_range(engine: LinkEngine) -> None:
    for link in (LEFT, 0, 2**63):
        with pytest.raises(ValueError, match="link"):
            engine.adopt(-1, link, 1)


def test_layer_says_whether_a_poll_has_something_to_tell(engine: LinkEngine) -> None:
    assert engine.flush() is False
    engine.feed(LEFT, ping(1))
    assert engine.flush() is True
    engine.poll()
    assert engine.flush() is False


def test_layer_of_plain_python_has_no_descriptor() -> None:
    assert LinkLayer().fileno() == -1
