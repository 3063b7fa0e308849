"""Cores whose tables of members, neighbors and broadcasts are not what they count."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bmgd.core.broadcast.heard import SkippedRange
from bmgd.core.broadcast.peers import Peer
from bmgd.core.commands import BroadcastTo, OpenInbox, OpenStream
from bmgd.core.effects import Send
from bmgd.core.events import DeadlineReached
from bmgd.core.membership.allowance import ID_GAP_MAX
from bmgd.core.neighbors.redialling import SEARCH_TIMER
from bmgd.core.timers import Timers
from bmgd.healing import HopOverhead
from bmgd.sim.checkers import recounted_members
from bmgd.types import Incarnation, NodeId, NodeState, Status
from bmgd.wire.ask_messages import TraceAnswer
from bmgd.wire.broadcast_messages import Skip, Skipped

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER = NodeId(4)


def records_that_are_never_told(f: Forger) -> None:
    f.inside.notices._pending[PEER] = (f.record(), None)
    f.scene.at_rest()


def joiner_that_looks_for_nobody(f: Forger) -> None:
    f.inside.context.state, f.inside.dialling.ever_linked = NodeState.JOINING, False
    f.inside.context.timers.cancel((SEARCH_TIMER, 0, 0))
    f.scene.at_rest()


def neighbors_of_nobody_that_are_dead(f: Forger) -> None:
    f.inside.healing._counted_at = f.inside.membership.layout_revision
    f.inside.healing._dead_neighbors[PEER] += 1
    f.scene.at_rest()


def ways_around_the_dead_that_are_not_measured(f: Forger) -> None:
    f.inside.membership.join(PEER, f.record(Status.DEAD))
    assert "the longest way" not in str(f.scene.disquiet())
    with pytest.MonkeyPatch.context() as patched:
        overhead = HopOverhead(1.0, 1.0, 9, 9)
        patched.setattr(recounted_members, "hop_overhead", lambda size, ranks: overhead)
        assert "the longest way" in str(f.scene.disquiet())
        f.scene.at_rest()


def deadlines_that_say_another_time(f: Forger) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Timers, "due_ns", lambda self, key: 1)
        f.scene.at_rest()


def inbox_with_the_number_of_another(f: Forger) -> None:
    f.network.issue(5, OpenInbox(10**6))
    assert f.scene.disquiet() == []
    f.inside.topics.inboxes._last_number = 0
    f.scene.at_rest()


def stream_without_credit_for_one_segment(f: Forger) -> None:
    f.network.issue(5, OpenStream(PEER, "t"))
    f.network.run(0.1)
    assert f.scene.disquiet() == []
    (stream,) = f.inside.streams_out()
    stream.granted = 1
    f.scene.at_rest()


def features_of_a_life_that_is_over(f: Forger) -> None:
    f.inside.membership.join(PEER, f.record()._replace(version=9))
    f.inside.context.compatibility._older[PEER] = Incarnation(1), 0
    f.scene.at_rest()


def more_ids_that_may_become_known(f: Forger) -> None:
    f.inside.membership.allowance.skips = ID_GAP_MAX + 1
    f.scene.at_rest()


def peer_that_has_more_than_was_sent(f: Forger) -> None:
    f.inside.to_many.source.peers.by_id[PEER] = Peer(watermark=10)
    f.scene.at_rest()


def skips_of_a_peer_side_by_side(f: Forger) -> None:
    skips = [Skip(PEER, 3, 4, True), Skip(PEER, 5, 6, True)]
    f.inside.to_many.source.peers.by_id[PEER] = Peer(skips=skips)
    f.scene.at_rest()


def _heard(f: Forger) -> None:
    f.network.issue(PEER, BroadcastTo("t", b"x", True, 10**9))
    f.network.run(0.001)


def skips_side_by_side(f: Forger) -> None:
    _heard(f)
    (heard,) = f.inside.to_many.retention.lives.values()
    heard.skips = [SkippedRange(7, 8, False, False), SkippedRange(9, 9, False, False)]
    f.scene.at_rest()


def source_that_says_it_sent_more(f: Forger) -> None:
    f.step(DeadlineReached(), [Send(f.link, Skipped(f.route(sequence=3), (), 0))])


def source_that_says_more_is_stable(f: Forger) -> None:
    f.step(DeadlineReached(), [Send(f.link, Skipped(f.route(sequence=0), (), 1))])


def way_that_was_not_measured_and_is_told(f: Forger) -> None:
    f.step(DeadlineReached(), [Send(f.link, TraceAnswer(f.route(), 1, (), "no way"))])


def late_and_waits_for_former_echoes(f: Forger) -> None:
    [link] = f.inside.links.by_peer[PEER]
    f.step(DeadlineReached())
    f.network.timeline.now_ns += 10**9
    f.scene.before(f.host, DeadlineReached())
    link.unechoed.append((10**6, f.journal.now_ns - 1))
    f.scene.after(f.host, DeadlineReached(), ())


FORGERIES_OF_COUNTS: list[tuple[str, Callable[[Forger], None]]] = [
    ("counts-are-true", records_that_are_never_told),
    ("counts-are-true", joiner_that_looks_for_nobody),
    ("counts-are-true", neighbors_of_nobody_that_are_dead),
    ("counts-are-true", ways_around_the_dead_that_are_not_measured),
    ("counts-are-true", deadlines_that_say_another_time),
    ("counts-are-true", inbox_with_the_number_of_another),
    ("counts-are-true", stream_without_credit_for_one_segment),
    ("counts-are-true", features_of_a_life_that_is_over),
    ("counts-are-true", more_ids_that_may_become_known),
    ("counts-are-true", peer_that_has_more_than_was_sent),
    ("counts-are-true", skips_of_a_peer_side_by_side),
    ("counts-are-true", skips_side_by_side),
    ("own-words-are-true", source_that_says_it_sent_more),
    ("own-words-are-true", source_that_says_more_is_stable),
    ("own-words-are-true", way_that_was_not_measured_and_is_told),
    ("late-nodes-reset", late_and_waits_for_former_echoes),
]
