"""What every engine of links offers: the names of its answers, and the interface itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

from bmgd.routing import Snapshot

# --- kinds of what is put -------------------------------------------------------------------------

RAW: Final = 0
"""No frame: the end of a hello. It goes before all frames, and is never given back."""
CONTROL: Final = 1
"""Own frames for the other end. Never dropped: a link that lets them pile up is lost."""
URGENT: Final = 2
"""Routed frames of priority 0. They overtake bulk, and are dropped beyond half of control's room."""
BULK: Final = 3
"""Routed frames of priority 2 and above. Dropped at their bound."""
HIGH: Final = 4
"""Routed frames of priority 1. They overtake bulk, and are dropped at a bound of their own."""


def class_of_priority(priority: int) -> int:
    """URGENT, HIGH or BULK: what routed frames of a priority are."""
    return BULK if priority > 1 else HIGH if priority else URGENT


# --- what comes of a put --------------------------------------------------------------------------

PUT: Final = 0
DROPPED: Final = 1
"""At the bound of URGENT, HIGH or BULK: counted, nothing was added."""
OVER_BOUND: Final = 2
"""At the bound of RAW or CONTROL: nothing was added, and the caller closes the link."""
NO_LINK: Final = 3
"""There is no such link, or it takes no more because it was shut."""

# --- what happened --------------------------------------------------------------------------------

FRAME: Final = 0
"""A frame for the core; the body, `bytes`."""
END: Final = 1
"""The stream of bytes is over, by an errno or by 0 for its end (EOF), `int`; the link is gone."""
MALFORMED: Final = 2
"""The bytes are no frames; the reason, `str`. The link is gone."""
GOODBYE: Final = 3
"""The other end said goodbye; the body of its frame, `bytes`. The link is gone."""
BACKLOGGED: Final = 4
"""The outbox holds more than `BACKLOG_HIGH_BYTES`, or dropped something; how many bytes, `int`.
Told once until `WRITABLE`."""
WRITABLE: Final = 5
"""The outbox of a backlogged link is down to `BACKLOG_LOW_BYTES`; how many bytes, `int`."""
RETURNED: Final = 6
"""A routed frame that could not be passed on; the body, `bytes`. The link is the one that the
frame came on, or the one that ended before the frame was written whole."""
WRITTEN: Final = 7
"""Of a shut link without a descriptor: all is out, the goodbye too; end the writing side. `None`."""
CLOSED: Final = 8
"""A shut link is gone: the other end has closed too, or there was an error. `None`."""

BACKLOG_HIGH_BYTES: Final = 256 * 1024
BACKLOG_LOW_BYTES: Final = 64 * 1024
KNOWN_NOTICES_MAX: Final = 64

Happening: TypeAlias = "tuple[int, int, bytes | int | str | None]"
"""(link, what happened, what belongs to it)."""

Beat: TypeAlias = tuple[int, int, int, int, int]
"""Heartbeats that were absorbed on one link: (link, nanoseconds of the poll in which the last one was
read, highest sequence, highest echo, how many)."""


