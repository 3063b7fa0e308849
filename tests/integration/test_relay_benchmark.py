"""`python -m benchmarks.relay` measures real relays, and goes on where it was interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.relay.command import summary
from benchmarks.relay.load import Case
from benchmarks.relay.targets import ROOT

CASES = "closed-64-8,open-1024-1,writes-64-1,one-64-1"


def run(out: Path, *words: str) -> tuple[dict[str, Any], str]:
    """The report, and what was said meanwhile."""
    command = [sys.executable, "-m", "benchmarks.relay", "--json", "--out", str(out), *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report, done.stderr


def test_relay_benchmark_passes_frames_through_both_relays_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    words = ("--rounds", "1", "--seconds", "0.05", "--cases", CASES)
    report, said = run(out, *words)
    rows = {(row["case"], row["relay"]): row for row in report["rows"]}
    for case in CASES.split(","):
        for relay in ("plain", "bmgd"):
            assert rows[case, relay]["frames_per_cpu_s"] > 0
            assert f"round 1 {case} {relay}" in said
    lines = out.read_text().splitlines()
    assert all(json.loads(line)["frames"] > 0 for line in lines[1:])
    out.write_text("\n".join(lines[:-1]) + "\n")
    again, said = run(out, *words)
    assert said.count("round 1") == 1
    assert len(out.read_text().splitlines()) == len(lines)
    assert {row["case"] for row in again["rows"]} == set(CASES.split(","))


def test_relay_benchmark_takes_no_samples_of_another_run(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    out.write_text('{"commit": "other"}\n')
    command = [sys.executable, "-m", "benchmarks.relay", "--out", str(out), "--cases", "one-64-1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "is of another run" in done.stderr


def test_relay_benchmark_compares_within_a_round() -> None:
    samples = [
        {"round": number, "case": "one-64-1", "relay": relay, "frames": 1000, "cpu_ns": cpu_ns}
        | {"kernel_ns": cpu_ns // 4}
        for number, times in enumerate([(1000, 2000), (10_000, 40_000), (3000, 3000)])
        for relay, cpu_ns in zip(("plain", "bmgd"), times, strict=True)
    ]
    rows = {row["relay"]: row for row in summary(samples, [Case("one", 64, 1)])}
    assert rows["plain"]["share_of_plain"] == 1
    assert rows["bmgd"]["share_of_plain"] == pytest.approx(0.5)
    assert rows["bmgd"]["in_kernel"] == 0.25
    assert (rows["bmgd"]["least"], rows["bmgd"]["greatest"]) == (0.25, 1.0)
