"""Messages from one node to many: the parts that do it, and which of them each thing concerns."""

from __future__ import annotations

from bmgd.core.announcements import Announcements
from bmgd.core.branching import Branching
from bmgd.core.broadcasting import Broadcasting
from bmgd.core.commands import BroadcastTo, ConsumedAnnouncements, MulticastTo
from bmgd.core.context import Context
from bmgd.core.forwarding import Forwarding
from bmgd.core.links import Links
from bmgd.core.topics import Topics
from bmgd.wire.messages import Broadcast, Multicast

MessageToMany = Broadcast | Multicast
CommandToMany = BroadcastTo | MulticastTo | ConsumedAnnouncements


class ToMany:
    """Broadcasts and multicasts of one node."""

    def __init__(
        self, context: Context, links: Links, forwarding: Forwarding, topics: Topics
    ) -> None:
        self.announcements = Announcements(context)
        branching = Branching(context, links, forwarding)
        self.broadcasting = Broadcasting(context, forwarding, branching, topics, self.announcements)

    def inherit(self, former: ToMany) -> None:
        """Take over the readers of the node that this process was before."""
        self.announcements.inherit(former.announcements)

    def on_message(self, message: MessageToMany) -> None:
        """One of its messages came, for this node."""
        self.broadcasting.on_message(message)

    def on_command(self, request: int, command: CommandToMany) -> None:
        """Do what a program asks."""
        match command:
            case BroadcastTo():
                self.broadcasting.broadcast(request, command)
            case MulticastTo():
                self.broadcasting.multicast(request, command)
            case ConsumedAnnouncements(count):
                self.announcements.consumed(request, count)

    def on_own_new_life(self) -> None:
        """This node began a new life."""
        self.broadcasting.on_own_new_life()

    def show(self) -> dict[str, object]:
        """The part of `bmgd status --json` about messages to many."""
        return {"best_effort": self.broadcasting.show()}
