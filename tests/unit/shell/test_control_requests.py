"""Requests in the control protocol: what a program may say, and what the core is then told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bmgd.core.commands import (
    CloseStream,
    Command,
    FindReaders,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    PutSegment,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.commands import Settled as SettledCommand
from bmgd.core.effects import Deliver, Reply, StreamEnded
from bmgd.errors import DeadError, NoReaderError
from bmgd.shell.control import ControlServer
from bmgd.types import Incarnation, NodeId
from bmgd.wire.answers import ANSWER, READER_LOST, answer_head
from bmgd.wire.batch import pack_messages
from bmgd.wire.control import End, Failure, Item, Request, Result, Settled
from bmgd.wire.control import PutSegment as Put
from tests.unit.shell.test_control_server import Program

INBOX = {"credit_bytes": 1 << 20}
ASK = {"destination": 3, "topic": "rpc", "priority": "normal", "inbox": 1}
READ = {"topic": "rpc", "credit": 8, "credit_bytes": 1 << 20}
ANSWERS = {"destination": 3, "incarnation": 77, "inbox": 5, "reader": 4}


class Core:
    """Answers at once what opens something; remembers what it was told."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:{path}"
        self.told: list[tuple[int, Command]] = []
        self.server = ControlServer(self.address, self.issue, dict)

    def issue(self, number: int, command: Command) -> None:
        self.told.append((number, command))
        match command:
            case OpenInbox():
                self.server.answers.reply(Reply(number, {"inbox": 1}))
            case OpenQuestions():
                self.server.answers.reply(Reply(number, {"credit": 9, "first": 2**32 + 1}))
            case OpenAnswers():
                self.server.answers.reply(Reply(number, {"credit": 9}))
            case Subscribe():
                self.server.answers.reply(Reply(number))
            case FindReaders():
                self.server.answers.reply(Reply(number, {"readers": [1], "silent": [2]}))
            case _:
                pass

    def number(self, kind: type[Any]) -> int:
        return next(number for number, command in self.told if isinstance(command, kind))


@asynccontextmanager
async def talking(tmp_path: Path) -> AsyncIterator[tuple[Core, Program]]:
    core = Core(tmp_path / "d.sock")
    await core.server.start()
    reader, writer = await asyncio.open_unix_connection(core.address.removeprefix("unix:"))
    try:
        yield core, Program(reader, writer)
    finally:
        writer.close()
        core.server.close()


async def test_questions_go_by_a_stream_that_names_the_inbox(tmp_path: Path) -> None:
    async with talking(tmp_path) as (core, p):
        p.say(Request(1, "inbox", INBOX), Request(2, "questions", ASK))
        p.say(Put(2, 1, 0, 0, 1.5, b"\xc4\x01q"))
        assert await p.hear() == Result(1, {"inbox": 1})
        assert await p.hear() == Result(2, {"credit": 9, "first": 2**32 + 1})
        p.say(Settled(1, 0, [2**32 + 1]), Request(3, "readers", {"topic": "rpc", "timeout": 1}))
        assert await p.hear() == Result(3, {"readers": [1], "silent": [2]})
        commands = [command for _, command in core.told]
        assert commands == [
            OpenInbox(1 << 20),
            OpenQuestions(NodeId(3), "rpc", 2, 1),
            PutSegment(1, b"\xc4\x01q", timeout_ns=1_500_000_000),
            SettledCommand(0, (2**32 + 1,)),
            FindReaders("rpc", 1_000_000_000),
        ]
        died = DeadError(3, "it is dead")
        core.server.answers.stream_ended(StreamEnded(core.number(OpenQuestions), 2, 2, died))
        end = await p.hear()
        assert isinstance(end, End)
        assert (end.sequence, end.name, end.fields["next"]) == (2, "DeadError", 2)


async def test_answers_come_to_the_inbox(tmp_path: Path) -> None:
    async with talking(tmp_path) as (core, p):
        p.say(Request(1, "inbox", INBOX))
        assert await p.hear() == Result(1, {"inbox": 1})
        body = pack_messages([answer_head(ANSWER, 9) + b"a"])
        number = core.number(OpenInbox)
        core.server.answers.deliver(
            Deliver(number, NodeId(3), Incarnation(77), "_inbox.1", 1, body)
        )
        item = await p.hear()
        assert isinstance(item, Item)
        assert (item.value["source"], item.value["body"]) == (3, body)
        p.say(Settled(1, 1, [9]), Settled(1, 1, []))
        failure = await p.hear()
        assert isinstance(failure, Failure)
        assert (failure.sequence, failure.name) == (0, "ProtocolError")
        assert await p.hear() is None
        assert core.told[1][1] == SettledCommand(1, (9,))
        assert core.told[-1] == (number, Unsubscribe())


