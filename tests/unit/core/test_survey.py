"""Reports that nodes ask each other for, ways measured elsewhere, and what a core counts."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import get_args

import pytest

import bmgd.core
from bmgd.core.commands import AskReports, Leave, SendReport, SendTo, ShowReport, TraceFrom
from bmgd.core.counts import CLOSED, EVENTS, OTHER, Counts
from bmgd.core.effects import Close, Observed, Reported, ReportWanted, Send
from bmgd.core.events import CommandIssued, Received
from bmgd.core.survey import FOREIGN_TRACES_MAX, REPORTS_PER_S, TRACES_MAX
from bmgd.errors import DeadError, RequestError, UnreachableError
from bmgd.sim import Network
from bmgd.types import Incarnation, LinkId, NodeId, incarnation_tag
from bmgd.wire.ask_messages import Report, ReportAsk, TraceAnswer, TraceAsk
from bmgd.wire.messages import LinkMessage, RoutedMessage
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S, observed, reply_to, send, settle

CORE = Path(bmgd.core.__file__).parent
FAR = LinkId(10**6)


def ask(network: Network, asker: int, *ids: int) -> dict[int, dict[str, object]]:
    """What these nodes report to one that asks."""
    reports = network.hosts[NodeId(asker)].reports
    reports.clear()
    network.issue(asker, AskReports(tuple(map(NodeId, ids))))
    network.run(1.0)
    return {int(source): json.loads(body) for source, body in reports.items()}


def test_survey_brings_the_report_of_each_node_that_was_asked() -> None:
    network = Network(16)
    settle(network)
    reports = ask(network, 3, *range(16))
    assert sorted(reports) == [i for i in range(16) if i != 3]
    for node_id, report in reports.items():
        status = network.status(node_id)
        assert report["id"] == node_id
        assert report["digest"] == status["digest"]
        assert report["state"] == "ready"
        links = report["links"]
        assert isinstance(links, list)
        assert [row["peer"] for row in links] == [row["id"] for row in status["links"]]
        assert report["wanted"] == status["neighbors"]


def test_survey_does_not_ask_the_dead_and_shows_who_is_suspected() -> None:
    network = Network(8)
    settle(network)
    network.kill(5)
    settle(network, [5])
    assert sorted(ask(network, 0, *range(8))) == [1, 2, 3, 4, 6, 7]
    network.stop(6)

    def suspecting() -> list[int]:
        return [i for i in range(5) if observed(network, i, "suspected")]

    network.run_until(lambda: bool(suspecting()), 5.0)
    shown = reply_to(network, suspecting()[0], ShowReport(), 0.0)
    assert shown.result["suspects"] == [6]


def test_survey_costs_nothing_where_nobody_asks() -> None:
    network = Network(8)
    settle(network)
    ask(network, 0, 1, 2)
    sent = [host.node.counts.sent[Report] for host in network.hosts.values()]
    network.run(30.0)
    assert sent == [host.node.counts.sent[Report] for host in network.hosts.values()]
    assert sum(sent) == 2 + sum(
        host.node.counts.sent[Report] for i, host in network.hosts.items() if i not in (1, 2)
    )


def test_survey_answers_so_many_asks_in_one_second_and_counts_the_others() -> None:
    network = Network(2)
    settle(network)
    node = network.hosts[NodeId(0)].node
    route = Route(NodeId(0), NodeId(1), node.incarnation)
    wanted = 0
    for _ in range(REPORTS_PER_S + 9):
        effects = node.step(network.now_ns, Received(FAR, ReportAsk(route)))
        wanted += sum(isinstance(effect, ReportWanted) for effect in effects)
    assert wanted == REPORTS_PER_S
    assert node.counts.plain["reports_refused"] == 9
    effects = node.step(network.now_ns + S, Received(FAR, ReportAsk(route)))
    assert any(isinstance(effect, ReportWanted) for effect in effects)


def test_survey_ignores_a_report_that_nobody_asked_for_or_a_former_life_did() -> None:
    network = Network(2)
    settle(network)
    node = network.hosts[NodeId(0)].node
    tag = incarnation_tag(node.incarnation)
    for own_tag, sequence in ((tag, 1), (tag + 1, 0)):
        route = Route(NodeId(0), NodeId(1), Incarnation(9), own_tag, sequence)
        effects = node.step(network.now_ns, Received(FAR, Report(route, b"{}")))
        assert not any(isinstance(effect, Reported) for effect in effects)


def test_survey_takes_one_report_of_a_node_for_each_ask() -> None:
    network = Network(4)
    settle(network)
    node = network.hosts[NodeId(0)].node
    tag = incarnation_tag(node.incarnation)

    def taken(source: int, sequence: int, times: int) -> int:
        route = Route(NodeId(0), NodeId(source), Incarnation(9), tag, sequence)
        reports = [
            effect
            for _ in range(times)
            for effect in node.step(network.now_ns, Received(FAR, Report(route, b"{}")))
            if isinstance(effect, Reported)
        ]
        return len(reports)

    for _ in range(3):
        node.step(network.now_ns, CommandIssued(0, AskReports(())))
    assert [taken(1, 2, 100), taken(1, 1, 100), taken(1, 3, 100)] == [1, 0, 1]
    assert taken(2, 3, 100) == 1
    assert taken(99, 3, 100) == 0, "no node was given that id"


def test_survey_sends_the_report_back_to_the_life_that_asked() -> None:
    network = Network(2)
    settle(network)
    node = network.hosts[NodeId(0)].node
    effects = node.step(network.now_ns, CommandIssued(0, SendReport(NodeId(1), 77, 5, b"{}")))
    (sent,) = [e.message for e in effects if isinstance(e, Send)]
    assert isinstance(sent, Report)
    assert (sent.route.destination_tag, sent.route.sequence) == (77, 5)


def test_trace_is_measured_by_the_node_where_it_begins() -> None:
    network = Network(64)
    settle(network)
    reply = reply_to(network, 0, TraceFrom(NodeId(4), NodeId(25), S))
    path = reply.result["path"]
    assert (path[0], path[-1], len(path)) == (4, 25, 4)
    assert reply.result["rtt_ns"] > 0
    own = reply_to(network, 0, TraceFrom(NodeId(0), NodeId(25), S))
    assert own.result["path"][0] == 0


def test_trace_to_the_dead_or_from_nobody_says_why_not() -> None:
    network = Network(8)
    settle(network)
    network.kill(5)
    settle(network, [5])
    reply = reply_to(network, 0, TraceFrom(NodeId(1), NodeId(5), S))
    assert isinstance(reply.error, UnreachableError)
    assert "node 1 says: node 5: it is dead" in str(reply.error)
    assert isinstance(reply_to(network, 0, TraceFrom(NodeId(5), NodeId(1), S)).error, DeadError)
    assert isinstance(reply_to(network, 0, TraceFrom(NodeId(99), NodeId(1), S)).error, RequestError)


def test_trace_from_who_has_left_says_so() -> None:
    network = Network(8)
    settle(network)
    network.issue(5, Leave())
    network.run(1.0)
    reply = reply_to(network, 0, TraceFrom(NodeId(5), NodeId(1), S))
    assert isinstance(reply.error, DeadError)
    assert "it has left" in str(reply.error)


def test_trace_without_an_answer_ends_at_twice_its_time() -> None:
    network = Network(8)
    settle(network)
    network.stop(6)
    began_ns = network.now_ns
    reply = reply_to(network, 0, TraceFrom(NodeId(6), NodeId(1), S // 4))
    assert isinstance(reply.error, UnreachableError)
    assert network.now_ns - began_ns < S


def test_trace_is_bounded_at_both_ends() -> None:
    network = Network(8)
    settle(network)
    node = network.hosts[NodeId(0)].node
    route = Route(NodeId(0), NodeId(1), Incarnation(9))
    answers = []
    network.stop(5)
    for _ in range(FOREIGN_TRACES_MAX + 3):
        effects = node.step(network.now_ns, Received(FAR, TraceAsk(route, NodeId(5), 5)))
        answers += [e.message for e in effects if isinstance(e, Send)]
    refused = [a.problem for a in answers if isinstance(a, TraceAnswer)]
    assert len(refused) == 3
    assert "enough" in refused[0]
    requests = [network.issue(1, TraceFrom(NodeId(5), NodeId(2), S)) for _ in range(TRACES_MAX + 1)]
    last = network.hosts[NodeId(1)].replies[requests[-1]]
    assert isinstance(last.error, RequestError)
    assert requests[0] not in network.hosts[NodeId(1)].replies


def test_node_without_a_link_is_isolated_unless_it_is_alone_by_right() -> None:
    network = Network(4)
    settle(network)
    assert network.status(0)["isolated"] is False
    for peer in (1, 2, 3):
        network.cut(0, peer)
    network.run_until(lambda: bool(network.status(0)["isolated"]), 20.0)
    assert reply_to(network, 0, ShowReport()).result["isolated"] is True
    alone = Network(1)
    alone.run(20.0)
    assert alone.status(0)["state"] == "ready"
    assert alone.status(0)["isolated"] is False


def test_counts_say_what_a_core_did() -> None:
    network = Network(8)
    settle(network)
    send(network, 0, 5)
    network.kill(5)
    settle(network, [5])
    counts = network.hosts[NodeId(7)].node.counts
    assert counts.events["links exact"] >= 1
    assert counts.events["relayout"] == 1
    assert counts.dials > 0
    assert counts.events["link up"] > 0
    assert sum(counts.sent.values()) > 0
    assert sum(counts.received.values()) > 0
    assert sum(sum(h.node.counts.lost.values()) for h in network.hosts.values()) > 0


def test_counts_tell_of_streams_what_became_of_their_segments() -> None:
    network = Network(4)
    settle(network)
    send(network, 0, 2)
    counts = network.hosts[NodeId(0)].node.counts.plain
    assert counts["segments_confirmed"] == 1
    assert (counts["segments_resent"], counts["stream_silences"]) == (0, 0)
    network.cut(0, 2)
    for peer in (1, 3):
        network.cut(0, peer)
    network.issue(0, SendTo(NodeId(2), "t", b"x", S))
    network.run(0.9)
    assert counts["segments_resent"] > 0
    assert counts["stream_silences"] > 0
    network.run(3.0)
    assert counts["segments_confirmed"] == 1
    assert counts["streams_failed"] > 0


def test_counts_put_an_unknown_name_under_other() -> None:
    counts = Counts()
    counts.effect(Observed("something new"))
    counts.effect(Close(LinkId(1), "a whim"))
    assert (counts.events[OTHER], counts.closed[OTHER]) == (1, 1)
    with pytest.raises(KeyError):
        counts.add("something new")
    assert set(counts.sent) == {*get_args(LinkMessage), *get_args(RoutedMessage)}


def literals_of(call: str, at: int) -> set[str]:
    """The texts that the core passes as argument `at` of calls of that name."""
    found = set()
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "attr", getattr(node.func, "id", "")) == call
                and len(node.args) > at
                and isinstance(node.args[at], ast.Constant)
            ):
                found.add(str(ast.literal_eval(node.args[at])))
    return found


def test_counts_know_every_event_and_reason_of_the_core() -> None:
    assert literals_of("observe", 0) - set(EVENTS) == set()
    reasons = literals_of("close", 1) | literals_of("Close", 1)
    assert len(reasons) > 8
    assert reasons - set(CLOSED) == set()
