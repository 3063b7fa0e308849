"""Simulated connections: order, loss, cuts, silence of kernels, and what dials find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bmgd.core.effects import Dial, Effect
from bmgd.core.events import DialFailed, Event, LinkDown, Received
from bmgd.sim import Network
from bmgd.sim.checkers import watch
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import End, Host
from bmgd.sim.observing import Watcher
from bmgd.sim.wires import ends_between
from bmgd.types import Evidence, Incarnation, NodeId
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Ping

DELAYS = {"delay_min_us": 100, "delay_max_us": 9_000}


class Pings(Watcher):
    """The nonces above 1000 that a node received, and the ends of its links and dials."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.nonces: list[int] = []
        self.lost: list[Evidence] = []
        self.failed: list[DialFailed] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        if host.id != self.node:
            return
        if isinstance(event, Received) and isinstance(event.message, Ping):
            if event.message.nonce > 1000:
                self.nonces.append(event.message.nonce)
        elif isinstance(event, LinkDown):
            self.lost.append(event.evidence)
        elif isinstance(event, DialFailed):
            self.failed.append(event)


def pair(seed: int = 1, **conditions: Any) -> tuple[Network, Pings, End]:
    """Two linked hosts, what node 1 sees, and node 0's end of their link."""
    network = Network(2, seed, conditions=Conditions(**conditions))
    seen = Pings(1)
    network.watchers.append(seen)
    network.run(1.0)
    (end,) = ends_between(network.hosts[NodeId(0)], NodeId(1))
    return network, seen, end


def ping(network: Network, end: End, nonces: range) -> None:
    for nonce in nonces:
        network.wires.send(end.host, end.link, Ping(nonce))


def test_wires_keep_the_order_whatever_the_delays() -> None:
    network, seen, end = pair(**DELAYS)
    for first in range(2000, 2100, 10):
        ping(network, end, range(first, first + 10))
        network.run(0.001)
    network.run(0.1)
    assert seen.nonces == list(range(2000, 2100))


def test_wires_tear_chunks_and_the_frames_stay_whole() -> None:
    network, seen, end = pair(torn=900_000, **DELAYS)
    ping(network, end, range(2000, 2200))
    network.run(0.5)
    assert seen.nonces == list(range(2000, 2200))


def test_wires_do_not_let_pieces_become_ever_smaller() -> None:
    network, seen, end = pair(torn=300_000, pipe_bytes=2_000, delay_min_us=20, delay_max_us=400)
    sizes = []
    network.wires.on_chunk = lambda sender, receiver, data: sizes.append(len(data))
    for first in range(2000, 12_000, 1_000):
        ping(network, end, range(first, first + 1_000))
        network.run(1.0)
    assert seen.nonces == list(range(2000, 12_000))
    assert sum(sizes) / len(sizes) > 300


def test_wires_that_break_lose_a_suffix_and_nothing_else() -> None:
    lengths = set()
    for seed in range(30):
        network, seen, end = pair(seed, **DELAYS)
        ping(network, end, range(2000, 2020))
        network.run(0.004)
        network.wires.break_link(end)
        ping(network, end, range(3000, 3005))
        network.run(0.1)
        assert seen.nonces == list(range(2000, 2000 + len(seen.nonces)))
        assert Evidence.RESET in seen.lost
        lengths.add(len(seen.nonces))
    assert len(lengths) > 5


def test_wires_deliver_what_was_sent_before_a_clean_end() -> None:
    network, seen, end = pair(**DELAYS)
    ping(network, end, range(2000, 2020))
    network.kill(0)
    network.run(0.1)
    assert seen.nonces == list(range(2000, 2020))
    assert seen.lost == [Evidence.EOF]


def test_wires_of_a_killed_host_may_lose_a_suffix() -> None:
    counts = set()
    for seed in range(30):
        network, seen, end = pair(seed, loses_suffix=True, **DELAYS)
        ping(network, end, range(2000, 2020))
        network.kill(0)
        network.run(0.1)
        assert seen.nonces == list(range(2000, 2000 + len(seen.nonces)))
        counts.add((len(seen.nonces) == 20, seen.lost[0]))
    assert {(True, Evidence.EOF), (False, Evidence.RESET)} <= counts


def test_wires_hold_what_a_cut_stops_and_keep_its_order() -> None:
    network, seen, end = pair(retry_us_max=50_000, **DELAYS)
    ping(network, end, range(2000, 2010))
    network.cut(0, 1, one_way=True)
    network.run(0.05)
    assert seen.nonces == []
    ping(network, end, range(2010, 2020))
    network.mend()
    ping(network, end, range(2020, 2030))
    network.run(0.2)
    assert seen.nonces == list(range(2000, 2030))


def test_wires_cut_both_ways_time_out_at_either_end_without_the_other_being_told() -> None:
    network, seen, end = pair(user_timeout_ms=1000)
    network.hosts[NodeId(0)].stopped = True
    network.cut(0, 1)
    (theirs,) = ends_between(network.hosts[NodeId(1)], NodeId(0))
    network.wires.send(theirs.host, theirs.link, Ping(5))
    network.run(1.2)
    assert seen.lost == [Evidence.TIMED_OUT]
    assert end.open


