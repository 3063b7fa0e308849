"""Founders join in whatever order they are started, late, missing for a while, or started again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bmgd.topology import BinomialGraph
from tests.integration.cluster import (
    Cluster,
    Flavour,
    FoundedCluster,
    check_optimal,
    founded,
    in_two_flavours,
    launched,
    ordered_pairs,
    until,
)

SIZE = 9
ORDERS = {
    "ascending": list(range(SIZE)),
    "descending": list(reversed(range(SIZE))),
    "shuffled": random.Random(7).sample(range(SIZE), SIZE),
}
PATIENT = "[timing]\nstart_ms = 120000\n"
HURRIED = "[timing]\nstart_ms = 2000\n"


async def _check_whole(cluster: Cluster) -> None:
    await cluster.at_rest()
    check_optimal(await cluster.traces(ordered_pairs(cluster.alive)), cluster.alive)
    await cluster.exchange()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_start_in_any_order(order: list[int], tmp_path: Path) -> None:
    async with founded(SIZE, tmp_path, toml=PATIENT) as cluster:
        for node_id in order:
            cluster.start(node_id)
            await cluster.listening(node_id)
        await _check_whole(cluster)


@in_two_flavours
async def test_start_all_at_once(flavour: Flavour, tmp_path: Path) -> None:
    async with founded(12, tmp_path, flavour=flavour) as cluster:
        cluster.start(*range(12))
        await _check_whole(cluster)


async def test_start_waits_for_one_that_is_missing(tmp_path: Path) -> None:
    missing = 3
    async with founded(SIZE, tmp_path, toml=PATIENT) as cluster:
        cluster.start(*(i for i in range(SIZE) if i != missing))
        await until("all linked but one", lambda: _unlinked_without(cluster, missing))
        for node_id, status in (await cluster.statuses()).items():
            waits = missing in BinomialGraph(SIZE).neighbors(node_id)
            assert status["state"] == ("joining" if waits else "ready")
            assert status["dead"] == []
        await cluster.exchange()
        cluster.start(missing)
        await _check_whole(cluster)


async def _unlinked_without(cluster: FoundedCluster, missing: int) -> list[str]:
    """Which links of the others are not up yet."""
    wrong = []
    for node_id in cluster.alive:
        await cluster.listening(node_id)
        status = await cluster.status(node_id)
        up = {row["id"] for row in status["links"]}
        wanted = set(BinomialGraph(SIZE).neighbors(node_id)) - {missing}
        if up != wanted:
            wrong.append(f"node {node_id} has links {sorted(up)}")
        elif status["state"] == "joining" and missing not in BinomialGraph(SIZE).neighbors(node_id):
            wrong.append(f"node {node_id} is joining")
    return wrong


async def test_start_goes_on_without_a_missing_one_past_the_deadline(tmp_path: Path) -> None:
    missing = 3
    async with founded(SIZE, tmp_path, toml=HURRIED) as cluster:
        cluster.start(*(i for i in range(SIZE) if i != missing))
        await _check_whole(cluster)
        cluster.start(missing)
        await _check_whole(cluster)


async def test_start_of_the_only_one_needs_nobody(tmp_path: Path) -> None:
    async with founded(1, tmp_path) as cluster:
        cluster.start(0)
        await cluster.listening(0)
        await cluster.at_rest()


# --- started again --------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_state", [False, True], ids=["forgets", "keeps state"])
@in_two_flavours
async def test_start_again_at_once_is_a_new_life_for_everybody(
    flavour: Flavour,
    keeps_state: bool,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    flags = ["--state-dir", str(tmp_path / "state")] if keeps_state else []
    async with launched(SIZE, tmp_path, *flags, flavour=flavour) as cluster:
        for node_id in (0, 4, 8, 4):
            before = (await cluster.at_rest())[node_id]
            killed_ns = await cluster.kill(node_id)
            seconds = await cluster.restart(node_id)
            listening = await cluster.reported("listening", killed_ns, id=node_id)
            record_property("listening_ms", round((listening[-1]["at_ns"] - killed_ns) / 1e6, 1))
            record_property("ready_ms", round(seconds * 1e3, 1))
            after = (await cluster.at_rest())[node_id]
            assert after["incarnation"] > before["incarnation"]
            await _all_know_the_life(cluster, node_id, after["incarnation"])
            await cluster.exchange()


async def _all_know_the_life(cluster: Cluster, node_id: int, incarnation: int) -> None:
    for asked in cluster.alive:
        row = (await (await cluster.daemon(asked)).members())[node_id]
        assert (row["status"], row["incarnation"]) == ("alive", incarnation), f"at node {asked}"


@pytest.mark.parametrize("keeps_state", [False, True], ids=["forgets", "keeps state"])
async def test_start_again_after_everybody_healed(keeps_state: bool, tmp_path: Path) -> None:
    flags = ["--state-dir", str(tmp_path / "state")] if keeps_state else []
    async with launched(SIZE, tmp_path, *flags) as cluster:
        await cluster.at_rest()
        await cluster.kill(2, 6)
        await cluster.at_rest()
        await cluster.restart(6)
        await _check_whole(cluster)
        await cluster.restart(2)
        await _check_whole(cluster)


async def test_start_again_of_all_but_one_at_the_same_time(tmp_path: Path) -> None:
    async with founded(SIZE, tmp_path) as cluster:
        cluster.start(*range(SIZE))
        await cluster.at_rest()
        await cluster.kill(*range(1, SIZE))
        cluster.start(*range(1, SIZE))
        await _check_whole(cluster)
