"""Named bad inputs, `tests/hostile/*.toml`, each to a live daemon of a live cluster under traffic.

Each has its outcome in the table. Afterwards the others are what they were: nobody is held dead, links
are exact, no message was lost, no daemon has grown or shown a traceback.
"""

from __future__ import annotations

import asyncio
import struct
import time
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import msgpack
import psutil
import pytest

from bmgd.errors import BmgdError
from bmgd.peers import PeerList
from bmgd.types import Incarnation, NodeId
from bmgd.wire import control
from bmgd.wire.codec import encode
from bmgd.wire.control import ANSWER_BYTES_MAX, Failure
from bmgd.wire.control_reader import FrameReader
from bmgd.wire.hello import Hello, Refusal, encode_hello
from bmgd.wire.link_messages import Ping
from tests.integration.cluster import Cluster, launched

TABLES: Final = Path(__file__).parents[1] / "hostile"
SIZE: Final = 5
HOSTILE, TARGET = 4, 1
DEADLINE_S: Final = 20.0
RSS_GROWTH_MAX: Final = 10 * 2**20
LINK_AGE_S: Final = 0.8
PROMPT_S: Final = 1.4
TRIES: Final = 5
HEADER: Final = struct.Struct(">BBBBIIQIQ")

LEAST: Final = {
    "framing": 60,
    "msgpack": 60,
    "hello": 60,
    "semantics": 70,
    "foreign": 20,
    "control": 40,
}

Case = dict[str, Any]


def cases_of(table: str) -> list[Case]:
    cases: list[Case] = tomllib.loads((TABLES / f"{table}.toml").read_text())["case"]
    assert len({case["name"] for case in cases}) == len(cases), "a name is there twice"
    return cases


def value_of(data: Any) -> Any:
    """What a field of a table stands for."""
    match data:
        case "nil":
            return None
        case "map":
            return {}
        case str() if data.startswith("hex:"):
            return bytes.fromhex(data[4:])
        case str() if data.startswith("str:"):
            return data[4:]
        case str() if data.startswith("int:"):
            return int(data[4:])
        case list():
            return [value_of(item) for item in data]
    return data


