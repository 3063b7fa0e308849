"""Runs: whole frames one behind another, each with its length prefix, as links carry them."""

from __future__ import annotations

from bmgd.frameheader import BODY_PREFIX_BYTES, KIND_AT, LENGTH_BYTES, PRIORITY_AT, ROUTED_FIRST
from bmgd.linklayer.contract import class_of_priority

_KIND_OFFSET = BODY_PREFIX_BYTES + KIND_AT
_PRIORITY_OFFSET = LENGTH_BYTES + BODY_PREFIX_BYTES + PRIORITY_AT


def kind_of(body: bytes | memoryview) -> int:
    """The kind of a frame's body, which the splitter has checked to have a header."""
    return body[_KIND_OFFSET]


def is_routed(body: bytes | memoryview) -> bool:
    """Whether a frame goes on to a destination; else it is for the other end of its link."""
    return body[_KIND_OFFSET] >= ROUTED_FIRST


def class_of(run: bytes | memoryview) -> int:
    """URGENT, HIGH or BULK: a run of the splitter is of one class, that of its first frame."""
    return class_of_priority(run[_PRIORITY_OFFSET])


def frame_end(run: bytes | memoryview, at: int) -> int:
    """Where the frame that begins at `at` ends."""
    return at + LENGTH_BYTES + int.from_bytes(run[at : at + LENGTH_BYTES], "big")


def bodies_in(run: bytes | memoryview) -> list[bytes]:
    """The bodies of the frames of a run, without their length prefixes."""
    bodies = []
    at = 0
    while at < len(run):
        end = frame_end(run, at)
        bodies.append(bytes(run[at + LENGTH_BYTES : end]))
        at = end
    return bodies


def frame_count(run: bytes) -> int:
    """How many frames a run has.

    O(1) calls for frames of one length, which most runs are of; else O(frames).
    """
    each = frame_end(run, 0)
    count, rest = divmod(len(run), each)
    if count == 1 and not rest:
        return 1
    # Where each place that the first length leads to holds the same length, all are of that length.
    if not rest and all(run[i::each] == run[i : i + 1] * count for i in range(LENGTH_BYTES)):
        return count
    count = at = 0
    while at < len(run):
        at = frame_end(run, at)
        count += 1
    return count
