"""Steps that no core makes towards its neighbors: dials, hellos, links, suspicions and ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bmgd.core.commands import Evict, OpenStream, ProbeTo, PutSegment, SendTo, Withdraw
from bmgd.core.effects import (
    Dial,
    Effect,
    Exit,
    ForwardingChanged,
    Observed,
    RecordChanged,
    Refuse,
    Renewed,
    Reply,
)
from bmgd.core.events import (
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.neighbors.detector import _Suspicion
from bmgd.core.neighbors.dialling import JOIN_TIMER
from bmgd.core.neighbors.greeting import _Held
from bmgd.core.neighbors.redialling import REDIAL_TIMER
from bmgd.core.neighbors.renewal import RENEW_TIMER
from bmgd.errors import DeadError
from bmgd.policy import HealingPolicy
from bmgd.routing import Snapshot
from bmgd.sim.checkers.journal import Suspected
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, Status
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.batch import pack_messages
from bmgd.wire.hello import Refusal
from tests.unit.core.clusters import S
from tests.unit.segments import segment

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

ME, PEER, OTHER, STRANGER = NodeId(5), NodeId(4), NodeId(3), NodeId(2)
NOWHERE = LinkId(10**6)
REQUEST = 10**6
Forgery = Callable[["Forger"], None]


def _says(f: Forger, text: str) -> None:
    assert text in str(f.scene.violations)


def _while(f: Forger, event: Event, change: Callable[[], object], *effects: Effect) -> None:
    """A step in which a core's tables change."""
    f.scene.before(f.host, event)
    change()
    f.scene.after(f.host, event, effects)


# --- suspicions and healing -----------------------------------------------------------------------


def suspected_for_a_goodbye(f: Forger) -> None:
    cause = Evidence.GOODBYE.value
    lines = Observed("link down", PEER, f.life, cause), Observed("suspected", PEER, f.life, cause)
    f.step(LinkDown(f.link, Evidence.GOODBYE), lines)


def suspected_for_the_dial_of_another(f: Forger) -> None:
    line = Observed("suspected", PEER, f.life, Evidence.REFUSED.value)
    f.step(DialFailed(OTHER, Evidence.REFUSED), [line])


def renewed_without_a_link(f: Forger) -> None:
    f.step(DeadlineReached(), [Observed("renewed link", PEER, f.life, "new")])


def concurs_and_is_waited_for(f: Forger) -> None:
    f.inside.detector._suspicions[PEER] = _Suspicion(f.life, 7, "silence", {OTHER}, 10 * S)
    f.journal.suspected[PEER] = Suspected(f.life, f.network.now_ns, "silence", 7)
    answer = Answer(f.route(source=OTHER, destination=ME, sequence=7), PEER, f.life, alive=False)
    f.step(Received(f.journal.to(OTHER)[0].id, answer))
    _says(f, "is still waited for")


def hears_and_does_not_veto(f: Forger) -> None:
    f.step(DeadlineReached())
    f.journal.to(PEER)[0].heard_ns = f.journal.now_ns
    ask = Ask(f.route(source=OTHER, destination=ME), PEER, f.life)
    f.step(Received(f.journal.to(OTHER)[0].id, ask))


def healed_without_need(f: Forger) -> None:
    context = f.inside.context
    context.settings = replace(context.settings, healing=HealingPolicy.parse("after:5"))
    line = Observed("healed", detail="1 dead leave the graph")
    f.step(DeadlineReached(), [line, RecordChanged(PEER, f.record(), 1)])


def declared_dead_and_not_healed(f: Forger) -> None:
    f.inside.membership.join(PEER, f.record(Status.DEAD))
    line = Observed("verdict", PEER, f.life, Evidence.REFUSED.value)
    f.step(DeadlineReached(), [line, RecordChanged(PEER, f.record(Status.DEAD), 1)])
    _says(f, "does not heal")


def watches_another(f: Forger) -> None:
    f.inside.detector._watched = frozenset({PEER})
    f.network.run(3)
    _says(f, "watches")


# --- dials and hellos -----------------------------------------------------------------------------


def proof_that_is_not_told(f: Forger) -> None:
    f.step(LinkDown(f.link, Evidence.EOF), [Dial(PEER, "sim4:7400", f.life, 999, S)])
    f.step(DialFailed(PEER, Evidence.REFUSED))


