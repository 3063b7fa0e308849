"""What an engine of links must do, kept beside it frame by frame, and compared with what it does.

Theory of operation. A `WatchedEngine` stands before a real engine and passes everything on. Beside it
the same is done the simplest way: each link has a list of whole frames for each urgency (`modellink.py`),
and a list of what must be told next. Bytes that are taken must be the next frames; what `poll` tells
of a link must be the next of what is expected. Only next hops are asked of the same snapshot. What
differs is reported under the name of the rule that it breaks, and the link is not looked at any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from bmgd import frameheader as header
from bmgd.errors import ProtocolError
from bmgd.linklayer import LinkEngine, contract
from bmgd.linklayer.contract import Happening
from bmgd.linklayer.outbox import (
    BULK_BYTES_MAX,
    CONTROL_BYTES_MAX,
    HIGH_BYTES_MAX,
    URGENT_BYTES_MAX,
)
from bmgd.routing import Snapshot
from bmgd.sim.framebytes import awaited_bytes, class_of, frames_in, hopped, kind_of, kind_of_put
from bmgd.sim.modellink import LOSE_NOTHING, OVERTAKE, ModelLink
from bmgd.wire.codec import decode, kind_of_message
from bmgd.wire.link_messages import Goodbye, Heartbeat

BOUNDED: Final = "outboxes-are-bounded"

_GOODBYE: Final = kind_of_message(Goodbye)
_HEARTBEAT: Final = kind_of_message(Heartbeat)
_UNTOLD: Final = (contract.BACKLOGGED, contract.WRITABLE)
"""What is told when sizes pass a bound, not when frames come or go."""
Report = Callable[[str, str], None]


class WatchedEngine:
    """A `LinkEngine` that does what another one does, and compares.

    Args:
        engine: the other one; its links have no descriptors.
        report: gets the name of the rule that does not hold, and a text.
        on_goodbye: called with a link whose other end said goodbye, and how many frames came on it.
        bulk_bytes_max: the bound of bulk in each outbox of the engine.
    """

    def __init__(
        self,
        engine: LinkEngine,
        report: Report,
        on_goodbye: Callable[[int, int], None] = lambda link, came: None,
        bulk_bytes_max: int = BULK_BYTES_MAX,
    ) -> None:
        self._bounds = {
            contract.RAW: CONTROL_BYTES_MAX,
            contract.CONTROL: CONTROL_BYTES_MAX,
            contract.URGENT: URGENT_BYTES_MAX,
            contract.HIGH: min(HIGH_BYTES_MAX, bulk_bytes_max),
            contract.BULK: bulk_bytes_max,
        }
        self._engine = engine
        self._report = report
        self._on_goodbye = on_goodbye
        self._snapshot = Snapshot(0, 0, 1, (), ())
        self._links: dict[int, ModelLink] = {}
        self._expected: dict[int, deque[tuple[int, object]]] = {}
        self._due: dict[int, None] = {}
        self._known: dict[bytes, None] = {}
        self._heard: set[int] = set()
        self._absorbs: tuple[bytes, frozenset[int]] = b"", frozenset()
        self._beats: dict[int, list[Heartbeat]] = {}
        self._unpolled: set[int] = set()
        self._dropped = 0
        self._dropped_before = 0
        self._relayed = self._relayed_before = 0, 0
        """Frames, and their bytes."""
        self.accepted: dict[int, int] = {}
        self.fileno = engine.fileno
        self.flush = engine.flush
        self.waiting = engine.waiting
        self.totals = engine.totals

    def _violate(self, link: int, name: str, text: str) -> None:
        self._report(name, f"link {link}: {text}")
        self._links.pop(link, None)
        self._expected.pop(link, None)

    # --- links --------------------------------------------------------------------------------

    def publish(self, snapshot: Snapshot) -> None:
        """See `LinkEngine.publish`."""
        self._snapshot = snapshot
        self._engine.publish(snapshot)

    def adopt(self, fd: int, link: int, came_from: int) -> None:
        """See `LinkEngine.adopt`."""
        self._engine.adopt(fd, link, came_from)
        self._links[link] = ModelLink(came_from)
        self._expected[link] = deque()

    def promote(self, link: int, peer: int) -> None:
        """See `LinkEngine.promote`."""
        self._engine.promote(link, peer)
        if link in self._links:
            self._links[link].came_from = peer

    def shut(self, link: int, goodbye: bytes) -> None:
        """See `LinkEngine.shut`."""
        self._engine.shut(link, goodbye)
        found = self._links.get(link)
        if found is not None and not found.is_shut:
            found.is_shut, found.goodbye = True, goodbye
            self._absorbs = self._absorbs[0], self._absorbs[1] - {link}
            self.accepted[link] = found.accepted

    def close(self, link: int) -> list[bytes]:
        """See `LinkEngine.close`."""
        unsent = self._engine.close(link)
        self._due[link] = None
        found = self._links.pop(link, None)
        if found is not None and unsent != found.unsent():
            count = len(found.unsent())
            self._violate(link, LOSE_NOTHING, f"gave back {len(unsent)} of {count} unsent frames")
        self._heard.discard(link)
        self._beats.pop(link, None)
        return unsent

    def _end(self, number: int, what: int, detail: object) -> None:
        """A link is over: what must be told of it."""
        link = self._links.pop(number)
        expected = self._expect(number)
        if not link.is_shut:
            expected.append((what, detail))
        expected.extend((contract.RETURNED, body) for body in link.unsent())
        if link.is_shut:
            expected.append((contract.CLOSED, None))
        self._heard.discard(number)
        self._beats.pop(number, None)

    def _expect(self, number: int) -> deque[tuple[int, object]]:
        """What must be told of a link; the next poll looks whether all of it was."""
        self._due[number] = None
        return self._expected[number]

    # --- what comes ---------------------------------------------------------------------------

    def know(self, frame: bytes) -> None:
        """See `LinkEngine.know`."""
        self._engine.know(frame)
        if frame not in self._known and len(self._known) >= contract.KNOWN_NOTICES_MAX:
            del self._known[next(iter(self._known))]
        self._known[frame] = None

    def finish(self, link: int, errno: int) -> None:
        """See `LinkEngine.finish`."""
        self._engine.finish(link, errno)
        found = self._links.get(link)
        if found is not None and (found.hears or errno):
            self._end(link, contract.END, errno)

    def feed(self, link: int, data: bytes) -> None:
        """See `LinkEngine.feed`."""
        self._engine.feed(link, data)
        found = self._links.get(link)
        if found is None or not found.hears:
            return
        found.rest += data
        if len(found.rest) < found.awaited_bytes:
            return
        frames, size, is_malformed = frames_in(bytes(found.rest))
        del found.rest[:size]
        found.awaited_bytes = awaited_bytes(found.rest)
        runs: dict[tuple[int, int], list[bytes]] = {}
        for_core: list[bytes] = []
        for frame in frames:
            out = self._next_hop(found, frame)
            if out == -1:
                for_core.append(frame[header.LENGTH_BYTES :])
            else:
                runs.setdefault((out, class_of(frame)), []).append(hopped(frame))
        found.came += len(frames)
        for (out, kind), run in runs.items():
            self._relay(link, out, kind, run)
        if runs:
            for out in {out for out, _ in runs if out != link}:
                self._check_backlog(out)
        self._take_in(link, found, for_core, is_malformed=is_malformed)

    def _next_hop(self, link: ModelLink, frame: bytes) -> int:
        if kind_of(frame) <= header.LINK_LOCAL_LAST:
            return -1
        _, flags, _, budget, to, source, *_ = header.HEADER.unpack_from(
            frame, header.LENGTH_BYTES + header.BODY_PREFIX_BYTES
        )
        marked = flags & (header.FLAG_CAREFUL | header.FLAG_RECORD)
        if marked or budget == 0:
            return -1
        return self._snapshot.next_hop(to, link.came_from, header.flow_of(source, to))

    def _relay(self, came: int, out: int, kind: int, run: list[bytes]) -> None:
        self._heard.add(came)
        link = self._links.get(out)
        if link is None or link.is_shut:
            bodies = [frame[header.LENGTH_BYTES :] for frame in run]
            self._expect(came).extend((contract.RETURNED, body) for body in bodies)
        elif self._room(link, kind) < sum(map(len, run)):
            self._dropped += len(run)
        else:
            link.queue(kind).put(run)
            link.accepted += len(run)
            frames, size_bytes = self._relayed
            self._relayed = frames + len(run), size_bytes + sum(map(len, run))

    def _check_backlog(self, number: int) -> None:
        link = self._links.get(number)
        waiting = self._engine.backlog(number)
        if link is not None and waiting != link.backlog_bytes:
            self._violate(number, BOUNDED, f"{waiting} bytes wait, not {link.backlog_bytes}")

    def _take_in(
        self, number: int, link: ModelLink, bodies: list[bytes], *, is_malformed: bool
    ) -> None:
        if number not in self._expected:
            return
        for body in bodies:
            if body in self._known:
                self._heard.add(number)
            elif number in self._absorbs[1] and (beat := self._absorbed(body)) is not None:
                self._beats.setdefault(number, []).append(beat)
                self._unpolled.add(number)
            elif body[header.BODY_PREFIX_BYTES] == _GOODBYE:
                self._on_goodbye(number, link.came - 1)
                if link.is_shut and not link.said:
                    link.hears = False
                else:
                    self._end(number, contract.GOODBYE, body)
                return
            else:
                self._expect(number).append((contract.FRAME, body))
        if is_malformed:
            self._end(number, contract.MALFORMED, None)

    def absorb_heartbeats(self, digest: bytes, links: Iterable[int]) -> None:
        """See `LinkEngine.absorb_heartbeats`."""
        links = tuple(links)
        self._engine.absorb_heartbeats(digest, links)
        up = (link for link in links if link in self._links and not self._links[link].is_shut)
        self._absorbs = digest, frozenset(up)

    def _absorbed(self, body: bytes) -> Heartbeat | None:
        if body[header.BODY_PREFIX_BYTES] != _HEARTBEAT:
            return None
        try:
            beat = decode(body)
        except ProtocolError:
            return None
        assert isinstance(beat, Heartbeat)
        return beat if beat.digest == int.from_bytes(self._absorbs[0], "big") else None

    def absorbed_heartbeats(self) -> tuple[contract.Beat, ...]:
        """See `LinkEngine.absorbed_heartbeats`."""
        told = self._engine.absorbed_heartbeats()
        if not told and not self._beats:
            return told
        expected = {}
        for number in [number for number in self._beats if number not in self._unpolled]:
            beats = self._beats.pop(number)
            highest = max(beat.sequence for beat in beats), max(beat.echo for beat in beats)
            expected[number] = *highest, len(beats)
        found = {number: (*highest, count) for number, _, *highest, count in told}
        if found != expected:
            self._report(LOSE_NOTHING, f"tells of absorbed heartbeats {found}, not {expected}")
        return told

    def poll(self, now_ns: int = 0) -> list[Happening]:
        """See `LinkEngine.poll`."""
        happened = self._engine.poll(now_ns)
        self._unpolled.clear()
        for link, what, detail in happened:
            expected = self._expected.get(link)
            if what in _UNTOLD or expected is None:
                continue
            told = (what, None if what == contract.MALFORMED else detail)
            if not expected or expected.popleft() != told:
                self._violate(link, LOSE_NOTHING, f"told what must not be told now: {told}")
        if self._due:
            self._check_told()
        if self._dropped != self._dropped_before:
            self._check_dropped()
        if self._relayed != self._relayed_before:
            self._check_relayed()
        return happened

    def _check_told(self) -> None:
        """All that had to be told was told."""
        due, self._due = self._due, {}
        for link in due:
            expected = self._expected.get(link)
            if expected:
                text = f"did not tell {len(expected)} things, the first is {expected[0]}"
                self._violate(link, LOSE_NOTHING, text)
            elif link not in self._links:
                self._expected.pop(link, None)

    def _check_dropped(self) -> None:
        """Each frame that was dropped is counted once."""
        self._dropped_before = self._dropped
        totals = self._engine.totals()
        counted = totals["dropped_urgent_frames"] + totals["dropped_bulk_frames"]
        if counted != self._dropped_before:
            self._report(BOUNDED, f"dropped {self._dropped_before} frames, and counts {counted}")

    def _check_relayed(self) -> None:
        """What operators are shown of the data plane is what it did."""
        self._relayed_before = self._relayed
        totals = self._engine.totals()
        counted = totals["relayed_frames"], totals["relayed_bytes"]
        if counted != self._relayed:
            self._report(LOSE_NOTHING, f"relays {self._relayed} frames and bytes, counts {counted}")

    def heard(self) -> tuple[int, ...]:
        """See `LinkEngine.heard`."""
        heard = self._engine.heard()
        missed = {link for link in self._heard if link in self._links} - set(heard)
        if missed:
            self._report(LOSE_NOTHING, f"does not tell that links {sorted(missed)} were heard")
        self._heard.clear()
        return heard

    # --- what goes ----------------------------------------------------------------------------

    def put(self, link: int, data: bytes, kind: int) -> int:
        """See `LinkEngine.put`."""
        result = self._engine.put(link, data, kind)
        found = self._links.get(link)
        if found is None or found.is_shut:
            if result != contract.NO_LINK and (found is not None or link not in self._expected):
                self._violate(link, LOSE_NOTHING, "took a frame behind its goodbye or its end")
            return result
        frames = [] if kind == contract.RAW else frames_in(data)[0]
        if any(kind_of_put(frame) != kind for frame in frames):
            self._violate(link, OVERTAKE, f"a frame is put as kind {kind} that is not of it")
            return result
        has_room = self._room(found, kind) >= len(data)
        if result == contract.PUT and not has_room:
            self._violate(link, BOUNDED, f"took {len(data)} bytes of kind {kind} above the bound")
        elif result != contract.PUT and has_room:
            self._violate(link, LOSE_NOTHING, f"answered {result} to a put with room for it")
        elif result == contract.DROPPED:
            self._dropped += len(frames)
        elif result == contract.PUT and kind == contract.RAW:
            found.raw += data
        elif result == contract.PUT:
            found.queue(kind).put(frames)
            found.accepted += len(frames)
        self._check_backlog(link)
        return result

    def _room(self, link: ModelLink, kind: int) -> int:
        return self._bounds[kind] - link.waiting_bytes(kind)

    def take(self, link: int, limit: int) -> bytes:
        """See `LinkEngine.take`."""
        taken = self._engine.take(link, limit)
        found = self._links.get(link)
        if found is None:
            return taken
        if len(taken) > limit or (len(taken) < limit and len(taken) != found.backlog_bytes):
            text = f"gave {len(taken)} bytes of {found.backlog_bytes}, asked for {limit}"
            self._violate(link, LOSE_NOTHING, text)
            return taken
        broken = found.consume(taken)
        if broken is not None:
            self._violate(link, *broken)
            return taken
        self._check_backlog(link)
        if taken and found.is_shut and not found.backlog_bytes:
            self._on_written(link, found)
        return taken

    def _on_written(self, number: int, link: ModelLink) -> None:
        """All of a shut link is taken."""
        link.said = True
        if link.hears:
            self._expect(number).append((contract.WRITTEN, None))
        else:
            self._end(number, contract.CLOSED, None)

    def backlog(self, link: int) -> int:
        """See `LinkEngine.backlog`."""
        return self._engine.backlog(link)
