"""Steps in which what stands within a frame is read, counted or measured as something else."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from bmgd.core.commands import PutSegment, Unsubscribe
from bmgd.core.effects import Send
from bmgd.core.events import CommandIssued
from bmgd.errors import ProtocolError
from bmgd.routing.branches import Branch
from bmgd.sim.checkers import contents, values
from bmgd.sim.checkers.contents import FIRST, ContentsAreWhatTheySay
from bmgd.sim.checkers.scene import Checker
from bmgd.sim.checkers.values import ClaimsMakeNoRoom, FilesHoldWhatWasWritten
from bmgd.types import LinkId, NodeId
from bmgd.wire import codec
from bmgd.wire.batch import pack_messages
from bmgd.wire.broadcast_messages import Multicast
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.routes import Route
from bmgd.wire.segments import end_of

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

MESSAGES = [b"one", b"another one", bytes(300)]


def _puts(f: Forger, name: str, forged: Callable[..., Any]) -> None:
    """Programs put segments: first all is well, then something is computed otherwise."""
    put = PutSegment(len(MESSAGES), pack_messages(MESSAGES))
    [checker] = [c for c in f.scene.checkers if isinstance(c, ContentsAreWhatTheySay)]
    for _ in range(FIRST // 2):
        checker.after(f.journal, CommandIssued(77, put), ())
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contents, name, forged)
        for _ in range(FIRST // 2):
            checker.after(f.journal, CommandIssued(77, put), ())


def _sends(f: Forger, name: str, forged: Callable[..., Any]) -> None:
    """A multicast and a heartbeat are sent: first all is well, then something is computed otherwise."""
    branches = (Branch(NodeId(1), 0b1110), Branch(NodeId(5), 0b1100100000))
    route = Route(NodeId(1), NodeId(0), f.journal.incarnation)
    sent = (Multicast(route, "t", b"x", branches), Heartbeat(3, 300, 2**127))
    [checker] = [c for c in f.scene.checkers if isinstance(c, ContentsAreWhatTheySay)]
    for message in sent:
        assert list(checker._of_message(message)) == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contents, name, forged)
        effects = [Send(LinkId(1), message) for message in sent]
        checker.after(f.journal, CommandIssued(77, Unsubscribe()), effects)


def segment_of_another_number_of_messages_that_is_read(f: Forger) -> None:
    _puts(f, "unpack_messages", lambda body, count: MESSAGES[:count])


def message_that_ends_elsewhere(f: Forger) -> None:
    _puts(f, "end_of", lambda body, count, at: at + count)


def message_that_ends_behind_its_segment(f: Forger) -> None:
    def lenient(body: bytes, count: int, at: int = 0) -> int:
        return at if at >= len(body) else end_of(body + bytes(300), count, at)

    _puts(f, "end_of", lenient)


def fewer_messages_that_fit(f: Forger) -> None:
    _puts(f, "count_within", lambda body, bytes_max, most: 0)


def run_with_a_frame_that_is_not_counted(f: Forger) -> None:
    _puts(f, "frame_count", lambda run: 1)


def search_that_forgets_where_it_was(f: Forger) -> None:
    _puts(f, "with_visited", lambda visited, node_id: visited)


def version_that_only_one_side_speaks(f: Forger) -> None:
    _puts(f, "common_version", lambda body, lowest, highest: highest)


def list_of_ids_with_one_twice(f: Forger) -> None:
    _puts(f, "decode_id_set", lambda data: 7)


def news_that_are_read_though_they_are_cut_short(f: Forger) -> None:
    _puts(f, "unpack_news", lambda body: [])


def set_that_takes_more_bytes(f: Forger) -> None:
    _sends(f, "id_set_bytes", lambda members: 4)


def message_that_takes_nothing(f: Forger) -> None:
    _sends(f, "held_bytes", lambda message: 0)


def search_that_has_no_room(f: Forger) -> None:
    _sends(f, "has_room_for_search", lambda message, search_bytes: False)


def heartbeat_that_is_read_with_any_digest(f: Forger) -> None:
    _sends(f, "read_heartbeat", lambda body, digest: (3, 300))


def _boots(f: Forger, kind: type[Checker], name: str, forged: Callable[..., Any]) -> None:
    """A process begins: first all is well, then something is done otherwise."""
    [checker] = [c for c in f.scene.checkers if isinstance(c, kind)]
    checker.on_boot(f.journal)
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(values, name, forged)
        checker.on_boot(f.journal)


def file_with_bytes_as_text(f: Forger) -> None:
    _boots(
        f, FilesHoldWhatWasWritten, "pack", lambda value: msgpack.packb(value, use_bin_type=False)
    )


def file_that_is_read_though_it_has_a_number_as_key(f: Forger) -> None:
    def lenient(data: bytes) -> Any:
        try:
            return msgpack.unpackb(data, strict_map_key=False)
        except ValueError:
            raise ProtocolError("no value") from None

    _boots(f, FilesHoldWhatWasWritten, "unpack", lenient)


def file_that_is_read_though_it_is_cut_short(f: Forger) -> None:
    def lenient(data: bytes) -> bytes:
        return zlib.decompressobj().decompress(data)

    _boots(f, FilesHoldWhatWasWritten, "decompress", lenient)


def frame_that_takes_as_much_memory_as_it_says(f: Forger) -> None:
    def greedy(frame: bytes) -> None:
        assert bytearray(len(frame) * 1000)
        raise ProtocolError("not a frame")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec, "decode", greedy)
        [checker] = [c for c in f.scene.checkers if isinstance(c, ClaimsMakeNoRoom)]
        checker.on_boot(f.journal)


FORGERIES_OF_CONTENTS: list[tuple[str, Callable[[Forger], None]]] = [
    (FilesHoldWhatWasWritten.name, file_with_bytes_as_text),
    (FilesHoldWhatWasWritten.name, file_that_is_read_though_it_has_a_number_as_key),
    (FilesHoldWhatWasWritten.name, file_that_is_read_though_it_is_cut_short),
    (ClaimsMakeNoRoom.name, frame_that_takes_as_much_memory_as_it_says),
    *(
        (ContentsAreWhatTheySay.name, forge)
        for forge in (
            segment_of_another_number_of_messages_that_is_read,
            message_that_ends_elsewhere,
            fewer_messages_that_fit,
            message_that_ends_behind_its_segment,
            run_with_a_frame_that_is_not_counted,
            search_that_forgets_where_it_was,
            version_that_only_one_side_speaks,
            list_of_ids_with_one_twice,
            news_that_are_read_though_they_are_cut_short,
            set_that_takes_more_bytes,
            message_that_takes_nothing,
            search_that_has_no_room,
            heartbeat_that_is_read_with_any_digest,
        )
    ),
]
