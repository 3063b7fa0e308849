"""Real daemons: when the dead leave the graph, how links follow, and what a profile gives."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bmgd.healing import hop_overhead
from bmgd.topology import BinomialGraph
from tests.integration.cluster import LaunchedCluster, launched, until

LOAD_MARGIN_MS = 1500.0
RELAYOUTS_MAX = 10


async def _all_know(cluster: LaunchedCluster, dead: list[int]) -> None:
    async def condition() -> list[str]:
        statuses = await cluster.statuses()
        return [f"node {i}: {s['dead']}" for i, s in statuses.items() if s["dead"] != sorted(dead)]

    await until("the deaths known", condition)


async def test_policy_after_three_deaths_heals_with_the_third(tmp_path: Path) -> None:
    async with launched(12, tmp_path, "--healing", "after:3") as cluster:
        await cluster.kill(4, 9)
        await cluster.at_rest(layout=range(12))
        await cluster.exchange()
        await cluster.kill(5)
        statuses = await cluster.at_rest()
        assert all(s["healing"]["policy"] == "after:3" for s in statuses.values())
        assert all(s["healing"]["unhealed"] == [] for s in statuses.values())
        await cluster.exchange()


async def test_policy_by_overhead_heals_when_ways_are_too_long(tmp_path: Path) -> None:
    size, percent = 16, 6
    async with launched(size, tmp_path, "--healing", f"overhead:{percent}%") as cluster:
        dead: list[int] = []
        for victim in (3, 8, 13, 0, 5, 10):
            await cluster.kill(victim)
            dead.append(victim)
            await _all_know(cluster, dead)
            if hop_overhead(size, dead).percent > percent:
                break
            await cluster.at_rest(layout=range(size))
        else:
            raise AssertionError("the ways never got too long")
        await cluster.at_rest()
        await cluster.exchange()


async def test_policy_never_leaves_a_node_with_dead_neighbors_only(tmp_path: Path) -> None:
    async with launched(12, tmp_path, "--healing", "after:100") as cluster:
        neighbors = [int(i) for i in BinomialGraph(12).neighbors(0)]
        for victim in neighbors[:-2]:
            await cluster.kill(victim)
            await cluster.at_rest(layout=range(12))
        await cluster.kill(neighbors[-2])
        await cluster.at_rest()
        await cluster.exchange()


@pytest.mark.parametrize("size", [9, 16])
async def test_naive_reconstruction_makes_all_links_anew(size: int, tmp_path: Path) -> None:
    async with launched(size, tmp_path, "--reconstruction", "naive") as cluster:
        await cluster.at_rest()
        await cluster.kill(2)
        statuses = await cluster.at_rest()
        rows = [status["healing"] for status in statuses.values()]
        full, healed = BinomialGraph(size).degree, BinomialGraph(size - 1).degree
        assert sum(row["links_added"] for row in rows) == healed * (size - 1)
        assert sum(row["links_removed"] for row in rows) == full * size - 2 * full
        assert {event["peer"] for event in await cluster.reported("verdict")} == {2}
        await cluster.exchange()


@pytest.mark.parametrize("size", [16, 40])
async def test_half_of_the_daemons_at_once_make_few_new_graphs(size: int, tmp_path: Path) -> None:
    async with launched(size, tmp_path) as cluster:
        await cluster.at_rest()
        await cluster.kill(*Random(size).sample(range(size), size // 2))
        statuses = await cluster.at_rest()
        assert max(s["healing"]["relayouts"] for s in statuses.values()) <= RELAYOUTS_MAX
        await cluster.exchange()


async def test_killed_daemon_behind_a_proxy_is_asked_about_first(tmp_path: Path) -> None:
    async with launched(8, tmp_path, toml="proxied = true\n") as cluster:
        await cluster.at_rest()
        killed_ns = await cluster.kill(3)
        await cluster.at_rest()
        assert {event["peer"] for event in await cluster.reported("verdict", killed_ns)} == {3}
        assert {event["peer"] for event in await cluster.reported("suspected", killed_ns)} == {3}


async def test_profile_local_finds_a_stopped_daemon_sooner(tmp_path: Path) -> None:
    async with launched(9, tmp_path, "--profile", "local") as cluster:
        await cluster.at_rest()
        most_ms = 1500 + LOAD_MARGIN_MS
        assert await cluster.stop_and_find(4, most_ms) < most_ms
        cluster.go_on(4)
        await cluster.at_rest()
