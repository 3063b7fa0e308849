"""How much a message between daemons holds at most. docs/architecture.md says what happens there."""

PAYLOAD_BYTES_MAX = 65_536
"""Of a message that goes whole, and of one piece of a longer one."""
SEGMENT_BYTES_MAX = PAYLOAD_BYTES_MAX + 5
"""The body of a segment: the longest message has five bytes of msgpack before it."""
MESSAGES_PER_SEGMENT_MAX = 65_535
LONG_BYTES_MAX = 2**40
"""The longest message."""
STREAM_ID_MAX = 2**32 - 1
INBOX_MAX = 2**32 - 1
QUESTION_MAX = 2**64 - 1
GAPS_MAX = 32
TOPIC_BYTES_MAX = 255
SEARCH_BYTES_MAX = 16_384
RECORDS_PER_NOTICE_MAX = 256
ROUTE_IDS_MAX = 4096
REPORT_BYTES_MAX = 16_384
PROGRAMS_BYTES_MAX = 65_536
"""Of a page of a list of programs."""
PROBLEM_BYTES_MAX = 255
TRACE_MS_MAX = 60_000
BRANCHES_MAX = 1024
BRANCH_BYTES_MAX = 16_384 + 64
"""Of all covers of a frame together, as they are written, and `BRANCH_FRAME_BYTES` for each branch."""
BRANCH_FRAME_BYTES = 9
COVERS_BYTES_MAX = 2**20
"""Of all covers of a frame together, as bitmaps from id 0: what they take in memory once they are read.
As many branches as a frame may have, of ids below 8192, are never more."""
EXCEPTIONS_BYTES_MAX = 1100
SKIPS_MAX = 16
WATERMARKS_MAX = 256
OLDER_MEMBERS_MAX = 256
ENTRIES_MAX = 512
"""Destinations of a reliable multicast."""