def test_wires_one_way_cut_leaves_the_other_way_unacknowledged() -> None:
    network, seen, end = pair(user_timeout_ms=1000)
    other = Pings(0)
    network.watchers.append(other)
    network.cut(1, 0, one_way=True)
    ping(network, end, range(2000, 2001))
    network.run(0.1)
    assert seen.nonces == [2000]
    network.run(1.2)
    assert other.lost == [Evidence.TIMED_OUT]


def test_wires_without_acknowledgement_recover_when_mended_in_time() -> None:
    network, seen, end = pair(user_timeout_ms=5000)
    network.cut(0, 1)
    ping(network, end, range(2000, 2003))
    network.run(0.3)
    network.mend()
    network.run(6.0)
    assert seen.nonces == [2000, 2001, 2002]
    assert seen.lost == []


def test_wires_stopped_host_reads_everything_in_order_when_it_goes_on() -> None:
    network, seen, end = pair(**DELAYS)
    network.stop(1)
    for nonce in range(2000, 2010):
        ping(network, end, range(nonce, nonce + 1))
        network.run(0.01)
    assert seen.nonces == []
    chunks: list[bytes] = []
    network.wires.on_chunk = lambda sender, host, data: chunks.append(data)
    network.resume(1)
    assert seen.nonces == list(range(2000, 2010))
    assert len(chunks) == 1, "as a socket that has waited"


def dial_to_zero(network: Network, seen: Pings) -> DialFailed:
    """Let node 1 dial node 0; how the dial fails."""
    del seen.failed[:]
    dial = Dial(NodeId(0), "sim0:7400", Incarnation(0), 9, 500_000_000)
    network.wires.hellos.dial(network.hosts[NodeId(1)], dial)
    network.run(0.6)
    return seen.failed[0]


@pytest.mark.parametrize(
    ("squatter", "evidence", "refusal"),
    [
        ("", Evidence.REFUSED, None),
        ("silent", Evidence.NO_ANSWER, None),
        ("cluster", Evidence.REJECTED, Refusal.WRONG_CLUSTER),
    ],
)
def test_dial_of_a_dead_address_finds_who_has_it(
    squatter: str, evidence: Evidence, refusal: Refusal | None
) -> None:
    network, seen, _ = pair()
    network.kill(0)
    network.hosts[NodeId(0)].squatter = squatter
    failed = dial_to_zero(network, seen)
    assert (failed.evidence, failed.refusal) == (evidence, refusal)


@pytest.mark.parametrize(("keys", "proven"), [((), True), (("secret",), False)])
def test_start_among_strangers_ends_at_once_only_where_nobody_can_prove_anything(
    keys: tuple[str, ...], proven: bool
) -> None:
    network = Network(2, start=False)
    scene = watch(network)
    network.keys = keys
    network.boot(0)
    network.kill(0)
    network.hosts[NodeId(0)].squatter = "cluster"
    seen = Pings(1)
    network.watchers.append(seen)
    host = network.boot(1)
    network.run(10)
    assert {(failed.refusal, failed.proven) for failed in seen.failed} == {
        (Refusal.WRONG_CLUSTER, proven)
    }
    assert (host.exit is not None) == proven
    network.run(10)
    assert host.exit is not None
    assert scene.violations == []


def test_dial_of_a_listener_that_has_just_died_is_accepted_for_a_moment() -> None:
    network, seen, _ = pair(linger_us_max=3_000)
    network.kill(0)
    host = network.hosts[NodeId(0)]
    assert host.accepts_until_ns > network.now_ns
    assert dial_to_zero(network, seen).evidence in (Evidence.EOF, Evidence.RESET)
    assert dial_to_zero(network, seen).evidence is Evidence.REFUSED


def test_dial_through_a_proxy_is_accepted_for_ever() -> None:
    network, seen, _ = pair(proxied_percent=100)
    network.kill(0)
    network.run(30.0)
    assert dial_to_zero(network, seen).evidence in (Evidence.EOF, Evidence.RESET)


@pytest.mark.parametrize("way", [(0, 1), (1, 0)])
def test_dial_over_a_way_cut_in_either_direction_is_not_answered(way: tuple[int, int]) -> None:
    network, seen, _ = pair()
    network.cut(*way, one_way=True)
    assert dial_to_zero(network, seen).evidence is Evidence.NO_ANSWER


def test_relay_with_a_stale_snapshot_gives_frames_back_to_the_core() -> None:
    network = Network(8, 3, conditions=Conditions(stale_us_max=500_000))
    network.run(3.0)
    host = network.hosts[NodeId(0)]
    before = host.snapshot.generation
    network.kill(1)
    network.run(0.01)
    assert host.snapshot.generation == before
    network.run(2.0)
    assert host.snapshot.generation > before


@pytest.mark.parametrize("percent", [0, 100])
def test_wires_are_read_before_the_core_is_told_of_any_where_they_are_polled_together(
    percent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(3, conditions=Conditions(together_percent=percent))
    network.run(1.0)
    network.stop(1)
    (asking,) = ends_between(network.hosts[NodeId(0)], NodeId(1))
    ping(network, asking, range(2000, 2003))
    network.kill(2)
    network.run(0.01)
    ping(network, asking, range(3000, 3003))
    network.run(0.01)
    layer, polled = network.hosts[NodeId(1)].layer, []
    poll = layer.poll

    def noted(now_ns: int) -> Any:
        found = poll(now_ns)
        polled.append({link for link, *_ in found})
        return found

    monkeypatch.setattr(layer, "poll", noted, raising=False)
    network.resume(1)
    assert max(len(links) for links in polled) == (2 if percent else 1)
