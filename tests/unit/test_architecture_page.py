"""docs/architecture.md: its rooms stand in the order of their imports, and its bounds are the code's."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Final

import pytest

from tests.unit.test_layers import LAYERS, OF_THE_CORE

PAGE: Final = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")

PER: Final = {
    "": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "minutes": 60_000_000_000,
}
"""What a constant is divided by: times are in nanoseconds, or in seconds where it is a float."""

BOUNDS: Final = {
    "work of one step": "{core.work.PIECES_PER_STEP} pieces",
    "deadlines reached in one step": "{core.deadlines.DEADLINES_PER_STEP}",
    "payload of a message": "{wire.bounds.PAYLOAD_BYTES_MAX} bytes",
    "topic name": "1..{wire.bounds.TOPIC_BYTES_MAX} bytes",
    "body of a frame": "{frameheader.BODY_BYTES_MIN}..{frameheader.FRAME_BYTES_MAX} bytes",
    "state of a search": "{wire.bounds.SEARCH_BYTES_MAX} bytes;",
    "restarts of a search": "{core.forwarding.forwarding.RESTARTS_MAX}",
    "ids in a recorded route": "{wire.bounds.ROUTE_IDS_MAX}",
    "records in a notice": "{wire.bounds.RECORDS_PER_NOTICE_MAX}",
    "unknown ids among those above": "4095; ids that records skip: "
    "{core.membership.allowance.ID_GAP_MAX} at once, {core.membership.allowance.SKIPPED_PER_S} a "
    "second",
    "ids above all known ones": "{core.membership.allowance.RETIRED_AT_ONCE:pow} at once, "
    "{core.membership.allowance.RETIRED_PER_S} a second",
    "a TLS handshake": "{shell.tls.HANDSHAKE_BYTES_MAX:KiB} of ciphertext",
    "lives that a node begins in an hour": "{core.lifecycle.LIVES_MAX}",
    "heartbeats, pings, notices": "{core.forwarding.flood.BURST} at once, "
    "{core.forwarding.flood.RATE_PER_S} a second",
    "secrets in a file": "{secret.SECRETS_MAX}, {secret.SECRET_BYTES_MAX} bytes",
    "hello": "{wire.hello.HELLO_BYTES_MAX} bytes, {shell.hello_socket.HELLO_TIMEOUT_S:s};",
    "joiners that wait at a contact": "{core.joining.growth.JOINS_OPEN_MAX} each, "
    "{core.joining.growth.PATIENCE_NS:s}; {core.joining.growth.PAGE_PATIENCE_NS:s} for the next page",
    "what a joiner reads": "512 bytes before the proof, then {wire.applicant.JOIN_BYTES_MAX:MiB}; "
    "{core.joining.joiner.ASK_NS:s}",
    "a page of records": "256 records, 256 runs of retired ids, "
    "{core.membership.membership.LOOKED_AT_MAX} ids looked at",
    "pages underway": "1, {core.membership.comparison.PAGE_NS:s}; "
    "{core.membership.comparison.FETCH_NS:min} from one peer while others wait, which then rests 3 or "
    "{core.membership.comparison.REST_IN_VAIN_NS:s}",
    "connections before their hello": "{shell.slots.SLOTS_MAX}",
    "hellos that wait for a probe": "{core.neighbors.greeting.HELD_MAX}, one per id",
    "connections that wait to be accepted": "{shell.addresses.BACKLOG},",
    "links beyond the wanted ones": "as many again, and {core.links.GUESTS_MAX}",
    "data that waits for one link": "{linklayer.outbox.BULK_BYTES_MAX:MiB}; of the class high "
    "{linklayer.outbox.HIGH_BYTES_MAX:MiB}; urgent data {linklayer.outbox.URGENT_BYTES_MAX:MiB}",
    "control that waits for one link": "{linklayer.outbox.CONTROL_BYTES_MAX:MiB}",
    "frames of links that ended": "{linkevents.RETURNED_COST_MAX:MiB}, of which each takes "
    "{linkevents.RETURNED_FRAME_COST:KiB}",
    "unsent bytes in the kernel": "{shell.sockets.NOTSENT_LOWAT_BYTES:KiB} (TCP_NOTSENT_LOWAT)",
    "bytes that one poll reads": "256 KiB, 128 KiB at a time (in Python "
    "{shell.engine.READ_BYTES_MAX:KiB})",
    "polls in a drain": "{shell.links.DRAIN_ROUNDS_MAX}",
    "accepts in one wake-up": "{shell.accepting.ACCEPTS_PER_WAKE_MAX}",
    "accepting without a free descriptor": "once in {shell.accepting.ACCEPT_PAUSE_S:s}",
    "notices remembered": "{linklayer.contract.KNOWN_NOTICES_MAX}",
    "a goodbye": "{shell.links.CLOSING_TIMEOUT_S:s}",
    "effects of one step": "{sim.checkers.linking.STEP_EFFECTS_MAX},",
    "writing at exit": "{shell.telling.FLUSH_AT_EXIT_S:s}",
    "streams of a node's programs": "{core.streams.outbound.STREAMS_MAX}; "
    "{core.streams.outbound.SHARED_MAX}",
    "segments that programs put": "one a stream, and {core.streams.table.PUT_BYTES_MAX:MiB} in all",
    "messages sent singly": "{core.streams.outbound.SENT_MAX}",
    "segments of a stream underway": "{core.streams.stream_out.UNDERWAY_MAX}; "
    "{core.streams.stream_out.WINDOW_MIN:KiB}..{core.streams.stream_out.WINDOW_MAX:MiB}",
    "ids between the lowest open stream": "{core.streams.table.SPAN}",
    "bytes that a link has to write": "{linklayer.contract.BACKLOG_HIGH_BYTES:KiB}; "
    "{core.streams.held_bulk.BACKLOG_LOW_BYTES:KiB}",
    "segments that one event sends": "{core.streams.sending.BURST} of its stream; "
    "{core.deadlines.DEADLINES_PER_STEP} streams, one each",
    "what an abandoned stream still sends": "{core.streams.sending.ABANDONED_NS:s}",
    "credit granted to sources": "{core.streams.granting.GRANTED_MAX:MiB} in all, "
    "{core.streams.granting.GRANT_MAX:MiB} a stream, to {core.streams.granting.ACTIVE_MAX} streams that "
    "sent within {core.streams.granting.IDLE_NS:s}",
    "segments kept behind gaps": "{core.streams.inbound.KEPT_MAX} a stream,",
    "replaced streams of a source": "{core.streams.inbound.LINES_MAX}",
    "streams in, sources remembered": "{core.streams.inbound.STREAMS_MAX} each",
    "acknowledgements": "one at once; of what comes close together one in "
    "{core.streams.acknowledging.ACK_PAUSE_NS:ms} for each stream; of a stream that flows one for "
    "{core.streams.acknowledging.FLOW_COST:KiB} of cost, within "
    "{core.streams.acknowledging.FLOW_PAUSE_NS:ms}; of short questions with the answer, within "
    "{core.streams.acknowledging.ANSWER_PAUSE_NS:ms}",
    "ids above the founders": "{core.membership.membership.JOINED_MAX}; ",
    "joiners that have left and": "{core.membership.retirement.LEFT_MAX}, "
    "{core.membership.retirement.LEFT_NS:minutes}; {core.membership.retirement.GONE_MAX}, an hour",
    "joiners' ids that are forgotten": "{core.membership.retirement.AT_ONCE_MAX} each, every "
    "{core.membership.retirement.TURN_NS:ms}",
    "ids given that an assigner": "{core.joining.growth.GIVEN_MAX}",
    "lives of ids without a record": "{core.membership.membership.LIVES_MAX:pow} ids each",
    "contests of lives": "{core.membership.contests.CONTESTS_MAX} in "
    "{core.membership.contests.CONTEST_NS:s}",
    "messages of a topic without": "1024 (`queue_messages`), "
    "{core.topics.topic_table.QUEUE_BYTES_MAX:MiB}; "
    "{core.topics.topics.EXPIRY_NS:s} without anything new",
    "bytes of a topic": "half of what is free of {core.topics.topic_table.HELD_BYTES_MAX:MiB};",
    "segments that one event hands out": "{core.topics.handing_out.HAND_OUT_MAX}",
    "long messages that are being read": "{core.topics.long_messages.LONGS_MAX}",
    "questions without an outcome": "{client.requesting.UNDERWAY_MAX} of a connection; "
    "{core.topics.inboxes.QUESTIONS_MAX} of a node, {core.topics.inboxes.ANSWER_BYTES:KiB} kept",
    "questions owed an answer": "{core.topics.questions.OWED_MAX}",
    "streams that tell of lost": "as many as there are streams beside them, "
    "{core.streams.asking.TELLING_MAX} in all",
    "searches for readers": "{core.streams.finding.FINDS_MAX}; "
    "{core.streams.finding.ASKED_MAX:pow}; every "
    "{core.streams.finding.AGAIN_NS:s} until the deadline",
    "topics, subscriptions": "{core.topics.topic_table.TOPICS_MAX} each, inboxes apart; topics that "
    "readers have made {core.topics.topic_table.READ_TOPICS_MAX} with all others",
    "messages at a reader": "its credit: at most {wire.control.READ_CREDIT_MAX:pow} messages, "
    "{wire.control.READ_BYTES_MAX:MiB}",
    "probes underway": "{core.forwarding.probing.PROBES_MAX}; resent every "
    "{core.forwarding.probing.AGAIN_NS:s}",
    "asks that an observer has open": "{core.neighbors.observer.ASKS_OPEN_MAX}",
    "observers asked": "{core.neighbors.detector.OBSERVERS_MAX}, 400 ms",
    "heartbeats remembered": "{core.neighbors.detector.UNECHOED_MAX} per link",
    "own lag before nobody is accused": "{core.neighbors.detector.LATE_NS:ms}",
    "gathering records for one notice": "{core.membership.notices.GATHER_NS:ms}",
    "looking whether somebody else": "25..225 ms",
    "pairs of nodes whose ways": "{healing.OVERHEAD_WORK_MAX:pow}",
    "gathering changes of the layout": "1 ms + {core.neighbors.relayout.RELAYOUT_PER_MEMBER_NS:ms} per "
    "member, at most 51 ms; doubling to {core.neighbors.relayout.STREAK_PAUSE_MAX_NS:ms}",
    "evictions underway": "{core.joining.eviction.EVICTIONS_MAX}; asked for "
    "{core.joining.eviction.ASK_NS:s}",
    "ids in a listing": "{core.show.SHOWN_IDS_MAX:pow}",
    "branches in a frame": "{wire.bounds.BRANCHES_MAX}; {wire.bounds.BRANCH_BYTES_MAX}",
    "destinations of a reliable multicast": "{wire.bounds.ENTRIES_MAX}",
    "ids that a message to many": "below {routing.id_sets.ID_SET_SPACE:pow}",
    "covers of a frame": "{wire.bounds.COVERS_BYTES_MAX:MiB}; {linkevents.PART_BYTES:MiB} and one "
    "message",
    "hop budget of a copy": "2 × steps of the tree + 4, at most {core.forwarding.branching.BUDGET_MAX}; "
    "{core.forwarding.branching.CAREFUL_MAX}",
    "counts at best effort": "{core.broadcast.broadcasting.WINDOW} per life; "
    "{core.broadcast.broadcasting.SOURCES_MAX}",
    "broadcasts on their way to a reader": "{core.broadcast.announcements.CREDIT}, "
    "{core.broadcast.announcements.CREDIT_BYTES:MiB}",
    "broadcasts that wait for a reader": "{core.broadcast.announcements.QUEUE_MAX}, "
    "{core.broadcast.announcements.QUEUE_BYTES_MAX:MiB}; "
    "{core.broadcast.announcements.HELD_BYTES_MAX:MiB}",
    "reliable broadcasts of one source": "max({core.broadcast.window.WINDOW_MIN_BYTES:KiB}, "
    "{core.broadcast.window.WINDOW_ALL_BYTES:MiB} / living ids) with "
    "{core.broadcast.window.OVERHEAD_BYTES} bytes each beside the payload, "
    "{core.broadcast.window.UNSTABLE_MAX}",
    "nodes to which one long multicast": "{client.long_multicasts.SINGLY_MAX}",
    "pieces of long broadcasts": "{core.broadcast.window.PIECES_WINDOW_BYTES:MiB}; "
    "{client.broadcast_pieces.PIECES_UNDERWAY}",
    "what readers that are behind": "{core.broadcast.announcements.BEHIND_NS:s} without taking anything, "
    "{core.broadcast.announcements.BEHIND_BYTES:MiB} in the queue",
    "topics of pieces": "{core.broadcast.delivery.PIECE_TOPICS_MAX}",
    "lives of a daemon of which": "{client.reading.LIVES_MAX}",
    "long broadcasts that a subscription": "{client.long_broadcasts.LONGS_MAX}; "
    "{client.long_broadcasts.SILENCE_S:s}",
    "those that wait for room": "{core.broadcast.window.WAITING_MAX}, "
    "{core.broadcast.window.WAITING_BYTES_MAX:MiB}",
    "id space for reliable broadcasts": "{core.broadcast.window.RELIABLE_ID_SPACE_MAX}; "
    "{wire.bounds.EXCEPTIONS_BYTES_MAX} bytes",
    "reliable broadcasts sent for the first": "{core.broadcast.source.SENT_PER_STEP_MAX}",
    "pause before a reliable broadcast": "as long as nodes take to acknowledge, "
    "{core.broadcast.answer_times.RESEND_MIN_NS:ms}..{core.broadcast.answer_times.RESEND_SLOW_NS:s}; of "
    "a piece {core.broadcast.source.RESEND_PIECE_NS:s} at least",
    "reliable broadcasts sent again": "{core.broadcast.source.RESENT_PER_STEP_MAX}, "
    "{core.broadcast.source.RESENT_BYTES_PER_STEP_MAX:MiB}",
    "copies of others' reliable": "{core.broadcast.copies.HELD_BYTES_MAX:MiB} in all, with what their "
    "exceptions and skips take; {core.broadcast.retention.AHEAD_MAX} ahead of the watermark",
    "copies beyond that": "{core.broadcast.reserve.RESERVE_BYTES:MiB}; the "
    "{core.broadcast.reserve.FIRST_MAX} lowest ids at a time",
    "lives of sources that are remembered": "{core.broadcast.retention.LIVES_MAX}; "
    "{core.broadcast.retention.FORMER_MAX}",
    "ranges that a node skips": "{core.broadcast.delivery.SKIPS_KEPT_MAX}; told in one frame "
    "{wire.bounds.SKIPS_MAX}",
    "copies whose source is gone": "{core.broadcast.orphans.ORPHAN_NS:s}; "
    "{core.broadcast.orphans.PULLED_MAX} in one pull, one pull of a life at a time; "
    "{core.broadcast.orphans.TOLD_MAX} lives told",
    "programs registered at a node": "{core.broadcast.programs.REGISTERED_MAX}; "
    "{core.broadcast.programs.KNOWN_MAX}",
    "starts and ends of own programs": "{core.broadcast.programs.UNTOLD_MAX}",
    "lists of programs asked for": "{core.broadcast.programs.ASKED_PER_STEP_MAX} in a step; each again "
    "after 1 s, up to {core.broadcast.programs.ASK_AGAIN_MAX_NS:s}",
    "reports that a node sends": "{core.survey.REPORTS_PER_S} a second",
    "bytes of a report": "{wire.bounds.REPORT_BYTES_MAX}",
    "nodes asked for a report": "{shell.view.ASKS_PER_S} a second, while a page is open or "
    "{shell.view.LEASE_S:s} after",
    "nodes that a page shows": "{shell.view.SHOWN_NODES_MAX}",
    "ways measured for others": "{core.survey.FOREIGN_TRACES_MAX}; {core.survey.TRACES_MAX} at a time",
    "timeline of the page": "{shell.view.TIMELINE_MAX} events in the daemon",
    "HTTP connections beside pages": "{shell.http_server.CONNECTIONS_MAX}",
    "a request's head": "{shell.http_request.HEAD_BYTES_MAX} bytes; {shell.http_request.HEAD_S:s}",
    "pages open": "{shell.event_stream.STREAMS_MAX}; {shell.event_stream.STREAM_BYTES_MAX:MiB}",
    "programs, their requests": "{shell.control.PROGRAMS_MAX}, {shell.control.CALLS_MAX} each",
    "streams of all programs that follow": "{shell.control.FOLLOWING_MAX}",
    "bytes of all programs": "{shell.control_calls.HELD_BYTES_MAX:MiB} beside",
    "all bytes that wait for programs": "{shell.control_calls.WAITING_BYTES_MAX:MiB}",
    "time for what all programs ask": "{shell.turns.TURN_NS:ms}, and one request more",
    "bytes for a slow program": "{shell.control_connection.PAUSE_BYTES:KiB}, streams "
    "{shell.control_calls.OUTGOING_BYTES_MAX:MiB}, {shell.control_connection.LINGER_S:s} to close",
    "bytes of segments that a program": "{client.daemon_socket.CROWDED_BYTES:KiB} and a segment",
    "items that wait in a program": "its credit, {client.showing.CHANGES_MAX:,} changes",
    "changes of its state that a daemon has to tell": "{shell.service_manager.WAITING_MAX}; "
    "{shell.service_manager.AGAIN_S:s}",
    "pauses until a program connects": "{client.reconnecting.PAUSE_MIN_S:ms} to "
    "{client.reconnecting.PAUSE_MAX_S:s}",
    "reading by a daemon of what was written": "{client.daemon_socket.CLOSE_S:s}",
    "waiting for the daemon": "{client.connection.ANSWER_S:s}, or the timeout and "
    "{client.connection.GRACE_S:s} more",
    "lines of log": "{shell.log.RATE_PER_S} a second",
    "lines of log, events": "{shell.log.BATCH_MAX}, {shell.log.FLUSH_S:s}; {shell.reports.GATHERED_MAX}, "
    "{shell.reports.GATHER_S:ms}",
    "steps of a second": "{flight.recorder.STEPS_PER_S:,}",
    "a core whose state is recorded": "{flight.recorder.STATE_OBJECTS_MAX} objects",
    "recordings of one daemon": "{shell.flight.FILES_MAX}; 1",
    "a frame of a recording": "{flight.recording.FRAME_BYTES_MAX:MiB}; "
    "{wire.packing.UNPACKED_BYTES_MAX:MiB}",
    "warnings of one cause": "1 in {shell.repeats.REPEAT_S:s}, {shell.repeats.CAUSES_MAX} causes",
    "local daemons of one launch": "{launcher.plan.LAUNCH_MAX}",
    "events on their way": "{launcher.zygote.PIPE_BYTES:MiB}",
    "lines of a launch that nobody": "{launcher.lines.LEFT_BYTES_MAX:MiB}; {launcher.lines.FINISH_S:s}",
    "bytes that the fault proxy": "{trials.flow.QUEUE_BYTES_MAX:MiB}",
    "starting them, ending them": "{launcher.daemons.START_S:s}; `leave_ms` and "
    "{launcher.supervisor.TERM_MORE_S:s}",
}
"""How a row begins, and how its bound begins: the names of constants stand for their values."""


def rows() -> dict[str, tuple[str, str]]:
    """The table of bounds: what, to its bound and where that is."""
    table = PAGE[PAGE.index("## What is bounded") :]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {what.strip(): (bound.strip(), where) for what, bound, where, _ in cells[2:]}


def spelled(name: str, unit: str) -> str:
    """The value of a constant as the page writes it."""
    module, _, constant = name.rpartition(".")
    value = getattr(importlib.import_module(f"bmgd.{module}"), constant)
    if unit == "pow":
        assert value.bit_count() == 1, name
        return f"2^{value.bit_length() - 1}"
    if isinstance(value, float):
        value *= 1_000_000_000
    number = round(value / PER["" if unit == "," else unit], 1)
    digits = f"{number:,.0f}" if number >= 10_000 or unit == "," else f"{number:g}"
    return f"{digits} {unit}" if unit not in {"", ","} else digits


@pytest.mark.parametrize("begin", BOUNDS)
def test_bound_of_the_architecture_is_the_one_of_the_code(begin: str) -> None:
    found = [row for what, row in rows().items() if what == begin]
    found = found or [row for what, row in rows().items() if what.startswith(begin)]
    assert len(found) == 1, begin
    bound, where = found[0]
    template = BOUNDS[begin]
    said = re.sub(r"\{([\w.]+):?(\w*|,)\}", lambda m: spelled(m[1], m[2]), template)
    assert bound.startswith(said)
    modules = {name.rpartition(".")[0] for name in re.findall(r"\{([\w.]+)", template)}
    assert [m for m in modules if f"`{m.replace('.', '/')}.py`" not in where] == []


def test_rooms_of_the_architecture_stand_in_the_order_of_imports() -> None:
    table = PAGE[PAGE.index("| room | what is in it |") : PAGE.index("The core takes of `wire`")]
    named = [
        name
        for line in table.splitlines()
        if line
        for name in re.findall(r"`(\w+)(?:/|\.py|\.c)`", line.split("|")[1])
    ]
    layer_of = {name: at for at, layer in enumerate(LAYERS) for name in layer}
    assert set(layer_of) - set(named) == {"__main__"}
    layers = [layer_of[name] for name in named]
    assert layers == sorted(layers, reverse=True)
    rooms = re.findall(r"`core/(\w+)/`", table)
    assert rooms == list(reversed(OF_THE_CORE))
