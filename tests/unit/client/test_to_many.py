"""Broadcasts and multicasts as programs and people see them, with a core that answers from a table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import bmgd
from bmgd.client import broadcast_pieces
from bmgd.client.arguments import checked_payload, id_ranges
from bmgd.client.broadcast_pieces import broadcast_in_pieces
from bmgd.client.reconnecting import LastingConnection
from bmgd.client.to_many import report_of
from bmgd.core.commands import BroadcastTo, Command, ConsumedAnnouncements, MulticastTo
from bmgd.core.effects import Announce, Reply, TellMissed
from bmgd.errors import (
    BmgdError,
    DeadError,
    NoDaemonError,
    PartialError,
    Report,
    RequestError,
    SilentDaemonError,
    UnreachableError,
)
from bmgd.routing.id_sets import ID_SET_SPACE, id_set
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import Piece
from tests.unit.cli.test_commands import run
from tests.unit.fake_core import DEADLINE_S, FakeCore, serving

FAILED = [
    {"id": 7, "error": "DeadError", "detail": "it is dead", "sent": True},
    {"id": 9, "error": "UnreachableError", "detail": "no way was found", "sent": False},
]


class ManyCore(FakeCore):
    """Confirms everything on the topic "good"; on others ids 7 and 9 fail."""

    def issue(self, request: int, command: Command) -> None:
        match command:
            case BroadcastTo() | MulticastTo():
                self.told.append((request, command))
                failed = [] if command.topic == "good" or not command.reliable else FAILED
                confirmed = [0, 1] if command.reliable else []
                self.server.answers.reply(
                    Reply(request, {"confirmed": confirmed, "failed": failed})
                )
            case _:
                super().issue(request, command)

    @property
    def last(self) -> Command:
        return self.told[-1][1]

    def announce(self, payload: bytes) -> None:
        assert self.reader is not None
        life = Incarnation(1 << 32)
        self.server.answers.announce(Announce(self.reader, NodeId(4), life, 0, "news", payload))


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[ManyCore]:
    async with serving(ManyCore(tmp_path / "node-0.sock")) as fake:
        yield fake


async def test_broadcast_gives_a_report_or_says_who_has_not_confirmed(core: ManyCore) -> None:
    async with bmgd.connect(core.address) as daemon:
        report = await daemon.broadcast(b"x", topic="good", timeout=3)
        assert (report.confirmed, report.failed) == (frozenset({0, 1}), {})
        assert core.last == BroadcastTo("good", b"x", True, 3_000_000_000)
        with pytest.raises(PartialError, match="2 of 4") as partial:
            await daemon.broadcast(b"x", topic="bad")
        failed = partial.value.report.failed
        assert partial.value.report.confirmed == frozenset({0, 1})
        first = "DeadError: node 7: it is dead"
        assert str(partial.value) == f"2 of 4 nodes have not confirmed it; {first}"
        assert isinstance(failed[7], DeadError)
        assert failed[7].sent
        assert isinstance(failed[9], UnreachableError)
        assert not failed[9].sent
        report = await daemon.broadcast(b"x", topic="bad", quality="best-effort")
        assert report == bmgd.Report(frozenset(), {})


async def test_long_broadcasts_at_once_wait_for_each_other(core: ManyCore) -> None:
    """Together their pieces are more than may be on their way to the daemon."""
    async with bmgd.connect(core.address) as daemon:
        sent = [daemon.broadcast(bytes(2_000_000), topic="good", timeout=30) for _ in range(4)]
        reports = await asyncio.gather(*sent)
    assert [report.confirmed for report in reports] == [frozenset({0, 1})] * 4
    assert all(isinstance(report.confirmed, frozenset) for report in reports)


async def test_multicast_takes_ids_and_ranges_of_them(core: ManyCore) -> None:
    async with bmgd.connect(core.address) as daemon:
        ids: list[int | range] = [1, range(8, 16), range(20, 26, 2)]
        await daemon.multicast(ids, b"x", topic="good", quality="best-effort")
        wanted = id_set([1, *range(8, 16), 20, 22, 24])
        assert core.last == MulticastTo(wanted, "good", b"x", False, 10_000_000_000)
        for wrong in ([], [-1], [range(3, 3)], [2**17], [range(2**17 - 1, 2**17 + 1)]):
            with pytest.raises(RequestError):
                await daemon.multicast(wrong, b"x")


@pytest.mark.parametrize("wrong", ["1", None, True, 1.0])
async def test_multicast_refuses_what_is_no_node_id(core: ManyCore, wrong: Any) -> None:
    async with bmgd.connect(core.address) as daemon:
        with pytest.raises(RequestError, match="destinations are node ids"):
            await daemon.multicast([wrong], b"x")
    assert not core.told


@pytest.mark.parametrize("wrong", [1, None, 1.0])
async def test_multicast_refuses_what_is_no_list_of_ids(core: ManyCore, wrong: Any) -> None:
    async with bmgd.connect(core.address) as daemon:
        for payload in (b"x", bytes(100_000)):
            with pytest.raises(RequestError, match="put it into a list"):
                await daemon.multicast(wrong, payload)
    assert not core.told


async def test_multicast_refuses_a_range_of_any_length_at_once(core: ManyCore) -> None:
    async with bmgd.connect(core.address) as daemon:
        for wrong in (range(10**15), range(10**15, -1, -1), range(-(10**15), 5)):
            with pytest.raises(RequestError, match="below 131072"):
                await daemon.multicast([wrong], b"x")
        with pytest.raises(RequestError, match=r"below 131072, not 5\.\.131072$"):
            await daemon.multicast([range(5, 131_073)], b"x")
        with pytest.raises(RequestError, match=r"below 131072, not 131072$"):
            await daemon.multicast([131_072], b"x")
    assert not core.told


@pytest.mark.parametrize("payload", ["text", None, 3, [], [120]])
async def test_messages_to_many_are_of_bytes_only(core: ManyCore, payload: Any) -> None:
    async with bmgd.connect(core.address) as daemon:
        for quality in ("reliable", "best-effort"):
            with pytest.raises(RequestError, match="a payload is bytes"):
                await daemon.broadcast(payload, quality=quality)
            with pytest.raises(RequestError, match="a payload is bytes"):
                await daemon.multicast([1], payload, quality=quality)
    assert not core.told


async def test_the_size_of_a_broadcast_is_that_of_its_bytes(core: ManyCore) -> None:
    words = memoryview(bytes(range(256)) * 1024).cast("I")
    pieces: list[tuple[int, bytes]] = []

    async def ask(params: dict[str, Any], _: Callable[[], None]) -> Report:
        assert params["size"] == words.nbytes
        pieces.append((params["at"], params["payload"]))
        return Report(frozenset([0]), {})

    await broadcast_in_pieces(ask, checked_payload(words), {})
    assert b"".join(body for _, body in sorted(pieces)) == words.tobytes()
    async with bmgd.connect(core.address) as daemon:
        with pytest.raises(RequestError, match="262144 bytes"):
            await daemon.broadcast(words, quality="best-effort")


async def test_messages_to_many_are_refused_before_they_are_sent(core: ManyCore) -> None:
    async with bmgd.connect(core.address) as daemon:
        for topic, payload in (
            ("", b"x"),
            ("t" * 256, b"x"),
            ("\ud800", b"x"),
            ("\ud800", bytes(65_537)),
        ):
            with pytest.raises(RequestError):
                await daemon.broadcast(payload, topic=topic)
        with pytest.raises(RequestError):
            await daemon.broadcast(b"x", quality="perfect")  # type: ignore[arg-type]
        with pytest.raises(RequestError):
            await daemon.broadcast(b"x", timeout=0)
        assert not core.told


async def test_broadcasts_are_items_of_a_subscription_with_a_credit_of_their_own(
    core: ManyCore,
) -> None:
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", credit=1) as messages,
    ):
        core.put(b"alone")
        for number in range(64):
            core.announce(b"%d" % number)
        first = await anext(messages)
        assert (first.payload, first.broadcast) == (b"alone", False)
        taken = [await anext(messages) for _ in range(64)]
        assert [each.payload for each in taken] == [b"%d" % number for number in range(64)]
        assert all(each.broadcast and each.source == 4 for each in taken)
        told = [command for _, command in core.told if isinstance(command, ConsumedAnnouncements)]
        await daemon.status()
        told = [command for _, command in core.told if isinstance(command, ConsumedAnnouncements)]
        # The one that was taken last may still be worked on.
        assert sum(command.count for command in told) >= 63


async def test_commands_print_who_confirmed_and_exit_with_4_when_partial(core: ManyCore) -> None:
    there = ("--control", core.address)
    ran = await run("broadcast", "hello", "--topic", "good", "--json", *there)
    assert (ran.code, ran.out) == (0, '{"confirmed":[0,1],"failed":{}}\n')
    ran = await run("multicast", "0-1,3-4", "hello", "--json", *there)
    assert (ran.code, ran.out) == (
        4,
        '{"confirmed":[0,1],"failed":{"7":{"error":"DeadError","sent":true},'
        '"9":{"error":"UnreachableError","sent":false}}}\n',
    )
    ran = await run("multicast", "1,7-9", "hello", "--best-effort", *there)
    assert ran.code == 0
    command = core.last
    assert isinstance(command, MulticastTo)
    assert command.destinations == id_set([1, 7, 8, 9])
    ran = await run("broadcast", "hello", *there)
    assert (ran.code, ran.out) == (4, "confirmed: 0-1\n")
    assert "node 7: it is dead" in ran.err
    ran = await run("broadcast", "--best-effort", "-", *there, stdin=b"from stdin")
    assert (ran.code, ran.out) == (0, "")
    command = core.last
    assert isinstance(command, BroadcastTo)
    assert (command.payload, command.reliable) == (b"from stdin", False)


@pytest.mark.parametrize("ids", ["", "x", "1,", "3-1", "1-", "-1", "1--3", "1.5", str(2**31)])
async def test_ids_that_are_none_are_a_usage_error(core: ManyCore, ids: str) -> None:
    ran = await run("multicast", "--control", core.address, "--", ids, "x")
    assert ran.code == 2


async def test_what_was_missed_is_an_item_of_the_subscription(core: ManyCore) -> None:
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", credit=1) as messages,
    ):
        core.announce(b"1")
        assert core.reader is not None
        core.server.answers.announce(TellMissed(core.reader, NodeId(4), Incarnation(1 << 32), 2, 5))
        assert (await anext(messages)).payload == b"1"
        missed: object = await anext(messages)
        assert missed == bmgd.Missed(source=4, first=2, last=5, incarnation=1 << 32)


async def test_recv_says_what_was_missed(core: ManyCore) -> None:
    async def follow() -> None:
        await core.until_told(lambda: core.reader is not None)
        assert core.reader is not None
        core.server.answers.announce(TellMissed(core.reader, NodeId(4), Incarnation(7), 2, 5))
        core.announce(b"6")

    task = asyncio.create_task(follow())
    ran = await run("recv", "--topic", "news", "--count", "1", "--json", "--control", core.address)
    await task
    first, second = map(json.loads, ran.out.splitlines())
    assert first == {"missed": {"source": 4, "first": 2, "last": 5, "incarnation": 7}}
    assert second["payload"] == "6"


async def test_reliable_multicast_names_whom_it_is_for_and_who_failed(core: ManyCore) -> None:
    async with bmgd.connect(core.address) as daemon:
        report = await daemon.multicast([0, range(1, 3), 8], b"x", topic="good", timeout=3)
        assert report == bmgd.Report(frozenset({0, 1}), {})
        named = id_set([0, 1, 2, 8])
        assert core.last == MulticastTo(named, "good", b"x", True, 3_000_000_000)
        with pytest.raises(PartialError, match="2 of 4") as partial:
            await daemon.multicast([range(2, 5)], b"x", topic="bad")
        failed = partial.value.report.failed
        assert isinstance(failed[7], DeadError)
        assert isinstance(failed[9], UnreachableError)


def piece(
    core: ManyCore, sequence: int, at: int, payload: bytes, size: int, number: int = 9
) -> None:
    assert core.reader is not None
    life, place = Incarnation(1 << 32), Piece(number, at, size)
    core.server.answers.announce(
        Announce(core.reader, NodeId(4), life, sequence, "news", payload, place)
    )


async def test_long_broadcast_goes_in_pieces_and_is_confirmed_by_whom_all_are(
    core: ManyCore,
) -> None:
    payload = bytes(range(256)) * 1024
    async with bmgd.connect(core.address) as daemon:
        report = await daemon.broadcast(payload, topic="good", timeout=3)
        assert report == bmgd.Report(frozenset({0, 1}), {})
        commands = [command for _, command in core.told if isinstance(command, BroadcastTo)]
        places = [command.piece for command in commands]
        assert [place and (place.at, place.size) for place in places] == [
            (at, len(payload)) for at in range(0, len(payload), 65_536)
        ]
        assert len({place and place.number for place in places}) == 1
        assert b"".join(command.payload for command in commands) == payload
        with pytest.raises(PartialError, match="2 of 4") as partial:
            await daemon.broadcast(payload, topic="bad")
        assert sorted(partial.value.report.failed) == [7, 9]
        with pytest.raises(RequestError, match="at most 65536"):
            await daemon.broadcast(payload, quality="best-effort")


async def test_long_broadcast_is_read_whole_or_in_parts(core: ManyCore) -> None:
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", max_message=10) as messages,
    ):
        for sequence, at in enumerate((0, 4, 8), 1):
            piece(core, sequence, at, b"%04d" % at if at < 8 else b"8", 9)
        whole = await anext(messages)
        assert (whole.payload, whole.broadcast) == (b"000000048", True)
        for sequence, at in enumerate((0, 6), 4):
            piece(core, sequence, at, b"part-%d" % at, 12, number=10)
        long = await anext(messages)
        assert (long.is_long, long.size) == (True, 12)
        assert [part async for part in long.parts()] == [b"part-0", b"part-6"]


async def test_long_broadcast_that_lacks_a_piece_is_missed_as_a_whole(core: ManyCore) -> None:
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", max_message=10) as messages,
    ):
        piece(core, 5, 0, b"0123", 9)
        piece(core, 6, 0, b"x" * 16, 32, number=10)
        long = await anext(messages)
        assert core.reader is not None
        core.server.answers.announce(TellMissed(core.reader, NodeId(4), Incarnation(1 << 32), 7, 8))
        piece(core, 9, 8, b"8", 9)
        core.announce(b"next")
        missed: object = await anext(messages)
        assert missed == bmgd.Missed(source=4, first=5, last=8, incarnation=1 << 32)
        with pytest.raises(UnreachableError, match="piece"):
            assert [part async for part in long.parts()]
        assert (await anext(messages)).payload == b"next"


async def test_long_broadcast_of_which_nothing_more_comes_is_missed(
    core: ManyCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.client.long_broadcasts.SILENCE_S", 0.01)
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", max_message=10) as messages,
    ):
        piece(core, 5, 0, b"0123", 9)
        missed: object = await anext(messages)
        assert isinstance(missed, bmgd.Missed)
        assert (missed.source, missed.first, missed.last) == (4, 5, 5)
        core.announce(b"next")
        assert (await anext(messages)).payload == b"next"


def given_back(core: ManyCore) -> int:
    return sum(c.count for _, c in core.told if isinstance(c, ConsumedAnnouncements))


async def test_what_comes_between_pieces_gives_its_credit_back_while_one_is_waited_for(
    core: ManyCore,
) -> None:
    """Else the next piece would wait behind it, and it behind the piece."""
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", max_message=10) as messages,
        asyncio.timeout(DEADLINE_S),
    ):
        piece(core, 1, 0, b"part-0", 12)
        parts = (await anext(messages)).parts()
        assert await anext(parts) == b"part-0"
        waiting = asyncio.create_task(_next_of(parts))
        for number in range(100):
            core.announce(b"%d" % number)
        piece(core, 2, 0, b"x" * 11, 22, number=10)
        await core.until_told(lambda: given_back(core) == 102)
        piece(core, 3, 6, b"part-6", 12)
        assert await waiting == b"part-6"
        assert [part async for part in parts] == []
        for number in range(100):
            assert (await anext(messages)).payload == b"%d" % number
        assert (await anext(messages)).is_long
        core.announce(b"next")
        assert (await anext(messages)).payload == b"next"
    await core.until_told(lambda: given_back(core) == 104)


async def test_credit_goes_back_early_up_to_a_bound(
    core: ManyCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.client.broadcast_credit.EARLY_MAX", 5)
    monkeypatch.setattr("bmgd.client.long_broadcasts.SILENCE_S", 0.05)
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", max_message=10) as messages,
        asyncio.timeout(DEADLINE_S),
    ):
        piece(core, 1, 0, b"part-0", 12)
        parts = (await anext(messages)).parts()
        assert await anext(parts) == b"part-0"
        for number in range(100):
            core.announce(b"%d" % number)
        with pytest.raises(UnreachableError, match="piece"):
            await anext(parts)
        assert given_back(core) == 1 + 5
        for number in range(100):
            assert (await anext(messages)).payload == b"%d" % number


async def test_long_broadcast_is_not_missed_while_its_program_takes_nothing(
    core: ManyCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.client.long_broadcasts.SILENCE_S", 0.05)
    monkeypatch.setattr("bmgd.client.broadcast_credit.BROADCASTS_MAX", 1)
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", max_message=10) as messages,
        asyncio.timeout(DEADLINE_S),
    ):
        piece(core, 1, 0, b"0123", 9)
        core.announce(b"between")
        await core.until_told(lambda: given_back(core) == 1)
        silent_for_long = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, silent_for_long.set)
        await silent_for_long.wait()
        piece(core, 2, 4, b"45678", 9)
        assert (await anext(messages)).payload == b"between"
        assert (await anext(messages)).payload == b"012345678"


async def _next_of(parts: AsyncIterator[bytes]) -> bytes:
    return await anext(parts)


async def test_piece_of_what_began_before_the_subscription_is_left_out(core: ManyCore) -> None:
    async with (
        bmgd.connect(core.address) as daemon,
        daemon.subscribe("news", max_message=10) as messages,
    ):
        piece(core, 5, 4, b"4567", 8)
        core.announce(b"next")
        assert (await anext(messages)).payload == b"next"


async def test_pieces_of_broadcasts_at_one_time_come_in_order(core: ManyCore) -> None:
    async with bmgd.connect(core.address) as daemon, asyncio.timeout(DEADLINE_S):
        payload = bytes(3 << 20)
        await asyncio.gather(*(daemon.broadcast(payload, topic="good") for _ in range(4)))
    places: dict[int, list[int]] = {}
    for _, command in core.told:
        if isinstance(command, BroadcastTo) and command.piece is not None:
            places.setdefault(command.piece.number, []).append(command.piece.at)
    assert len(places) == 4
    assert all(found == list(range(0, 3 << 20, 1 << 16)) for found in places.values())


@pytest.mark.parametrize("confirmed", [0, 1])
async def test_pieces_of_a_broadcast_are_not_asked_of_two_lives_of_a_daemon(
    core: ManyCore, monkeypatch: pytest.MonkeyPatch, confirmed: int
) -> None:
    monkeypatch.setattr(broadcast_pieces, "PIECES_UNDERWAY", 1)
    async with bmgd.connect(core.address, reconnect=True) as daemon, asyncio.timeout(DEADLINE_S):
        connection = daemon._connection
        assert isinstance(connection, LastingConnection)
        settle, settled = connection._settle, list[int]()

        def settle_and_lose(sequence: int, value: Any, error: BmgdError | None) -> None:
            settle(sequence, value, error)
            settled.append(sequence)
            if len(settled) == 1:
                connection._interrupt(NoDaemonError("it goes away"))

        if confirmed:
            monkeypatch.setattr(connection, "_settle", settle_and_lose)
            with pytest.raises(NoDaemonError) as failed:
                await daemon.broadcast(bytes(3 << 16), topic="good")
            assert failed.value.sent
        else:
            connection._interrupt(NoDaemonError("it goes away"))
            assert (await daemon.broadcast(bytes(3 << 16), topic="good")).confirmed == {0, 1}
    pieces = [c.piece for _, c in core.told if isinstance(c, BroadcastTo)]
    assert len(pieces) == (1 if confirmed else 3)


@pytest.mark.parametrize(
    ("at_asked", "at_failing", "sent"),
    [(0, 1 << 16, True), (-1, 1 << 16, False), (-1, 0, False)],
)
async def test_long_broadcast_that_fails_is_in_doubt_where_a_piece_was_asked(
    monkeypatch: pytest.MonkeyPatch, at_asked: int, at_failing: int, sent: bool
) -> None:
    monkeypatch.setattr(broadcast_pieces, "PIECES_UNDERWAY", 2)

    async def ask(params: dict[str, Any], on_asked: Callable[[], None]) -> Report:
        if params["at"] == at_asked:
            on_asked()
        if params["at"] == at_failing:
            await asyncio.sleep(0)
            raise SilentDaemonError("it does not read")
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(SilentDaemonError) as failed:
        await broadcast_in_pieces(ask, bytes(3 << 16), {})
    assert failed.value.sent is sent


def test_multicast_takes_very_many_single_ids_and_ranges_of_any_step() -> None:
    ids = list(range(0, ID_SET_SPACE, 2))
    singly = [(each, each) for each in ids]
    assert id_ranges(ids) == id_ranges([range(0, ID_SET_SPACE, 2)]) == singly
    assert id_ranges([range(9, 3, -1), 5, 12, range(4, 2)]) == [(4, 9), (12, 12)]


def test_report_with_an_error_of_a_later_release_says_who_confirmed() -> None:
    failure = {"id": 3, "error": "QuotaError", "detail": "no more", "sent": True}
    report = report_of({"confirmed": [1, 2], "failed": [failure]})
    assert report.confirmed == {1, 2}
    assert [*report.failed] == [3]
    error = report.failed[3]
    assert isinstance(error, bmgd.UnreachableError)
    assert (error.detail, error.sent) == ("QuotaError: no more", True)