class LinkEngine(Protocol):
    """All links of one daemon, once their hello is over.

    The rules, and the table of a link's states, are in `bmgd.linklayer.layer`, which is the same
    without descriptors: `LinkLayer` for bytes alone, the shell's engine in Python and
    `bmgd._engine.Engine` in C for sockets too. One thread uses an engine. Link ids are
    1..2**63-1 and never used again. No method raises for what a peer did.
    """

    def fileno(self) -> int:
        """The one descriptor that the loop watches; readable while `poll` has something to do."""

    def publish(self, snapshot: Snapshot) -> None:
        """Relay by this snapshot from now on; before the first one all frames are the core's."""

    def adopt(self, fd: int, link: int, came_from: int) -> None:
        """Take a link over: frames from now on, in both directions.

        Args:
            fd: a connected non-blocking socket, which the engine now owns and closes; -1 for a link
                without a descriptor, which is fed and emptied as bytes.
            link: its id.
            came_from: the id at its other end, -1 for not known yet (see `promote`).

        Raises:
            ValueError: the link id is out of range or was adopted already.
            OSError: the descriptor cannot be watched; it stays the caller's.
        """

    def promote(self, link: int, peer: int) -> None:
        """The id at the other end of a link is known now; nothing for a link that is gone."""

    def feed(self, link: int, data: bytes) -> None:
        """Bytes of a link that no socket of the engine gave: what was read behind a hello, the plain
        text of TLS, a simulator's bytes. Nothing for a link that is gone, or reads no more."""

    def finish(self, link: int, errno: int) -> None:
        """The stream of a fed link is over: 0 for EOF, else the error's number."""

    def take(self, link: int, limit: int) -> bytes:
        """Remove and return the next bytes of a link without descriptor, `limit` at most."""

    def waiting(self) -> tuple[int, ...]:
        """The links without descriptor into which something was put since this was asked last, in
        order of the first put; `take` empties them, at once or later."""

    def put(self, link: int, data: bytes, kind: int) -> int:
        """Add whole frames of one kind (RAW: any bytes) to a link's outbox; `flush` writes.

        Returns:
            PUT, DROPPED, OVER_BOUND or NO_LINK.
        """

    def know(self, frame: bytes) -> None:
        """This body of a notice was looked at: the same bytes are absorbed when they come again, on
        any link, and count as heard. The last `KNOWN_NOTICES_MAX` are remembered."""

    def absorb_heartbeats(self, digest: bytes, links: Iterable[int]) -> None:
        """Heartbeats with this digest are absorbed on these links from now on, and on no others.

        On a link that was shut none is absorbed. Links that are gone do not matter.

        Args:
            digest: 16 bytes.

        Raises:
            ValueError: the digest is of another length.
        """

    def absorbed_heartbeats(self) -> tuple[Beat, ...]:
        """What was absorbed since this was asked last, in order of the first one: before the last poll,
        and on links that are not gone."""

    def poll(self, now_ns: int = 0) -> list[Happening]:
        """Read what is ready, all links in turn and each 256 KiB at most; write where a socket has room
        again. Where that is too much for one poll, the next one begins with those that had no turn. A
        link that gives nothing but bulk for sockets that are full may be left unread for half a
        millisecond, never longer.

        Args:
            now_ns: the time that heartbeats are marked with which are absorbed in it, or which were
                since the last poll in bytes that were fed; 0..2**63-1.

        Returns:
            What happened since the last poll, in order. Of one link: frames in the order in which they
            came, then how it ended, then its unsent routed frames.

        A link that ended has left the set of descriptors, and its socket is closed. An error of writing
        ends the writing; the link ends when what waited to be read was read, by that error. Where all
        of a shut link is written, the socket's writing side is ended.
        """

    def flush(self) -> bool:
        """Write what waits, as far as the sockets take it; whether `poll` has something to tell."""

    def heard(self) -> tuple[int, ...]:
        """The links on which something came that the core did not see, since this was asked last."""

    def shut(self, link: int, goodbye: bytes) -> None:
        """Say goodbye (a whole frame) behind all that was put; the link takes nothing more.

        It is read on until the other end has closed too; then `CLOSED` comes. Nothing for a link
        that is gone or shut.
        """

    def close(self, link: int) -> list[bytes]:
        """End a link now, and tell nobody; its unsent routed frames, as bodies, in order of writing."""

    def backlog(self, link: int) -> int:
        """How many bytes wait to be written on a link; 0 for one that is gone."""

    def totals(self) -> dict[str, int]:
        """Counters since the start, and what waits now.

        received_bytes, sent_bytes; relayed_runs, relayed_frames, relayed_bytes: put on another link;
        absorbed_frames: notices that were known, and heartbeats; dropped_urgent_frames,
        dropped_bulk_frames: at a bound, relayed and own ones, each once; returned_frames: given back by
        `poll` or `close`; backlog_bytes; links.
        """
