"""Links under TLS on real processes: a cluster heals as without it; who does not belong is told why."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from bmgd.cli import DONE
from bmgd.errors import ControlError
from tests.certificates import Certificate, Root, sign_later
from tests.integration.cluster import (
    Cluster,
    FoundedCluster,
    ended,
    founded,
    launched,
    until,
    until_true,
)

SIZE = 5
DEADLINE_S = 30.0


def certified(directory: Path, size: int = SIZE) -> tuple[Root, list[str]]:
    """A root, a certificate for each node, and the arguments that all daemons share."""
    root = Root(directory)
    for i in range(size):
        root.sign(f"bmgd/{i}", name=f"node-{i}")
    flags = [
        "--tls-cert",
        f"{directory}/node-{{id}}.pem",
        "--tls-key",
        f"{directory}/node-{{id}}.key",
    ]
    return root, [*flags, "--tls-ca", str(root.cert), "--tls-ids", "required"]


async def keys_of(cluster: Cluster, node_id: int) -> set[str]:
    status = await cluster.status(node_id)
    return {row["key"] for row in status["links"]}


@pytest.mark.parametrize("with_secret", [True, False])
async def test_tls_cluster_kills_and_heals(with_secret: bool, tmp_path: Path) -> None:
    _, flags = certified(tmp_path)
    flags += [] if with_secret else ["--without-secret"]
    async with launched(SIZE, tmp_path, *flags) as cluster:
        await cluster.at_rest()
        await cluster.exchange()
        for i in range(SIZE):
            (key,) = await keys_of(cluster, i)
            assert key.count("+") == with_secret
        await cluster.kill(3)
        await cluster.at_rest()
        await cluster.exchange()
        await cluster.restart(3)
        await cluster.at_rest()
        await cluster.exchange()
        cluster.stop(2)
        await asyncio.sleep(0)
        cluster.go_on(2)
        await cluster.at_rest()
        await cluster.exchange()


async def test_tls_carries_much_through_relays(tmp_path: Path) -> None:
    _, flags = certified(tmp_path, 9)
    async with launched(9, tmp_path, *flags) as cluster:
        await cluster.at_rest()
        path = (await cluster.traces([(0, 3)]))[0, 3]
        assert len(path) == 3, "there is no relay between them"
        sender = await cluster.daemon(0)
        payload = os.urandom(60_000)
        async with cluster.reading(3, "much") as messages:
            for _ in range(10):
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(10):
                        tasks.create_task(sender.send(3, payload, topic="much", timeout=60))
            await until_true("all came", lambda: len(messages) == 100)
            assert all(message.payload == payload for message in messages)


async def test_tls_nothing_readable_travels(tmp_path: Path) -> None:
    """What goes over the wire is records of TLS; a stranger in between reads none of it."""
    _, flags = certified(tmp_path, 1)
    async with launched(1, tmp_path, *flags) as cluster:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.base_port)
        context = ssl.create_default_context(cafile=str(tmp_path / "root.pem"))
        context.check_hostname = False
        outgoing = ssl.MemoryBIO()
        nobody = context.wrap_bio(ssl.MemoryBIO(), outgoing)
        with suppress(ssl.SSLWantReadError):
            nobody.do_handshake()
        writer.write(outgoing.read())
        async with asyncio.timeout(DEADLINE_S):
            answer = await reader.read(4096)
        assert answer[:2] == b"\x16\x03"
        assert b"bmgd" not in answer.lower()
        writer.close()


def bad_ones(directory: Path, root: Root) -> dict[str, Certificate]:
    """Certificates that node 2 of 3 should not get in with, by what is said of them."""
    elsewhere = Root(directory, "elsewhere").sign("bmgd/2")
    return {
        "certificate has expired": root.sign("bmgd/2", days=-1),
        "certificate is not yet valid": sign_later(root, directory, "later"),
        "unable to get local issuer certificate": Certificate(
            elsewhere.cert, elsewhere.key, root.cert
        ),
        "it is for bmgd/1": root.sign("bmgd/1"),
        "it is for other/2": root.sign("other/2"),
        "it names no id": root.sign(),
    }


async def intruder_ends(cluster: FoundedCluster, name: str, flags: list[str]) -> str:
    """Start node 2 with these flags; it ends with 1. Returns its log."""
    path = cluster.directory / f"{name}.log"
    # What is refused outside a channel is believed when the start is over.
    hurried = cluster.directory / "hurried.toml"
    hurried.write_text("[timing]\nstart_ms = 1500\n")
    with path.open("wb") as log:
        port = cluster.base_port
        words = ["run", "--id", "2", "--size", "3", "--peers", f"127.0.0.1:{{{port}+id}}", *flags]
        words += ["--config", str(hurried)]
        process = cluster.spawn(words, log)
        try:
            assert await ended(process) == 1
        finally:
            process.kill()
    return path.read_text()


async def test_tls_refuses_clearly(tmp_path: Path) -> None:
    root, flags = certified(tmp_path, 3)
    async with founded(3, tmp_path, *flags) as cluster:
        cluster.start(0, 1)

        async def linked() -> list[str]:
            try:
                seen = [len((await cluster.status(i))["links"]) for i in (0, 1)]
            except ControlError as error:
                return [str(error)]
            return [] if seen == [1, 1] else [str(seen)]

        await until("both are linked", linked)
        for number, (why, bad) in enumerate(bad_ones(tmp_path, root).items()):
            log = await intruder_ends(
                cluster, f"intruder-{number}", [*bad.flags, "--tls-ids", "required"]
            )
            assert "every neighbor refuses this node: wrong certificate" in log, why
            is_dated = "expired" in why or "not yet valid" in why
            assert (f"no new link can be made: the certificate in {bad.cert}" in log) == is_dated
            await until_true(
                why,
                lambda why=why: why in cluster.log(0) + cluster.log(1),  # type: ignore[misc]
            )
        log = await intruder_ends(cluster, "intruder-plain", [])
        assert "wrong tls: one of the two daemons has --tls-cert" in log
        await until_true("plain text is said", lambda: "it speaks without TLS" in cluster.log(0))
        cluster.start(2)
        await cluster.at_rest()
        await cluster.exchange()


async def test_tls_to_a_cluster_without_it_is_refused_clearly(tmp_path: Path) -> None:
    _, flags = certified(tmp_path, 3)
    async with founded(3, tmp_path) as cluster:
        cluster.start(0, 1)
        await cluster.listening(0)
        await cluster.listening(1)
        log = await intruder_ends(cluster, "intruder", flags)
        assert "every neighbor refuses this node: wrong tls" in log
        await until_true("it is said", lambda: "wrong tls (it speaks TLS)" in cluster.log(0))
        cluster.start(2)
        await cluster.at_rest()


async def test_tls_lets_joiners_in_whose_certificate_says_so(tmp_path: Path) -> None:
    root, flags = certified(tmp_path, 2)
    joiners = root.sign("bmgd/any")
    async with founded(2, tmp_path, *flags) as cluster:
        cluster.start(0, 1)
        await cluster.at_rest()
        # Behind the founders, where ports are kept free for joiners.
        port = cluster.base_port + 2
        words = ["run", "--join", f"127.0.0.1:{cluster.base_port}", "--listen", f"127.0.0.1:{port}"]
        with (tmp_path / "joiner.log").open("wb") as log:
            process = cluster.spawn([*words, *joiners.flags, "--tls-ids", "required"], log)
            try:

                async def joined() -> list[str]:
                    status = await cluster.status(0)
                    linked = [row["id"] for row in status["links"]]
                    return [] if linked == [1, 2] else [f"linked to {linked}"]

                await until("the joiner is in", joined)
            finally:
                process.terminate()
                assert await ended(process) == 0


async def test_tls_certificates_rotate(tmp_path: Path) -> None:
    root, flags = certified(tmp_path)
    async with launched(SIZE, tmp_path, *flags) as cluster:
        await cluster.at_rest()
        before = {i: await keys_of(cluster, i) for i in range(SIZE)}
        for i in range(SIZE):
            fresh = root.sign(f"bmgd/{i}", name=f"fresh-{i}")
            shutil.copy(fresh.key, tmp_path / f"node-{i}.key")
            shutil.copy(fresh.cert, tmp_path / f"node-{i}.pem")
            code, out = await cluster.command("reload", "--control", cluster.control(i))
            assert code == DONE, out

        async def renewed() -> list[str]:
            now = {i: await keys_of(cluster, i) for i in range(SIZE)}
            return [f"{i}: {now[i]}" for i in range(SIZE) if len(now[i]) > 1 or now[i] & before[i]]

        await until("all links are under new certificates", renewed)
        await cluster.at_rest()
        await cluster.exchange()
        for i in range(SIZE):
            assert "suspected" not in cluster.log(i)
        (tmp_path / "node-0.pem").write_text("no certificate")
        code, out = await cluster.command("reload", "--control", cluster.control(0))
        assert code != DONE
        assert "nothing was changed" in out
        await cluster.exchange()
        stale = root.sign("bmgd/0", days=-1)
        shutil.copy(stale.key, tmp_path / "node-0.key")
        shutil.copy(stale.cert, tmp_path / "node-0.pem")
        code, out = await cluster.command("reload", "--control", cluster.control(0))
        assert code != DONE
        said = f"others would refuse the certificate in {tmp_path}/node-0.pem (certificate has expired)"
        assert said in out
        await cluster.exchange()
