"""The page in a real Chromium against 16 real daemons: what happens is seen within a second."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bmgd.launcher.rundir import RunDir
from bmgd.topology import BinomialGraph
from bmgd.trials.proxy_control import controlling
from tests.integration.cluster import LaunchedCluster, launched, until
from tests.integration.ports import free_base_port
from tests.page.browser import Page, needs_chromium, shown

pytestmark = needs_chromium

SIZE = 16
TOKEN = "0123456789abcdef0123"
SEEN_MS = 5000.0
"""On a busy machine; on a quiet one it is a fraction of a second, which the recorded properties tell."""
Record = Callable[[str, object], None]


def wall_ms(monotonic_ns: int) -> float:
    """A monotonic moment of this machine in milliseconds of the epoch."""
    return time.time() * 1000 - (time.monotonic_ns() - monotonic_ns) / 1e6


@asynccontextmanager
async def page_of(
    tmp_path: Path, *flags: str, size: int = SIZE, dark: bool = False
) -> AsyncIterator[tuple[LaunchedCluster, Page]]:
    """A cluster with pages, and the page of node 0 with every node on it."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    port = free_base_port(size)
    http = ("--http", str(port), "--http-token-file", str(token))
    async with launched(size, tmp_path, *http, *flags) as cluster:
        await cluster.at_rest()
        async with shown(f"http://127.0.0.1:{port}/#token={TOKEN}", dark=dark) as page:
            await page.when("agreement", "yes")
            await all_linked(page, list(range(size)))
            yield cluster, page
            assert await page.complaints() == []


def graph_links(members: list[int]) -> dict[int, list[int]]:
    """Each member's neighbors in the graph over these ids."""
    graph = BinomialGraph(len(members))
    return {i: sorted(members[r] for r in graph.neighbors(rank)) for rank, i in enumerate(members)}


async def all_linked(page: Page, members: list[int]) -> None:
    """Wait until the table has exactly the graph's links."""
    wanted = graph_links(members)

    async def condition() -> list[str]:
        seen = await page.links(members)
        return [f"{i}: {seen[i]}, not {wanted[i]}" for i in members if seen[i] != wanted[i]]

    await until("the page shows the graph's links", condition)


async def shows(page: Page, selector: str, text: str) -> None:
    """Wait until an element has this text: the sums come at another time than what they sum up."""
    script = f"return document.querySelector('{selector}').innerText"
    await page.until(f"{selector} is {text!r}", lambda shown: shown == text, script)


async def links_seen_ms(page: Page, members: list[int], since_ms: float) -> float:
    """When the last of the graph's links was shown."""
    await all_linked(page, members)
    wanted = graph_links(members)
    last: dict[str, float] = {}
    for at_ms, what, value in await page.changes(since_ms):
        node = what.removesuffix(" has")
        if what.endswith(" has") and value == ",".join(map(str, wanted.get(int(node), []))):
            last.setdefault(what, at_ms)
    return max(last.values())


async def last_exact_ms(cluster: LaunchedCluster, since_ns: int) -> float:
    """When the last daemon had exactly its links."""
    return max(wall_ms(event["at_ns"]) for event in await cluster.reported("links exact", since_ns))


async def test_page_shows_a_death_the_healing_and_the_return(
    tmp_path: Path, record_property: Record
) -> None:
    async with page_of(tmp_path) as (cluster, page):
        await shows(page, "#agreement", f"All {SIZE} nodes agree")
        await shows(page, "#count-alive", str(SIZE))
        assert (
            int(await page.text("#count-links"))
            == sum(map(len, graph_links(list(range(SIZE))).values())) // 2
        )
        await page.picture("1-at-rest")

        killed_ns = await cluster.kill(5)
        dead_ms = await page.when("5 is", "dead", wall_ms(killed_ns))
        await page.picture("2-killed")
        await cluster.told_of(5, killed_ns)
        told_ms = min(
            wall_ms(event["at_ns"])
            for event in await cluster.reported("notice", killed_ns, id=0, peer=5)
        )
        assert dead_ms - told_ms < SEEN_MS
        await cluster.at_rest()
        survivors = [i for i in range(SIZE) if i != 5]
        healed_ms = await links_seen_ms(page, survivors, wall_ms(killed_ns))
        exact_ms = await last_exact_ms(cluster, killed_ns)
        assert healed_ms - exact_ms < SEEN_MS
        await shows(page, "#count-dead", "1")
        events = await page.text("#events")
        assert "node 5 died; the graph closes over it" in events
        assert "new links to" in events
        await page.picture("3-healed")

        born_ns = time.monotonic_ns()
        await cluster.restart(5)
        back_ms = await page.when("5 is", "alive", wall_ms(born_ns))
        born_ms = min(
            wall_ms(event["at_ns"])
            for event in await cluster.reported("notice", born_ns, id=0, peer=5)
        )
        assert back_ms - born_ms < SEEN_MS
        await all_linked(page, list(range(SIZE)))
        await page.when("agreement", "yes", back_ms)
        await page.picture("4-returned")
        record_property("death_seen_ms", round(dead_ms - told_ms))
        record_property("healing_seen_ms", round(healed_ms - exact_ms))
        record_property("return_seen_ms", round(back_ms - born_ms))


