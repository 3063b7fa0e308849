"""One message or more of every kind, with each field at the ends of its range."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE, id_set, ids_between
from bmgd.types import NODE_ID_MAX, Incarnation, NodeId, Record, Status
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
from bmgd.wire.bounds import (
    ENTRIES_MAX,
    LONG_BYTES_MAX,
    OLDER_MEMBERS_MAX,
    PAYLOAD_BYTES_MAX,
    PROGRAMS_BYTES_MAX,
    RECORDS_PER_NOTICE_MAX,
    REPORT_BYTES_MAX,
    ROUTE_IDS_MAX,
    SEARCH_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    SKIPS_MAX,
    TOPIC_BYTES_MAX,
    TRACE_MS_MAX,
    WATERMARKS_MAX,
)
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    Piece,
    ReliableBroadcast,
    Skip,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.link_messages import (
    BUCKETS,
    Buckets,
    Goodbye,
    Heartbeat,
    Held,
    MemberFeatures,
    Notice,
    OlderMembers,
    PageAsk,
    Ping,
    Pong,
    Pull,
    RecordPage,
    Unwanted,
    Watermarks,
)
from bmgd.wire.messages import Message
from bmgd.wire.program_news import Started, pack_news
from bmgd.wire.routes import Route, Search
from bmgd.wire.stream_messages import (
    Entry,
    Segment,
    SegmentAck,
    SegmentFlag,
    SharedSegment,
    StreamReset,
    Unreachable,
)

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
DIGEST_MAX: Final = 2**128 - 1
LIFE: Final = Incarnation(1 << 32 | 0x5EED)

ROUTE: Final = Route(
    destination=NodeId(9),
    source=NodeId(4),
    source_incarnation=LIFE,
    destination_tag=0x01020304,
    sequence=77,
    hop_budget=10,
    priority=1,
)
LOWEST_ROUTE: Final = Route(NodeId(0), NodeId(0), Incarnation(0))
HIGHEST_ROUTE: Final = Route(
    destination=NodeId(NODE_ID_MAX),
    source=NodeId(NODE_ID_MAX),
    source_incarnation=Incarnation(U64_MAX),
    destination_tag=U32_MAX,
    sequence=U64_MAX,
    hop_budget=255,
    priority=255,
    record=True,
)
SEARCH: Final = Search(visited=b"\x13\x02", stack=(NodeId(4), NodeId(1)), restarts=1)
IN_SEARCH: Final = Route(NodeId(9), NodeId(4), LIFE, search=SEARCH)
LONGEST_SEARCH: Final = Route(
    destination=NodeId(9),
    source=NodeId(4),
    source_incarnation=LIFE,
    record=True,
    search=Search(
        visited=bytes(SEARCH_BYTES_MAX - 8), stack=(NodeId(0), NodeId(NODE_ID_MAX)), restarts=255
    ),
)
RECORD: Final = Record(LIFE, 2, Status.ALIVE, "host3:7400")

MESSAGES: Final[dict[str, Message]] = {
    "heartbeat": Heartbeat(sequence=5, echo=4, digest=0x0F0E0D0C0B0A09080706050403020100),
    "heartbeat lowest": Heartbeat(1, 0, 0),
    "heartbeat highest": Heartbeat(U64_MAX, U64_MAX, DIGEST_MAX, answer=True),
    "older members": OlderMembers(
        (
            MemberFeatures(NodeId(3), LIFE, 0),
            MemberFeatures(NodeId(NODE_ID_MAX), Incarnation(U64_MAX), U32_MAX),
        )
    ),
    "older members longest": OlderMembers(
        tuple(MemberFeatures(NodeId(i), Incarnation(1), i) for i in range(OLDER_MEMBERS_MAX))
    ),
    "ping": Ping(0),
    "ping highest": Ping(U64_MAX),
    "pong": Pong(300),
    "notice": Notice(
        (
            (NodeId(3), RECORD),
            (NodeId(8), Record(Incarnation(0), 0, Status.EXCLUDED, "[fe80::1]:7400")),
        )
    ),
    "notice empty": Notice(()),
    "notice longest": Notice(
        tuple(
            (
                NodeId(NODE_ID_MAX - RECORDS_PER_NOTICE_MAX + 1 + number),
                Record(Incarnation(U64_MAX), U32_MAX, Status(number % 5), "a" * 255),
            )
            for number in range(RECORDS_PER_NOTICE_MAX)
        )
    ),
    "buckets": Buckets(tuple(range(BUCKETS)), answer=True),
    "buckets highest": Buckets((DIGEST_MAX,) * BUCKETS, answer=False),
    "page ask": PageAsk(NodeId(300), 2**63 | 1),
    "record page": RecordPage(
        ((NodeId(3), RECORD),), ((NodeId(70), NodeId(80)), (NodeId(90), NodeId(90))), NodeId(91)
    ),
    "record page empty": RecordPage(()),
    "unwanted": Unwanted(1),
    "goodbye": Goodbye("leaving"),
    "goodbye empty": Goodbye(""),
    "goodbye longest": Goodbye("é" * 127 + "e"),
    "segment": Segment(ROUTE, 0, "", 0, 70, 2, 0, b"\xc4\x02hi\xc4\x00"),
    "segment that opens": Segment(ROUTE, 1, "jobs", 69, 70, 1, 0, b"\xc4\x05hello"),
    "segment of questions": Segment(
        ROUTE, 0, "", 0, 70, 2, 0, b"\xc4\x02hi\xc4\x00", inbox=3, question=5 << 32 | 9
    ),
    "segment of a long question": Segment(
        HIGHEST_ROUTE,
        5,
        "rpc",
        0,
        70,
        0,
        LONG_BYTES_MAX,
        b"hello",
        inbox=U32_MAX,
        question=U64_MAX,
    ),
    "readers ask": ReadersAsk(ROUTE, "rpc"),
    "readers ask longest": ReadersAsk(HIGHEST_ROUTE, "t" * 255),
    "readers answer": ReadersAnswer(ROUTE, True),
    "readers answer none": ReadersAnswer(LOWEST_ROUTE, False),
    "segment that closes": Segment(ROUTE, 2, "", 0, 70, 0, 0, b""),
    "segment that opens and closes": Segment(LOWEST_ROUTE, 3, "t", 0, 0, 0, 0, b""),
    "segment of best effort": Segment(ROUTE, 16, "jobs", 0, 0, 1, 0, b"\xc4\x05hello"),
    "segment highest": Segment(
        HIGHEST_ROUTE,
        SegmentFlag.OPEN | SegmentFlag.FIRST | SegmentFlag.LAST,
        topic="€" * (TOPIC_BYTES_MAX // 3),
        replaces=U32_MAX,
        floor=U32_MAX,
        count=0,
        size=LONG_BYTES_MAX,
        body=bytes(SEGMENT_BYTES_MAX),
    ),
    "segment of most messages": Segment(ROUTE, 0, "", 0, 0, 65_535, 0, bytes(SEGMENT_BYTES_MAX)),
    "segment in careful mode": Segment(IN_SEARCH, 1, "jobs", 0, 1, 1, 0, b"\xc4\x05hello"),
    "segment longest": Segment(
        LONGEST_SEARCH, 1, "t" * 255, U32_MAX, U32_MAX, 65_535, 0, bytes(SEGMENT_BYTES_MAX)
    ),
    "segment of questions longest": Segment(
        LONGEST_SEARCH,
        1,
        "t" * 255,
        U32_MAX,
        U32_MAX,
        65_535,
        0,
        bytes(SEGMENT_BYTES_MAX),
        inbox=U32_MAX,
        question=U64_MAX,
    ),
    "segment ack": SegmentAck(ROUTE, 0xA1B2C3D4, 131_072, False, ((73, 75), (80, 80))),
    "segment ack full": SegmentAck(LOWEST_ROUTE, 0, 0, True),
    "segment ack highest": SegmentAck(HIGHEST_ROUTE, U32_MAX, U64_MAX, False, ((1, U32_MAX),)),
    "stream reset": StreamReset(ROUTE, 0xA1B2C3D4, 4),
    "stream reset highest": StreamReset(HIGHEST_ROUTE, U32_MAX, 255),
    "unreachable": Unreachable(ROUTE, target=NodeId(9)),
    "unreachable highest": Unreachable(HIGHEST_ROUTE, target=NodeId(NODE_ID_MAX)),
    "probe": Probe(Route(NodeId(9), NodeId(4), LIFE, record=True), (NodeId(4), NodeId(5))),
    "probe empty": Probe(ROUTE, ()),
    "probe longest": Probe(HIGHEST_ROUTE, (NodeId(NODE_ID_MAX),) * ROUTE_IDS_MAX),
    "probe in careful mode": Probe(LONGEST_SEARCH, (NodeId(4),)),
    "probe reply": ProbeReply(ROUTE, (NodeId(4), NodeId(5), NodeId(9))),
    "probe reply empty": ProbeReply(LOWEST_ROUTE, ()),
    "ask": Ask(ROUTE, suspect=NodeId(7), incarnation=LIFE),
    "ask highest": Ask(HIGHEST_ROUTE, NodeId(NODE_ID_MAX), Incarnation(U64_MAX)),
    "answer": Answer(ROUTE, suspect=NodeId(7), incarnation=LIFE, alive=True),
    "answer concurring": Answer(LOWEST_ROUTE, NodeId(0), Incarnation(0), alive=False),
    "join request": JoinRequest(ROUTE, LIFE, "new:7400", floor=17),
    "join request highest": JoinRequest(
        HIGHEST_ROUTE, Incarnation(U64_MAX), "a" * 255, NODE_ID_MAX + 1
    ),
    "broadcast": Broadcast(
        ROUTE,
        "news",
        b"\x00\xffhello",
        0,
        (Branch(NodeId(9), 0b11 << 9), Branch(NodeId(12), 1 << 12)),
    ),
    "broadcast with a bitmap": Broadcast(
        ROUTE, "news", b"x", 1, (Branch(NodeId(0), int("5" * 8, 16) << 8),)
    ),
    "broadcast with holes": Broadcast(
        ROUTE, "news", b"x", 0, (Branch(NodeId(5), ids_between(0, 300) & ~(1 << 100)),)
    ),
    "broadcast longest": Broadcast(
        replace(LONGEST_SEARCH, record=False),
        "t" * 255,
        bytes(PAYLOAD_BYTES_MAX),
        1,
        (Branch(NodeId(NODE_ID_MAX), 1 << (ID_SET_SPACE - 1)),),
    ),
    "broadcast widest": Broadcast(
        HIGHEST_ROUTE,
        "t" * 255,
        bytes(PAYLOAD_BYTES_MAX),
        1,
        (Branch(NodeId(NODE_ID_MAX), id_set(range(0, ID_SET_SPACE, 2))),),
    ),
    "reliable broadcast": ReliableBroadcast(
        ROUTE,
        "news",
        b"hello",
        0,
        (Branch(NodeId(9), 0b11 << 9),),
        id_space=16,
        exceptions=1 << 3,
        skips=(Skip(NodeId(12), 1, 76, missed=False),),
        stable=70,
    ),
    "reliable broadcast longest": ReliableBroadcast(
        replace(LONGEST_SEARCH, record=False),
        "t" * 255,
        bytes(PAYLOAD_BYTES_MAX),
        1,
        (Branch(NodeId(NODE_ID_MAX), 1 << (ID_SET_SPACE - 1)),),
        ID_SET_SPACE,
        id_set(range(0, 8760, 2)),
        (Skip(NodeId(NODE_ID_MAX), U64_MAX, U64_MAX, missed=True),) * SKIPS_MAX,
        U64_MAX,
    ),
    "reliable broadcast widest": ReliableBroadcast(
        HIGHEST_ROUTE,
        "t" * 255,
        bytes(PAYLOAD_BYTES_MAX),
        1,
        (Branch(NodeId(NODE_ID_MAX), id_set(range(0, ID_SET_SPACE, 2))),),
        ID_SET_SPACE,
        id_set(range(0, 8760, 2)),
        (Skip(NodeId(NODE_ID_MAX), U64_MAX, U64_MAX, missed=True),) * SKIPS_MAX,
        U64_MAX,
    ),
    "broadcast piece": BroadcastPiece(
        ROUTE,
        "news",
        b"hello",
        0,
        (Branch(NodeId(9), 0b11 << 9),),
        16,
        1 << 3,
        (),
        70,
        Piece(12345, 65_536, 65_541),
    ),
    "broadcast piece highest": BroadcastPiece(
        HIGHEST_ROUTE,
        "t",
        b"x",
        1,
        (),
        ID_SET_SPACE,
        0,
        (),
        U64_MAX,
        Piece(U64_MAX, LONG_BYTES_MAX - 1, LONG_BYTES_MAX),
    ),
    "watermark": Watermark(ROUTE, 77, 70, asks=False),
    "watermark highest": Watermark(HIGHEST_ROUTE, U64_MAX, U64_MAX, asks=True),
    "stable": Stable(ROUTE, 0, (Branch(NodeId(9), 0b11 << 9),), 77),
    "stable highest": Stable(HIGHEST_ROUTE, 1, (), U64_MAX),
    "skipped": Skipped(ROUTE, (Skip(NodeId(9), 71, 76, missed=True),), 76),
    "skipped nothing": Skipped(LOWEST_ROUTE, (), 0),
    "watermarks": Watermarks((Held(NodeId(4), LIFE, 77, 70, 79),), asks=False),
    "watermarks that ask": Watermarks((), asks=True),
    "watermarks longest": Watermarks(
        (Held(NodeId(NODE_ID_MAX), Incarnation(U64_MAX), U64_MAX, U64_MAX, U64_MAX),)
        * WATERMARKS_MAX,
        asks=True,
    ),
    "pull": Pull(NodeId(4), LIFE, 71),
    "pull highest": Pull(NodeId(NODE_ID_MAX), Incarnation(U64_MAX), U64_MAX),
    "multicast": Multicast(ROUTE, "jobs", b"hello", (Branch(NodeId(9), 1 << 9 | 1 << 40),)),
    "multicast of nobody": Multicast(LOWEST_ROUTE, "t", b"", ()),
    "shared segment": SharedSegment(
        ROUTE,
        "jobs",
        (Entry(NodeId(9), 0xABCD, 3 << 32 | 1, 2, 3), Entry(NodeId(40), 0, 1 << 32 | 7, 0, 1)),
        b"\xc4\x05hello",
    ),
    "shared segment widest": SharedSegment(
        HIGHEST_ROUTE,
        "t" * 255,
        tuple(
            Entry(NodeId(NODE_ID_MAX - ENTRIES_MAX + at), 2**32 - 1, U64_MAX, 2**32 - 1, 2**32 - 1)
            for at in range(1, ENTRIES_MAX + 1)
        ),
        bytes(SEGMENT_BYTES_MAX),
    ),
    "join grant": JoinGrant(ROUTE, LIFE, NodeId(17)),
    "reliable broadcast of programs": ReliableBroadcast(
        ROUTE, "", pack_news(Started(1, "a")), 0, (), 16, 0, (), 0
    ),
    "program ask": ProgramAsk(ROUTE, 0),
    "program ask highest": ProgramAsk(HIGHEST_ROUTE, U64_MAX),
    "program list": ProgramList(ROUTE, 3, 0, True, pack_news(Started(1, "a"))),
    "program list longest": ProgramList(
        HIGHEST_ROUTE, U64_MAX, U64_MAX, False, bytes(PROGRAMS_BYTES_MAX)
    ),
    "report ask": ReportAsk(ROUTE),
    "report": Report(ROUTE, b'{"state":"ready"}'),
    "report longest": Report(HIGHEST_ROUTE, bytes(REPORT_BYTES_MAX)),
    "trace ask": TraceAsk(ROUTE, NodeId(9), TRACE_MS_MAX),
    "trace answer": TraceAnswer(ROUTE, 1500, (NodeId(1), NodeId(9)), ""),
    "trace answer problem": TraceAnswer(ROUTE, 0, (), "node 9: it is dead"),
    "join grant highest": JoinGrant(HIGHEST_ROUTE, Incarnation(U64_MAX), NodeId(NODE_ID_MAX)),
}
