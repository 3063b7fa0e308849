"""Who does not belong is refused, and the running cluster does not notice."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bmgd.peers import PeerList
from bmgd.secret import key_id
from bmgd.types import Incarnation, NodeId
from bmgd.wire.hello import PROTOCOL_VERSION, Hello, Refusal, encode_hello
from tests.integration.cluster import (
    DEADLINE_S,
    Cluster,
    LaunchedCluster,
    founded,
    launched,
    until_true,
)
from tests.integration.ports import free_base_port

SIZE = 5
EXIT_S = 15.0
HELLO_S = 3.0
LOAD_MARGIN_S = 5.0
SILENT_CONNECTIONS = 300
HURRIED = "[timing]\nstart_ms = 1500\n"

NO_CHANGES: Mapping[str, str] = {}

Facts = dict[int, dict[str, Any]]


def _secret(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


async def _facts(cluster: Cluster) -> Facts:
    """What must not change at any daemon."""
    keys = ("pid", "incarnation", "version", "state", "alive", "dead", "left", "digest")
    facts = {}
    for node_id, status in (await cluster.statuses()).items():
        links = [(row["id"], row["dialled_by"], row["incarnation"]) for row in status["links"]]
        facts[node_id] = {**{key: status[key] for key in keys}, "links": links}
    return facts


@asynccontextmanager
async def _unharmed(cluster: Cluster) -> AsyncIterator[None]:
    """Assert that what happens in the block changes nothing, while messages flow."""
    await cluster.at_rest()
    before = await _facts(cluster)
    yield
    await cluster.exchange()
    assert await _facts(cluster) == before


# --- daemons that do not belong -------------------------------------------------------------------


async def _intruder_ends(
    cluster: LaunchedCluster, node_id: int, changes: Mapping[str, str] = NO_CHANGES
) -> str:
    """Run a daemon beside the cluster until it ends by itself, with a failure; returns its log."""
    port = free_base_port(1)
    # With a secret, who refuses for its sake proves nothing: the daemon waits until its start is over.
    hurried = cluster.directory / "hurried.toml"
    hurried.write_text(HURRIED)
    flags = {
        "config": str(hurried),
        "id": str(node_id),
        "size": str(cluster.size),
        "peers": f"127.0.0.1:{{{cluster.base_port}+id}}",
        "listen": f"127.0.0.1:{port}",
        "advertise": f"127.0.0.1:{port}",
        "control": f"unix:{cluster.directory}/intruder.sock",
        **changes,
    }
    words = [word for key, value in flags.items() for word in (f"--{key}", value) if value]
    began_s = time.monotonic()
    code, log = await cluster.command("run", *words, within_s=EXIT_S)
    assert code == 1, f"ended with {code} after {time.monotonic() - began_s:.1f} s:\n{log}"
    return log


def _fill(text: str, words: Mapping[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cluster": "other"}, "wrong cluster"),
        ({"size": "4"}, "wrong size"),
        ({"peers": "localhost:{PORT+id}"}, "wrong peers"),
        ({"secret-file": "OTHER"}, "wrong secret"),
        ({"secret-file": ""}, "wrong secret"),
    ],
    ids=["cluster", "size", "peers", "secret", "no secret"],
)
@pytest.mark.parametrize("node_id", [3, 0])
async def test_refusals_of_a_daemon_configured_otherwise(
    changes: dict[str, str], reason: str, node_id: int, tmp_path: Path
) -> None:
    secret = _secret(tmp_path, "secret", "right")
    _secret(tmp_path, "other", "wrong")
    async with launched(SIZE, tmp_path, "--secret-file", secret) as cluster:
        words = {"PORT": str(cluster.base_port), "OTHER": str(tmp_path / "other")}
        flags = {"secret-file": secret} | {key: _fill(text, words) for key, text in changes.items()}
        async with _unharmed(cluster):
            log = await _intruder_ends(cluster, node_id, flags)
        assert f"every neighbor refuses this node: {reason}" in log


async def test_refusals_of_a_secret_where_the_cluster_has_none(tmp_path: Path) -> None:
    secret = _secret(tmp_path, "secret", "too much")
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        log = await _intruder_ends(cluster, 3, {"secret-file": secret})
        assert "every neighbor refuses this node: wrong secret" in log


@pytest.mark.parametrize("node_id", [0, 2, 4])
async def test_refusals_of_a_living_id(node_id: int, tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        log = await _intruder_ends(cluster, node_id)
        assert f"another living daemon has the id {node_id}" in log


async def test_refusals_of_a_living_id_that_has_lived_longer(tmp_path: Path) -> None:
    state = tmp_path / "old"
    state.mkdir()
    (state / "incarnation-2").write_text("1000\n")
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        log = await _intruder_ends(cluster, 2, {"state-dir": str(state)})
        assert "another living daemon has the id 2" in log


async def test_refusals_of_the_own_address_under_the_id_of_another(tmp_path: Path) -> None:
    base = free_base_port(3)
    peers = f"127.0.0.1:{base},127.0.0.1:{base + 1},127.1:{base}"
    async with founded(3, tmp_path, peers=peers, toml=HURRIED) as cluster:
        cluster.start(0, 1)
        await cluster.at_rest()
        await cluster.exchange()
        # Each dials it a second after its start, or when it dials the dead again.
        said = {0: "rejected peer 2 (own address)", 1: "rejected peer 2 (wrong id: "}
        await until_true(
            "both say so", lambda: all(text in cluster.log(i) for i, text in said.items())
        )
        own = f"127.0.0.1:{base + 2}"
        cluster.start(2, flags=["--listen", own, "--advertise", own])
        await cluster.at_rest()
        await cluster.exchange()


# --- bytes that do not belong ---------------------------------------------------------------------


async def _talk(port: int, data: bytes) -> tuple[bytes, float]:
    """Send bytes to a daemon; returns what it answers and the seconds until it closes."""
    began_s = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(data)
        async with asyncio.timeout(DEADLINE_S):
            while chunk := await reader.read(4096):
                answer += chunk
    except ConnectionError:
        # Closing with unread bytes resets the connection.
        pass
    finally:
        writer.close()
    return answer, time.monotonic() - began_s


def _record(kind: int, body: bytes) -> bytes:
    return b"BMGD" + bytes((kind,)) + len(body).to_bytes(2, "big") + body


def _hello(cluster: Cluster, node_id: int, to: int) -> bytes:
    """The body of a hello that the cluster would welcome, were it not for what a test changes."""
    peers = PeerList.parse(f"127.0.0.1:{{{cluster.base_port}+id}}", cluster.size)
    return encode_hello(
        Hello(
            has_secret=False,
            cluster="bmgd",
            founding_size=cluster.size,
            fingerprint=peers.fingerprint(),
            id=NodeId(node_id),
            expected=NodeId(to),
            known=Incarnation(0),
            incarnation=Incarnation(2**40),
            dial_number=1,
            nonce=random.randbytes(16),
            address=peers.address_of(NodeId(node_id)),
        )
    )


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="bmgd")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def _refusal_in(answer: bytes) -> Refusal:
    assert answer[:5] == b"BMGD\x04", f"not a refusal: {answer!r}"
    return Refusal(answer[7])


async def test_refusals_of_another_protocol_version(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        later = (PROTOCOL_VERSION + 1).to_bytes(2, "big")
        body = later + later + _hello(cluster, 3, 1)[4:]
        answer, _ = await _talk(cluster.base_port + 1, _record(1, body))
        assert _refusal_in(answer) is Refusal.WRONG_VERSION


async def test_refusals_of_a_hello_for_another_id(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        answer, _ = await _talk(cluster.base_port + 1, _record(1, _hello(cluster, 3, 2)))
        assert _refusal_in(answer) is Refusal.WRONG_ID


async def test_refusals_of_a_forged_proof(tmp_path: Path) -> None:
    secret = _secret(tmp_path, "secret", "right")
    async with launched(SIZE, tmp_path, "--secret-file", secret) as cluster, _unharmed(cluster):
        # The flag in the fifth byte claims a secret, as does its key id; the proof is made up.
        body = bytearray(_hello(cluster, 3, 1) + b"\x01\x02" + key_id(b"right"))
        body[4] |= 1
        forged = _record(1, bytes(body)) + _record(2, bytes(32))
        answer, _ = await _talk(cluster.base_port + 1, forged)
        assert answer[4] == 1, "its own hello comes first"
        assert Refusal.WRONG_SECRET in answer[-9:-8]


FOREIGN = {
    "garbage": random.Random(1).randbytes(4096),
    "http": b"GET / HTTP/1.1\r\nHost: bmgd\r\n\r\n",
    "too long": b"BMGD\x01\xff\xff" + bytes(2000),
    "unknown record": _record(9, bytes(100)),
    "proof without hello": _record(2, bytes(32)),
    "short hello": _record(1, b"\x00\x02"),
    "endless": _record(1, b"\x00\x02\x00\x02" + bytes(400)) * 3,
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
async def test_refusals_of_foreign_bytes(data: bytes, tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        for port in range(cluster.base_port, cluster.base_port + SIZE):
            answer, seconds = await _talk(port, data)
            assert answer == b""
            assert seconds < HELLO_S, "it was not closed at once"


async def test_refusals_of_tls_without_a_certificate_say_so(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        answer, seconds = await _talk(cluster.base_port + 1, _client_hello())
        assert _refusal_in(answer) is Refusal.WRONG_TLS
        assert seconds < HELLO_S, "it was not closed at once"


@pytest.mark.parametrize("data", [b"", b"BMGD\x01"], ids=["silent", "half a hello"])
async def test_refusals_of_a_connection_that_says_no_more(data: bytes, tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster, _unharmed(cluster):
        answer, seconds = await _talk(cluster.base_port + 1, data)
        assert answer == b""
        assert HELLO_S * 0.9 < seconds < HELLO_S + LOAD_MARGIN_S


async def test_refusals_of_garbage_after_a_welcome_end_only_that_link(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster:
        await cluster.at_rest()
        await cluster.kill(3)
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.base_port + 1)
        writer.write(_record(1, _hello(cluster, 3, 1)))
        async with asyncio.timeout(DEADLINE_S):
            await reader.readuntil(_record(3, b"")[:5])
            writer.write(random.Random(2).randbytes(999))
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        await cluster.restart(3)
        await cluster.at_rest()
        await cluster.exchange()


async def test_refusals_of_many_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, "--without-secret") as cluster:
        await cluster.at_rest()
        await cluster.kill(4)
        async with _silent_connections(cluster, 1):
            await cluster.restart(4)
            await cluster.at_rest()
            await cluster.exchange()


@asynccontextmanager
async def _silent_connections(cluster: Cluster, node_id: int) -> AsyncIterator[None]:
    port = cluster.base_port + node_id
    pairs = await asyncio.gather(
        *(asyncio.open_connection("127.0.0.1", port) for _ in range(SILENT_CONNECTIONS))
    )
    try:
        yield
    finally:
        for _, writer in pairs:
            writer.close()
