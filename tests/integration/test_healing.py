"""After deaths, the links of real daemons are exactly the healed graph of the papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bmgd.topology import BinomialGraph
from tests.integration.cluster import (
    BOTH_ENDS,
    Flavour,
    LaunchedCluster,
    check_optimal,
    in_two_flavours,
    launched,
    ordered_pairs,
    until,
)

Record = Callable[[str, object], None]
"""pytest's `record_property`: numbers that a JUnit report shows."""

STOP_FOUND_MS = 2500.0
LOAD_MARGIN_MS = 1500.0


async def _kill_and_check(cluster: LaunchedCluster, victims: list[int], record: Record) -> None:
    """Kill daemons; assert that all hear of it, heal, and reach each other on optimal ways."""
    await cluster.at_rest()
    killed_ns = await cluster.kill(*victims)
    told_ms = [await cluster.told_of(victim, killed_ns) for victim in victims]
    await cluster.at_rest()
    exact = [event["at_ns"] for event in cluster.found("links exact", killed_ns)]
    record("told_ms", round(max(told_ms), 2))
    record("exact_ms", round((max(exact) - killed_ns) / 1e6, 2) if exact else None)
    check_optimal(await cluster.traces(ordered_pairs(cluster.alive)), cluster.alive)
    await cluster.exchange()


def _neighbors(size: int, node_id: int) -> list[int]:
    return list(BinomialGraph(size).neighbors(node_id))


@pytest.mark.parametrize("size", [2, 3, 7, 8, 9, 12, 16, 33])
async def test_healing_after_one_death(size: int, tmp_path: Path, record_property: Record) -> None:
    async with launched(size, tmp_path) as cluster:
        await _kill_and_check(cluster, [size // 2], record_property)


@in_two_flavours
async def test_healing_on_every_loop_and_backend(
    flavour: Flavour, tmp_path: Path, record_property: Record
) -> None:
    async with launched(12, tmp_path, flavour=flavour) as cluster:
        await _kill_and_check(cluster, [0, 11], record_property)


@pytest.mark.parametrize("size", [7, 8, 16, 33])
async def test_healing_after_two_adjacent_deaths(
    size: int, tmp_path: Path, record_property: Record
) -> None:
    async with launched(size, tmp_path) as cluster:
        await _kill_and_check(cluster, [2, 3], record_property)


@pytest.mark.parametrize("size", [8, 9, 12, 16, 33])
async def test_healing_after_the_death_of_all_neighbors_but_one(
    size: int, tmp_path: Path, record_property: Record
) -> None:
    async with launched(size, tmp_path) as cluster:
        await _kill_and_check(cluster, _neighbors(size, 5)[1:], record_property)


@pytest.mark.parametrize("size", [12, 16])
async def test_healing_links_a_node_again_whose_neighbors_all_died(
    size: int, tmp_path: Path, record_property: Record
) -> None:
    async with launched(size, tmp_path) as cluster:
        await _kill_and_check(cluster, _neighbors(size, 5), record_property)


async def test_healing_after_each_of_many_deaths_down_to_one(
    tmp_path: Path, record_property: Record
) -> None:
    async with launched(6, tmp_path) as cluster:
        for victim in (3, 0, 5, 1, 4):
            await _kill_and_check(cluster, [victim], record_property)
        assert (await cluster.status(2))["links"] == []


@pytest.mark.parametrize(
    ("size", "flavour"), [(2, BOTH_ENDS[0]), (9, BOTH_ENDS[1]), (16, BOTH_ENDS[0])]
)
async def test_healing_around_a_stopped_node_that_comes_back_with_a_higher_version(
    size: int, flavour: Flavour, tmp_path: Path, record_property: Record
) -> None:
    stopped = size // 2
    async with launched(size, tmp_path, flavour=flavour) as cluster:
        before = (await cluster.at_rest())[stopped]
        most_ms = STOP_FOUND_MS + LOAD_MARGIN_MS
        found_ms = await cluster.stop_and_find(stopped, most_ms)
        record_property("found_ms", round(found_ms, 1))
        assert found_ms < most_ms
        await _healed_without(cluster, stopped)
        cluster.go_on(stopped)
        statuses = await cluster.at_rest()
        assert statuses[stopped]["incarnation"] == before["incarnation"]
        assert statuses[stopped]["version"] > before["version"]
        await _all_know_the_version(cluster, stopped, statuses[stopped]["version"])
        check_optimal(await cluster.traces(ordered_pairs(range(size))), range(size))
        await cluster.exchange()


async def _healed_without(cluster: LaunchedCluster, stopped: int) -> None:
    """Wait until those that run have the graph without the stopped one, and reach each other."""
    cluster.gone.add(stopped)
    await cluster.at_rest()
    check_optimal(await cluster.traces(ordered_pairs(cluster.alive)), cluster.alive)
    await cluster.exchange()
    cluster.gone.discard(stopped)


async def _all_know_the_version(cluster: LaunchedCluster, node_id: int, version: int) -> None:
    async def condition() -> list[str]:
        wrong = []
        for asked in cluster.alive:
            row = (await (await cluster.daemon(asked)).members())[node_id]
            if (row["status"], row["version"]) != ("alive", version):
                wrong.append(f"node {asked} believes {row}")
        return wrong

    await until(f"version {version} of {node_id} known", condition)
