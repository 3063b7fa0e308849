"""Broadcasts on their way to readers: which readers are told that something was missed."""

from __future__ import annotations

from random import Random

from bmgd.core.broadcast.announcements import Announcement, Announcements
from bmgd.core.context import Context
from bmgd.core.effects import TellMissed
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.types import Incarnation, NodeId

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)


def announcement(sequence: int) -> Announcement:
    return Announcement(NodeId(1), LIFE, sequence, "news", b"x")


def test_readers_are_told_what_was_missed_where_their_topic_carries_reliable_broadcasts() -> None:
    context = Context(Settings(NodeId(0), 4, PEERS, "host0:1"), LIFE, Random(0))
    announcements = Announcements(context)
    announcements.subscribe(7, "news")
    # At best effort nothing is told to be missed.
    announcements.announce(announcement(0))
    announcements.tell_missed(NodeId(1), LIFE, 1, 2)
    assert not [e for e in context.effects if isinstance(e, TellMissed)]
    announcements.announce(announcement(3))
    missed = [e for e in context.effects if isinstance(e, TellMissed)]
    assert [(e.request, e.first, e.last) for e in missed] == [(7, 1, 2)]
