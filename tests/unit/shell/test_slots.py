"""Slots of hellos: a crowd crowds out itself."""

from __future__ import annotations

import pytest

from bmgd.shell.slots import SLOTS_MAX, Slots, share_of
from bmgd.types import LinkId


def full(*hosts: str) -> Slots[LinkId]:
    """All slots taken, by these addresses in turn; link ids from 0."""
    slots = Slots[LinkId]()
    for number in range(SLOTS_MAX):
        assert slots.enter(LinkId(number), hosts[number % len(hosts)]) is None
    return slots


def test_slots_let_whoever_comes_in_and_the_oldest_give_way() -> None:
    slots = full("10.0.0.1")
    for number in range(500):
        assert (
            slots.enter(LinkId(1000 + number), "10.0.0.1")
            == [*range(128), *range(1000, 2000)][number]
        )
        assert len(slots) == SLOTS_MAX


def test_slots_of_another_address_are_not_for_the_crowd() -> None:
    slots = Slots[LinkId]()
    slots.enter(LinkId(9), "10.0.0.9")
    for number in range(100, 1000):
        assert slots.enter(LinkId(number), "10.0.0.1") != 9
    assert slots.enter(LinkId(1), "10.0.0.2") not in (None, 9)


def test_slots_of_those_who_are_about_to_prove_themselves_are_kept_longer() -> None:
    slots = full("10.0.0.1")
    slots.speaks(LinkId(0))
    slots.speaks(LinkId(1))
    assert slots.enter(LinkId(1000), "10.0.0.1") == 2
    for number in range(3, SLOTS_MAX):
        slots.speaks(LinkId(number))
    assert slots.enter(LinkId(1001), "10.0.0.1") == 1000
    slots.speaks(LinkId(1001))
    assert slots.enter(LinkId(1002), "10.0.0.1") == 0


def test_slots_of_a_small_crowd_are_kept_before_those_of_a_large_one() -> None:
    slots = full("10.0.0.1", "10.0.0.1", "10.0.0.2")
    gone = [slots.enter(LinkId(1000 + i), f"10.1.0.{i}") for i in range(30)]
    assert all(link is not None and link % 3 != 2 for link in gone)


def test_slots_are_free_again() -> None:
    slots = full("10.0.0.1", "10.0.0.2")
    slots.leave(LinkId(3))
    slots.leave(LinkId(3))
    slots.leave(LinkId(4711))
    assert slots.enter(LinkId(1000), "10.0.0.3") is None
    for number in (*range(SLOTS_MAX), 1000):
        slots.leave(LinkId(number))
    assert len(slots) == 0
    assert slots._counts == {}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:1:5::", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("2001:db8::1", "2001:db8:0:0:9:9:9:9", True),
        ("::1", "::1", True),
    ],
)
def test_slots_are_shared_by_address(one: str, other: str, shared: bool) -> None:
    assert (share_of(one) == share_of(other)) is shared