async def test_questions_come_to_a_read_and_are_answered_by_a_stream(tmp_path: Path) -> None:
    async with talking(tmp_path) as (core, p):
        p.say(Request(4, "read", READ), Request(5, "answers", ANSWERS))
        assert await p.hear() == Result(4)
        assert await p.hear() == Result(5, {"credit": 9})
        reader = core.number(Subscribe)
        assert core.told[-1][1] == OpenAnswers(NodeId(3), Incarnation(77), 5, reader)
        body = pack_messages([b"q", b"r"])
        deliver = Deliver(
            reader, NodeId(3), Incarnation(77), "rpc", 2, body, inbox=5, question=2**32 + 1
        )
        core.server.answers.deliver(deliver)
        item = await p.hear()
        assert isinstance(item, Item)
        assert (item.value["inbox"], item.value["question"]) == (5, 2**32 + 1)
        answers = pack_messages([answer_head(ANSWER, 7) + b"a", answer_head(ANSWER, 8)])
        long = answer_head(ANSWER, 2**64 - 1) + bytes(20)
        p.say(Put(5, 2, 0, 0, 0, answers), Put(5, 0, 1, 100, 0, long), Put(5, 0, 2, 100, 0, b"x"))
        p.say(Request(6, "status", {"bad": 1}))
        assert isinstance(await p.hear(), Failure)
        puts = [command for _, command in core.told if isinstance(command, PutSegment)]
        assert [put.answers for put in puts] == [(7, 8), (2**64 - 1,), ()]
        gone = NoReaderError(3, "the program that asked is gone")
        core.server.answers.stream_ended(StreamEnded(core.number(OpenAnswers), 1, 1, gone))
        end = await p.hear()
        assert isinstance(end, End)
        assert (end.sequence, end.name) == (5, "NoReaderError")


@pytest.mark.parametrize(
    ("count", "body"),
    [
        (1, pack_messages([b"short"])),
        (1, pack_messages([answer_head(READER_LOST, 7)])),
        (2, pack_messages([answer_head(ANSWER, 7)])),
        (0, b"a piece"),
    ],
    ids=["too short", "a daemon's", "fewer than it says", "a short piece"],
)
async def test_what_is_no_answer_ends_its_stream(count: int, body: bytes, tmp_path: Path) -> None:
    async with talking(tmp_path) as (core, p):
        p.say(Request(4, "read", READ), Request(5, "answers", ANSWERS))
        p.say(Put(5, count, 0 if count else 1, 0 if count else 100, 0, body))
        assert [await p.hear(), await p.hear()] == [Result(4), Result(5, {"credit": 9})]
        end = await p.hear()
        assert isinstance(end, End)
        assert (end.sequence, end.name) == (5, "RequestError")
        assert core.told[-1][1] == CloseStream(abandon=True)
        assert not [command for _, command in core.told if isinstance(command, PutSegment)]


@pytest.mark.parametrize(
    ("verb", "params"),
    [
        ("inbox", {}),
        ("inbox", {"credit_bytes": 0}),
        ("questions", ASK),
        ("questions", ASK | {"inbox": 0}),
        ("questions", ASK | {"priority": "low"}),
        ("questions", ASK | {"topic": "_inbox.1"}),
        ("answers", ANSWERS),
        ("answers", ANSWERS | {"incarnation": 0}),
        ("answers", ANSWERS | {"inbox": 2**32}),
        ("readers", {"topic": "rpc"}),
        ("readers", {"topic": "rpc", "timeout": 0}),
        ("read", READ | {"topic": "_inbox.1"}),
        ("send", {"destination": 1, "topic": "_inbox.1", "payload": b"", "timeout": 1}),
    ],
)
async def test_bad_requests_are_refused(verb: str, params: dict[str, Any], tmp_path: Path) -> None:
    async with talking(tmp_path) as (core, p):
        p.say(Request(1, verb, params))
        failure = await p.hear()
        assert isinstance(failure, Failure)
        assert (failure.sequence, failure.name) == (1, "RequestError")
        assert not core.told


async def test_inbox_of_another_program_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path) as (core, p):
        p.say(Request(1, "inbox", INBOX))
        assert await p.hear() == Result(1, {"inbox": 1})
        reader, writer = await asyncio.open_unix_connection(core.address.removeprefix("unix:"))
        other = Program(reader, writer)
        other.say(Request(1, "questions", ASK))
        failure = await other.hear()
        assert isinstance(failure, Failure)
        assert "not of this connection" in failure.message
        writer.close()
