"""What stands within frames is read, counted and measured as it is; and what is malformed is not read.

Most of the bytes are those of the run: the segments that programs put, the sets of ids that messages
carry. A segment is looked at as it is, and after some bytes of it were changed. What is a few bytes long,
or seldom comes (heads of answers, runs, news, sets at the end of all ids), is made by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from random import Random
from typing import Any, ClassVar, Final

from bmgd.core.commands import PutSegment
from bmgd.core.effects import Effect, Send
from bmgd.core.events import CommandIssued, Event
from bmgd.core.forwarding import visited as visited_sets
from bmgd.core.forwarding.search_room import has_room_for_search
from bmgd.core.forwarding.visited import is_visited, with_visited
from bmgd.errors import ProtocolError
from bmgd.frameheader import FRAME_BYTES_MAX
from bmgd.linklayer.frames import bodies_in, frame_count
from bmgd.linklayer.heartbeats import read_heartbeat
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.witness import contents as witness
from bmgd.sim.witness.packed import Unreadable
from bmgd.sim.witness.values import shortest_set_bytes
from bmgd.types import NodeId
from bmgd.wire.answers import answer_head, read_head
from bmgd.wire.batch import pack_messages, segment_parts, unpack_messages
from bmgd.wire.bounds import BRANCH_FRAME_BYTES, SEARCH_BYTES_MAX
from bmgd.wire.codec import encode
from bmgd.wire.hello import common_version
from bmgd.wire.holding import held_bytes
from bmgd.wire.id_sets import decode_id_set, id_set_bytes
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.program_news import unpack_news
from bmgd.wire.segments import count_within, end_of, only_message

FIRST: Final = 8
EVERY: Final = 100
"""Of the things of one kind the first ones are looked at, and then every so many'th."""
_REST_BYTES: Final = 2048
_OF_BRANCH: Final = 136
_OF_SKIP: Final = 160
_OF_ENTRY: Final = 250
_OF_RUN: Final = 130
_OF_ID: Final = 40
_OF_MEMBER: Final = 180
_BUCKETS: Final = 64
_LENGTHS: Final = (35, 35, 35, 36, 120, 300)


