"""Packed values: those in files are what was written, and those of others make no room for nothing.

Both are made by chance, and looked at beside each process when it begins.
"""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from bmgd.errors import ProtocolError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.sim.witness import control as control_witness
from bmgd.sim.witness.frames import HEADER, KINDS
from bmgd.sim.witness.packed import packed
from bmgd.wire import codec, control
from bmgd.wire.batch import unpack_messages
from bmgd.wire.packing import compress, decompress, pack, unpack

VALUES: Final = 3
ROOM_BYTES_MAX: Final = 1 << 20
"""What is read of a few kilobytes takes less."""
_NESTED: Final = 200
_LEAVES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 127, 128, -1, -33, 2**32, 2**64 - 1, -(2**63), 1.5, -0.25, "", "text"),
    *("é" * 20, "x" * 300, b"", b"\xff\x00", b"b" * 40, bytes(3000)),
)
_NO_VALUES: Final = (b"", b"\xc1", b"\x81\x01\x01", b"\x92\xc0", b"\xa2\xc3\x28", b"\x91" * 2000)
"""None at all, half of one, a key that is a number, a text that is none, and what is too deep."""


class FilesHoldWhatWasWritten(Checker):
    """A value that a daemon writes into a file is read as it was; nothing else is read as one."""

    name: ClassVar[str] = "files-hold-what-was-written"
    events: ClassVar[Kinds] = ()

    def on_boot(self, journal: Journal) -> None:
        random = Random(f"files of {journal.host.node.incarnation}")
        for _ in range(VALUES):
            self._look(journal, _any_value(random, 3), random)
        for data in _NO_VALUES:
            if not _is_refused(partial(unpack, data)):
                self.violate(journal, f"reads what is no value: {data[:40].hex()}")

    def _look(self, journal: Journal, value: Any, random: Random) -> None:
        data = pack(value)
        if data != packed(value):
            self.violate(journal, f"packs {value!r} otherwise"[:200])
            return
        if repr(unpack(data)) != repr(value):
            self.violate(journal, f"reads {value!r} as {unpack(data)!r}"[:200])
        if not all(_is_refused(partial(unpack, wrong)) for wrong in (data[:-1], data + b"x")):
            self.violate(journal, f"reads {value!r} though it is cut short, or not alone"[:200])
        short = compress(data)
        if zlib.decompress(short) != data or decompress(short) != data:
            self.violate(journal, f"{len(data)} bytes are others when they were compressed")
        cut = short[: random.choice((len(short) - 1, random.randrange(len(short))))]
        if not _is_refused(partial(decompress, cut)):
            self.violate(journal, f"{len(cut)} of {len(short)} compressed bytes are read as all")


class ClaimsMakeNoRoom(Checker):
    """What says that it is longer than it is takes no memory for what is not there."""

    name: ClassVar[str] = "claims-make-no-room"
    events: ClassVar[Kinds] = ()

    def on_boot(self, journal: Journal) -> None:
        random = Random(f"claims beside {journal.host.node.incarnation}")
        nested = _arrays_within_arrays(random)
        header = HEADER.pack(random.choice(tuple(KINDS)), *([0] * 8))
        frame = packed([header])[1:] + nested
        program = packed([control_witness.header(0x80, 1)])[1:] + nested
        for what, read in (
            ("a frame", partial(codec.decode, b"\x92" + frame)),
            ("a control frame", partial(control.decode, b"\x92" + program)),
            ("a segment", partial(unpack_messages, nested, random.choice((1, 2, 1000)))),
        ):
            is_refused, room = _room_of(read)
            if not is_refused or room > ROOM_BYTES_MAX:
                text = f"{what} of {len(nested)} bytes of arrays within arrays takes {room} bytes"
                self.violate(journal, text)


def _any_value(random: Random, depth: int) -> Any:
    """A value of those that files hold."""
    kind = random.randrange(4) if depth else 2
    if kind == 0:
        return [_any_value(random, depth - 1) for _ in range(random.choice((0, 2, 17)))]
    if kind == 1:
        keys = random.sample(("a", "b", b"\xfe", "x" * 40, ""), random.randrange(4))
        return {key: _any_value(random, depth - 1) for key in keys}
    return random.choice(_LEAVES)


def _arrays_within_arrays(random: Random) -> bytes:
    """Arrays, each the first item of the one before, and nils: each says that it has most of them."""
    nils = random.randint(2000, 6000)
    return (b"\xdd" + (nils - 500).to_bytes(4, "big")) * _NESTED + b"\xc0" * nils


def _is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except ProtocolError:
        return True
    return False


def _room_of(read: Callable[[], object]) -> tuple[bool, int]:
    """Whether something is refused, and how much memory that took for a while."""
    was_traced = tracemalloc.is_tracing()
    if not was_traced:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        is_refused = _is_refused(read)
        _, most = tracemalloc.get_traced_memory()
    finally:
        if not was_traced:
            tracemalloc.stop()
    return is_refused, most - before
