"""Telling each other which members lack features: a small flood that only newer daemons take part in.

Theory of operation. The two ends of a link know each other's features from the hello. A node that is
linked to one that lacks some of its own tells its neighbors, and they theirs, as far as they know this
kind: once for each life of such a member, and all of it to a neighbor whose link comes up. Who is
linked to a later life of it tells in the same way what that one has: of a life that was only met no
record tells that it is over. Where older daemons stand between the newer ones, each group of those has
a link to one of them; so whenever there is any, everybody knows of one, and that is all that must be
known (`Compatibility.common`). Among daemons of one release nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from bmgd.core.context import Context, Link, RecordMoved
from bmgd.core.links import Links
from bmgd.wire.bounds import OLDER_MEMBERS_MAX
from bmgd.wire.features import Feature
from bmgd.wire.link_messages import MemberFeatures, OlderMembers


class Older:
    """The flood."""

    def __init__(self, context: Context, links: Links) -> None:
        self._context = context
        self._links = links

    def on_link_opened(self, link: Link) -> None:
        """Learn from its hello what the peer lacks, and tell it what is known of others."""
        if self._links.get(link.id) is None:
            return  # It was closed in the same step.
        compatibility = self._context.compatibility
        known = compatibility.known()
        self._tell(link, known)
        if compatibility.own & ~link.features:
            text = (
                f"its release has the features {link.features:#x}, this one {compatibility.own:#x}"
            )
            self._context.observe("older member", link.peer, link.incarnation, text)
        elif not compatibility.knows_former(link.peer, link.incarnation):
            return
        member = MemberFeatures(link.peer, link.incarnation, link.features)
        if compatibility.learn(member):
            self._pass_on((member,), link)

    def on_message(self, link: Link, message: OlderMembers) -> None:
        """Take what is news, and pass it on."""
        news = [
            member
            for member in message.members
            if member.id != self._context.id and self._context.compatibility.learn(member)
        ]
        self._pass_on(news, link)

    def on_record_moved(self, moved: RecordMoved) -> None:
        """A life may be over."""
        self._context.compatibility.on_record(moved.id, moved.after)

    def _pass_on(self, members: Sequence[MemberFeatures], came_on: Link) -> None:
        if members:
            for link in self._links.table.values():
                if link is not came_on:
                    self._tell(link, members)

    def _tell(self, link: Link, members: Sequence[MemberFeatures]) -> None:
        if not link.features & Feature.OLDER_MEMBERS:
            return
        for at in range(0, len(members), OLDER_MEMBERS_MAX):
            page = tuple(members[at : at + OLDER_MEMBERS_MAX])
            self._context.send(link.id, OlderMembers(page))