class ContentsAreWhatTheySay(Checker):
    """Segments, sets of ids, heads of answers and news are read, counted and measured as they are."""

    name: ClassVar[str] = "contents-are-what-they-say"
    events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Send,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._random = Random("contents")
        self._counts: dict[type, int] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        command = event.command if isinstance(event, CommandIssued) else None
        if isinstance(command, PutSegment) and self._is_looked_at(PutSegment):
            self._note(journal, self._of_segment(command.body, command.count))
            self._note(journal, self._of_any(command.body))
        for effect in effects:
            message: Any = effect.message if isinstance(effect, Send) else None
            if message is not None and self._is_looked_at(type(message)):
                self._note(journal, self._of_message(message))

    def _note(self, journal: Journal, wrong: Iterable[str]) -> None:
        for text in wrong:
            self.violate(journal, text)

    def _is_looked_at(self, kind: type) -> bool:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        return count <= FIRST or not count % EVERY

    # --- segments -----------------------------------------------------------------------------

    def _of_segment(self, body: bytes, count: int) -> Iterator[str]:
        """A segment as a program puts it; and as it is when some of its bytes are others."""
        changed = bytearray(body)
        for _ in range(self._random.choice((1, 1, 2))):
            if changed:
                at = self._random.randrange(min(len(changed), 40))
                changed[at] = self._random.choice((0, 0x91, 0xA1, 0xC4, 0xC5, 0xC6, 0xD9, 0xFF))
        for data in (body, bytes(changed), body[:-1], body + b"\xc4"):
            for number in {count, count + 1, max(count - 1, 0), 1}:
                yield from self._of_body(data, number)

    def _of_body(self, data: bytes, count: int) -> Iterator[str]:
        try:
            found = witness.messages_in(data)
        except Unreadable:
            found = []
        wanted = [message for message, _ in found] if len(found) == count and count else None
        read = _or_none(lambda: unpack_messages(data, count))
        if (read or None) != wanted:
            yield f"a segment of {count} messages, {data[:40].hex()}, is read as {read!r}"[:300]
        yield from self._of_ends(data, count)
        if wanted is None:
            return
        forms = {pack_messages(wanted), b"".join(segment_parts(wanted)), witness.body_of(wanted)}
        if len(forms) != 1:
            yield f"packs a segment of {count} messages otherwise"
        alone = only_message(data)
        if alone != (wanted[0] if count == 1 else None):
            yield f"a segment of {count} messages has the only one {alone!r}"[:300]
        ends = [0, *(end for _, end in found)]
        first = self._random.randrange(count + 1)
        for last in {first, self._random.randint(first, count), count}:
            if end_of(data, last - first, ends[first]) != ends[last]:
                yield f"messages {first} to {last} of a segment end elsewhere"
        most, bytes_max = self._random.randint(1, count + 1), self._random.randrange(len(data) + 2)
        fit = sum(end <= bytes_max for end in ends[1 : most + 1])
        if count_within(data, bytes_max, most) != fit:
            yield f"{fit} messages fit into {bytes_max} bytes, it says another number"

    def _of_ends(self, data: bytes, count: int) -> Iterator[str]:
        """Messages of a segment, or of what is none: one that is not whole has no end."""
        ends = witness.ends_in(data)
        for number in (count, len(ends) - 1, len(ends)):
            wanted = ends[number] if number < len(ends) else None
            if _end_or_none(data, number) != wanted:
                yield f"{number} messages of {data[:40].hex()} do not end at {wanted}"

    # --- what is short ------------------------------------------------------------------------

    def _of_any(self, body: bytes) -> Iterator[str]:
        """Heads of answers, runs of frames, ids that were visited, and news, of a few bytes."""
        random = self._random
        kind, question = random.randrange(4), random.choice((0, 1, 255, 2**32, 2**64 - 1))
        head = answer_head(kind, question)
        if read_head(head + body[:4]) != (kind, question) or read_head(head[:-1]) != (-1, 0):
            yield "the head of an answer is read as another one"
        lengths = [
            random.choice(_LENGTHS[random.randrange(4) :]) for _ in range(random.randint(1, 5))
        ]
        frames = [random.randbytes(length) for length in lengths]
        run = b"".join(len(each).to_bytes(4, "big") + each for each in frames)
        if frame_count(run) != len(frames) or bodies_in(run) != frames:
            yield f"a run of frames of {lengths} bytes has another number of frames"
        yield from self._of_bitmap()
        yield from self._of_list()
        yield from self._of_versions()
        yield from self._of_visited()
        yield from self._of_news(body)

    def _of_bitmap(self) -> Iterator[str]:
        """A set of ids at the end of those that there can be, and beyond it."""
        random = self._random
        body = random.randbytes(random.randint(1, 4)) + b"\1"
        body = b"\x80" + body if random.random() < 0.9 else b"\0" + body
        base = 2**17 - 8 * len(body) + 8 * random.randint(-2, 2) + (random.random() < 0.1)
        is_one = body[0] != 0 and base % 8 == 0 and base + 8 * len(body) <= 2**17
        wanted = int.from_bytes(body, "little") << base if is_one else None
        data = b"\2" + base.to_bytes(4, "big") + body
        if _or_none(lambda: decode_id_set(data)) != wanted:
            yield f"the set of ids {data.hex()} is read as another one, or as one"

    def _of_list(self) -> Iterator[str]:
        """A set of ids one by one: ascending, each once, and none beyond those that there can be."""
        ids = [self._random.choice((0, 1, 2, 9, 2**17 - 1, 2**17)) for _ in range(3)]
        data = b"\1" + b"".join(each.to_bytes(4, "big") for each in ids)
        is_one = ids[0] < ids[1] < ids[2] < 2**17
        wanted = sum(1 << each for each in ids) if is_one else None
        if _or_none(lambda: decode_id_set(data)) != wanted:
            yield f"the list of ids {ids} is read as another one, or as one"

    def _of_versions(self) -> Iterator[str]:
        """Two releases that speak several versions speak the highest that both do, if there is one."""
        random = self._random
        theirs, ours = (sorted(random.choices(range(1, 6), k=2)) for _ in range(2))
        body = theirs[1].to_bytes(2, "big") + theirs[0].to_bytes(2, "big")
        wanted = max(
            {*range(theirs[0], theirs[1] + 1)} & {*range(ours[0], ours[1] + 1)}, default=None
        )
        if common_version(body, *ours) != wanted:
            yield f"who speaks {theirs} and who speaks {ours} do not speak {wanted}"

    def _of_visited(self) -> Iterator[str]:
        """A search goes from id to id: all that it was to are in its set, in a form that it may have."""
        random = self._random
        beyond, ids = visited_sets.BITMAP_SPACE_MAX, set[int]()
        visited: Any = bytes(random.randrange(4)) if beyond else ()
        for _ in range(random.randint(1, 6)):
            node_id = random.choice((random.randrange(32), random.randrange(300), beyond))
            ids.add(node_id)
            visited = with_visited(visited, NodeId(node_id))
        there = {each for each in (*range(310), beyond) if is_visited(visited, NodeId(each))}
        if there != ids:
            yield f"a search that was at {sorted(ids)} has been at {sorted(there)}"
        if isinstance(visited, bytes) != (max(ids) < beyond):
            yield f"a search that was at {sorted(ids)} has its set in another form"

    def _of_news(self, body: bytes) -> Iterator[str]:
        random, name = self._random, body[2:4] or b"x"
        start = b"\1" + random.randbytes(8) + bytes((len(name),)) + name
        code = random.choice((0, 1, -1, -(2**63), 2**63 - 1)).to_bytes(8, "big", signed=True)
        news = b"".join(random.choices((start, b"\2" + random.randbytes(16) + code), k=3))
        cut = random.choice((len(news), random.randrange(len(news))))
        for data in (news[:cut], b"\3" + news, start[:9] + b"\0" + start[10:]):
            try:
                wanted: Any = witness.news_in(data)
            except Unreadable:
                wanted = None
            read = _read_news(data)
            if read != wanted:
                yield f"news {data.hex()} are read as {read!r}"

    # --- messages -----------------------------------------------------------------------------

    def _of_message(self, message: Any) -> Iterator[str]:
        """How much a message takes, and its frame beside a search."""
        if held_bytes(message) != _held_bytes(message):
            yield f"a {type(message).__name__} takes {_held_bytes(message)} bytes, it says another number"
        covers = [branch.cover for branch in getattr(message, "branches", ())]
        for cover in (*covers, getattr(message, "exceptions", 0)):
            for ids in (cover, cover & cover << 1, cover | cover << self._random.randrange(40)):
                if id_set_bytes(ids) != shortest_set_bytes(ids):
                    yield f"the set of ids {ids:#x} takes another number of bytes"
        if covers and hasattr(message, "payload") | (type(message).__name__ == "Stable"):
            taken = len(getattr(message, "payload", b"")) + _REST_BYTES
            taken += sum(shortest_set_bytes(cover) + BRANCH_FRAME_BYTES for cover in covers)
            left = FRAME_BYTES_MAX - taken
            for search_bytes in (0, SEARCH_BYTES_MAX, left, left + 1):
                if has_room_for_search(message, search_bytes) != (search_bytes <= left):
                    yield f"{left} bytes are left for a search of {search_bytes}"
        if isinstance(message, Heartbeat):
            yield from self._of_heartbeat(message)

    def _of_heartbeat(self, message: Heartbeat) -> Iterator[str]:
        body = encode(message)[4:]
        digest = message.digest.to_bytes(16, "big")
        if read_heartbeat(body, digest) != (message.sequence, message.echo):
            yield f"{message} is read as another one"
        if read_heartbeat(body[: self._random.randrange(36, len(body))], digest) is not None:
            yield f"{message} is read though it is cut short"
        if read_heartbeat(body, bytes(16)) is not None and any(digest):
            yield f"{message} is read as one with another digest"


