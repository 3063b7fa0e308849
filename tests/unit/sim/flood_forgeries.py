"""Steps in which what is beyond a neighbor's rate is looked at, and what is within is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bmgd.core.effects import Observed, Overlooked, Send
from bmgd.core.events import Received
from bmgd.sim.checkers.flooded import FloodsAreSlowed
from bmgd.sim.checkers.rates import AT_ONCE
from bmgd.wire.link_messages import Notice, Ping, Pong

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PING = Ping(7)


def _flood(f: Forger, *, counts: bool = True) -> None:
    """So many pings of node 4 that the next one is beyond its rate; the node says so."""
    now_ns, peer = f.host.local_ns(f.network.now_ns), f.journal.links[f.link].peer
    for _ in range(AT_ONCE):
        assert f.journal.rates.admits(now_ns, peer, PING)
    if counts:
        _drop(f)
    f.step(Received(f.link, PING), [Observed("flooding", peer)])
    assert counts == (_fired(f) == [])


def _fired(f: Forger) -> list[str]:
    return [v.text for v in f.scene.violations if v.checker == FloodsAreSlowed.name]


def _drop(f: Forger) -> None:
    f.inside.context.counts.plain["flooded_messages"] += 1


def ping_beyond_the_rate_that_is_not_counted(f: Forger) -> None:
    _flood(f, counts=False)


def ping_beyond_the_rate_that_is_answered(f: Forger) -> None:
    _flood(f)
    _drop(f)
    f.step(Received(f.link, PING), [Send(f.link, Pong(7))])


def notice_beyond_the_rate_that_the_links_take_for_known(f: Forger) -> None:
    _flood(f)
    notice = Notice(((f.journal.links[f.link].peer, f.record()),))
    _drop(f)
    f.step(Received(f.link, notice), [Overlooked(notice)])
    assert _fired(f) == []
    _drop(f)
    f.step(Received(f.link, notice))


def flood_that_is_named_twice(f: Forger) -> None:
    _flood(f)
    _drop(f)
    f.step(Received(f.link, PING), [Observed("flooding", f.journal.links[f.link].peer)])


def message_within_the_rate_that_is_dropped(f: Forger) -> None:
    _drop(f)
    f.scene.at_rest()


def message_that_is_looked_at_and_not_counted(f: Forger) -> None:
    f.step(Received(f.link, PING))


FORGERIES_OF_FLOODS: list[tuple[str, Callable[[Forger], None]]] = [
    (FloodsAreSlowed.name, ping_beyond_the_rate_that_is_not_counted),
    (FloodsAreSlowed.name, ping_beyond_the_rate_that_is_answered),
    (FloodsAreSlowed.name, notice_beyond_the_rate_that_the_links_take_for_known),
    (FloodsAreSlowed.name, flood_that_is_named_twice),
    (FloodsAreSlowed.name, message_within_the_rate_that_is_dropped),
    (FloodsAreSlowed.name, message_that_is_looked_at_and_not_counted),
]
