"""Steps that no core makes: differences between members that are not compared, joiners without an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bmgd.core.effects import Send
from bmgd.core.events import DeadlineReached, LinkUp, Received
from bmgd.healing import LinkDiff
from bmgd.sim.checkers import memberships
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.memberships import RanksAreABijection
from bmgd.sim.host import Host
from bmgd.types import Incarnation, LinkId, NodeId, Status
from bmgd.wire.ask_messages import JoinRequest
from bmgd.wire.link_messages import BUCKETS, Buckets, Heartbeat, Notice
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

LOWEST, PEER = NodeId(0), NodeId(4)
NEW = LinkId(10**6)
OTHER_DIGEST = 1


def passes(f: Forger, host: Host) -> None:
    """A second later a node reaches a deadline, in time."""
    inside = Inside(host.node)
    for key in list(inside.deadlines()):
        inside.context.timers.cancel(key)
    f.network.timeline.now_ns += S
    f.scene.before(host, DeadlineReached())
    f.scene.after(host, DeadlineReached(), ())


def buckets_after_one_digest(f: Forger) -> None:
    asks = Send(f.link, Buckets((0,) * BUCKETS, answer=True))
    f.step(Received(f.link, Heartbeat(99, 0, OTHER_DIGEST)), [asks])


def no_buckets_after_two_digests(f: Forger) -> None:
    for number in (99, 100):
        f.step(Received(f.link, Heartbeat(number, 0, OTHER_DIGEST)))


def digest_that_is_not_shown_again(f: Forger) -> None:
    f.step(Received(f.link, Heartbeat(99, 0, OTHER_DIGEST)))
    passes(f, f.host)


def own_record_told_to_who_lives(f: Forger) -> None:
    up = LinkUp(NEW, PEER, f.life, "sim4:7400", f.inside.context.incarnation, 9)
    f.step(up, [Send(NEW, Notice(((PEER, f.record(Status.ALIVE)),)))])


def joiner_that_is_given_no_id(f: Forger) -> None:
    lowest = f.network.hosts[LOWEST]
    link = f.scene.journals[LOWEST].to(PEER)[0].id
    request = JoinRequest(Route(LOWEST, PEER, f.life), Incarnation(7), "joiner:7400", 8)
    f.scene.before(lowest, Received(link, request))
    f.scene.after(lowest, Received(link, request), ())
    passes(f, lowest)


def healing_that_leaves_links_to_the_dead(f: Forger) -> None:
    [checker] = [c for c in f.scene.checkers if isinstance(c, RanksAreABijection)]
    f.inside.membership.join(PEER, f.record(Status.EXCLUDED))
    checker.at_rest([f.journal])
    assert f.scene.violations == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(memberships, "link_diff", lambda size, node_id, dead: LinkDiff((), ()))
        checker.at_rest([f.journal])


FORGERIES_OF_MEMBERSHIPS: list[tuple[str, Callable[[Forger], None]]] = [
    ("differences-are-compared", buckets_after_one_digest),
    ("differences-are-compared", no_buckets_after_two_digests),
    ("differences-are-compared", digest_that_is_not_shown_again),
    (RanksAreABijection.name, healing_that_leaves_links_to_the_dead),
    ("beginnings-tell-of-the-gone", own_record_told_to_who_lives),
    ("joiners-are-given-ids", joiner_that_is_given_no_id),
]
