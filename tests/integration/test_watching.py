"""What watches a real cluster: `bmgd check`, `bmgd top`, probes and metrics, and reports in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.cluster import Cluster, founded, launched, until, until_true
from tests.integration.ports import free_base_port

SIZE = 8
PATIENT = "[timing]\ntimeout_ms = 60000\n"
"""With this, a stopped daemon is not held dead within a test."""


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """The status and body of one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    async with asyncio.timeout(30):
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def check(cluster: Cluster, node: int, *flags: str) -> tuple[int, str]:
    words = ("check", "--control", cluster.control(node), *flags)
    return await cluster.command(*words, within_s=60.0)


async def test_check_tells_ready_links_and_agreement_of_a_live_cluster(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path, toml=PATIENT) as cluster:
        await cluster.at_rest()
        code, line = await check(cluster, 2, "--timeout", "20")
        assert code == 0, line
        assert re.fullmatch(
            r"BMGD OK: node 2 is ready; all \d neighbors are linked; all 8 nodes agree"
            r" \| ready=1 links=\d links_missing=0 alive=8 dead=0 memberships=1\n",
            line,
        )
        cluster.stop(5)
        # One that nobody has looked at before: it has no report of the stopped one.
        code, line = await check(cluster, 4, "--agree", "--timeout", "0.1")
        assert code == 1, line
        assert "nodes answer" in line
        cluster.go_on(5)
        code, line = await check(cluster, 2, "--ready", "--json")
        assert json.loads(line)["state"] == "OK"
        control = cluster.control(3)
        await cluster.kill(3)
        code, line = await cluster.command("check", "--control", control)
        assert (code, line.startswith("BMGD CRITICAL: ")) == (2, True)
        assert (await cluster.command("check"))[0] == 3
        await cluster.at_rest()


async def test_check_warns_of_daemons_that_run_with_other_options(tmp_path: Path) -> None:
    async with founded(3, tmp_path) as cluster:
        cluster.start(0, 1)
        cluster.start(2, flags=["--quorum", "majority", "--profile", "wan"])
        await cluster.at_rest()
        code, line = await check(cluster, 1, "--timeout", "20")
        assert code == 1, line
        assert (
            "all 3 nodes agree, but their quorum, heartbeat_ms, timeout_ms, ask_ms differ" in line
        )
        assert "quorum=majority" in (await cluster.status(2))["settings"]
        assert "quorum=off" in (await cluster.status(0))["settings"]


async def test_daemon_that_is_cut_off_from_everybody_is_not_ready(tmp_path: Path) -> None:
    port = free_base_port(3)
    async with launched(3, tmp_path, "--http", str(port)) as cluster:
        await cluster.at_rest()
        assert await ask(port, "/readyz") == (200, "ready\n")
        assert await ask(port, "/healthz") == (200, "ok\n")
        # From here it looks the same as a cable that was pulled: nobody is there.
        await cluster.kill(1, 2)

        async def condition() -> list[str]:
            status, body = await ask(port, "/readyz")
            return [] if status == 503 and "cut off from everybody" in body else [body]

        await until("isolation is seen", condition)
        assert (await cluster.status(0))["isolated"] is True
        code, line = await check(cluster, 0, "--ready")
        assert (code, "cut off from everybody" in line) == (2, True)
        assert await ask(port, "/healthz") == (200, "ok\n")
        assert "bmgd_isolated 1\n" in (await ask(port, "/metrics"))[1]
        await cluster.restart(1)

        async def ready() -> list[str]:
            status, body = await ask(port, "/readyz")
            return [] if (status, body) == (200, "ready\n") else [body]

        # The link is up at the other end first.
        await until("it is ready again", ready)


async def test_top_prints_plain_lines_without_a_terminal(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path) as cluster:
        await cluster.at_rest()
        words = ("top", "--control", cluster.control(1), "--interval", "1.5", "--count", "1")

        async def table() -> list[str]:
            code, text = await cluster.command(*words)
            assert code == 0
            lines = text.splitlines()
            assert f"bmgd seen from node 1: {SIZE} alive, 0 dead, 0 left" in lines[0]
            rows = [line.split() for line in lines[2 : 2 + SIZE]]
            assert [row[0] for row in rows] == [str(i) for i in range(SIZE)]
            return [str(row) for row in rows if row[1] != "ready"]

        # A daemon of a busy machine may not report in time for a look.
        await until("all are ready", table)

        async def document() -> list[str]:
            code, text = await cluster.command(*words, "--json")
            assert code == 0
            nodes = json.loads(text)["nodes"]
            assert len(nodes) == SIZE
            return [str(n) for n in nodes if n["sent_per_s"] <= 0 or n["links"] < 5]

        await until("all have rates and links", document)


async def test_top_in_a_terminal_obeys_its_keys(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path) as cluster:
        await cluster.at_rest()
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "bmgd", "top", "--control", cluster.control(0)]
        environment = {**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "120"}
        process = subprocess.Popen(  # noqa: ASYNC220
            [*command, "--interval", "0.3"], stdin=theirs, stdout=theirs, env=environment
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        seen = ""

        def shows(text: str) -> bool:
            nonlocal seen
            with contextlib.suppress(BlockingIOError, OSError):
                seen += os.read(ours, 1 << 16).decode(errors="replace")
            return text in seen

        try:
            await until_true("the table", lambda: shows(f"{SIZE} alive") and shows("ready"))
            os.write(ours, b" ")
            await until_true("the pause", lambda: shows("PAUSED"))
            os.write(ours, b"/7\n")
            await until_true("the filter", lambda: shows("filter: 7"))
            os.write(ours, b"q")
            await until_true("the end", lambda: shows("\0") or process.poll() is not None)
            assert process.returncode == 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            os.close(ours)


async def test_reports_are_not_sent_while_nobody_looks(tmp_path: Path) -> None:
    port = free_base_port(SIZE)

    async def reports_sent() -> int:
        bodies = [(await ask(port + i, "/metrics"))[1] for i in range(SIZE)]
        return sum(
            int(match[1])
            for body in bodies
            if (match := re.search(r"^bmgd_reports_sent_total (\d+)$", body, re.M))
        )

    async with launched(SIZE, tmp_path, "--http", str(port)) as cluster:
        await cluster.at_rest()
        assert await reports_sent() == 0
        assert (await ask(port, "/api/cluster"))[0] == 200

        async def asked() -> list[str]:
            document = json.loads((await ask(port, "/api/cluster"))[1])
            agree = document["summary"]["agree"]
            return [] if agree == "yes" and len(document["reports"]) == SIZE else [agree]

        await until("all have reported", asked)
        before = await reports_sent()
        assert before >= SIZE - 1
        # The lease ends by itself, and with it the asking.
        counts = [before]

        async def rests() -> list[str]:
            counts.append(await reports_sent())
            await asyncio.sleep(1.2)
            counts.append(await reports_sent())
            return [] if counts[-1] == counts[-2] else [f"{counts[-2:]}"]

        await until("nobody is asked any more", rests)
