"""The life of a member, on real processes: eviction, growth, leaving, restarts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.cluster import launched, until_true


async def test_evicted_daemon_ends_and_is_left(tmp_path: Path) -> None:
    async with launched(5, tmp_path) as cluster:
        where = ["--run-dir", str(tmp_path), "--id", "1", "--json"]
        code, output = await cluster.command("evict", "3", *where)
        assert (code, json.loads(output)) == (0, {"id": 3, "ended": True})
        cluster.gone.add(3)
        await until_true("its process ended", lambda: bool(cluster.found("ended", id=3, code=1)))
        await cluster.told_of(3, 0, "left")
        code, output = await cluster.command("evict", "5", *where)
        assert (code, "no node has the id 5" in output) == (1, True)
