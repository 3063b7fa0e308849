"""How long a source waits before it sends a broadcast again: as long as nodes take to acknowledge."""

from __future__ import annotations

from bmgd.core.broadcast.answer_times import (
    RESEND_MAX_NS,
    RESEND_MIN_NS,
    RESEND_SLOW_NS,
    AnswerTimes,
)
from bmgd.core.broadcast.reserve import WANTED_NS
from bmgd.core.commands import BroadcastTo
from bmgd.sim import Network
from bmgd.sim.conditions import Conditions
from tests.unit.core.clusters import S, settle

MS = 1_000_000


def test_pause_is_the_least_one_where_nodes_are_quick() -> None:
    times = AnswerTimes()
    assert times.pause_ns == RESEND_MIN_NS
    for _ in range(100):
        times.add(20 * MS)
    assert times.pause_ns == RESEND_MIN_NS


def test_pause_is_the_mean_and_four_times_the_deviation() -> None:
    times = AnswerTimes()
    times.add(800 * MS)
    assert times.pause_ns == (800 + 4 * 400) * MS
    times.add(400 * MS)
    # The deviation is then 400 ms as before, the mean 800 - 400 / 8.
    assert times.pause_ns == (750 + 4 * 400) * MS


def test_pause_of_nodes_that_always_take_as_long_comes_close_to_that() -> None:
    times = AnswerTimes()
    for _ in range(100):
        times.add(S)
    assert S <= times.pause_ns < S + MS


def test_pause_never_exceeds_its_bound() -> None:
    times = AnswerTimes()
    times.add(3600 * S)
    assert times.pause_ns == RESEND_SLOW_NS
    times.on_again(2 * S, S)
    assert times.pause_ns == RESEND_SLOW_NS
    times = AnswerTimes()
    for count in range(20):
        times.on_again((count + 1) * S, count * S)
    assert times.pause_ns == RESEND_MAX_NS


def test_pause_is_shorter_than_a_place_for_copies_is_kept() -> None:
    assert RESEND_SLOW_NS < WANTED_NS


def test_pause_doubles_once_for_all_that_was_sent_before_that() -> None:
    times = AnswerTimes()
    for sent_ns in (0, 1, 2):
        times.on_again(S, sent_ns)
    assert times.pause_ns == 2 * RESEND_MIN_NS
    times.on_again(2 * S, S)
    assert times.pause_ns == 4 * RESEND_MIN_NS


def test_measure_sets_a_doubled_pause_anew() -> None:
    times = AnswerTimes()
    times.on_again(S, 0)
    times.add(10 * MS)
    assert times.pause_ns == RESEND_MIN_NS


def _resent(network: Network) -> int:
    resent: int = network.status(0)["to_many"]["reliable"]["resent"]
    return resent


def test_what_is_only_late_is_not_sent_again() -> None:
    slow = Conditions(delay_min_us=150_000, delay_max_us=150_000)
    network = Network(8, 1, conditions=slow)
    settle(network)
    before = _resent(network)
    for _ in range(50):
        network.issue(0, BroadcastTo("news", b"x", True, 60 * S))
        network.run(0.1)
    network.run(5)
    assert network.status(0)["to_many"]["reliable"]["stable"] == 50
    # The first ones are: nothing was measured yet.
    assert _resent(network) - before <= 10


def test_what_a_stopped_node_misses_is_sent_again_as_soon_as_ever() -> None:
    network = Network(4, 1)
    settle(network)
    for _ in range(5):
        network.issue(0, BroadcastTo("news", b"x", True, 60 * S))
        network.run(0.1)
    network.stop(3)
    before = _resent(network)
    for _ in range(5):
        network.issue(0, BroadcastTo("news", b"x", True, 60 * S))
    network.run(0.45)
    assert _resent(network) - before >= 5
