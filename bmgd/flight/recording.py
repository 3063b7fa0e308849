"""The file of a recording, piece by piece: written while the daemon goes on, read with bounds.

    "BMGDREC1"                                           8 bytes
    frame ...                                            4 bytes big-endian length, compressed msgpack

    {"kind": "head", ...}        whose it is, and one moment on the monotonic and on the wall clock
    {"kind": "state", "began_ns", "number", "table", "state", "why"}
    {"kind": "steps", "number", "table", "rows"}         up to `BATCH` steps after the state before it
    {"kind": "end"}                                      the file is whole

A row is ``[now_ns, event, digest, [effect class, ...]]``: the digest is over the effects as plain data,
with payloads as lengths, so that a replay without the payloads has the same.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import IO, Any, Final

from bmgd.core.effects import Effect, Reply
from bmgd.core.events import Event
from bmgd.dataclass import dataclass
from bmgd.errors import ConfigError, ProtocolError
from bmgd.flight.lighter import Step, restored
from bmgd.flight.reader import Reader
from bmgd.flight.recorder import Failed, Segment
from bmgd.flight.values import packed
from bmgd.flight.writer import Writer
from bmgd.wire.packing import compress, decompress, unpack

MAGIC: Final = b"BMGDREC1"
VERSION: Final = 1
BATCH: Final = 128
FRAME_BYTES_MAX: Final = 64 * 2**20
DIGEST_BYTES: Final = 8
FAILED: Final = "InvariantError"
"""Stands in a row for the effects of a step on which the core raised it."""

_LENGTH: Final = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Head:
    """Whose recording it is.

    Args:
        id: the node's id.
        version: of bmgd.
        pid: of the daemon's process.
        monotonic_ns, wall_ns: one moment on both clocks of the daemon's machine.
        reason: why it was written.
        payloads: whether payloads are in it.
    """

    id: int
    version: str
    pid: int
    monotonic_ns: int
    wall_ns: int
    reason: str
    payloads: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a recording.

    Args:
        number: in the core's life, from 1.
        digest: of its effects; b"" where the core failed.
        kinds: the classes of its effects, in order.
    """

    number: int
    now_ns: int
    event: Event
    digest: bytes
    kinds: tuple[str, ...]


@dataclass(slots=True)
class Part:
    """A starting state and the rows after it; see `bmgd.flight.recorder.Segment`."""

    began_ns: int
    number: int
    table: list[list[Any]]
    state: bytes | None
    why: str
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recording:
    """A file, read. `whole` is false where its end is missing."""

    head: Head
    parts: list[Part]
    whole: bool


def digest_of(effects: Iterable[Effect]) -> bytes:
    """What effects come to: equal for equal effects, whatever their payloads.

    Raises:
        NotRecordable: there is something in them that a recording cannot hold.
    """
    writer = Writer()
    data = [writer.write(_comparable(effect)) for effect in effects]
    return hashlib.blake2b(packed([writer.table, data]), digest_size=DIGEST_BYTES).digest()


def kinds_of(effects: Iterable[Effect]) -> list[str]:
    """The classes of effects, in order."""
    return [type(effect).__name__ for effect in effects]


def _comparable(effect: Effect) -> Effect:
    if isinstance(effect, Reply) and isinstance(effect.result, list | dict):
        return Reply(effect.request, None, effect.error)
    return effect


# --- writing --------------------------------------------------------------------------------------


def frames(head: Head, segments: Iterable[Segment]) -> Iterator[bytes]:
    """The file's bytes, in pieces of a few milliseconds' work each.

    Args:
        segments: they may grow meanwhile; what is in them now is written.

    Raises (from the iterator):
        NotRecordable: a step has something that a recording cannot hold.
    """
    seen = [(segment, len(segment.kept)) for segment in segments]
    yield MAGIC + _frame(
        {
            "kind": "head",
            "format": VERSION,
            "id": head.id,
            "version": head.version,
            "pid": head.pid,
            "monotonic_ns": head.monotonic_ns,
            "wall_ns": head.wall_ns,
            "reason": head.reason,
            "payloads": head.payloads,
        }
    )
    for segment, count in seen:
        segment.write_now(payloads=head.payloads)
        yield _frame(
            {
                "kind": "state",
                "began_ns": segment.began_ns,
                "number": segment.number,
                "table": unpack(segment.table) if segment.table else [],
                "state": segment.state,
                "why": segment.why,
            }
        )
        kept = segment.kept[:count]
        for first in range(0, count, BATCH):
            steps = restored(kept[first : first + BATCH])
            yield _steps(segment.number + first, steps, head.payloads)
    yield _frame({"kind": "end"})


