"""How the messages of `ask_messages.py` look on the wire."""

from __future__ import annotations

from typing import Final

from bmgd.peers import ADDRESS_BYTES_MAX
from bmgd.types import NODE_ID_MAX, Incarnation
from bmgd.wire.ask_messages import (
    Answer,
    Ask,
    JoinGrant,
    JoinRequest,
    Probe,
    ProbeReply,
    ProgramAsk,
    ProgramList,
    ReadersAnswer,
    ReadersAsk,
    Report,
    ReportAsk,
    TraceAnswer,
    TraceAsk,
)
from bmgd.wire.bounds import PROBLEM_BYTES_MAX, PROGRAMS_BYTES_MAX, REPORT_BYTES_MAX, TRACE_MS_MAX
from bmgd.wire.fields import (
    U64_MAX,
    Format,
    read_bool,
    read_bytes,
    read_id,
    read_ids,
    read_int,
    read_text,
    read_topic,
)

FORMATS: Final[dict[int, Format]] = {
    0x43: Format(Probe, 1, lambda m: (m.passed,), lambda f: (read_ids(f[0]),)),
    0x44: Format(ProbeReply, 1, lambda m: (m.passed,), lambda f: (read_ids(f[0]),)),
    0x45: Format(
        Ask,
        2,
        lambda m: (m.suspect, m.incarnation),
        lambda f: (read_id(f[0]), Incarnation(read_int(f[1], 0, U64_MAX))),
    ),
    0x46: Format(
        Answer,
        3,
        lambda m: (m.suspect, m.incarnation, m.alive),
        lambda f: (read_id(f[0]), Incarnation(read_int(f[1], 0, U64_MAX)), read_bool(f[2])),
    ),
    0x47: Format(
        JoinRequest,
        3,
        lambda m: (m.incarnation, m.address, m.floor),
        lambda f: (
            Incarnation(read_int(f[0], 1, U64_MAX)),
            read_text(f[1], ADDRESS_BYTES_MAX),
            read_int(f[2], 0, NODE_ID_MAX + 1),
        ),
    ),
    0x48: Format(
        JoinGrant,
        2,
        lambda m: (m.incarnation, m.id),
        lambda f: (Incarnation(read_int(f[0], 1, U64_MAX)), read_id(f[1])),
    ),
    0x57: Format(ProgramAsk, 1, lambda m: (m.after,), lambda f: (read_int(f[0], 0, U64_MAX),)),
    0x58: Format(
        ProgramList,
        4,
        lambda m: (m.revision, m.after, m.is_last, m.starts),
        lambda f: (
            read_int(f[0], 0, U64_MAX),
            read_int(f[1], 0, U64_MAX),
            read_bool(f[2]),
            read_bytes(f[3], PROGRAMS_BYTES_MAX),
        ),
    ),
    0x68: Format(ReportAsk, 0, lambda m: (), lambda f: ()),
    0x69: Format(Report, 1, lambda m: (m.body,), lambda f: (read_bytes(f[0], REPORT_BYTES_MAX),)),
    0x6A: Format(
        TraceAsk,
        2,
        lambda m: (m.target, m.timeout_ms),
        lambda f: (read_id(f[0]), read_int(f[1], 1, TRACE_MS_MAX)),
    ),
    0x6B: Format(
        TraceAnswer,
        3,
        lambda m: (m.rtt_us, m.passed, m.problem),
        lambda f: (read_int(f[0], 0, U64_MAX), read_ids(f[1]), read_text(f[2], PROBLEM_BYTES_MAX)),
    ),
    0x6C: Format(ReadersAsk, 1, lambda m: (m.topic,), lambda f: (read_topic(f[0]),)),
    0x6D: Format(ReadersAnswer, 1, lambda m: (m.has_reader,), lambda f: (read_bool(f[0]),)),
}
