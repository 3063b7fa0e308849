"""Secrets rotate through a running cluster: no message is lost, no link breaks, no process restarts."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bmgd.cli import DONE, main
from bmgd.errors import BmgdError
from bmgd.secret import fingerprint, parse_secrets
from tests.integration.cluster import Cluster, founded, launched, until, until_true
from tests.integration.test_tls import certified, keys_of


async def using(cluster: Cluster, key: str) -> None:
    """Wait until every daemon has seen that this is the only secret."""

    async def condition() -> list[str]:
        seen = await cluster.statuses(range(cluster.size))
        return [f"{i}: {s['keys']}" for i, s in seen.items() if s["keys"] != [key]]

    await until("everybody has seen the file", condition)


async def under(cluster: Cluster, key: str) -> None:
    """Wait until every link of every daemon was made under this key."""

    async def condition() -> list[str]:
        seen = await cluster.statuses(range(cluster.size))
        return [
            f"{i} is linked to {row['id']} under {row['key']}"
            for i, status in seen.items()
            for row in status["links"]
            if row["key"] != key
        ]

    await until(f"all links are under {key}", condition)


async def chatter(cluster: Cluster, stopping: asyncio.Event) -> tuple[int, list[str]]:
    """Every node sends to every other, again and again; how many, and what went wrong."""
    sent, wrong = 0, []
    daemons = {i: await cluster.daemon(i) for i in range(cluster.size)}

    async def from_one(source: int) -> None:
        nonlocal sent
        while not stopping.is_set():
            for destination in range(cluster.size):
                try:
                    await daemons[source].send(destination, b"x", topic="rotation", timeout=30)
                    sent += 1
                except BmgdError as error:
                    wrong.append(f"{source} to {destination}: {error}")
                    return

    async with asyncio.TaskGroup() as tasks:
        for source in range(cluster.size):
            tasks.create_task(from_one(source))
    return sent, wrong


async def read_all(cluster: Cluster, node_id: int) -> int:
    got = 0
    daemon = await cluster.daemon(node_id)
    async with daemon.subscribe("rotation") as messages:
        async for _ in messages:
            got += 1
    return got


@asynccontextmanager
async def talking(cluster: Cluster) -> AsyncIterator[None]:
    """Every node sends to every other meanwhile; no message fails, and nobody suspects anybody."""
    stopping = asyncio.Event()
    readers = [asyncio.create_task(read_all(cluster, i)) for i in range(cluster.size)]
    talk = asyncio.create_task(chatter(cluster, stopping))
    yield
    stopping.set()
    sent, wrong = await talk
    assert not wrong, wrong
    assert sent > cluster.size
    for reader in readers:
        reader.cancel()
    for i in range(cluster.size):
        log = cluster.log(i)
        assert "suspected" not in log
        assert "verdict" not in log


async def test_rotation_of_secrets_under_traffic(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert main(["secret", "new", str(path)]) == DONE
    old = parse_secrets(path.read_bytes(), "")[0]
    async with launched(16, tmp_path, "--secret-file", str(path)) as cluster:
        await cluster.at_rest()
        await under(cluster, fingerprint(old))
        async with talking(cluster), never_unlinked(cluster):
            assert main(["secret", "add", str(path)]) == DONE
            new = parse_secrets(path.read_bytes(), "")[0]
            await under(cluster, fingerprint(new))
            assert main(["secret", "retire", str(path)]) == DONE
            await using(cluster, fingerprint(new))
            await under(cluster, fingerprint(new))
        await cluster.at_rest()
        await cluster.exchange()


@asynccontextmanager
async def never_unlinked(cluster: Cluster) -> AsyncIterator[None]:
    """No linked pair is without a link for a moment, by what both its ends observe and when."""
    changes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    watching: list[asyncio.Event] = []

    async def watch(node_id: int, began: asyncio.Event) -> None:
        daemon = await cluster.daemon(node_id)
        async with daemon.monitor() as events:
            began.set()
            async for event in events:
                pair, at_ns = (node_id, event["peer"]), event["at_ns"]
                if event["event"] == "link up":
                    changes.setdefault(pair, []).append((at_ns, 1))
                elif event["event"] == "link down":
                    # Whoever closes a link observes nothing: the other end does, a moment later.
                    changes.setdefault(pair, []).append((at_ns, -1))
                    changes.setdefault(pair[::-1], []).append((at_ns, -1))

    tasks = []
    for i in range(cluster.size):
        watching.append(asyncio.Event())
        tasks.append(asyncio.create_task(watch(i, watching[-1])))
    for began in watching:
        await began.wait()
    yield
    await cluster.statuses()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert changes
    for pair, seen in changes.items():
        # In the end there is one. If fewer are counted, the other end saw links go that were never up
        # here: dials that were given up when their peer's own dial came first.
        links = max(1, 1 - sum(change for _, change in seen))
        for _, change in sorted(seen):
            links += change
            assert links >= 1, f"{pair} were without a link"


async def test_rotation_of_certificates_under_traffic(tmp_path: Path) -> None:
    root, flags = certified(tmp_path, 16)
    async with launched(16, tmp_path, *flags) as cluster:
        await cluster.at_rest()
        before = {i: await keys_of(cluster, i) for i in range(16)}
        async with talking(cluster), never_unlinked(cluster):
            for i in range(16):
                fresh = await asyncio.to_thread(root.sign, f"bmgd/{i}", name=f"fresh-{i}")
                shutil.copy(fresh.key, tmp_path / f"node-{i}.key")
                shutil.copy(fresh.cert, tmp_path / f"node-{i}.pem")

            async def renewed() -> list[str]:
                now = {i: await keys_of(cluster, i) for i in range(16)}
                return [
                    f"{i}: {now[i]}" for i in range(16) if len(now[i]) > 1 or now[i] & before[i]
                ]

            await until("all links are under new certificates", renewed, 60)
        await cluster.at_rest()
        await cluster.exchange()


async def test_rotation_host_by_host_in_any_order(tmp_path: Path) -> None:
    of = [tmp_path / f"secret-{i}" for i in range(4)]
    assert main(["secret", "new", str(of[0])]) == DONE
    for path in of[1:]:
        shutil.copy(of[0], path)
    async with founded(4, tmp_path) as cluster:
        for i in range(4):
            cluster.start(i, flags=["--secret-file", str(of[i])])
        await cluster.at_rest()
        async with talking(cluster):
            assert main(["secret", "add", str(of[3])]) == DONE
            new = parse_secrets(of[3].read_bytes(), "")[0]
            for i in (3, 0, 2, 1):
                if i != 3:
                    shutil.copy(of[3], of[i])
                code, out = await cluster.command("reload", "--control", cluster.control(i))
                assert code == DONE, out
                assert fingerprint(new) in out
            await under(cluster, fingerprint(new))
            for i in (2, 3, 1, 0):
                assert main(["secret", "retire", str(of[i])]) == DONE
            await using(cluster, fingerprint(new))
            await under(cluster, fingerprint(new))
        await cluster.at_rest()


async def test_rotation_by_signal_and_by_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("only one\n")
    (tmp_path / "secret").chmod(0o600)
    async with founded(2, tmp_path) as cluster:
        cluster.start(0, 1, flags=["--secret-file", str(tmp_path / "secret")])
        await cluster.at_rest()
        (tmp_path / "secret").write_text("\n")
        os.kill(cluster.pid(0), signal.SIGHUP)
        await until_true("it is said", lambda: "nothing was changed" in cluster.log(0))
        code, out = await cluster.command("reload", "--control", cluster.control(1))
        assert code != DONE
        assert "nothing was changed" in out
        await cluster.exchange()


async def test_launch_makes_a_secret_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "launch.secret"
    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        assert path.stat().st_mode & 0o777 == 0o600
        (secret,) = parse_secrets(path.read_bytes(), "")
        assert len(secret) == 43
        await under(cluster, fingerprint(secret))
        assert "without a secret" not in cluster.log(0)
    assert not path.exists()


async def test_run_without_a_secret_says_what_that_means(tmp_path: Path) -> None:
    async with founded(1, tmp_path) as cluster:
        cluster.start(0)
        await until_true("it is said", lambda: "without a secret who" in cluster.log(0))
        (line,) = [text for text in cluster.log(0).splitlines() if "without a secret who" in text]
        assert "every user" in line
        assert "--secret-file" in line
