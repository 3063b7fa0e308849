"""Every message between daemons, as two unions.

*Link messages* are for the daemon at the other end of one link and never go further. *Routed messages*
carry a `Route` and are relayed hop by hop to the node that it names. How both become bytes: `codec.py`.

    link_messages.py        all link messages: signs of life, records, what neighbors tell each other
    stream_messages.py      routed: segments of streams, and what comes back for them
    ask_messages.py         routed: what one node asks another one, and the answers
    broadcast_messages.py   routed: from one node to many
"""

from __future__ import annotations

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
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    ReliableBroadcast,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.link_messages import (
    Buckets,
    Goodbye,
    Heartbeat,
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
from bmgd.wire.stream_messages import Segment, SegmentAck, SharedSegment, StreamReset, Unreachable

LinkMessage = (
    Heartbeat
    | Ping
    | Pong
    | Notice
    | Buckets
    | PageAsk
    | RecordPage
    | Unwanted
    | Goodbye
    | Watermarks
    | Pull
    | OlderMembers
)
RoutedMessage = (
    Segment
    | SegmentAck
    | StreamReset
    | Unreachable
    | Probe
    | ProbeReply
    | Ask
    | Answer
    | JoinRequest
    | JoinGrant
    | ReportAsk
    | Report
    | TraceAsk
    | TraceAnswer
    | ReadersAsk
    | ReadersAnswer
    | ProgramAsk
    | ProgramList
    | Broadcast
    | Multicast
    | SharedSegment
    | ReliableBroadcast
    | BroadcastPiece
    | Watermark
    | Stable
    | Skipped
)
Message = LinkMessage | RoutedMessage