def wait_that_begins_anew(f: Forger) -> None:
    timers, key, now_ns = f.inside.context.timers, (JOIN_TIMER, STRANGER, 0), f.network.now_ns
    timers.set(key, now_ns + S)
    _while(f, DeadlineReached(), lambda: timers.set(key, now_ns + 2 * S))


def alone_and_dials_nobody(f: Forger) -> None:
    record = f.record()
    for link in list(f.journal.links):
        f.step(LinkDown(link, Evidence.GOODBYE))
    f.inside.membership.join(PEER, record)
    timers, key, now_ns = f.inside.context.timers, (REDIAL_TIMER, 0, 0), f.network.now_ns
    timers.set(key, now_ns)
    _while(f, DeadlineReached(), lambda: timers.set(key, now_ns + S))
    _says(f, "has no link, and dials none")


def _greeted(f: Forger) -> Greeted:
    life = f.network.hosts[STRANGER].node.incarnation
    address = f.network.hosts[STRANGER].address
    return Greeted(NOWHERE, STRANGER, life, address, f.journal.incarnation, 999)


def hello_that_is_held_for_nobody(f: Forger) -> None:
    hello, held = _greeted(f), f.inside.greeting._held
    _while(f, hello, lambda: held.update({STRANGER: _Held(hello, 0, f.journal.now_ns)}))


def hello_that_waits_and_is_not_held(f: Forger) -> None:
    f.step(_greeted(f))


def hello_that_silence_makes_busy(f: Forger) -> None:
    hello = _greeted(f)
    f.step(hello)
    f.step(DeadlineReached(), [Refuse(NOWHERE, Refusal.BUSY, hello.incarnation)])
    _says(f, "is too busy")


# --- links ----------------------------------------------------------------------------------------


def _link_up(f: Forger, *effects: Effect) -> None:
    hello = _greeted(f)
    life, address = hello.incarnation, hello.address
    f.step(LinkUp(NOWHERE, STRANGER, life, address, f.journal.incarnation, 999), effects)


def record_that_is_no_news(f: Forger) -> None:
    life = f.network.hosts[STRANGER].node.incarnation
    record = f.record(Status.ALIVE)._replace(incarnation=life)
    _link_up(f, RecordChanged(STRANGER, record, 1))


def own_record_that_is_not_told(f: Forger) -> None:
    f.inside.membership.join(ME, f.inside.context.own_record())
    _link_up(f)


def renewed_in_its_pause(f: Forger) -> None:
    f.network.keys = ("new",)
    f.inside.context.timers.set((RENEW_TIMER, 0, 0), f.network.now_ns + S)
    f.step(DeadlineReached(), [Dial(PEER, "sim4:7400", f.life, 999, S, renews=True)])
    _says(f, "in its pause")


def two_renewed_at_once(f: Forger) -> None:
    f.network.keys = ("new",)
    for peer in (PEER, OTHER):
        f.step(DeadlineReached(), [Dial(peer, f"sim{peer}:7400", f.life, 999, S, renews=True)])
    _says(f, "at the same time")


def links_under_a_former_key(f: Forger) -> None:
    for host in f.network.hosts.values():
        host.keys = ("new",)
    f.scene.at_rest()


# --- streams --------------------------------------------------------------------------------------


def _underway(f: Forger) -> int:
    """The request of a stream with a segment to a node that is gone."""
    f.network.kill(PEER)
    request = f.network.issue(ME, OpenStream(PEER, "t", 2))
    f.network.issue_as(f.host, request, PutSegment(1, pack_messages([b"x"]), timeout_ns=9 * S))
    return request


def own_segment_that_comes_back(f: Forger) -> None:
    _underway(f)
    (stream,) = f.inside.streams_out()
    (number,) = stream.underway
    route = f.route(source=ME, destination=PEER)
    f.step(Received(f.link, segment(route, b"x", stream=stream.id, number=number)))


def other_way_that_is_not_taken(f: Forger) -> None:
    _underway(f)
    (stream,) = f.inside.streams_out()
    stream.way = NOWHERE
    rows = [(peer, links[0].id) for peer, links in f.inside.links.by_peer.items()]
    f.deadline(ForwardingChanged(Snapshot(10**6, ME, 8, (), rows)))


def given_up_and_sent_on(f: Forger) -> None:
    f.step(CommandIssued(_underway(f), Withdraw(1)))


