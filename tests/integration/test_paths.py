"""Every pair of real daemons reaches each other on a way of exactly the optimal length."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from bmgd.topology import BinomialGraph
from tests.integration.cluster import (
    Flavour,
    check_optimal,
    in_all_flavours,
    launched,
    ordered_pairs,
)

SIZES = [2, 3, 7, 8, 9, 12, 16, 33]
LATE_JOIN = "[timing]\njoin_ms = 60000\n"
"""With this, a lower id does not dial within a test."""
RELAYED_PING_S = 0.15
"""Far above what it takes on a busy machine, far below the half second between two heartbeats, for which
every ping of a row would wait, since one follows the other."""


@pytest.mark.parametrize("size", SIZES)
async def test_paths_between_all_pairs_are_optimal(size: int, tmp_path: Path) -> None:
    async with launched(size, tmp_path) as cluster:
        await cluster.at_rest()
        check_optimal(await cluster.traces(ordered_pairs(range(size))), range(size))
        await cluster.exchange()


@in_all_flavours
async def test_paths_are_optimal_on_every_loop_and_backend(
    flavour: Flavour, tmp_path: Path
) -> None:
    async with launched(12, tmp_path, flavour=flavour) as cluster:
        statuses = await cluster.at_rest()
        assert {(s["loop"], s["backend"]) for s in statuses.values()} == {
            (flavour.loop, flavour.backend)
        }
        check_optimal(await cluster.traces(ordered_pairs(range(12))), range(12))
        await cluster.exchange()


@pytest.mark.parametrize("size", [2, 9, 16])
async def test_paths_run_over_links_that_the_higher_id_dialled(size: int, tmp_path: Path) -> None:
    async with launched(size, tmp_path, toml=LATE_JOIN) as cluster:
        for node_id, status in (await cluster.at_rest()).items():
            for row in status["links"]:
                assert row["dialled_by"] == max(node_id, row["id"])


async def test_paths_to_oneself_have_no_step(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        daemon = await cluster.daemon(1)
        assert (await daemon.trace(1)).path == (1,)
        assert await daemon.ping(1) >= 0


async def test_paths_of_two_hops_do_not_wait_for_a_timer_of_the_relay(tmp_path: Path) -> None:
    async with launched(16, tmp_path) as cluster:
        await cluster.at_rest()
        far = next(b for b in range(16) if BinomialGraph(16).hops(0, b) == 2)
        daemon = await cluster.daemon(0)
        times_s = [await daemon.ping(far) for _ in range(21)]
        assert statistics.median(times_s) < RELAYED_PING_S, times_s