def _or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ProtocolError:
        return None


def _end_or_none(body: bytes, count: int) -> int | None:
    try:
        return end_of(body, count, 0)
    except ValueError:
        return None


def _read_news(data: bytes) -> list[tuple[object, ...]] | None:
    """What each start or end says, in the order of its bytes; None where they are none."""
    found = _or_none(lambda: unpack_news(data))
    return None if found is None else [astuple(news) for news in found]


def _held_bytes(message: Any) -> int:
    """What sets, lists and the search of a message take, written once more."""
    held = sum(_OF_BRANCH + _set_bytes(branch.cover) for branch in getattr(message, "branches", ()))
    held += _set_bytes(getattr(message, "exceptions", 0))
    held += _OF_SKIP * len(getattr(message, "skips", ()))
    held += _OF_ID * len(getattr(message, "passed", ()))
    held += _OF_RUN * len(getattr(message, "gaps", ()))
    held += _OF_ENTRY * (len(getattr(message, "entries", ())) + len(getattr(message, "held", ())))
    match type(message).__name__:
        case "ProgramList":
            held += len(message.starts)
        case "OlderMembers":
            held += _OF_MEMBER * len(message.members)
        case "Buckets":
            held += _OF_ID * _BUCKETS
    search = message.route.search if hasattr(message, "route") else None
    if search is not None:
        visited = search.visited
        held += len(visited) if isinstance(visited, bytes) else _OF_RUN * len(visited)
        held += _OF_ID * len(search.stack)
    return held


def _set_bytes(ids: int) -> int:
    return -(-ids.bit_length() // 8)
