"""A link has come up: what each side tells the other at once, and what this one learns."""

from __future__ import annotations

from bmgd.core.context import Context, Link
from bmgd.core.lifecycle import Lifecycle
from bmgd.core.links import Links
from bmgd.core.membership.notices import Notices
from bmgd.core.neighbors.detector import Detector
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.neighbors.greeting import Greeting
from bmgd.dataclass import dataclass
from bmgd.types import UNKNOWN_INCARNATION, Record, Status
from bmgd.wire.link_messages import Notice


@dataclass(frozen=True, slots=True)
class Meeting:
    """Reacts to every link that opens, dialled or accepted."""

    context: Context
    links: Links
    notices: Notices
    detector: Detector
    dialling: Dialling
    greeting: Greeting
    lifecycle: Lifecycle

    def on_link_opened(self, link: Link) -> None:
        """Learn the life at the other end; tell it what is believed of it, and of this node."""
        context, membership = self.context, self.context.membership
        if self.links.get(link.id) is None:
            self.dialling.on_link_given_up(link)
            return
        context.observe("link up", link.peer, link.incarnation)
        known = membership.incarnation(link.peer)
        membership.meet_life(link.peer, link.incarnation)
        record = membership.get(link.peer)
        is_record = link.peer in membership.exceptions()
        former = record.incarnation if record is not None and is_record else known
        # A life above the record is news, met before or not; without a record only a second one is,
        # and one of an id that nobody was given: a joiner that is here before the news of it. Where a
        # message has named a later life, what the link tells settles it for everybody.
        is_named = not is_record and former > link.incarnation
        if record is None or is_named or (former < link.incarnation and (former or is_record)):
            self.notices.publish(link.peer, Record(link.incarnation, 0, Status.ALIVE, link.address))
        elif membership.is_gone(link.peer) and record.incarnation == link.incarnation:
            context.send(link.id, Notice(((link.peer, record),)))
        if link.known_of_me not in (UNKNOWN_INCARNATION, context.incarnation):
            self.lifecycle.know_former_life(link.known_of_me)
        if context.id in membership.exceptions():
            context.send(link.id, Notice(((context.id, context.own_record()),)))
        self.greeting.on_link_opened(link)
        self.dialling.on_link_opened(link)
        self.detector.on_link_opened(link)