class Attack:
    """Speaks to node `TARGET` of a cluster, as the dead node `HOSTILE` or as nobody.

    Args:
        cluster: without a secret.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._life = 1 << 40
        self._nonce = 0
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter, float] | None = None

    def hello(self, changes: dict[str, Any]) -> bytes:
        """The body of a hello that would be welcome, were it not for the changes."""
        self._life += 1 << 32
        peers = PeerList.parse(f"127.0.0.1:{{{self._cluster.base_port}+id}}", SIZE)
        good = Hello(
            has_secret=False,
            cluster="bmgd",
            founding_size=SIZE,
            fingerprint=peers.fingerprint(),
            id=NodeId(HOSTILE),
            expected=NodeId(TARGET),
            known=Incarnation(0),
            incarnation=Incarnation(self._life),
            dial_number=1,
            nonce=Random(self._life).randbytes(16),
            address=peers.address_of(NodeId(HOSTILE)),
        )
        return encode_hello(replace(good, **{key: value_of(v) for key, v in changes.items()}))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._cluster.base_port + TARGET)

    async def link(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A link that is up."""
        reader, writer = await self.connect()
        writer.write(_record(1, self.hello({})))
        await reader.readuntil(b"BMGD\x03\x00\x08")
        await reader.readexactly(8)
        return reader, writer

    async def young_link(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A link that is up, and so young that its silence is not held against it."""
        if self._link is None or time.monotonic() - self._link[2] > LINK_AGE_S:
            self.drop()
            self._link = (*(await self.link()), time.monotonic())
        return self._link[0], self._link[1]

    def drop(self) -> None:
        if self._link is not None:
            self._link[1].close()
            self._link = None

    async def is_open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the daemon still answers a ping on this link."""
        self._nonce += 1
        writer.write(encode(Ping(self._nonce)))
        while True:
            length = int.from_bytes(await reader.readexactly(4), "big")
            body = await reader.readexactly(length)
            fields = msgpack.unpackb(body)
            if fields[0][0] == 3 and fields[1] == self._nonce:
                return True


def _record(kind: int, body: bytes) -> bytes:
    return b"BMGD" + bytes((kind,)) + len(body).to_bytes(2, "big") + body


async def _rest_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the daemon closes."""
    found = b""
    try:
        while data := await reader.read(65536):
            found += data
    except ConnectionError:
        # Closing with unread bytes resets the connection.
        pass
    return found


# --- what is sent -----------------------------------------------------------------------------------


def _bytes_of(case: Case, attack: Attack) -> bytes:
    if "text" in case:
        return str(case["text"]).encode()
    if "random" in case:
        return b"\xff" + Random(case["name"]).randbytes(case["random"] - 1)
    if "hello" in case:
        body = bytearray(attack.hello(case["hello"]))
        if "patch" in case:
            at, data = case["patch"].split(":")
            new = bytes.fromhex(data)
            body[int(at) : int(at) + len(new)] = new
        return _record(1, bytes(body) + bytes.fromhex(case.get("behind", "")))
    if "fields" in case:
        header = HEADER.pack(case["kind"], 0, 0, 9, TARGET, HOSTILE, 1 << 40, 0, 1)
        packed: bytes = msgpack.packb([header, *map(value_of, case["fields"])])
        return len(packed).to_bytes(4, "big") + packed
    return bytes.fromhex(case["hex"])


async def _as_stranger(case: Case, attack: Attack) -> str:
    """First bytes of a connection; what comes of them."""
    reader, writer = await attack.connect()
    try:
        writer.write(_bytes_of(case, attack))
        answer = await _rest_of(reader)
    finally:
        writer.close()
    if not answer:
        return "closed"
    at = answer.rfind(b"BMGD\x04\x00\x09")
    return f"refused: {Refusal(answer[at + 7]).text}" if at >= 0 else f"answered: {answer[:40]!r}"


async def _as_link(case: Case, attack: Attack) -> str:
    """Frames on a link; what comes of them.

    On a link that is closed late, which may be for its silence, nothing is seen: another one is tried.
    """
    outcome = ""
    for _ in range(TRIES):
        began_s = time.monotonic()
        if case["outcome"] == "dropped":
            outcome = await _dropped_or_closed(case, attack)
            began_s -= LINK_AGE_S
        else:
            outcome = await _until_closed(case, attack)
        if outcome == "dropped" or time.monotonic() - began_s < PROMPT_S:
            return outcome
    return f"{outcome} late"


async def _dropped_or_closed(case: Case, attack: Attack) -> str:
    reader, writer = await attack.young_link()
    try:
        writer.write(_bytes_of(case, attack))
        return "dropped" if await attack.is_open(reader, writer) else "closed"
    except (asyncio.IncompleteReadError, ConnectionError):
        attack.drop()
        return "closed"


async def _until_closed(case: Case, attack: Attack) -> str:
    reader, writer = await attack.link()
    try:
        writer.write(_bytes_of(case, attack))
        if case["outcome"] == "ends":
            writer.write_eof()
        await _rest_of(reader)
        return str(case["outcome"])
    except ConnectionError:
        return "closed"
    finally:
        writer.close()


async def _as_program(case: Case, path: str) -> str:
    """Bytes or a request to the control socket; what comes of them."""
    reader, writer = await asyncio.open_unix_connection(path)
    frames = FrameReader(ANSWER_BYTES_MAX)
    try:
        if "verb" in case:
            params = {key: _number(value_of(value)) for key, value in case["params"].items()}
            writer.write(control.encode(control.Request(1, case["verb"], params)))
        else:
            writer.write(bytes.fromhex(case["hex"]))
        while data := await reader.read(65536):
            frames.feed(data)
            frame = frames.next_frame()
            if isinstance(frame, Failure) and frame.sequence:
                return f"error: {frame.name}"
    except ConnectionError:
        pass
    finally:
        writer.close()
    return "closed"


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "nan") else value


# --- the cluster meanwhile ----------------------------------------------------------------------------


async def _talk(cluster: Cluster, stopping: asyncio.Event) -> int:
    """The others go on sending to each other; returns how many messages were confirmed."""
    sent = 0
    daemons = [await cluster.daemon(i) for i in range(HOSTILE)]
    while not stopping.is_set():
        for source, daemon in enumerate(daemons):
            await daemon.send((source + 1) % HOSTILE, b"x", topic="meanwhile", timeout=30)
            sent += 1
        await asyncio.sleep(0.01)
    return sent


async def _read(cluster: Cluster, node_id: int) -> None:
    daemon = await cluster.daemon(node_id)
    async with daemon.subscribe("meanwhile") as messages:
        async for _ in messages:
            pass


def _rss(cluster: Cluster) -> list[int]:
    return [psutil.Process(cluster.pid(i)).memory_info().rss for i in range(HOSTILE)]


@asynccontextmanager
async def _busy(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster:
        await cluster.at_rest()
        await cluster.kill(HOSTILE)
        await cluster.at_rest()
        stopping = asyncio.Event()
        readers = [asyncio.create_task(_read(cluster, i)) for i in range(HOSTILE)]
        talking = asyncio.create_task(_talk(cluster, stopping))
        before = _rss(cluster)
        try:
            yield cluster
        finally:
            stopping.set()
        assert await talking > 0
        for reader in readers:
            reader.cancel()
        await cluster.at_rest()
        await cluster.exchange()
        grown = [after - rss for after, rss in zip(_rss(cluster), before, strict=True)]
        assert max(grown) < RSS_GROWTH_MAX
        for i in range(HOSTILE):
            log = cluster.log(i)
            assert "Traceback" not in log
            assert "a bug in bmgd" not in log


@pytest.mark.parametrize(
    "table", ["hello", "foreign", "framing", "msgpack", "semantics", "control"]
)
async def test_hostile_input_has_its_outcome_and_no_other(table: str, tmp_path: Path) -> None:
    wrong: list[str] = []
    async with _busy(tmp_path) as cluster:
        attack = Attack(cluster)
        path = cluster.control(TARGET).removeprefix("unix:")
        for case in cases_of(table):
            try:
                async with asyncio.timeout(DEADLINE_S):
                    if table == "control":
                        outcome = await _as_program(case, path)
                    elif table in ("hello", "foreign"):
                        outcome = await _as_stranger(case, attack)
                    else:
                        outcome = await _as_link(case, attack)
            except (TimeoutError, BmgdError, OSError, EOFError) as error:
                outcome = repr(error)
                attack.drop()
            if outcome != case["outcome"]:
                wrong.append(f"{case['name']}: {outcome}, not {case['outcome']}")
        attack.drop()
    assert not wrong, "\n".join(wrong)


def test_hostile_tables_are_as_large_as_they_were() -> None:
    sizes = {path.stem: len(cases_of(path.stem)) for path in TABLES.glob("*.toml")}
    assert sum(sizes.values()) >= 500, sizes
    assert all(sizes[table] >= least for table, least in LEAST.items()), sizes
