"""What programs and their daemon say to each other passes frames as docs/control-protocol.md has them.

A simulated program calls its core. So a frame is made here of what it says, and of what it is told: the
codec's own, and that of a writer which shares nothing with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from random import Random
from typing import Any, ClassVar, Final

from bmgd.core import commands
from bmgd.core.effects import Deliver, Effect, Reply, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Event
from bmgd.errors import BmgdError, ProtocolError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.witness import control as witness
from bmgd.wire import control
from bmgd.wire.control_errors import error_of, failed_end, failure_of
from bmgd.wire.control_reader import FrameReader

FIRST: Final = 8
EVERY: Final = 50
"""Of the frames of one kind the first ones are looked at, and then every so many'th."""
_PIECES_MAX: Final = 4
"""A frame comes in so many pieces at most."""
_READ_BYTES: Final = 256 * 1024
"""So much is read at once, at most, but for a longer frame."""
_LONG: Final = (70_000, 150_000, 300_000, 600_000)


class ControlFramesMeanWhatTheySay(Checker):
    """A control frame is, to the last byte, what was said, and read as that; no malformed one is read."""

    name: ClassVar[str] = "control-frames-mean-what-they-say"
    events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Reply, Deliver, StreamMoved, StreamEnded)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._random = Random("control frames")
        self._counts: dict[type, int] = {}
        self._readers = {
            bound: FrameReader(bound)
            for bound in (control.REQUEST_BYTES_MAX, control.ANSWER_BYTES_MAX)
        }

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, CommandIssued) and self._is_looked_at(type(event.command)):
            self._look(journal, said(event, self._random), control.REQUEST_BYTES_MAX)
            self._look_at_any(journal)
            if not self._random.randrange(4):
                self._look_at_long(journal)
        for effect in effects:
            if not isinstance(effect, self.effects) or not self._is_looked_at(type(effect)):
                continue
            frame = told(effect)
            if frame is not None:
                self._look(journal, frame, control.ANSWER_BYTES_MAX)
            error = effect.error if isinstance(effect, Reply | StreamEnded) else None
            if error is not None and isinstance(frame, control.Failure | control.End):
                self._look_at_error(journal, error, frame)

    def _is_looked_at(self, kind: type) -> bool:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        return count <= FIRST or not count % EVERY

    def _look(self, journal: Journal, frame: control.Frame, bound: int) -> None:
        kind, elements = type(frame).__name__, _elements(frame)
        data = control.encode(frame, bound)
        if data != witness.written(kind, frame.sequence, elements):
            self.violate(journal, f"writes a frame of {kind} that is not the page's")
        read = self._read(data, bound)
        if (type(read), read and read.sequence) != (type(frame), frame.sequence) or (
            read is None or _elements(read) != elements
        ):
            self.violate(journal, f"a frame of {kind} is read as another one")

    def _read(self, data: bytes, bound: int) -> control.Frame | None:
        """Read a frame that comes in pieces; None where it is not one."""
        reader, found = self._readers[bound], None
        cuts = sorted(self._random.randrange(len(data) + 1) for _ in range(_PIECES_MAX - 1))
        try:
            for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
                while first < last:
                    taken = _put_in(reader, data[first:last], self._random)
                    if not taken:
                        return None
                    first += taken
                    found = found or reader.next_frame()
        except ProtocolError:
            self._readers[bound] = FrameReader(bound)
            return None
        if found is None or reader.waiting_bytes:
            self._readers[bound] = FrameReader(bound)
        return found

    def _look_at_any(self, journal: Journal) -> None:
        """A frame by chance, good or malformed, and lengths that none has."""
        bound = control.REQUEST_BYTES_MAX
        body, sequence, elements = witness.any_body(self._random)
        data = len(body).to_bytes(4, "big") + body
        read = self._read(data, bound)
        if elements is None:
            if read is not None:
                self.violate(journal, f"reads a malformed control frame: {body.hex()}")
        elif read is None or (read.sequence, list(_elements(read))) != (sequence, elements):
            self.violate(journal, f"reads a good control frame as another one: {body.hex()}")
        for length in (witness.BODY_BYTES_MIN - 1, bound + 1):
            reader = FrameReader(bound)
            reader.feed(length.to_bytes(4, "big"))
            try:
                reader.next_frame()
            except ProtocolError:
                continue
            self.violate(journal, f"waits for a control frame of {length} bytes")

    def _look_at_long(self, journal: Journal) -> None:
        """A long frame: its beginning, then what there is room for. Then a short one."""
        random, bound = self._random, control.ANSWER_BYTES_MAX
        long = control.Result(
            random.randrange(9), random.randbytes(9) * (random.choice(_LONG) // 9)
        )
        reader, found = FrameReader(bound), list[Any]()
        for frame in (long, control.Result(random.randrange(9), "short")):
            data = witness.written("Result", frame.sequence, _elements(frame))
            at, most = 0, random.choice((5, 3000, len(data)))
            while at < len(data):
                room = reader.room()
                if not 0 < len(room) <= max(_READ_BYTES, len(data)):
                    text = f"{len(room)} bytes are to be read of a frame of {len(data)}, {at} came"
                    self.violate(journal, text)
                    return
                count = min(len(room), len(data) - at, most)
                room[:count] = data[at : at + count]
                reader.filled(count)
                at, most = at + count, len(data)
                while (read := reader.next_frame()) is not None:
                    found.append(read)
            if found != [frame]:
                self.violate(journal, f"a frame of {len(data)} bytes is read as another one")
                return
            found.clear()

    def _look_at_error(
        self, journal: Journal, error: BmgdError, frame: control.Failure | control.End
    ) -> None:
        again = error_of(frame.name, frame.message, frame.fields)
        if (type(again), str(again), vars(again)) != (type(error), str(error), vars(error)):
            self.violate(journal, f"{error!r} becomes {again!r}")
        unknown = error_of("Unknown" + frame.name, frame.message, frame.fields)
        if type(unknown).__name__ != "RequestError":
            self.violate(journal, f"an error of an unknown name becomes {unknown!r}")


def _put_in(reader: FrameReader, data: bytes, random: Random) -> int:
    """Give a reader some bytes, in one way or the other; returns how many it has taken, at least one.

    None are taken where there is no room for any: a program would seem to have ended.
    """
    if random.random() < 0.5:
        reader.feed(data)
        return len(data)
    room = reader.room()
    count = min(len(room), len(data))
    room[:count] = data[:count]
    reader.filled(count)
    return count


def said(event: CommandIssued, random: Random) -> control.Frame:
    """The frame that a program would write for a command."""
    number = event.request
    match event.command:
        case commands.PutSegment(count, body, size, first, last, timeout_ns):
            flags = control.FIRST_PIECE * first + control.LAST_PIECE * last
            # What stands before the body may be written apart from it.
            at = random.choice((0, 9, len(body)))
            seconds = timeout_ns / 1e9
            return control.PutSegment(number, count, flags, size, seconds, body[:at], body[at:])
        case commands.Withdraw(which):
            return control.Withdraw(number, which)
        case commands.CloseStream():
            return control.Close(number)
        case commands.Consumed(count, long) if count:
            if long:
                return control.ConsumedPieces(number, count, long)
            return control.Consumed(number, count)
        case commands.ConsumedAnnouncements(count) if count:
            return control.ConsumedBroadcasts(number, count)
        case commands.Settled(count, questions):
            return control.Settled(number, count, list(questions))
        case commands.Unsubscribe():
            return control.Cancel(number)
        case command:
            named = {each.name: getattr(command, each.name) for each in fields(command)}
            plain = {name: value for name, value in named.items() if is_plain(value)}
            return control.Request(number, type(command).__name__.lower(), plain)


def told(effect: Effect) -> control.Frame | None:
    """The frame that a daemon would write for what it tells a program; None where there is none."""
    match effect:
        case Reply(request, _, error) if error is not None:
            return failure_of(request, error)
        case Reply(request, result):
            return control.Result(request, result) if is_plain(result) else None
        case Deliver(request, source, incarnation, topic, count, body):
            value = {"source": source, "incarnation": incarnation, "topic": topic, "count": count}
            return control.Item(request, value | {"body": body})
        case StreamMoved(request, following, credit):
            return control.Item(request, {"next": following, "credit": credit})
        case StreamEnded(request, _, _, error):
            return failed_end(request, error) if error is not None else control.End(request)
    return None


def is_plain(value: object) -> bool:
    """Whether a frame holds a value as it is."""
    match value:
        case None | bool() | float() | str() | bytes():
            return True
        case int():
            return -(2**63) <= value < 2**64
        case list():
            return all(map(is_plain, value))
        case dict():
            return all(isinstance(name, str) and is_plain(each) for name, each in value.items())
    return False


def _elements(frame: control.Frame) -> tuple[Any, ...]:
    """What stands behind the header."""
    match frame:
        case control.PutSegment(_, count, flags, size, timeout, body, more):
            return count, flags, size, timeout, body + bytes(more)
        case control.End(_, name, message, more) if not more:
            return name, message
        case _:
            values = [getattr(frame, each.name) for each in fields(frame)]
            return tuple(values[1:])
