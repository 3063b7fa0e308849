"""What this node's readers get of others' reliable broadcasts: in each source's order, without a gap.

Theory of operation. What is next above the watermark is given to readers. What comes beyond a gap
waits, until the gap closes: what is missing comes, or it is known that it is not for this node.

    comes above a gap --> waiting --gap closes--> given to readers
                                  --skipped-----> shown to readers as missed, if they were there before
"""

from __future__ import annotations

from collections.abc import Iterable

from bmgd.core.broadcast.announcements import Announcement, Announcements
from bmgd.core.broadcast.copies import BroadcastCopies
from bmgd.core.broadcast.heard import Heard, SkippedRange
from bmgd.core.broadcast.programs import Programs
from bmgd.core.context import Context
from bmgd.wire.broadcast_messages import BroadcastPiece, ReliableBroadcast, Skip

SHOWN_MAX = 2**64 - 1
"""What a count is shown as at most: others name the ranges that are missed."""
REFUTED_NS = 10_000_000_000
"""What was passed over so shortly before this node refuted its death was not for it because of that."""
SKIPS_KEPT_MAX = 64
"""Ranges above a gap; beyond it only one that closes the gap is taken, others are told again."""
PIECE_TOPICS_MAX = 16
"""Topics of long broadcasts of one source whose readers are waited for at a time."""


class BroadcastDelivery:
    """The readers at this node, and how far they are in each life of a source.

    Attributes:
        taken: how many broadcasts they were given.
        missed: how many they were shown as missed.
    """

    def __init__(
        self,
        context: Context,
        copies: BroadcastCopies,
        announcements: Announcements,
        programs: Programs,
    ) -> None:
        self._context = context
        self._copies = copies
        self._announcements = announcements
        self._programs = programs
        self.taken = 0
        self.missed = 0

    # --- what comes ---------------------------------------------------------------------------

    def advance(self, heard: Heard) -> bool:
        """Give to readers what is next, as far as it is there; whether the watermark rose."""
        before = heard.watermark
        while True:
            count = heard.watermark + 1
            message = heard.copies.get(count)
            skipped = next((s for s in heard.skips if s.first <= count <= s.last), None)
            if message is not None:
                heard.watermark = count
                self._give(heard, message)
            elif skipped is not None:
                self._pass_over(heard, skipped)
            else:
                break
        if heard.watermark == before:
            return False
        heard.skips = [s for s in heard.skips if s.last > heard.watermark]
        return True

    def _give(self, heard: Heard, message: ReliableBroadcast) -> None:
        self.taken += 1
        heard.given = True
        if message.topic:
            piece = message.piece if isinstance(message, BroadcastPiece) else None
            if piece is not None and len(heard.pieces_of) < PIECE_TOPICS_MAX:
                heard.pieces_of[message.topic] = None
            self._announcements.announce(
                Announcement(
                    heard.source,
                    heard.incarnation,
                    message.route.sequence,
                    message.topic,
                    message.payload,
                    piece,
                )
            )
        else:
            self._programs.on_told(heard.source, heard.incarnation, message.payload)
        if message.route.sequence <= heard.stable:
            self._copies.on_stable(heard, [message.route.sequence])

    # --- what does not come -------------------------------------------------------------------

    def add_skip(
        self, heard: Heard, first: int, last: int, *, missed: bool, said: bool = False
    ) -> None:
        """These are not for this node.

        Args:
            missed: whether its programs are to hear of it.
            said: whether the source has said so to this life.
        """
        if said and not missed:
            self._hear_that_it_is_right(heard, first, last)
        if last <= heard.watermark:
            return
        apart = []
        for known in heard.skips:
            # Copies of one broadcast tell the same: what is told again takes no room.
            is_same = (known.missed, known.said) == (missed, said)
            if is_same and known.first <= last + 1 and first <= known.last + 1:
                first, last = min(first, known.first), max(last, known.last)
            else:
                apart.append(known)
        if len(apart) >= SKIPS_KEPT_MAX and first > heard.watermark + 1:
            return
        heard.skips = sorted([*apart, SkippedRange(first, last, missed, said)])

    @staticmethod
    def _hear_that_it_is_right(heard: Heard, first: int, last: int) -> None:
        """The source says of what was passed over, unseen, that this node need not have it."""
        if heard.silent is not None and first <= heard.silent[0] <= last:
            at_ns = heard.silent[1]
            heard.silent = (last + 1, at_ns) if last < heard.watermark else None

    def skip_in_frame(self, heard: Heard, skip: Skip) -> None:
        """A copy says that its source lets this node skip these: it names no life, and never changes.

        Where a former life of this node may be meant that missed them, the source tells this one itself.
        """
        if not skip.missed or self.was_there_before(heard):
            self.add_skip(heard, skip.first, skip.last, missed=skip.missed, said=True)

    def skip(self, heard: Heard, first: int, last: int) -> None:
        """These are not for this node, and nobody said whether its programs miss them."""
        self.add_skip(heard, first, last, missed=self.was_there_before(heard))

    def was_there_before(self, heard: Heard) -> bool:
        """Whether what this node did not get of a life is missed by its programs.

        It is where they got something of it, or may have: a founder in its first life was there, and so
        was who was told by the source where it begins. Who refuted its death was known before, and what
        was sent meanwhile was not for it.
        """
        context = self._context
        is_first = not context.followed and context.id < context.membership.founding_size
        was_held_dead = context.version > 0
        return heard.given or heard.begun or is_first or was_held_dead

    def _pass_over(self, heard: Heard, skipped: SkippedRange) -> None:
        """Up to the end of what is skipped, or to the next that is here all the same."""
        first = heard.watermark + 1
        last = skipped.last
        here = min((count for count in heard.copies if first <= count <= last), default=last + 1)
        heard.watermark = min(last, here - 1)
        self._programs.on_skipped(heard.source, heard.incarnation)
        # Who had something of this life misses what it skips, whatever the source thought.
        if skipped.missed or heard.given:
            self._tell_missed(heard, first)
        elif not skipped.said:
            heard.silent = (heard.silent or (first, 0))[0], self._context.now_ns

    def _tell_missed(self, heard: Heard, first: int) -> None:
        """Show readers that they do not get what lies between this count and the watermark."""
        heard.silent = None
        heard.given = True
        self.missed = min(self.missed + heard.watermark - first + 1, SHOWN_MAX)
        self._announcements.tell_missed(heard.source, heard.incarnation, first, heard.watermark)

    def on_refuted(self, lives: Iterable[Heard]) -> None:
        """This node was held dead: what was not for it just before it heard so, it missed.

        Readers who got something that came later are not told: they would see it out of order.
        """
        for heard in lives:
            if heard.silent is not None and not heard.given:
                first, at_ns = heard.silent
                if self._context.now_ns - at_ns <= REFUTED_NS:
                    self._tell_missed(heard, first)