async def test_page_shows_a_stopped_node_and_its_refutation(
    tmp_path: Path, record_property: Record
) -> None:
    async with page_of(tmp_path, dark=True) as (cluster, page):
        stopped_ns = cluster.stop(9)
        dead_ms = await page.when("9 is", "dead", wall_ms(stopped_ns))
        await page.picture("5-stopped")
        notices = await cluster.reported("notice", stopped_ns, id=0, peer=9)
        assert dead_ms - wall_ms(notices[0]["at_ns"]) < SEEN_MS
        cluster.go_on(9)
        gone_on_ms = time.time() * 1000
        back_ms = await page.when("9 is", "alive", gone_on_ms)
        alive = await cluster.reported("notice", stopped_ns, id=0, peer=9, status="alive")
        assert back_ms - wall_ms(alive[0]["at_ns"]) < SEEN_MS
        await all_linked(page, list(range(SIZE)))
        record_property("stop_seen_ms", round(dead_ms - wall_ms(notices[0]["at_ns"])))


async def test_page_shows_a_partition_from_one_side_and_its_end(tmp_path: Path) -> None:
    near, far = list(range(SIZE // 2)), list(range(SIZE // 2, SIZE))
    async with page_of(tmp_path, "--fault-proxy") as (cluster, page):
        async with controlling(RunDir.at(str(cluster.directory)).between_socket) as proxy:
            parted_ms = time.time() * 1000
            await proxy.part([near, far])
            for node in far:
                await page.when(f"{node} is", "dead", parted_ms)
            await all_linked(page, near)
            await shows(page, "#count-alive", str(len(near)))
            await shows(page, "#count-dead", str(len(far)))
            await page.picture("6-partition")
            await proxy.mend()
            mended_ms = time.time() * 1000
            for node in far:
                await page.when(f"{node} is", "alive", mended_ms)
        await all_linked(page, list(range(SIZE)))
        await shows(page, "#agreement", f"All {SIZE} nodes agree")


async def test_page_traces_a_path_and_shows_a_node_and_looks_back(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (cluster, page):
        await page.script("document.querySelector('tr[data-node=\"3\"] button').click()")
        assert await page.text("#detail-heading") == "Node 3"
        assert f"127.0.0.1:{cluster.base_port + 3}" in await page.text("#detail-facts")
        rows = await page.script(
            "return document.querySelectorAll('#detail-links tbody tr').length"
        )
        assert rows == len(graph_links(list(range(SIZE)))[3])
        await page.script("document.querySelector('tr[data-node=\"12\"] button').click()")
        await page.script("document.querySelector('#path-form button').click()")
        found = await page.until(
            "a path",
            lambda text: "hops" in text,
            "return document.querySelector('#path-result').innerText",
        )
        assert found.startswith("3 → ")
        assert "→ 12: 2 hops" in found
        await page.picture("7-path")

        killed_ns = await cluster.kill(7)
        await page.when("7 is", "dead", wall_ms(killed_ns))
        await page.until(
            "the death is on the timeline",
            lambda count: count > 0,
            "return document.querySelectorAll('#events [data-kind=record]').length",
        )
        await page.script("document.querySelector('#events li:last-child button').click()")
        assert "As it was" in await page.text("#past")
        looks = "return bmgdRing.nodes.map((node) => node.look)"
        assert "dead" not in await page.script(looks)
        await page.script("document.querySelector('#live').click()")
        assert (await page.script(looks))[7] == "dead"


async def test_page_works_by_keyboard_and_says_what_it_shows(tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    async with page_of(tmp_path) as (_, page):
        ring = page.driver.find_element("id", "ring")
        ring.send_keys(Keys.ARROW_RIGHT)
        ring.send_keys(Keys.ARROW_RIGHT)
        assert await page.text("#detail-heading") == "Node 1"
        ring.send_keys(Keys.ESCAPE)
        assert await page.text("#detail-heading") == "Node"
        unnamed = await page.script(
            "return [...document.querySelectorAll('button, input, select, canvas')].filter((e) =>"
            " !(e.innerText || e.ariaLabel || (e.labels && e.labels.length))).map((e) => e.outerHTML)"
        )
        assert unnamed == []
        outside = await page.script(
            "return performance.getEntriesByType('resource').map((e) => e.name)"
            ".filter((name) => !name.startsWith(location.origin))"
        )
        assert outside == []


async def test_page_asks_for_the_token_and_goes_on_with_it(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (_, first):
        url = first.driver.current_url
        async with shown(url) as page:
            await page.until(
                "the form",
                lambda hidden: hidden is False,
                "return document.querySelector('#token-form').hidden",
            )
            assert await page.text("#count-alive") == "–"
            await page.script(
                "document.querySelector('#token').value = arguments[0];"
                "document.querySelector('#token-form button').click()",
                TOKEN,
            )
            await page.when("agreement", "yes")
            # The browser itself complains of the 401.
            assert all("401" in line for line in await page.complaints())


@pytest.mark.parametrize("dark", [False, True])
async def test_page_of_one_daemon_without_a_token_shows_and_does_not_trace(
    tmp_path: Path, dark: bool
) -> None:
    port = free_base_port(3)
    async with launched(3, tmp_path, "--http", str(port)) as cluster:
        await cluster.at_rest()
        async with shown(f"http://localhost:{port + 1}/", dark=dark) as page:
            await page.when("agreement", "yes")
            assert "seen from node 1" in await page.text("h1")
            assert "--http-token-file" in await page.text("#path-result")
            assert await page.script("return document.querySelector('#path-from').disabled")
            assert await page.complaints() == []
