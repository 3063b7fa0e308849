"""Looks that no core answers so: a daemon that shows itself otherwise, ways and readers that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bmgd.core.commands import (
    Command,
    FindReaders,
    ProbeTo,
    ShowLinks,
    ShowMembers,
    ShowReport,
    ShowStatus,
    Subscribe,
    TraceFrom,
)
from bmgd.core.effects import Reply, Reported, ReportWanted
from bmgd.core.events import CommandIssued, Received
from bmgd.core.forwarding.probing import SENDING_BITS
from bmgd.errors import DeadError
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.ask_messages import ProbeReply, ReportAsk
from bmgd.wire.link_messages import Ping
from tests.unit.core.clusters import S

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER = NodeId(4)
REQUEST = 10**6
Forgery = Callable[["Forger"], None]


def _true(f: Forger, command: Command) -> Any:
    """What a node of the cluster answers; as it is, nobody finds anything in it."""
    request = f.network.issue(5, command)
    assert f.scene.violations == []
    return f.host.replies[request].result


def _shown_otherwise(command: Command, name: str, value: object, row: str = "") -> Forgery:
    def forge(f: Forger) -> None:
        result = _true(f, command)
        rows = result[row] if row else result
        (rows[0] if isinstance(rows, list) else rows)[name] = value
        f.step(CommandIssued(REQUEST, command), [Reply(REQUEST, result)])

    return forge


def _answered(command: Command, result: object, after_ns: int = 0) -> Forgery:
    def forge(f: Forger) -> None:
        f.step(CommandIssued(REQUEST, command))
        f.network.timeline.now_ns += after_ns
        f.deadline(Reply(REQUEST, result))

    return forge


def death_of_the_living(f: Forger) -> None:
    error = DeadError(PEER, "it is dead")
    f.step(CommandIssued(REQUEST, ProbeTo(PEER, False, S)), [Reply(REQUEST, error=error)])


def report_that_nobody_gave(f: Forger) -> None:
    f.deadline(Reported(PEER, b"{}"))


def report_for_another(f: Forger) -> None:
    ask = ReportAsk(f.route(source=PEER))
    facts = _true(f, ShowReport())
    tag = incarnation_tag(ask.route.source_incarnation)
    f.step(Received(f.link, ask), [ReportWanted(PEER, tag, ask.route.sequence, facts)])
    assert f.scene.violations == []
    f.step(Received(f.link, ask), [ReportWanted(NodeId(3), tag, ask.route.sequence, facts)])


def reply_that_is_waited_for(f: Forger) -> None:
    f.network.issue(f.journal.host.id, ProbeTo(PEER, False, S))
    [number] = f.inside.probing._open
    tag = incarnation_tag(f.journal.incarnation)
    back = f.route(source=PEER, destination=f.journal.host.id, destination_tag=tag)
    back = replace(back, sequence=number << SENDING_BITS)
    f.step(Received(f.link, ProbeReply(back, ())))


def reader_unmentioned(f: Forger) -> None:
    f.network.issue(4, Subscribe("t", 8))
    f.network.run(1)
    _answered(FindReaders("t", S), {"readers": [], "silent": []})(f)


def _miscounted(name: str) -> Forgery:
    def forge(f: Forger) -> None:
        counts = f.inside.context.counts
        setattr(counts, name, getattr(counts, name) + 1)
        f.scene.at_rest()

    return forge


def counted_as_sent(f: Forger) -> None:
    f.inside.context.counts.sent[Ping] += 1
    f.scene.at_rest()


PROBE = ProbeTo(PEER, True, S)
TRACE = TraceFrom(NodeId(3), PEER, S)
FORGERIES_OF_LOOKS: list[tuple[str, Forgery]] = [
    *(
        ("looks-are-true", forge)
        for forge in (
            _shown_otherwise(ShowStatus(), "alive", [5]),
            *(
                _shown_otherwise(ShowStatus(), name, value)
                for name, value in (
                    ("retired", 1),
                    ("older", [4]),
                    ("underway", 1),
                    ("waiting", 1),
                    ("owed", 1),
                    ("neighbors", [4]),
                    ("isolated", True),
                )
            ),
            _shown_otherwise(ShowStatus(), "holds", False, "quorum"),
            _shown_otherwise(ShowStatus(), "relayouts", 9, "healing"),
            _shown_otherwise(ShowStatus(), "links_added", 9, "healing"),
            _shown_otherwise(ShowLinks(), "dialled_by", 7),
            _shown_otherwise(ShowMembers(), "status", "dead", "members"),
            _shown_otherwise(ShowMembers(), "for_ms", 1, "members"),
            _shown_otherwise(ShowReport(), "counted", 9),
            reply_that_is_waited_for,
            _answered(PROBE, {"rtt_ns": 10**6, "path": [5, 3]}, 10**7),
            _answered(PROBE, {"rtt_ns": 10**6, "path": [5, 2, 4]}, 10**7),
            _answered(PROBE, {"rtt_ns": 10**9, "path": [5, 4]}, 10**7),
            _answered(TRACE, {"rtt_ns": 10**6, "path": [5, 4]}, 10**7),
            _answered(FindReaders("t", S), {"readers": [3], "silent": []}),
            _answered(FindReaders("t", S), {"readers": [], "silent": [3]}),
            death_of_the_living,
            report_that_nobody_gave,
            report_for_another,
            reader_unmentioned,
        )
    ),
    *(
        ("counts-are-true", forge)
        for forge in (
            *(_miscounted("dials"), _miscounted("delivered"), _miscounted("changes")),
            counted_as_sent,
        )
    ),
]
