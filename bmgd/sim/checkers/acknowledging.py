"""What nodes acknowledge of others' reliable broadcasts: what came, once, and when it is time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bmgd.core.broadcast import watermarks
from bmgd.core.effects import Effect, RecordChanged, Send
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.broadcasts import LifeKey
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.broadcast_messages import BroadcastPiece, ReliableBroadcast, Skipped, Watermark

REMINDED_NS: Final = 1_000_000_000
FRAME_BYTES: Final = 256
"""What a broadcast counts for beside its payload, and what is told of skips."""
_WINDOWS: Final = ("WINDOW_MIN_BYTES", "WINDOW_ALL_BYTES", "PIECES_WINDOW_BYTES")


@dataclass(slots=True)
class _Told:
    """What a source was told of one life of it.

    Args:
        watermark: the last one.
        vain_ns: when it was last told though nothing had come.
        came: how many frames of it have come since.
        came_bytes: what they count for, with their payloads.
        has_pieces: whether pieces of long broadcasts were among them.
        pieces: the counts of such that came beyond the watermark: readers get them later.
    """

    watermark: int = 0
    vain_ns: int = -REMINDED_NS
    came: int = 0
    came_bytes: int = 0
    has_pieces: bool = False
    pieces: set[int] = field(default_factory=set)


class NodesAcknowledgeWhatCame(Checker):
    """What comes of a source's broadcasts is acknowledged to it once. A watermark only rises.

    Again only as a reminder, a second later at least, or when somebody's record moved. It waits for its
    time until a quarter of a window has come.
    """

    name: ClassVar[str] = "nodes-acknowledge-what-came"
    events: ClassVar[Kinds] = (ReliableBroadcast, Skipped)
    before_events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Watermark,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._known: dict[NodeId, dict[LifeKey, _Told]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._known[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Received):
            self._note(journal, event.message)
        # A search that found no way comes back to who began it, which sends it on.
        is_back = isinstance(event, Received) and isinstance(event.message, Watermark)
        is_moved = any(isinstance(effect, RecordChanged) for effect in effects)
        for effect in effects:
            message = effect.message if isinstance(effect, Send) and not is_back else None
            if isinstance(message, Watermark) and message.route.source == journal.host.id:
                self._check(journal, message, is_moved=is_moved, in_time=is_deadline(event))

    def _note(self, journal: Journal, came: object) -> None:
        if not isinstance(came, ReliableBroadcast | Skipped):
            return
        if came.route.destination != journal.host.id:
            return
        key = came.route.source, came.route.source_incarnation
        told = self._known[journal.place].setdefault(key, _Told())
        told.came += 1
        told.came_bytes += FRAME_BYTES
        if isinstance(came, ReliableBroadcast):
            told.came_bytes += len(came.payload)
        if isinstance(came, BroadcastPiece):
            told.has_pieces = True
            told.pieces.add(came.route.sequence)

    def _check(
        self, journal: Journal, message: Watermark, *, is_moved: bool, in_time: bool
    ) -> None:
        source, tag = message.route.destination, message.route.destination_tag
        for (node_id, life), told in self._known[journal.place].items():
            if node_id != source or incarnation_tag(life) != tag:
                continue
            if message.watermark < told.watermark:
                text = f"acknowledges {message.watermark} of {source} after {told.watermark}"
                self.violate(journal, text)
            if not told.came and not is_moved:
                past_ns = journal.now_ns - told.vain_ns
                if past_ns < REMINDED_NS or not message.asks:
                    text = (
                        f"acknowledges nothing new to {source} again after {past_ns / 1e6:.0f} ms"
                    )
                    self.violate(journal, text)
                told.vain_ns = journal.now_ns
            has_pieces = told.has_pieces or any(each <= message.watermark for each in told.pieces)
            window = _window_of(journal, has_pieces=has_pieces)
            if not (in_time or message.asks or told.came_bytes * 4 >= window):
                text = (
                    f"acknowledges {told.came_bytes} bytes of {source}, with a window of {window}"
                )
                self.violate(journal, f"{text}, before their time")
            told.watermark = max(told.watermark, message.watermark)
            told.came = told.came_bytes = 0
            told.has_pieces = False
            told.pieces = {each for each in told.pieces if each > told.watermark}


def _window_of(journal: Journal, *, has_pieces: bool) -> int:
    """How much each source may have underway, as this node sees how many live."""
    membership = journal.inside.membership
    living = sum(
        membership.in_layout(node_id) and not membership.is_gone(node_id)
        for node_id in membership.known_ids()
    )
    # As nodes use them: narrow ones are not those of sources.
    there = vars(watermarks)
    least, of_all, of_pieces = (there[name] for name in _WINDOWS)
    share: int = max(least, of_all // max(1, living))
    return min(share, of_pieces) if has_pieces else share
