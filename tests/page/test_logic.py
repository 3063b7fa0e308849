"""The page's own logic, without a browser: Node.js runs it over a document as small as it can be."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[2] / "bmgd" / "shell" / "page"
NODE = shutil.which("node") or shutil.which("nodejs")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
DEADLINE_S = 60.0

BEGIN = """
import assert from "node:assert/strict";
import { $, cluster, daemon, load, member, pass, report, spend, summary } from "./document.mjs";
const rows = () => $("nodes").tBodies[0].children.map((row) => row.dataset.node);
const connection = () => `${document.body.dataset.connection}: ${$("connection").textContent}`;
"""


async def carried_out(tmp_path: Path, script: str, *flags: str) -> None:
    """Run a script of a test beside the page's files; it fails where an assertion of it does."""
    for file in PAGE.glob("*.js"):
        shutil.copy(file, tmp_path)
    shutil.copy(HERE / "document.mjs", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "test.js").write_text(BEGIN + script)
    process = await asyncio.create_subprocess_exec(
        str(NODE), *flags, "test.js", cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 0, output.decode()


async def test_page_shows_every_node_of_the_cluster(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        await load();
        daemon.tell("cluster", cluster([0, 1, 2]));
        await pass(1000);
        assert.deepEqual(rows(), [0, 1, 2]);
        assert.equal($("agreement").textContent, "All 3 nodes agree");
        assert.equal($("count-links").textContent, "3");
        assert.equal(connection(), "live: live");
        process.exit(0);
        """,
    )


async def test_page_names_options_that_differ(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        await load();
        daemon.tell("cluster", cluster([0, 1, 2]));
        daemon.tell("summary", summary(3, { settings_differ: ["quorum", "ask_ms"] }));
        await pass(1000);
        assert.equal($("agreement").textContent, "All 3 agree; their quorum, ask_ms differ");
        daemon.tell("summary", summary(3, { settings_differ: [] }));
        await pass(1000);
        assert.equal($("agreement").textContent, "All 3 nodes agree");
        process.exit(0);
        """,
    )


async def test_page_that_hears_nothing_says_so_and_connects_again(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        await load();
        daemon.tell("cluster", cluster([0, 1]));
        for (let i = 0; i < 6; i += 1) {
          await pass(10000);
          daemon.write(": beat\\n\\n");
        }
        await pass(1000);
        assert.equal(connection(), "live: live");
        assert.equal(daemon.asked.length, 1);
        // The daemon is stopped, or the way to it is gone: nothing comes, and nothing ends.
        daemon.answers = false;
        await pass(30000);
        assert.equal(connection(), "lost: node 0 does not answer");
        await pass(60000);
        daemon.answers = true;
        await pass(30000);
        daemon.tell("cluster", cluster([0, 1]));
        await pass(1000);
        assert.equal(connection(), "live: live");
        process.exit(0);
        """,
    )


async def test_page_says_that_a_bug_of_its_own_is_one_and_no_silent_daemon(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        const failed = [];
        process.on("unhandledRejection", (error) => failed.push(error));
        await load();
        daemon.tell("cluster", cluster([0, 1]));
        await pass(1000);
        daemon.tell("report", null);
        await pass(1000);
        assert.match(connection(), /^lost: a bug of this page: .*; load it again$/);
        await new Promise(setImmediate);
        assert.equal(failed.length, 1);
        assert.ok(failed[0] instanceof TypeError);
        process.exit(0);
        """,
    )


async def test_page_that_connects_again_forgets_what_it_had(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        const event = (n) => ({ n, t: n, kind: "record", node: 1, status: "alive" });
        const ring = await load();
        daemon.tell("cluster", cluster([0, 1, 2, 3], { events: [event(1), event(2)] }));
        await pass(1000);
        daemon.tell("event", event(3));
        await pass(1000);
        // Somebody looks back when the daemon goes; another cluster is at its port then, a smaller one.
        $("scrub").handlers.input({ target: { value: "2" } });
        assert.match($("past-text").textContent, /^As it was at/);
        daemon.end();
        await pass(1000);
        daemon.tell("cluster", cluster([0, 1]));
        await pass(1000);
        assert.deepEqual(rows(), [0, 1]);
        assert.deepEqual(ring.nodes.map((node) => node.id), [0, 1]);
        assert.equal($("past").hidden, true);
        assert.equal($("scrub").max, 0);
        daemon.tell("member", member(1, "excluded"));
        await pass(1000);
        assert.equal(ring.nodes[1].look, "dead");
        process.exit(0);
        """,
    )


async def test_page_asks_again_for_a_token_that_cannot_be_one(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        // As pasted out of a text that shortens it; no header can hold it.
        await load({ hash: "#token=%zz\\u2026" });
        assert.equal(daemon.asked.length, 0);
        assert.equal(connection(), "lost: the token is wanted");
        assert.equal($("token-problem").textContent, "That is not the token.");
        $("token").value = " 0123456789abcdef\\n";
        $("token-form").onsubmit({ preventDefault() {} });
        await pass(0);
        assert.equal(daemon.asked[0].headers.Authorization, "Bearer 0123456789abcdef");
        process.exit(0);
        """,
    )


async def test_page_says_of_which_moment_a_picture_is(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        const event = (n) => ({ n, t: n, kind: "record", node: 1, status: "excluded" });
        const ring = await load();
        daemon.tell("cluster", cluster([0, 1, 2], { events: [event(1)] }));
        await pass(1000);
        daemon.tell("member", member(1, "excluded"));
        daemon.tell("event", event(2));
        await pass(1000);
        daemon.tell("member", member(1, "alive"));
        daemon.tell("report", report(1, [0, 2]));
        await pass(1000);
        const look = (at) => $("scrub").handlers.input({ target: { value: String(at) } });
        look(1);
        assert.match($("past-text").textContent, /^As it was at/);
        assert.equal(ring.nodes[1].look, "dead");
        assert.deepEqual([...ring.links.keys()], ["0-2"]);
        // It happened before the page was there.
        look(0);
        assert.match($("past-text").textContent, /^As it was when this page was opened, after/);
        assert.equal(ring.nodes[1].look, "alive");
        assert.equal(ring.links.size, 3);
        process.exit(0);
        """,
    )


async def test_page_keeps_pictures_of_many_links_within_a_bound(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        const ids = [...Array(200).keys()];
        const event = (n) => ({ n, t: n, kind: "record", node: 1, status: "alive" });
        const ring = await load();
        daemon.tell("cluster", cluster(ids));
        for (let n = 0; n < 200; n += 1) {
          daemon.tell("event", event(n));
          daemon.tell("report", report(0, ids.slice(1, 50 + n % 2), { uptime_s: n + 2 }));
          await pass(300);
        }
        global.gc();
        const held = process.memoryUsage();
        const mb = (held.heapUsed + held.arrayBuffers) / 1e6;
        assert.ok(mb < 100, `${mb} MB`);
        const look = (at) => $("scrub").handlers.input({ target: { value: String(at) } });
        look(0);
        assert.match($("past-text").textContent, /^As it is now; there is no picture any more of/);
        look(198);
        assert.match($("past-text").textContent, /^As it was at/);
        assert.equal(ring.links.size, 200 * 199 / 2);
        process.exit(0);
        """,
        "--expose-gc",
    )


async def test_page_rests_between_drawings_that_take_long(tmp_path: Path) -> None:
    await carried_out(
        tmp_path,
        """
        const ring = await load();
        daemon.tell("cluster", cluster([0, 1, 2]));
        await pass(2000);
        let drawn = 0;
        const connect = ring.connect.bind(ring);
        ring.connect = (...all) => {
          drawn += 1;
          spend(60); // as with 1,000 nodes on a slow machine
          connect(...all);
        };
        const began = performance.now();
        while (performance.now() < began + 6000) {
          daemon.tell("report", report(1, [0, 2], { uptime_s: performance.now() }));
          await pass(4);
        }
        const share = (60 * drawn) / (performance.now() - began);
        assert.ok(drawn > 10 && share < 0.3, `${drawn} drawings, ${share} of the time`);
        process.exit(0);
        """,
    )
