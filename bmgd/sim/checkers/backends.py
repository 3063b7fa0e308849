"""What the extension in C says of the ways of messages is what the reference in Python says."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Final

from bmgd import frameheader as header
from bmgd.core.effects import Effect, ForwardingChanged
from bmgd.core.events import Event
from bmgd.routing import Snapshot, reference
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene

FIRST: Final = 8
EVERY: Final = 10
"""The first snapshots are looked at, and then every so many'th."""
_FRAMES: Final = 12
_KINDS: Final = (0x01, 0x3F, 0x40, 0x41, 0x7F)
_UNKNOWN_KINDS: Final = (0x00, 0x80, 0xFF)
_FLAGS: Final = (0, 0, 0, header.FLAG_CAREFUL, header.FLAG_RECORD, 0x80)


class BackendsAgree(Checker):
    """A snapshot of the extension names the links, and splits bytes, as one of the reference does.

    Next hops of all ids and beyond, for what comes from any neighbor; frames by chance, good ones,
    malformed ones and such as have not come whole.
    """

    name: ClassVar[str] = "backends-agree"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (ForwardingChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._random = Random("backends")
        self._count = 0

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        published = [e.snapshot for e in effects if isinstance(e, ForwardingChanged)]
        # While a relayout is planned, what was published may be of a former layout.
        if not published or journal.inside.plans_relayout():
            return
        self._count += 1
        if self._count <= FIRST or not self._count % EVERY:
            self._compare(journal, published[-1])

    def _compare(self, journal: Journal, snapshot: Snapshot) -> None:
        inside = journal.inside
        membership, links = inside.membership, inside.links.by_peer
        other = reference.Snapshot(
            snapshot.generation,
            journal.host.id,
            membership.id_space,
            membership.outside_runs(),
            [(peer, found[0].id) for peer, found in links.items()],
        )
        if _numbers(snapshot) != _numbers(other):
            self.violate(journal, f"a snapshot of {_numbers(snapshot)}, not {_numbers(other)}")
            return
        ids = [*range(membership.id_space + 2), 2**32 - 1]
        for came_from in (-1, *links):
            for destination in self._random.sample(ids, min(len(ids), _FRAMES)):
                flow = self._random.choice((0, self._random.getrandbits(64), 2**64 - 1))
                ours = snapshot.next_hop(destination, came_from, flow)
                if ours != other.next_hop(destination, came_from, flow):
                    text = (
                        f"to {destination} from {came_from} over link {ours}: not the reference's"
                    )
                    self.violate(journal, text)
            data = _frames(ids, self._random)
            one, two = bytearray(data), bytearray(data)
            end = self._random.choice((len(data), self._random.randrange(len(data) + 1)))
            # What is passed on is changed in place.
            if (snapshot.split(one, end, came_from), one) != (
                other.split(two, end, came_from),
                two,
            ):
                self.violate(journal, f"splits {data.hex()} unlike the reference")


def _numbers(snapshot: Snapshot) -> tuple[int, ...]:
    return (
        snapshot.generation,
        snapshot.self_id,
        snapshot.id_space,
        snapshot.layout_size,
        snapshot.rank,
    )


def _frames(ids: Sequence[int], random: Random) -> bytes:
    """Frames one behind the other, to these ids; in some cases the last one is malformed."""
    data = b"".join(_frame(random.choice(_KINDS), ids, random) for _ in range(_FRAMES))
    if random.random() < 0.3:
        data += _malformed(_frame(0x40, ids, random), random)
        data += _frame(0x40, ids, random)
    return data


def _frame(kind: int, ids: Sequence[int], random: Random) -> bytes:
    packed = header.HEADER.pack(
        kind,
        random.choice(_FLAGS),
        random.randrange(5),
        random.choice((0, 1, 2, 255)),
        random.choice(ids),
        random.choice(ids),
        random.getrandbits(64),
        random.getrandbits(32),
        random.getrandbits(64),
    )
    first = random.choice((header.ARRAY_FIRST, header.ARRAY_LAST))
    body = bytes((first, header.BIN_8, header.HEADER_BYTES)) + packed + bytes(random.randrange(9))
    return len(body).to_bytes(header.LENGTH_BYTES, "big") + body


def _malformed(frame: bytes, random: Random) -> bytes:
    """A frame that is none: its length, what stands before its header, or its kind."""
    wrong = bytearray(frame)
    at = header.LENGTH_BYTES
    match random.randrange(6):
        case 0:
            wrong[:at] = (header.BODY_BYTES_MIN - 1).to_bytes(at, "big")
        case 1:
            wrong[:at] = (header.FRAME_BYTES_MAX + 1).to_bytes(at, "big")
        case 2:
            wrong[at] = random.choice((header.ARRAY_FIRST - 1, header.ARRAY_LAST + 1))
        case 3:
            wrong[at + 1] = header.BIN_8 + 1
        case 4:
            wrong[at + 2] = header.HEADER_BYTES - 1
        case _:
            wrong[at + header.BODY_PREFIX_BYTES] = random.choice(_UNKNOWN_KINDS)
    return bytes(wrong)
