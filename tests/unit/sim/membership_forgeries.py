"""Steps that no core makes: differences between members that are not compared, joiners without an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bmgd.core.effects import Dial, Exit, Observed, RecordChanged, Renewed, Send
from bmgd.core.events import DeadlineReached, JoinAsked, LinkUp, Received
from bmgd.healing import LinkDiff
from bmgd.sim.checkers import memberships
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.memberships import RanksAreABijection
from bmgd.sim.host import Host
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.ask_messages import JoinRequest
from bmgd.wire.link_messages import BUCKETS, Buckets, Heartbeat, Notice, PageAsk, Pong, RecordPage
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


def page_that_is_not_followed(f: Forger) -> None:
    f.deadline(Send(f.link, PageAsk(NodeId(0), 1)))
    f.step(Received(f.link, RecordPage((), (), NodeId(7))))


def page_without_the_retired(f: Forger) -> None:
    f.inside.membership.retired.add(9, 9)
    due = tuple(sorted(f.inside.membership.exceptions().items()))
    ask = PageAsk(NodeId(0), 2**BUCKETS - 1)
    f.step(Received(f.link, ask), [Send(f.link, RecordPage(due))])


def later_page_that_is_passed_on(f: Forger) -> None:
    f.deadline(Send(f.link, PageAsk(NodeId(6), 1)))
    stranger = next(link for link in f.journal.links.values() if link.peer not in (PEER, 7))
    record = f.record(Status.DEAD)
    changed = RecordChanged(NodeId(7), record, f.inside.membership.revision + 1)
    told = Send(stranger.id, Notice(((NodeId(7), record),)))
    f.step(Received(f.link, RecordPage(((NodeId(7), record),))), [changed, told])


def joiner_that_came_itself_and_is_given_no_id(f: Forger) -> None:
    lowest = f.network.hosts[LOWEST]
    asked = JoinAsked(NEW, None, Incarnation(7), "joiner:7400")
    f.scene.before(lowest, asked)
    f.scene.after(lowest, asked, ())
    passes(f, lowest)


def joiner_that_would_be_given_two_ids(f: Forger) -> None:
    f.inside.membership.join(NodeId(8), Record(Incarnation(7), 0, Status.ALIVE, "joiner:7400"))
    assert "ids that joiners were given" in str(f.scene.disquiet())
    f.scene.at_rest()


def founder_whose_id_was_given_up(f: Forger) -> None:
    f.deadline(Exit(1, f"the id {f.host.id} was given up while this node was away"))


def own_address_where_another_life_is_looked_for(f: Forger) -> None:
    me, address = f.host.id, f.inside.settings.address
    f.step(DeadlineReached(), [Dial(me, address, f.life, 9, S)])


def new_life_for_what_a_version_refutes(f: Forger) -> None:
    life = f.inside.context.incarnation
    said = Record(life, 0, Status.DEAD, f.inside.settings.address)
    renewed = Renewed(Incarnation(life + 1))
    f.step(Received(f.link, Notice(((f.host.id, said),))), [renewed])


def former_life_that_is_not_followed(f: Forger) -> None:
    known = Incarnation(f.inside.context.incarnation - 1)
    f.step(LinkUp(NEW, PEER, f.life, "sim4:7400", known, 9))


def joiner_that_is_not_forgotten(f: Forger) -> None:
    f.inside.retirement._left[NodeId(9)] = -(10**15)
    f.deadline()


def lateness_of_who_is_in_time(f: Forger) -> None:
    f.step(Received(f.link, Pong(1)), [Observed("late", detail="500 ms")])


FORGERIES_OF_MEMBERSHIPS: list[tuple[str, Callable[[Forger], None]]] = [
    ("differences-are-compared", buckets_after_one_digest),
    ("differences-are-compared", no_buckets_after_two_digests),
    ("differences-are-compared", digest_that_is_not_shown_again),
    (RanksAreABijection.name, healing_that_leaves_links_to_the_dead),
    ("beginnings-tell-of-the-gone", own_record_told_to_who_lives),
    ("joiners-are-given-ids", joiner_that_is_given_no_id),
    ("joiners-are-given-ids", joiner_that_came_itself_and_is_given_no_id),
    ("questions-are-answered", page_without_the_retired),
    ("pages-follow-each-other", page_that_is_not_followed),
    ("pages-follow-each-other", later_page_that_is_passed_on),
    ("counts-are-true", joiner_that_would_be_given_two_ids),
    ("exits-have-a-reason", founder_whose_id_was_given_up),
    ("accusation-is-answered", own_address_where_another_life_is_looked_for),
    ("accusation-is-answered", new_life_for_what_a_version_refutes),
    ("lives-grow", former_life_that_is_not_followed),
    ("deadlines-have-subjects", joiner_that_is_not_forgotten),
    ("late-nodes-reset", lateness_of_who_is_in_time),
]
