"""What a node remembers of the broadcasts of others is what came of them, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bmgd.core.broadcast import copies
from bmgd.core.broadcast.heard import Heard
from bmgd.core.effects import Effect
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.broadcasts import LifeKey, life_of, retention_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.recounted_broadcasts import touching
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.broadcast_messages import ReliableBroadcast, Skip, Skipped
from bmgd.wire.link_messages import Watermarks

_Came = ReliableBroadcast | Skipped


@dataclass(slots=True)
class _Before:
    """What was known before something of a source came.

    Args:
        heard: what was known of its life, or None.
        came: how many frames with copies.
        awaited_ns: for how long the next of an answer was waited for; None while nobody was asked.
        counts: of which there was a copy.
        reached: the watermarks of all of its source's lives, added up.
        shown: how many broadcasts readers were given, or were told that they missed.
        refused, held_bytes: of all lives.
    """

    heard: Heard | None
    came: int
    awaited_ns: int | None
    gap_ns: int
    watermark: int
    stable: int
    counts: frozenset[int]
    reached: int
    shown: int
    refused: int
    held_bytes: int


class WhatCameIsNoted(Checker):
    """What a node remembers of a source's life is what came of it.

    Each frame with a copy is counted, with the longest wait for one that a neighbor was asked for. No
    more is counted as given to readers, or as missed, than lies between the watermarks. What was passed
    over, and nobody was told of, is remembered until the source says that this is right. Beyond the
    bound a copy is kept only if it is the next one; a source whose next one has no room is remembered
    as one that waits. What is skipped is one range where it can be.
    """

    name: ClassVar[str] = "what-came-is-noted"
    events: ClassVar[Kinds] = (ReliableBroadcast, Skipped, Watermarks, Look)
    before_events: ClassVar[Kinds] = (ReliableBroadcast, Skipped)
    effects: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._before: _Before | None = None
        self._said: dict[NodeId, set[LifeKey]] = {}
        """The lives of which something said that a process skips any of it."""

    def on_boot(self, journal: Journal) -> None:
        self._said[journal.place] = set()

    def before(self, journal: Journal, event: Event) -> None:
        self._before = None
        message = event.message if isinstance(event, Received) else None
        if not isinstance(message, _Came) or message.route.destination != journal.host.id:
            return
        known = retention_of(journal)
        heard = known.lives.get(life_of(message))
        awaited_ns = None
        if heard is not None and heard.asked is not None and heard.came < heard.awaited:
            awaited_ns = journal.now_ns - max(heard.asked_ns, heard.came_ns)
        self._before = _Before(
            heard,
            heard.came if heard else 0,
            awaited_ns,
            heard.gap_ns if heard else 0,
            heard.watermark if heard else 0,
            heard.stable if heard else 0,
            frozenset(heard.copies if heard else ()),
            _reached(journal, message.route.source),
            known.delivery.taken + known.delivery.missed,
            known.refused,
            known.copies.held_bytes,
        )

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        message = event.message if isinstance(event, Received) else None
        before, self._before = self._before, None
        if isinstance(message, _Came) and before is not None:
            heard = retention_of(journal).lives.get(life_of(message))
            if any(skip.id == journal.host.id for skip in message.skips):
                self._said[journal.place].add(life_of(message))
            self._check_shown(journal, message, before)
            if heard is not None:
                self._check_skips(journal, heard, message, before)
                if isinstance(message, ReliableBroadcast):
                    self._check_came(journal, heard, before)
                    self._check_room(journal, heard, message, before)
        said = self._said[journal.place]
        for key, heard in retention_of(journal).lives.items():
            is_silent = heard.watermark and not heard.given and key not in said
            if is_silent and heard.silent is None:
                text = f"passed over {heard.watermark} of {key}, and remembers nothing of it"
                self.violate(journal, text)

    def _check_shown(self, journal: Journal, message: _Came, before: _Before) -> None:
        delivery = retention_of(journal).delivery
        shown = delivery.taken + delivery.missed - before.shown
        rose = _reached(journal, message.route.source) - before.reached
        if shown > rose:
            self.violate(journal, f"counts {shown} as given or missed, a watermark rose by {rose}")

    def _check_skips(self, journal: Journal, heard: Heard, message: _Came, before: _Before) -> None:
        if touching(heard.skips):
            self.violate(journal, f"skips {heard.skips} of {heard.key}, which could be fewer")
        said = [skip for skip in _said_of(journal, message) if not skip.missed]
        if not said or heard is not before.heard or heard.silent is None:
            return
        first, last = said[-1].first, said[-1].last
        if first <= heard.silent[0] <= last <= before.watermark:
            text = f"has heard that it skips {first}..{last} of {heard.key}, and still doubts it"
            self.violate(journal, text)

    def _check_came(self, journal: Journal, heard: Heard, before: _Before) -> None:
        if heard.came == before.came and retention_of(journal).refused > before.refused:
            # It names a life that is not taken for its source's.
            return
        if (heard.came, heard.came_ns) != (before.came + 1, journal.now_ns):
            self.violate(
                journal, f"has counted {heard.came} frames of {heard.key}, after {before.came}"
            )
        if heard.asked is None or before.awaited_ns is None:
            if heard.gap_ns > before.gap_ns:
                self.violate(journal, f"waits for {heard.key}, of whom nobody was asked")
        elif heard.gap_ns < before.awaited_ns:
            waited_ms = before.awaited_ns / 1e6
            self.violate(journal, f"waited {waited_ms:g} ms for {heard.key}, and forgets it")

    def _check_room(
        self, journal: Journal, heard: Heard, message: ReliableBroadcast, before: _Before
    ) -> None:
        known, count, me = retention_of(journal), message.route.sequence, journal.host.id
        is_next = count == before.watermark + 1
        size = len(message.payload)
        is_new = count in heard.copies and count not in before.counts
        if is_new and not is_next and before.held_bytes + size > copies.HELD_BYTES_MAX:
            self.violate(journal, f"keeps {count} of {heard.key}, for which there is no room")
        is_for_me = me < message.id_space and not message.exceptions >> me & 1
        is_moved = heard.stable > before.stable
        is_refused = heard.came > before.came and known.refused > before.refused
        if heard is before.heard and is_refused and is_for_me and is_next and not is_moved:
            waits_since_ns = known.copies._reserve._refused_ns.get(heard.key)
            if waits_since_ns != journal.now_ns:
                self.violate(journal, f"has no room for {count} of {heard.key}, and forgets it")


def _reached(journal: Journal, source: NodeId) -> int:
    """The watermarks of all lives of a source, added up."""
    return sum(h.watermark for h in retention_of(journal).by_source.get(source, {}).values())


def _said_of(journal: Journal, message: _Came) -> Iterable[Skip]:
    """What a source says that this life of a node skips."""
    if isinstance(message, Skipped):
        own_tag = incarnation_tag(journal.inside.context.incarnation)
        if message.route.destination_tag != own_tag:
            return ()
    return [skip for skip in message.skips if skip.id == journal.host.id]
