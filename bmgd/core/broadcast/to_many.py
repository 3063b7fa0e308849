"""Messages from one node to many: the parts that do it, and which of them each thing concerns."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from bmgd.core.broadcast.announcements import Announcements
from bmgd.core.broadcast.broadcasting import Broadcasting
from bmgd.core.broadcast.frames import STABLE_TIMER
from bmgd.core.broadcast.multicasting import Multicasting
from bmgd.core.broadcast.orphans import ORPHAN_TIMER, BroadcastOrphans
from bmgd.core.broadcast.peers import RESEND_TIMER
from bmgd.core.broadcast.programs import PROGRAMS_TIMER, Programs
from bmgd.core.broadcast.reports import REPORT_TIMER
from bmgd.core.broadcast.retention import BroadcastRetention
from bmgd.core.broadcast.source import SEND_TIMER, BroadcastSource
from bmgd.core.broadcast.watermarks import REMIND_TIMER, WATERMARK_TIMER
from bmgd.core.commands import (
    BroadcastTo,
    ConsumedAnnouncements,
    MulticastTo,
    Register,
    ShowPrograms,
    Unregister,
)
from bmgd.core.context import Context, Link, RecordMoved
from bmgd.core.effects import Reply
from bmgd.core.forwarding.branching import Branching
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.links import Links
from bmgd.core.streams.inbound import Inbound
from bmgd.core.streams.outbound import Outbound
from bmgd.core.timers import TimerKey
from bmgd.core.topics.topics import Topics
from bmgd.types import Incarnation
from bmgd.wire.ask_messages import ProgramAsk, ProgramList
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastMessage,
    Multicast,
    ReliableBroadcast,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.link_messages import Pull, Watermarks
from bmgd.wire.stream_messages import SharedSegment

MessageToMany = BroadcastMessage | SharedSegment | ProgramAsk | ProgramList
CommandToMany = (
    BroadcastTo | MulticastTo | ConsumedAnnouncements | Register | Unregister | ShowPrograms
)


class ToMany:
    """Broadcasts and multicasts of one node."""

    def __init__(
        self,
        context: Context,
        links: Links,
        forwarding: Forwarding,
        topics: Topics,
        outbound: Outbound,
        inbound: Inbound,
    ) -> None:
        self._context = context
        readers = self.announcements = Announcements(context)
        branching = self.branching = Branching(context, links, forwarding)
        self.broadcasting = Broadcasting(context, forwarding, branching, topics, readers)
        self.multicasting = Multicasting(context, links, forwarding, branching, outbound, inbound)
        self.source = BroadcastSource(context, forwarding, branching, readers)
        self.programs = Programs(context, forwarding, self.source)
        self.retention = BroadcastRetention(context, forwarding, branching, readers, self.programs)
        self.orphans = BroadcastOrphans(context, links, self.retention)

    def inherit(self, former: ToMany) -> None:
        """Take over the readers of the node that this process was before, and how far they got."""
        self.announcements.inherit(former.announcements)
        self.programs.inherit(former.programs)
        self.retention.inherit(former.retention, former.source.window.next - 1)

    @property
    def undrained(self) -> int:
        """What is left to do before this node may leave."""
        return self.announcements.being_read() + self.source.underway + self.orphans.unshared

    def timer_handlers(self) -> dict[str, Callable[[TimerKey], None]]:
        """Every purpose of a deadline, and who reacts to it."""
        return {
            ORPHAN_TIMER: self.orphans.on_timer,
            PROGRAMS_TIMER: self.programs.on_timer,
            REMIND_TIMER: self._on_remind_timer,
            REPORT_TIMER: self.source.reports.on_timer,
            RESEND_TIMER: self.source.on_resend_timer,
            SEND_TIMER: self.source.on_send_timer,
            STABLE_TIMER: self.source.frames.on_stable_timer,
            WATERMARK_TIMER: self.retention.on_watermark_timer,
        }

    def _on_remind_timer(self, key: TimerKey) -> None:
        self.retention.on_remind_timer(key)
        self.orphans.on_changed()

    # --- what comes ---------------------------------------------------------------------------

    def on_message(self, message: MessageToMany) -> None:
        """One of its messages came, for this node."""
        match message:
            case Broadcast() | Multicast():
                self.broadcasting.on_message(message)
            case SharedSegment():
                self.multicasting.on_segment(message)
            case ReliableBroadcast():
                self.retention.on_broadcast(message)
                self.orphans.on_copy(message)
            case Watermark():
                self.source.on_watermark(message)
            case Stable():
                self.retention.on_stable(message)
            case Skipped():
                self.retention.on_skipped(message)
            case ProgramAsk():
                self.programs.on_ask(message)
            case ProgramList():
                self.programs.on_list(message)
            case _:
                assert_never(message)
        self.orphans.on_changed()

    def on_link_message(self, link: Link, message: Watermarks | Pull) -> None:
        """A neighbor compares what it has of sources that are gone."""
        match message:
            case Watermarks():
                self.orphans.on_watermarks(link, message)
            case Pull():
                self.orphans.on_pull(link, message)
        self.orphans.on_changed()

    def on_command(self, request: int, command: CommandToMany) -> None:
        """Do what a program asks."""
        match command:
            case BroadcastTo(reliable=True):
                self.source.broadcast(request, command)
            case BroadcastTo():
                self.broadcasting.broadcast(request, command)
            case MulticastTo(reliable=True):
                self.multicasting.multicast(request, command)
            case MulticastTo():
                self.broadcasting.multicast(request, command)
            case ConsumedAnnouncements(count):
                self.announcements.consumed(request, count)
            case Register(name):
                self.programs.register(request, name)
            case Unregister(exit_code):
                self.programs.unregister(request, exit_code)
            case ShowPrograms():
                self._context.emit(Reply(request, self.programs.show()))

    # --- what happens -------------------------------------------------------------------------

    def on_record_moved(self, moved: RecordMoved) -> None:
        """Somebody else died, returned, began a new life, or joined."""
        self.source.on_record_moved(moved)
        self.orphans.on_record_moved(moved)
        self.programs.on_record_moved(moved)

    def on_link_opened(self, link: Link) -> None:
        """A new neighbor, or one again."""
        self.orphans.on_link_opened(link)

    def resync(self) -> None:
        """This node was held dead, and answered: what went on without it?"""
        self.retention.delivery.on_refuted(self.retention.lives.values())
        for heard in list(self.retention.lives.values()):
            self.retention.watermarks.ask(heard)
        self.orphans.ask_neighbors()

    def on_own_new_life(self, former: Incarnation) -> None:
        """This node began a new life after the former one."""
        self.retention.on_own_life_over(former, self.source.window.next - 1)
        self.broadcasting.on_own_new_life()
        self.source.on_own_new_life()
        self.programs.on_own_new_life(former)

    def abandon(self, why: str) -> None:
        """Give up what is not confirmed; programs are told."""
        self.source.abandon(why)

    def show(self) -> dict[str, object]:
        """The part of `bmgd status --json` about messages to many."""
        return {
            "best_effort": self.broadcasting.show(),
            "multicast": self.multicasting.show(),
            "reliable": {
                **self.source.show(),
                **self.retention.show(),
                "no_room": self.announcements.dropped_reliable,
            },
        }