def acknowledged_without_the_answer(f: Forger) -> None:
    request = _underway(f)
    f.inside.inbound.acknowledging._with_answers[PEER] = {}
    f.step(CommandIssued(request, PutSegment(1, pack_messages([b"x"]), answers=(1,))))


def time_that_allows_no_more_ids(f: Forger) -> None:
    f.inside.membership.allowance.skips -= 1
    f.step(DeadlineReached())
    f.network.timeline.now_ns += S
    f.step(DeadlineReached())


# --- ends -----------------------------------------------------------------------------------------


def ended_and_not_told(f: Forger) -> None:
    f.step(CommandIssued(REQUEST, Evict(PEER, S)), [Observed("evicted", PEER, f.life)])
    f.step(DialFailed(PEER, Evidence.REFUSED))


def id_that_is_lost_too_early(f: Forger) -> None:
    f.step(DialFailed(STRANGER, Evidence.REJECTED, Refusal.DUPLICATE))
    f.deadline(Exit(1, "another living daemon has the id 5"))


def id_of_a_duplicate_that_is_kept(f: Forger) -> None:
    for _ in range(2):
        f.step(DialFailed(STRANGER, Evidence.REJECTED, Refusal.DUPLICATE))
        f.network.timeline.now_ns += 60 * S
    _says(f, "keeps its id")


def joiner_that_begins_a_life_in_place_of_another(f: Forger) -> None:
    context = f.inside.context
    context.settings = replace(context.settings, takes_new_id=True)
    f.journal.inside.settings = context.settings
    f.journal.incarnation = Incarnation(1 << 32)
    refused = DialFailed(STRANGER, Evidence.REJECTED, Refusal.STALE_INCARNATION)
    f.step(refused, [Renewed(Incarnation(2 << 32))])


def left_and_told_as_dead(f: Forger) -> None:
    f.inside.membership.join(PEER, f.record(Status.LEFT))
    error = DeadError(PEER, "it is dead")
    f.step(CommandIssued(REQUEST, ProbeTo(PEER, False, S)), [Reply(REQUEST, error=error)])


def dead_and_told_as_left(f: Forger) -> None:
    f.inside.membership.join(PEER, f.record(Status.DEAD))
    error = DeadError(PEER, "it has left")
    f.step(CommandIssued(REQUEST, SendTo(PEER, "t", b"x", S)), [Reply(REQUEST, error=error)])


FORGERIES_OF_NEIGHBORS: list[tuple[str, Forgery]] = [
    ("log-lines-are-true", suspected_for_a_goodbye),
    ("log-lines-are-true", suspected_for_the_dial_of_another),
    ("log-lines-are-true", renewed_without_a_link),
    ("vetoes-win", concurs_and_is_waited_for),
    ("answers-are-true", hears_and_does_not_veto),
    ("heals-in-time", healed_without_need),
    ("heals-in-time", declared_dead_and_not_healed),
    ("heartbeats-are-paced", watches_another),
    ("dials-conclude", proof_that_is_not_told),
    ("dials-conclude", wait_that_begins_anew),
    ("dials-conclude", alone_and_dials_nobody),
    ("held-hellos-have-a-reason", hello_that_is_held_for_nobody),
    ("held-hellos-have-a-reason", hello_that_waits_and_is_not_held),
    ("held-hellos-have-a-reason", hello_that_silence_makes_busy),
    ("meetings-are-told", record_that_is_no_news),
    ("meetings-are-told", own_record_that_is_not_told),
    ("links-are-renewed", renewed_in_its_pause),
    ("links-are-renewed", two_renewed_at_once),
    ("links-are-renewed", links_under_a_former_key),
    ("hints-are-heeded", own_segment_that_comes_back),
    ("new-ways-are-taken", other_way_that_is_not_taken),
    ("closed-streams-end", given_up_and_sent_on),
    ("segments-are-answered", acknowledged_without_the_answer),
    ("counts-are-true", time_that_allows_no_more_ids),
    ("evictions-are-told", ended_and_not_told),
    ("ids-are-kept", id_that_is_lost_too_early),
    ("ids-are-kept", id_of_a_duplicate_that_is_kept),
    ("ids-are-kept", joiner_that_begins_a_life_in_place_of_another),
    ("looks-are-true", left_and_told_as_dead),
    ("errors-have-their-reason", dead_and_told_as_left),
]