def _steps(number: int, steps: list[Step], payloads: bool) -> bytes:
    writer = Writer(payloads=payloads)
    rows = []
    for now_ns, event, effects in steps:
        if effects and isinstance(effects[0], Failed):
            rows.append([now_ns, writer.write(event), b"", [FAILED]])
        else:
            rows.append([now_ns, writer.write(event), digest_of(effects), kinds_of(effects)])
    return _frame({"kind": "steps", "number": number, "table": writer.table, "rows": rows})


def _frame(document: dict[str, Any]) -> bytes:
    body = compress(packed(document))
    return _LENGTH.pack(len(body)) + body


# --- reading --------------------------------------------------------------------------------------


def read(path: str) -> Recording:
    """Read a file; what follows a damaged frame is left out.

    Raises:
        ConfigError: it cannot be read, or is no recording.
        ProtocolError: it was recorded by a bmgd that cannot be replayed here.
    """
    try:
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ConfigError(f"{path} is no recording of bmgd")
            documents = _documents(file)
            head = _head(next(documents, None), path)
            parts: list[Part] = []
            whole = False
            for document in documents:
                whole = _take(document, parts)
            return Recording(head, parts, whole)
    except ProtocolError as error:
        raise ProtocolError(f"{path}: {error}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def _documents(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    while len(prefix := file.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(prefix)
        if length > FRAME_BYTES_MAX:
            return
        body = file.read(length)
        if len(body) < length:
            return
        try:
            document = unpack(decompress(body))
        except ProtocolError:
            return
        if not isinstance(document, dict):
            raise ProtocolError("a frame of the recording is no document")
        yield document


def _head(document: dict[str, Any] | None, path: str) -> Head:
    match document:
        case {
            "kind": "head",
            "format": int(form),
            "id": int(node_id),
            "version": str(version),
            "pid": int(pid),
            "monotonic_ns": int(monotonic_ns),
            "wall_ns": int(wall_ns),
            "reason": str(reason),
            "payloads": bool(payloads),
        }:
            if form != VERSION:
                raise ConfigError(
                    f"{path} is a recording of bmgd {version}: replay it with that one"
                )
            return Head(node_id, version, pid, monotonic_ns, wall_ns, reason, payloads)
    raise ConfigError(f"{path} is no recording of bmgd: it has no head")


def _take(document: dict[str, Any], parts: list[Part]) -> bool:
    """Add one document to the parts; True at the end of the file."""
    match document:
        case {
            "kind": "state",
            "began_ns": int(began_ns),
            "number": int(number),
            "table": list(table),
            "state": bytes() | None as state,
            "why": str(why),
        }:
            parts.append(Part(began_ns, number, table, state, why))
        case {"kind": "steps", "number": int(number), "table": list(table), "rows": list(rows)}:
            if not parts:
                raise ProtocolError("the recording has steps before a state")
            reader = Reader(table)
            for place, row in enumerate(rows):
                parts[-1].rows.append(_row(number + place, row, reader))
        case {"kind": "end"}:
            return True
        case _:
            raise ProtocolError("the recording has a frame of an unknown kind")
    return False


def _row(number: int, row: Any, reader: Reader) -> Row:
    match row:
        case [int(now_ns), event, bytes(digest), list(kinds)]:
            return Row(number, now_ns, reader.read(event), digest, tuple(map(str, kinds)))
    raise ProtocolError(f"step {number} of the recording is damaged")
