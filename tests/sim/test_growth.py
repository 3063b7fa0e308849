"""What a death, a silence and rest cost grows as docs/growth.md says; small clusters, the same code."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.growth.command import missing, read_rows, write_rows
from benchmarks.growth.report import PAGE, TABLES, memberlist_suspicion_s, serf_told_s, write_report
from benchmarks.growth.run import Effort, cases_of, footprint
from bmgd.core.membership.membership import Membership
from bmgd.profiles import PROFILES
from bmgd.sim.network import PEERS
from bmgd.topology import diameter_bound
from bmgd.types import NodeId, Status

SIZES: Final = (16, 64)
WAY_MS: Final = 0.1
LAN: Final = PROFILES["lan"]
Cases = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return [row for size in SIZES for row in cases_of(size, effort=Effort(2, 1, 2))]


@pytest.fixture(params=SIZES)
def cases(request: pytest.FixtureRequest, rows: list[dict[str, Any]]) -> Cases:
    return {row["case"]: row for row in rows if row["size"] == request.param}


def test_a_death_is_noticed_told_and_healed_in_time(cases: Cases) -> None:
    killed, size = cases["killed"], cases["killed"]["size"]
    gathered_ms = LAN.relayout_ms + 0.3 * size
    for at in range(2):
        noticed, told = killed["noticed_ms"][at], killed["told_ms"][at]
        assert noticed == 2 * WAY_MS
        assert noticed < told <= noticed + diameter_bound(size) * WAY_MS + 1e-9
        assert told < killed["healed_ms"][at] <= told + gathered_ms + 10 * WAY_MS
        assert killed["others_healed_ms"][at] <= killed["healed_ms"][at]


def test_a_death_costs_messages_as_the_logarithm(cases: Cases) -> None:
    killed = cases["killed"]
    log = math.log2(killed["size"])
    for messages, sent, dials in zip(
        killed["messages"], killed["bytes"], killed["dials"], strict=True
    ):
        assert log < messages < 3 * log
        assert 40 * messages < sent < 80 * messages
        assert 0.5 < dials < 2


def test_a_silence_is_noticed_after_the_timeout(cases: Cases) -> None:
    stopped = cases["stopped"]
    (noticed,), (told,), (healed,) = (
        stopped[f"{name}_ms"] for name in ("noticed", "told", "healed")
    )
    assert LAN.timeout_ms - LAN.heartbeat_ms <= noticed
    assert noticed <= LAN.timeout_ms + LAN.heartbeat_ms + LAN.ask_ms
    assert told <= noticed + diameter_bound(stopped["size"]) * WAY_MS + 1e-9
    assert told < healed < told + 50


def test_rest_costs_a_heartbeat_a_link_and_interval(cases: Cases) -> None:
    idle, links = cases["idle"], cases["start"]["links_per_node"]
    assert idle["messages_per_node_s"] == links * 1000 / LAN.heartbeat_ms
    assert idle["bytes_per_node_s"] == 60 * idle["messages_per_node_s"]


def test_a_membership_holds_nothing_but_exceptions() -> None:
    sizes = []
    for founders in (1_000, 100_000):
        membership = Membership(founders, PEERS)
        before = footprint(membership)
        record = membership.get(NodeId(7))
        assert record is not None
        membership.join(NodeId(7), record._replace(status=Status.EXCLUDED))
        assert footprint(membership) > before
        sizes.append(footprint(membership))
    assert sizes[1] - sizes[0] < 200


def test_a_core_grows_with_its_links_only(rows: list[dict[str, Any]]) -> None:
    starts = {row["size"]: row for row in rows if row["case"] == "start"}
    assert all(row["exceptions"] == 0 for row in starts.values())
    grown = starts[64]["core_bytes"] / starts[16]["core_bytes"]
    assert 1 < grown < starts[64]["links_per_node"] / starts[16]["links_per_node"]


def test_results_are_kept_and_known_again(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / "growth.jsonl"
    write_rows(path, [row for row in rows if (row["size"], row["case"]) != (64, "stopped")])
    with path.open("a") as file:
        file.write('{"size": 64, "case": "stop')
    assert missing(16, read_rows(path)) == []
    assert missing(64, read_rows(path)) == ["stopped"]


def test_the_page_is_made_from_the_results(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    page = tmp_path / "growth.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_report(rows, page)
    text = page.read_text(encoding="utf-8")
    for name in TABLES:
        _, _, after = text.partition(f"<!-- {name} -->")
        lines = after.partition("<!-- end of")[0].strip().splitlines()
        assert [line.split(" | ")[0] for line in lines[2:]] == ["| 16", "| 64"]
    assert (tmp_path / "results" / "growth-times.svg").read_text().startswith("<svg")


def test_what_others_publish_is_computed_as_they_do() -> None:
    # By hand: 1 / (1 + 31 exp(-1.5 * 9)) = 0.99996, with 8 rounds 0.99981.
    assert serf_told_s(30) == 1.8
    assert memberlist_suspicion_s(5) == 4.0
    assert memberlist_suspicion_s(10_000) == 16.0
