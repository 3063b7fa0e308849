"""The layer between the sockets and the core: what happens to a frame that came, and to one that goes.

Theory of operation. A link begins here when its hello is over. Bytes that came are split by the
snapshot that the core published last, and each frame has one of these fates:

    the snapshot has a next hop     relayed: put on that link, as URGENT, HIGH or BULK
    its next hop is gone or shut    RETURNED, to the core
    a notice that is known          absorbed; the link counts as heard
    a heartbeat as was said         absorbed; what it says is kept until it is asked for
    the other end's goodbye         GOODBYE; what stands behind it is not read
    anything else                   FRAME, for the core
    no frame at all                 MALFORMED

Frames that go wait in the link's `Outbox`: URGENT and CONTROL before HIGH before BULK, at frame
boundaries, each with a bound. What is dropped there is counted once, and told once as BACKLOGGED. The
states of a link, and what is told on each way out of them:

    state     shut()   the peer's goodbye   all is written   EOF, error   no frames    close()
    UP        CLOSING  gone: GOODBYE +      -                gone: END +  gone: MAL. + gone
    CLOSING   -        LEFT                 SAID, WRITTEN    gone: + CL.  gone: + CL.  gone
    SAID      -        gone: CLOSED         -                gone: CL.    gone: CL.    gone
    LEFT      -        -                    gone: CLOSED     gone: + CL.  -            gone

    +  and the routed frames that were not written whole are RETURNED (close() returns them)

In CLOSING the goodbye is behind everything that was put, so nothing that a link accepted is lost at a
living peer, and nothing follows a goodbye. What comes from the peer is still read until it has heard it:
in SAID to the end. Both ends may say goodbye at once: LEFT has heard the peer's, and only writes.
Between `shut` and the core's next snapshot the old one may still name the link; such frames are RETURNED.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from bmgd.linklayer import contract
from bmgd.linklayer.contract import Beat, Happening
from bmgd.linklayer.frames import bodies_in, class_of, frame_count, kind_of
from bmgd.linklayer.heartbeats import DIGEST_BYTES, read_heartbeat
from bmgd.linklayer.outbox import BULK_BYTES_MAX, Outbox, Run
from bmgd.routing import Snapshot
from bmgd.wire.codec import kind_of_message
from bmgd.wire.link_messages import Goodbye

_GOODBYE_KIND = kind_of_message(Goodbye)
_LINK_ID_MAX = 2**63 - 1
_NOT_POLLED = -1
_NO_BEAT = (0, 0, 0, 0, 0)


class LinkState(Enum):
    """How far a link is; see the table above."""

    UP = "up"
    CLOSING = "closing"
    SAID = "said"
    LEFT = "left"


@dataclass(slots=True, eq=False)
class _Link:
    """One link.

    Attributes:
        came_from: the id at the other end, -1 for unknown.
        rest: the beginning of a frame of which the end has not come.
        backlogged: BACKLOGGED was told, and WRITABLE was not since.
        absorbs: whether heartbeats with the digest that was said are absorbed.
    """

    number: int
    came_from: int
    outbox: Outbox
    state: LinkState = LinkState.UP
    rest: bytearray = field(default_factory=bytearray)
    backlogged: bool = False
    absorbs: bool = False


class LinkLayer:
    """All links of one daemon, as bytes: a `LinkEngine` without descriptors.

    Args:
        bulk_bytes_max: the bound of bulk in each outbox.
    """

    def __init__(self, bulk_bytes_max: int = BULK_BYTES_MAX) -> None:
        self._bulk_bytes_max = bulk_bytes_max
        self._snapshot = Snapshot(0, 0, 1, (), ())
        self._links: dict[int, _Link] = {}
        self._happened: list[Happening] = []
        self._heard: dict[int, None] = {}
        self._waiting: dict[int, None] = {}
        self._known: dict[bytes, None] = {}
        self._digest = b""
        self._beats: dict[int, Beat] = {}
        self._received_bytes = 0
        self._sent_bytes = 0
        self._relayed_runs = 0
        self._relayed_frames = 0
        self._relayed_bytes = 0
        self._absorbed_frames = 0
        self._dropped_urgent_frames = 0
        self._dropped_bulk_frames = 0
        self._returned_frames = 0

    def fileno(self) -> int:
        """There is none: -1."""
        return -1

    def publish(self, snapshot: Snapshot) -> None:
        """See `LinkEngine.publish`."""
        self._snapshot = snapshot

    # --- links --------------------------------------------------------------------------------

    def adopt(self, fd: int, link: int, came_from: int = -1) -> None:
        """See `LinkEngine.adopt`; `fd` is -1."""
        if fd != -1:
            raise ValueError("the layer has no descriptors")
        if not 1 <= link <= _LINK_ID_MAX or link in self._links:
            raise ValueError(f"link id {link} is out of range or in use")
        self._links[link] = _Link(link, came_from, Outbox(self._bulk_bytes_max))

    def promote(self, link: int, peer: int) -> None:
        """See `LinkEngine.promote`."""
        found = self._links.get(link)
        if found is not None:
            found.came_from = peer

    def state_of(self, link: int) -> LinkState | None:
        """How far a link is; None for gone."""
        found = self._links.get(link)
        return None if found is None else found.state

    def shut(self, link: int, goodbye: bytes) -> None:
        """See `LinkEngine.shut`."""
        found = self._links.get(link)
        if found is not None and found.state is LinkState.UP:
            found.state = LinkState.CLOSING
            found.absorbs = False
            found.outbox.put_goodbye(goodbye)
            self._waiting[link] = None

    def close(self, link: int) -> list[bytes]:
        """See `LinkEngine.close`."""
        found = self._links.get(link)
        if found is None:
            return []
        self._forget(found)
        unsent = found.outbox.unsent()
        self._returned_frames += len(unsent)
        return unsent

    def _forget(self, link: _Link) -> None:
        del self._links[link.number]
        self._heard.pop(link.number, None)
        self._beats.pop(link.number, None)
        self._waiting.pop(link.number, None)

    def _end(self, link: _Link, what: int, detail: bytes | int | str | None) -> None:
        """A link is gone without its owner's doing."""
        was_up = link.state is LinkState.UP
        if was_up:
            self._happened.append((link.number, what, detail))
        self._return(link.number, self.close(link.number))
        if not was_up:
            self._happened.append((link.number, contract.CLOSED, None))

    def _return(self, link: int, bodies: list[bytes]) -> None:
        self._happened.extend((link, contract.RETURNED, body) for body in bodies)

    # --- bytes that came ----------------------------------------------------------------------

    def feed(self, link: int, data: bytes) -> None:
        """See `LinkEngine.feed`. O(bytes)."""
        found = self._links.get(link)
        if found is None or found.state is LinkState.LEFT:
            return
        self._received_bytes += len(data)
        found.rest += data
        self._split(found, found.rest, len(found.rest))

    def rest_of(self, link: int) -> bytes:
        """The beginning of a frame of which the end has not come; `feed_buffer` wants it in front."""
        return bytes(self._links[link].rest)

    def feed_buffer(self, link: int, buffer: bytearray, end: int) -> None:
        """As `feed`, of a buffer that begins with `rest_of` and counts to `end`; it is written to."""
        found = self._links[link]
        self._received_bytes += end - len(found.rest)
        self._split(found, buffer, end)

    def _split(self, link: _Link, buffer: bytearray, end: int) -> None:
        consumed, runs, bodies, error = self._snapshot.split(buffer, end, link.came_from)
        if buffer is link.rest:
            del buffer[:consumed]
        else:
            link.rest = buffer[consumed:end]
        for out, run in runs:
            self._relay(link, out, run)
        for body in bodies:
            if body in self._known:
                self._absorbed_frames += 1
                self._heard[link.number] = None
            elif link.absorbs and self._absorb(link.number, body):
                self._absorbed_frames += 1
            elif kind_of(body) == _GOODBYE_KIND:
                self._on_goodbye(link, body)
                return
            else:
                self._happened.append((link.number, contract.FRAME, body))
        if error is not None:
            self._end(link, contract.MALFORMED, error)

    def finish(self, link: int, errno: int) -> None:
        """See `LinkEngine.finish`."""
        found = self._links.get(link)
        if found is None or (found.state is LinkState.LEFT and errno == 0):
            return
        self._end(found, contract.END, errno)

    def _on_goodbye(self, link: _Link, body: bytes) -> None:
        if link.state is LinkState.CLOSING:
            link.state = LinkState.LEFT
            link.rest = bytearray()
        else:
            self._end(link, contract.GOODBYE, body)

    def know(self, frame: bytes) -> None:
        """See `LinkEngine.know`. In a flood a notice comes over every link, and joins are idempotent."""
        if frame not in self._known and len(self._known) >= contract.KNOWN_NOTICES_MAX:
            del self._known[next(iter(self._known))]
        self._known[frame] = None

    def absorb_heartbeats(self, digest: bytes, links: Iterable[int]) -> None:
        """See `LinkEngine.absorb_heartbeats`."""
        if len(digest) != DIGEST_BYTES:
            raise ValueError(f"a digest has {DIGEST_BYTES} bytes")
        self._digest = digest
        for link in self._links.values():
            link.absorbs = False
        for number in links:
            found = self._links.get(number)
            if found is not None:
                found.absorbs = found.state is LinkState.UP

    def _absorb(self, number: int, body: bytes) -> bool:
        found = read_heartbeat(body, self._digest)
        if found is None:
            return False
        _, _, sequence, echo, count = self._beats.get(number, _NO_BEAT)
        highest = max(sequence, found[0]), max(echo, found[1])
        self._beats[number] = (number, _NOT_POLLED, *highest, count + 1)
        return True

    def absorbed_heartbeats(self) -> tuple[Beat, ...]:
        """See `LinkEngine.absorbed_heartbeats`."""
        if not self._beats:
            return ()
        told = tuple(beat for beat in self._beats.values() if beat[1] != _NOT_POLLED)
        for beat in told:
            del self._beats[beat[0]]
        return told

    def heard(self) -> tuple[int, ...]:
        """See `LinkEngine.heard`."""
        heard = tuple(self._heard)
        self._heard.clear()
        return heard

    # --- bytes that go ------------------------------------------------------------------------

    def _relay(self, came: _Link, out: int, run: bytes) -> None:
        self._heard[came.number] = None
        result = self.put(out, run, class_of(run))
        if result == contract.NO_LINK:
            bodies = bodies_in(run)
            self._returned_frames += len(bodies)
            self._return(came.number, bodies)
        elif result == contract.PUT:
            self._relayed_runs += 1
            self._relayed_frames += frame_count(run)
            self._relayed_bytes += len(run)

    def put(self, link: int, data: bytes, kind: int) -> int:
        """See `LinkEngine.put`."""
        found = self._links.get(link)
        if found is None or found.state is not LinkState.UP:
            return contract.NO_LINK
        outbox = found.outbox
        match kind:
            case contract.BULK:
                has_room = outbox.put_bulk(data)
            case contract.HIGH:
                has_room = outbox.put_high(data)
            case contract.URGENT:
                has_room = outbox.put_urgent(data)
            case contract.CONTROL:
                has_room = outbox.put_control(data)
            case _:
                has_room = outbox.put_raw(data)
        if has_room:
            self._waiting[link] = None
        elif kind in (contract.BULK, contract.HIGH):
            self._dropped_bulk_frames += frame_count(data)
        elif kind == contract.URGENT:
            self._dropped_urgent_frames += frame_count(data)
        else:
            return contract.OVER_BOUND
        self._look_at_backlog(found, dropped=not has_room)
        return contract.PUT if has_room else contract.DROPPED

    def _look_at_backlog(self, link: _Link, *, dropped: bool) -> None:
        backlog_bytes = link.outbox.backlog_bytes
        if not link.backlogged and (dropped or backlog_bytes > contract.BACKLOG_HIGH_BYTES):
            link.backlogged = True
            self._happened.append((link.number, contract.BACKLOGGED, backlog_bytes))

    def gather(self, link: int) -> list[Run]:
        """The buffers that a link has to write next, in order; `advance` tells what was written."""
        return self._links[link].outbox.gather()

    def advance(self, link: int, written: int) -> bool:
        """So many bytes from the front of `gather` were written.

        Returns:
            Whether the writing side is to be ended now: all is out, the goodbye too.
        """
        found = self._links[link]
        found.outbox.advance(written)
        self._sent_bytes += written
        backlog_bytes = found.outbox.backlog_bytes
        if found.backlogged and backlog_bytes <= contract.BACKLOG_LOW_BYTES:
            found.backlogged = False
            if found.state is LinkState.UP:
                self._happened.append((link, contract.WRITABLE, backlog_bytes))
        if backlog_bytes or found.state is LinkState.UP:
            return False
        if found.state is LinkState.LEFT:
            self._end(found, contract.CLOSED, None)
            return False
        is_last = found.state is LinkState.CLOSING
        found.state = LinkState.SAID
        return is_last

    def take(self, link: int, limit: int) -> bytes:
        """See `LinkEngine.take`."""
        found = self._links.get(link)
        if found is None:
            return b""
        left = min(limit, found.outbox.backlog_bytes)
        taken: list[bytes] = []
        while left:
            some = _first_of(found.outbox.gather(), left)
            taken.append(some)
            left -= len(some)
            if self.advance(link, len(some)):
                self._happened.append((link, contract.WRITTEN, None))
        return b"".join(taken)

    def waiting(self) -> tuple[int, ...]:
        """See `LinkEngine.waiting`."""
        waiting = tuple(self._waiting)
        self._waiting.clear()
        return waiting

    # --- what happened ------------------------------------------------------------------------

    def poll(self, now_ns: int = 0) -> list[Happening]:
        """See `LinkEngine.poll`; nothing is read here."""
        if self._beats:
            for number, at_ns, sequence, echo, count in list(self._beats.values()):
                if at_ns == _NOT_POLLED:
                    self._beats[number] = (number, now_ns, sequence, echo, count)
        happened, self._happened = self._happened, []
        return happened

    def flush(self) -> bool:
        """See `LinkEngine.flush`; nothing is written here."""
        return bool(self._happened)

    def backlog(self, link: int) -> int:
        """See `LinkEngine.backlog`."""
        found = self._links.get(link)
        return 0 if found is None else found.outbox.backlog_bytes

    def totals(self) -> dict[str, int]:
        """See `LinkEngine.totals`. O(links)."""
        return {
            "received_bytes": self._received_bytes,
            "sent_bytes": self._sent_bytes,
            "relayed_runs": self._relayed_runs,
            "relayed_frames": self._relayed_frames,
            "relayed_bytes": self._relayed_bytes,
            "absorbed_frames": self._absorbed_frames,
            "dropped_urgent_frames": self._dropped_urgent_frames,
            "dropped_bulk_frames": self._dropped_bulk_frames,
            "returned_frames": self._returned_frames,
            "backlog_bytes": sum(link.outbox.backlog_bytes for link in self._links.values()),
            "links": len(self._links),
        }


def _first_of(runs: list[Run], limit: int) -> bytes:
    """The first bytes of some buffers, so many at most."""
    parts: list[Run] = []
    for run in runs:
        parts.append(run[:limit])
        limit -= len(parts[-1])
        if not limit:
            break
    return b"".join(parts)
