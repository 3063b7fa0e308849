"""Without healing, messages find their way around the dead, whichever δ-1 nodes have died."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from bmgd.topology import BinomialGraph
from tests.integration.cluster import (
    Flavour,
    LaunchedCluster,
    in_two_flavours,
    launched,
    ordered_pairs,
)


def _live_hops(size: int, alive: Collection[int], source: int) -> dict[int, int]:
    """The hops from a node to each other one in the graph without the dead, by breadth-first search."""
    graph, found, waiting = BinomialGraph(size), {source: 0}, deque([source])
    while waiting:
        here = waiting.popleft()
        for there in graph.neighbors(here):
            if there in alive and there not in found:
                found[there] = found[here] + 1
                waiting.append(there)
    return found


def _check_ways(
    size: int, alive: Collection[int], paths: Mapping[tuple[int, int], tuple[int, ...]]
) -> int:
    """Assert that every way is over live links; returns how many are longer than the optimum."""
    graph = BinomialGraph(size)
    live = {source: _live_hops(size, alive, source) for source in alive}
    detours = 0
    for (a, b), path in paths.items():
        assert (path[0], path[-1]) == (a, b), f"the way from {a} to {b} is {path}"
        assert set(path) <= set(alive), f"{path} goes through a dead node"
        steps = pairwise(path)
        assert all(there in graph.neighbors(here) for here, there in steps), f"{path} is no way"
        assert live[a][b] <= len(path) - 1 <= 2 * (size - 1), f"{path}: {live[a][b]} hops suffice"
        detours += len(path) - 1 > graph.hops(a, b)
    return detours


def _must_detour(size: int, alive: Collection[int]) -> int:
    """How many pairs have no live way of the optimal length."""
    graph = BinomialGraph(size)
    live = {source: _live_hops(size, alive, source) for source in alive}
    return sum(live[a][b] > graph.hops(a, b) for a, b in ordered_pairs(alive))


def _neighbors(size: int, node_id: int) -> list[int]:
    return list(BinomialGraph(size).neighbors(node_id))


async def _kill_and_check(cluster: LaunchedCluster, victims: list[int]) -> int:
    """Kill daemons, and check all ways between the others; returns how many are detours."""
    await cluster.at_rest()
    await cluster.kill(*victims)
    await cluster.at_rest(layout=range(cluster.size))
    paths = await cluster.traces(ordered_pairs(cluster.alive))
    detours = _check_ways(cluster.size, cluster.alive, paths)
    assert detours >= _must_detour(cluster.size, cluster.alive)
    await cluster.exchange()
    return detours


@pytest.mark.parametrize("size", [8, 12, 16, 33])
async def test_careful_around_the_whole_neighborhood_but_one(size: int, tmp_path: Path) -> None:
    victims = _neighbors(size, 4)[:-1]
    async with launched(size, tmp_path, "--healing", "off") as cluster:
        assert await _kill_and_check(cluster, victims) > 0


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
@pytest.mark.parametrize("size", [9, 12, 16])
async def test_careful_around_random_deaths(size: int, seed: int, tmp_path: Path) -> None:
    victims = random.Random(seed).sample(range(size), BinomialGraph(size).degree - 1)
    async with launched(size, tmp_path, "--healing", "off") as cluster:
        await _kill_and_check(cluster, victims)


@in_two_flavours
async def test_careful_on_every_loop_and_backend(flavour: Flavour, tmp_path: Path) -> None:
    victims = _neighbors(16, 9)[1:]
    async with launched(16, tmp_path, "--healing", "off", flavour=flavour) as cluster:
        await _kill_and_check(cluster, victims)


async def test_careful_pings_answer_while_the_dead_are_not_known_yet(tmp_path: Path) -> None:
    async with launched(16, tmp_path, "--healing", "off") as cluster:
        await cluster.at_rest()
        daemons = [await cluster.daemon(i) for i in range(16)]
        await cluster.kill(*_neighbors(16, 4)[:-1])
        for a, b in ordered_pairs(cluster.alive):
            assert await daemons[a].ping(b) > 0
