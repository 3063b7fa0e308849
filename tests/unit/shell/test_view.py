"""The view of the cluster: when others are asked, what is believed of a report, what is summed up."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from bmgd.cli.cluster_table import line_of, rows_of
from bmgd.config import Config
from bmgd.core.commands import AskReports, Command, ShowMembers
from bmgd.core.effects import Observed, RecordChanged
from bmgd.peers import PeerList
from bmgd.profiles import PROFILES
from bmgd.shell import view as view_module
from bmgd.shell.foreign_report import parse_report
from bmgd.shell.node_report import link_rows, report_bytes
from bmgd.shell.shared_settings import differing, shared_settings
from bmgd.shell.view import ASKS_PER_S, TIMELINE_MAX, ClusterView
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.bounds import REPORT_BYTES_MAX

DEADLINE_S = 10.0


def report(node_id: int, peers: list[int], **changes: Any) -> dict[str, Any]:
    facts = {
        "id": node_id,
        "state": "ready",
        "digest": "00",
        "incarnation": "1",
        "suspects": [],
        "wanted": peers,
        "isolated": False,
        "stands_aside": False,
        "links": [[peer, 0, 0, 0, 0, 0, 0, 0, 0] for peer in peers],
    }
    return {**facts, **changes}


class Cluster:
    """A view over nodes that answer from a table."""

    def __init__(self, size: int) -> None:
        near = range(-4, 5)
        peers = {i: sorted({(i + step) % size for step in near} - {i}) for i in range(size)}
        self.reports = {i: report(i, peers[i]) for i in range(size)}
        self.asked: list[int] = []
        self.published: list[tuple[str, Any]] = []
        self.view = ClusterView(NodeId(0), self.issue, self.own, self.publish)

    def own(self, keep: Callable[[dict[str, Any]], None]) -> None:
        keep(self.reports[0])

    def publish(self, name: str, value: object) -> None:
        self.published.append((name, json.loads(json.dumps(value))))

    def issue(self, command: Command, use: Callable[[Any], None] | None) -> None:
        match command:
            case ShowMembers():
                assert use is not None
                rows = [
                    {"id": i, "status": "expected", "incarnation": 1, "version": 0, "address": ""}
                    for i in self.reports
                ]
                use({"revision": 0, "members": rows})
            case AskReports(ids):
                self.asked += ids
                for node_id in ids:
                    if self.reports[node_id]:
                        body = json.dumps(self.reports[node_id]).encode()
                        self.view.on_reported(node_id, body)

    def change(self, node_id: int, status: Status) -> None:
        record = Record(Incarnation(2), 0, status, "")
        self.view.on_record_changed(RecordChanged(NodeId(node_id), record, 1))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def told(self, name: str) -> list[Any]:
        return [value for kind, value in self.published if kind == name]


async def test_view_asks_nobody_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "LEASE_S", 0.3)
    cluster = Cluster(4)
    assert not cluster.view.is_asking
    assert cluster.asked == []
    cluster.view.lease()
    await cluster.until(lambda: len(cluster.asked) >= 3)
    await cluster.until(lambda: not cluster.view.is_asking)
    count = len(cluster.asked)
    cluster.view.hold()
    await cluster.until(lambda: len(cluster.asked) >= count + 6)
    cluster.view.release()
    await cluster.until(lambda: not cluster.view.is_asking)


async def test_view_asks_a_large_cluster_at_a_bounded_rate() -> None:
    cluster = Cluster(400)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    cluster.view.hold()
    await cluster.until(lambda: len(cluster.asked) >= 399)
    took_s = loop.time() - began_s
    assert took_s >= 399 / (2.5 * ASKS_PER_S)
    assert len(set(cluster.asked)) == 399
    assert cluster.view.period_s == 400 / ASKS_PER_S
    cluster.view.close()


async def test_view_asks_everybody_while_memberships_change() -> None:
    cluster = Cluster(300)
    cluster.view.hold()

    def is_done() -> bool:
        cluster.change(1, Status.ALIVE)
        return len(set(cluster.asked)) == 299

    await cluster.until(is_done)
    cluster.view.close()


async def test_view_asks_a_small_cluster_once_in_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "PERIOD_S", 0.5)
    monkeypatch.setattr(view_module, "HASTE_S", 0.0)
    cluster = Cluster(2)
    began_s = asyncio.get_running_loop().time()
    cluster.view.hold()
    await cluster.until(lambda: len(cluster.asked) >= 3)
    assert asyncio.get_running_loop().time() - began_s >= 0.9
    own = [told for told in cluster.told("report") if told["id"] == 0]
    assert len(own) <= 4
    cluster.view.close()


async def test_view_names_settings_that_nodes_have_otherwise() -> None:
    cluster = Cluster(4)
    for number, each in cluster.reports.items():
        each["settings"] = [f"quorum={'off' if number else 'majority'}", "timeout_ms=1500"]
    # Of an older release, and of one that is none of ours.
    del cluster.reports[1]["settings"]
    cluster.reports[3]["settings"] = ["quorum=off", "timeout_ms=1500", 7, "colour=red"]
    cluster.view.hold()
    await cluster.until(lambda: cluster.view.summary()["agree"] == "yes")
    assert cluster.view.summary()["settings_differ"] == ["quorum"]
    cluster.reports[0]["settings"] = cluster.reports[2]["settings"]
    await cluster.until(lambda: cluster.view.summary()["settings_differ"] == [])
    cluster.view.close()


def test_settings_are_told_as_they_are_meant() -> None:
    founder = Config(0, 4, PeerList())
    config = replace(founder, healing="after:3", quorum="majority", timing=PROFILES["wan"])
    assert shared_settings(config)[:3] == [
        "healing=after:3",
        "reconstruction=adaptive",
        "quorum=majority",
    ]
    assert f"timeout_ms={PROFILES['wan'].timeout_ms}" in shared_settings(config)
    reports = [{"settings": shared_settings(each)} for each in (config, founder)]
    assert differing(reports) == ["healing", "quorum", "heartbeat_ms", "timeout_ms", "ask_ms"]


async def test_view_sums_up_who_agrees_and_who_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "PERIOD_S", 0.1)
    monkeypatch.setattr(view_module, "HASTY_PERIOD_S", 0.1)
    cluster = Cluster(4)
    cluster.view.hold()
    await cluster.until(lambda: cluster.view.summary()["agree"] == "yes")
    assert cluster.view.summary()["unsettled"] == []
    cluster.reports[2]["digest"] = "01"
    await cluster.until(lambda: cluster.view.summary()["agree"] == "no")
    cluster.reports[2] = {}
    await cluster.until(lambda: cluster.view.summary()["silent"] == [2])
    assert cluster.view.summary()["agree"] == "not all answer"
    cluster.change(2, Status.EXCLUDED)
    summary = cluster.view.summary()
    assert (summary["alive"], summary["dead"], summary["silent"]) == (3, 1, [])
    for i in (0, 1, 3):
        cluster.reports[i] = report(i, [j for j in (0, 1, 3) if j != i])
    await cluster.until(
        lambda: cluster.view.summary()["unsettled"] == [] and bool(cluster.told("summary"))
    )
    cluster.view.close()


async def test_view_tells_what_differs_between_two_reports() -> None:
    cluster = Cluster(4)
    cluster.view.hold()
    await cluster.until(lambda: len(cluster.asked) >= 3)
    cluster.reports[3] = report(3, [0, 2], suspects=[1], isolated=True, state="leaving")
    kinds = {"links", "suspects", "isolated", "state"}
    await cluster.until(lambda: {e["kind"] for e in cluster.told("event")} >= kinds)
    events = {e["kind"]: e for e in cluster.told("event")}
    assert events["links"]["removed"] == [1]
    assert events["suspects"]["peer"] == 1
    assert events["isolated"]["detail"] == "yes"
    cluster.view.close()


async def test_view_sums_up_many_changes_once() -> None:
    cluster = Cluster(64)
    cluster.view.hold()
    await cluster.until(lambda: cluster.view.summary()["agree"] == "yes")
    summed: list[int] = []
    summary = cluster.view.summary

    def counted() -> dict[str, Any]:
        summed.append(1)
        return summary()

    cluster.view.summary = counted  # type: ignore[method-assign]
    # All of them in one turn of the loop, as when a rack loses its power.
    for i in range(40, 64):
        cluster.change(i, Status.EXCLUDED)
    assert len(summed) <= 1
    await cluster.until(lambda: any(told["dead"] == 24 for told in cluster.told("summary")))
    cluster.view.close()


@pytest.mark.parametrize("status", [Status.EXCLUDED, Status.LEFT])
async def test_view_ignores_the_late_report_of_a_node_that_is_gone(status: Status) -> None:
    cluster = Cluster(4)
    cluster.view.hold()
    await cluster.until(lambda: cluster.view.summary()["agree"] == "yes")
    late = json.dumps(report(2, [1, 3], digest="01")).encode()
    cluster.change(2, status)
    cluster.view.on_reported(NodeId(2), late)
    assert cluster.view.summary()["digests"] == {"00": 3}
    assert [row["id"] for row in cluster.view.document()["reports"]] == [0, 1, 3]
    cluster.change(2, Status.ALIVE)
    await cluster.until(lambda: cluster.view.summary()["digests"] == {"00": 4})
    cluster.view.close()


async def test_view_waits_for_no_report_of_a_node_that_is_dead_within_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view_module, "PERIOD_S", 0.1)
    monkeypatch.setattr(view_module, "HASTY_PERIOD_S", 0.1)
    cluster = Cluster(4)
    cluster.view.hold()
    await cluster.until(lambda: cluster.view.summary()["agree"] == "yes")
    # With a policy that heals later: it is dead, and still in the layout.
    cluster.reports[2] = {}
    cluster.change(2, Status.DEAD)
    await asyncio.sleep(0)
    for i in (0, 1, 3):
        cluster.reports[i]["digest"] = "01"
    await cluster.until(lambda: cluster.view.summary()["digests"] == {"01": 3})
    await cluster.until(lambda: cluster.view.summary()["agree"] != "settling")
    summary = cluster.view.summary()
    assert (summary["agree"], summary["silent"], summary["reported"]) == ("yes", [], 3)
    cluster.view.close()


class Grown(Cluster):
    """A cluster that many have joined and left: the living have high ids."""

    def __init__(self, gone: int, ids: list[int]) -> None:
        super().__init__(1)
        peers = {i: sorted({0, *ids} - {i}) for i in (0, *ids)}
        self.reports = {i: report(i, peers[i]) for i in (0, *ids)}
        self.rows = [(i, "left") for i in range(1, gone)] + [(i, "alive") for i in (0, *ids)]

    def issue(self, command: Command, use: Callable[[Any], None] | None) -> None:
        if not isinstance(command, ShowMembers):
            super().issue(command, use)
            return
        assert use is not None
        keys = {"incarnation": 1, "version": 0, "address": ""}
        use({"revision": 0, "members": [{"id": i, "status": s, **keys} for i, s in self.rows]})


async def test_view_shows_the_living_of_a_cluster_whose_ids_are_many() -> None:
    size = view_module.SHOWN_NODES_MAX
    cluster = Grown(size + 100, [size + 200, size + 201])
    cluster.view.hold()
    await cluster.until(lambda: cluster.view.summary()["agree"] == "yes")
    shown = cluster.view.document()
    assert [row["id"] for row in shown["reports"]] == [0, size + 200, size + 201]
    assert len(shown["members"]) == size
    cluster.change(size + 201, Status.EXCLUDED)
    assert cluster.view.summary()["dead"] == 1
    cluster.change(size + 202, Status.ALIVE)
    assert cluster.view.summary()["alive"] == 3
    assert len(cluster.view.document()["members"]) == size
    cluster.view.close()


async def test_view_asks_so_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "SHOWN_NODES_MAX", 4)
    cluster = Cluster(6)
    cluster.view.hold()
    await cluster.until(lambda: cluster.view.summary()["agree"] == "yes")
    cluster.change(5, Status.EXCLUDED)
    cluster.view.on_reported(NodeId(4), json.dumps(cluster.reports[4]).encode())
    assert cluster.view.bad_reports == 1
    assert [row["id"] for row in cluster.view.document()["members"]] == [0, 1, 2, 3]
    assert set(cluster.asked) == {1, 2, 3}
    cluster.view.close()


def test_view_keeps_a_bounded_timeline_and_leaves_out_the_quiet_events() -> None:
    cluster = Cluster(2)
    cluster.view.on_observed(Observed("link up", NodeId(1)))
    for i in range(TIMELINE_MAX + 5):
        cluster.view.on_observed(Observed("verdict", NodeId(1), detail=str(i)))
    events = cluster.view.document()["events"]
    assert len(events) == TIMELINE_MAX
    assert events[0]["detail"] == "5"
    assert events[-1]["n"] == TIMELINE_MAX + 5


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 5000,
        json.dumps(report(2, [])).encode(),
        json.dumps(report(1, [], state=1)).encode(),
        json.dumps(report(1, [], suspects=["1"])).encode(),
        json.dumps(report(1, [], suspects=[True])).encode(),
        json.dumps(report(1, [], wanted=None)).encode(),
        json.dumps(report(1, [], links=[[1, 2]])).encode(),
        json.dumps(report(1, [], links=[["1"] * 9])).encode(),
        json.dumps(report(1, [], links={})).encode(),
        json.dumps(report(1, [], suspects=[2**63])).encode(),
        json.dumps(report(1, [], links=[[2**63] * 9])).encode(),
        json.dumps(report(1, [], state="\ud800")).encode(),
        json.dumps(report(1, [], incarnation="0x1")).encode(),
    ],
)
async def test_view_counts_a_report_that_is_none(body: bytes) -> None:
    assert parse_report(1, body) is None
    cluster = Cluster(2)
    cluster.view.hold()
    cluster.view.on_reported(NodeId(1), body)
    assert cluster.view.bad_reports == 1
    cluster.view.close()


def test_view_reads_a_report_of_a_later_version() -> None:
    later = report(1, [0], mood="good")
    later["links"][0].append(77)
    body = json.dumps(later).encode()
    assert parse_report(1, body) == later


async def test_view_goes_on_whatever_stands_nested_in_a_report() -> None:
    cluster = Cluster(2)
    cluster.view.hold()
    body = json.dumps(report(1, [0])).encode()[:-1]
    # As deep as a reader of JSON goes, a writer may not.
    for depth in range(2, sys.getrecursionlimit() + 1):
        nested = b"[" * depth + b"]" * depth
        cluster.view.on_reported(NodeId(1), body + b', "mood": ' + nested + b"}")
    assert not any("mood" in value for value in cluster.told("report"))
    assert cluster.view.bad_reports
    cluster.view.close()


def test_view_keeps_of_a_report_what_can_be_shown() -> None:
    plain = {"a": True, "b": "good", "c": -(2**63), "d": 0.5, "e": ["x", 1]}
    odd: dict[str, Any] = {
        "f": 2**63,
        "g": math.nan,
        "h": math.inf,
        "i": None,
        "j": {},
        "k": [[1]],
        "l": "\ud800",
        "\ud800": 1,
        "m": [math.nan],
    }
    kept = parse_report(1, json.dumps({**report(1, [0]), **plain, **odd}).encode())
    assert kept == {**report(1, [0]), **plain}
    # As the page gets it, and as a program does.
    json.dumps(kept, allow_nan=False)
    msgpack.packb(kept)


def test_view_keeps_no_figure_of_a_report_that_is_none() -> None:
    figures = dict.fromkeys(("backlog_bytes", "cpu_ms", "rss_bytes", "uptime_s", "lag_us"), 1.5)
    wrong = {"sent_bytes": "1", "received_bytes": [1], "delivered": True, "relayed_frames": "x"}
    body = json.dumps({**report(1, [0]), **figures, **wrong, "version": 7, "pid": "12"}).encode()
    kept = parse_report(1, body)
    assert kept == {**report(1, [0]), **figures}
    # As `bmgd top` shows it.
    summary: dict[str, list[int]] = {"silent": [], "suspected": []}
    document = {"reports": [kept], "members": [{"id": 1, "status": "alive"}], "summary": summary}
    former = {"reports": [{**kept, "uptime_s": 1.0}]}
    assert "1.5" not in line_of(rows_of(document, former)[0])


def test_report_that_would_be_too_long_leaves_links_out_and_says_so() -> None:
    rows = [[2**31 - 1, 1, 10**9, 10**9, 0, 10**12, 10**12, 10**9, 10**9] for _ in range(400)]
    body = report_bytes({"id": 1, "links": rows})
    assert len(body) <= REPORT_BYTES_MAX
    told = json.loads(body)
    assert len(told["links"]) + told["links_left_out"] == 400
    assert len(told["links"]) > 100


def test_report_rows_without_a_socket_have_no_traffic() -> None:
    link = {"link": 5, "peer": 7, "dialled_by": 1, "accused": True, "silent_ms": 2, "up_ms": 3}
    assert link_rows([link], [], own_id=1) == [[7, 1, 2, 3, 1, 0, 0, 0, 0]]
