"""`bmgd bench` on a real cluster: its tables and its JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.cluster import launched

SIZE = 8


async def test_bench_measures_latency_throughput_and_fan_out(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path) as cluster:
        await cluster.at_rest()
        place = ("--run-dir", str(tmp_path))
        code, text = await cluster.command(
            "bench", *place, "--id", "2", "--seconds", "0.5", "--json", within_s=120.0
        )
        assert code == 0, text
        found = json.loads(text)
        assert (found["from"], found["daemons"]) == (2, SIZE)
        assert sum(row["nodes"] for row in found["latency"]) == SIZE - 1
        for row in found["latency"]:
            assert 0 < row["probe_p50_ms"] <= row["probe_p99_ms"]
            assert 0 < row["send_p50_ms"] <= row["send_p99_ms"]
        assert len(found["throughput"]) == 3
        for row in found["throughput"]:
            assert row["messages_per_s"] > 0
            assert row["not_taken"] == 0
        assert [row["quality"] for row in found["fan-out"]] == ["reliable", "best-effort"]
        assert found["fan-out"][0]["not_arrived"] == 0
        # Nothing of it stays: no reader, no message that waits for one.
        for i in range(SIZE):
            assert (await cluster.status(i))["waiting"] == 0
        await cluster.exchange()


async def test_bench_times_a_death_when_it_is_asked_to(tmp_path: Path) -> None:
    async with launched(SIZE, tmp_path) as cluster:
        await cluster.at_rest()
        words = ("bench", "latency", "--run-dir", str(tmp_path), "--kill", "5", "--size", "64")
        code, text = await cluster.command(*words, within_s=120.0)
        assert code == 0, text
        assert "a death: from SIGKILL until a survivor knows" in text
        columns, row = (line.split() for line in text.strip().splitlines()[-2:])
        told = dict(zip(columns, row, strict=True))
        assert (told["victim"], told["told"]) == ("5", str(SIZE - 1))
        assert 0 < float(told["first_ms"]) <= float(told["last_ms"])
        await cluster.at_rest()


async def test_bench_with_one_socket_sends_probes_only(tmp_path: Path) -> None:
    async with launched(4, tmp_path) as cluster:
        await cluster.at_rest()
        control = ("--control", cluster.control(1))
        code, text = await cluster.command("bench", *control, "--json")
        assert code == 0, text
        found = json.loads(text)
        assert set(found) == {"from", "daemons", "size_bytes", "latency"}
        assert found["latency"][0]["send_p50_ms"] is None
        for wrong in (["throughput"], ["--kill", "2"], ["--id", "1"], ["nonsense"]):
            assert (await cluster.command("bench", *control, *wrong))[0] == 2
        for wrong in (["--seconds", "61"], ["--size", "70000"], ["--size", "1"]):
            assert (await cluster.command("bench", *control, *wrong))[0] == 2
