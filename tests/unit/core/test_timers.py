"""Named deadlines: one per key, in the order of their times."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.timers import SPARE, TimerKey, Timers


def key(name: str, number: int = 0) -> TimerKey:
    return name, number, 0


def test_timers_without_a_deadline_want_no_wake() -> None:
    timers = Timers()
    assert timers.next_ns() is None
    assert timers.pop_due(10**18) is None
    assert len(timers) == 0


def test_timers_come_in_the_order_of_their_times_then_of_their_setting() -> None:
    timers = Timers()
    for name, at_ns in (("c", 30), ("b", 20), ("a", 10), ("b2", 20)):
        timers.set(key(name), at_ns)
    assert timers.next_ns() == 10
    assert timers.pop_due(9) is None
    assert [timers.pop_due(30) for _ in range(5)] == [key("a"), key("b"), key("b2"), key("c"), None]


def test_timers_take_a_key_only_when_it_is_due() -> None:
    timers = Timers()
    timers.set(key("a"), 10)
    timers.set(key("b"), 20)
    assert timers.pop_due(10) == key("a")
    assert timers.pop_due(19) is None
    assert key("b") in timers
    assert timers.next_ns() == 20


@pytest.mark.parametrize(("first", "second"), [(10, 20), (20, 10), (10, 10)])
def test_timers_set_again_replace_the_former_time(first: int, second: int) -> None:
    timers = Timers()
    timers.set(key("a"), first)
    timers.set(key("a"), second)
    assert len(timers) == 1
    assert timers.next_ns() == second
    assert [timers.pop_due(100), timers.pop_due(100)] == [key("a"), None]


def test_timers_cancelled_are_forgotten() -> None:
    timers = Timers()
    timers.set(key("a"), 10)
    timers.set(key("b"), 20)
    timers.cancel(key("a"))
    timers.cancel(key("a"))
    timers.cancel(key("never set"))
    assert key("a") not in timers
    assert timers.next_ns() == 20
    timers.set(key("a"), 30)
    assert [timers.pop_due(100), timers.pop_due(100)] == [key("b"), key("a")]


def test_timers_keep_keys_of_one_purpose_apart() -> None:
    timers = Timers()
    for number in range(5):
        timers.set(key("dial", number), number)
    timers.cancel(key("dial", 2))
    popped = [timers.pop_due(10) for _ in range(5)]
    assert popped == [*(key("dial", number) for number in (0, 1, 3, 4)), None]


@pytest.mark.parametrize("seed", range(20))
def test_timers_behave_like_a_sorted_table(seed: int) -> None:
    random = Random(seed)
    timers = Timers()
    table: dict[TimerKey, tuple[int, int]] = {}
    for count in range(2000):
        chosen = key("abc"[random.randrange(3)], random.randrange(8))
        match random.randrange(4):
            case 0 | 1:
                at_ns = random.randrange(1000)
                timers.set(chosen, at_ns)
                table[chosen] = (at_ns, count)
            case 2:
                timers.cancel(chosen)
                table.pop(chosen, None)
            case _:
                now_ns = random.randrange(1000)
                first = min(table, key=lambda k: table[k], default=None)
                if first is None or table[first][0] > now_ns:
                    assert timers.pop_due(now_ns) is None
                else:
                    assert timers.pop_due(now_ns) == first
                    del table[first]
        assert len(timers) == len(table)
        assert timers.next_ns() == min((at for at, _ in table.values()), default=None)


def test_timers_do_not_grow_with_what_was_replaced() -> None:
    timers = Timers()
    for count in range(10_000):
        timers.set(key("beat"), 10_000 - count)
    assert len(timers) == 1
    assert len(timers._heap) <= 2 * len(timers) + 16


def test_timers_forget_a_storm_of_cancelled_and_due_ones() -> None:
    timers = Timers()
    for number in range(1000):
        timers.set(key("storm", number), 10**9 + number)
        timers.set(key("due", number), number)
    for number in range(1000):
        timers.cancel(key("storm", number))
        assert timers.pop_due(number) == key("due", number)
        assert len(timers._heap) <= 2 * len(timers) + SPARE
