"""Steps that no core makes: deadlines in the past, patience without a reason, untrue words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bmgd.core.commands import CloseStream, OpenStream
from bmgd.core.effects import Close, Observed
from bmgd.core.events import CommandIssued, DeadlineReached
from bmgd.core.streams.table import Peer
from bmgd.types import NodeId

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER = NodeId(4)
S = 1_000_000_000


def deadline_in_the_past(f: Forger) -> None:
    f.scene.before(f.host, DeadlineReached())
    f.inside.context.timers.set(("probe", 1, 0), f.journal.now_ns - S)
    f.scene.after(f.host, DeadlineReached(), ())


def waits_twice_as_long_as_is_stated(f: Forger) -> None:
    f.scene.before(f.host, DeadlineReached())
    f.inside.context.timers.set(("quorum", 0, 0), f.journal.now_ns + 2 * f.inside.settings.ask_ns)
    f.scene.after(f.host, DeadlineReached(), ())


def waits_for_nobody_and_is_of_somebody(f: Forger) -> None:
    f.scene.before(f.host, DeadlineReached())
    f.inside.context.timers.set(("linger", 1, 0), f.journal.now_ns + S // 4)
    f.scene.after(f.host, DeadlineReached(), ())


def waits_for_what_nobody_knows(f: Forger) -> None:
    f.scene.before(f.host, DeadlineReached())
    f.inside.context.timers.set(("tea", 0, 0), f.journal.now_ns + S)
    f.scene.after(f.host, DeadlineReached(), ())


def deadlines_that_have_no_order(f: Forger) -> None:
    timers = f.inside.context.timers
    for request in (1, 2):
        timers._count -= request
        timers.set(("broadcast report", 10**6 + request, 0), f.journal.now_ns + S)
    f.scene.at_rest()


def impatient_though_late(f: Forger) -> None:
    f.network.timeline.now_ns += 10 * S
    f.step(DeadlineReached())


def patient_without_a_lag(f: Forger) -> None:
    f.inside.detector.stretch_ns = S
    f.step(DeadlineReached())


def exact_without_a_link(f: Forger) -> None:
    link = f.link
    f.step(DeadlineReached(), [Close(link, "")])
    f.step(DeadlineReached(), [Observed("links exact")])


def closed_and_not_ended(f: Forger) -> None:
    request = f.network.issue(f.host.id, OpenStream(PEER, "t", 2))
    f.network.run(0.1)
    assert f.scene.violations == []
    f.step(CommandIssued(request, CloseStream()))


def waits_for_an_id_and_is_gone(f: Forger) -> None:
    request = f.network.issue(f.host.id, OpenStream(PEER, "t", 2))
    f.network.run(0.1)
    table = f.inside.outbound.table
    stream = table.owned[request]
    table.peers.setdefault(PEER, Peer()).waiting[stream.key + 1] = stream
    f.scene.at_rest()


def failed_dials_to_a_linked_peer(f: Forger) -> None:
    f.inside.dialling.peering(PEER).trying_since_ns = 1
    f.scene.at_rest()


FORGERIES_OF_OWN_TIME: list[tuple[str, Callable[[Forger], None]]] = [
    ("deadlines-lie-ahead", deadline_in_the_past),
    ("counts-are-true", deadlines_that_have_no_order),
    ("waits-are-as-stated", waits_twice_as_long_as_is_stated),
    ("waits-are-as-stated", waits_for_nobody_and_is_of_somebody),
    ("waits-are-as-stated", waits_for_what_nobody_knows),
    ("patience-follows-the-own-lag", impatient_though_late),
    ("patience-follows-the-own-lag", patient_without_a_lag),
    ("exact-links-are-exact", exact_without_a_link),
    ("closed-streams-end", closed_and_not_ended),
    ("counts-are-true", waits_for_an_id_and_is_gone),
    ("nothing-is-left-over", failed_dials_to_a_linked_peer),
]
