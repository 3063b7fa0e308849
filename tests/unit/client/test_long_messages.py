"""Which long messages are put together at a time."""

from __future__ import annotations

from bmgd.client.long_messages import Together
from bmgd.client.message import Pieces


def pieces(number: int, size: int) -> Pieces:
    return Pieces(number, {"source": 1, "topic": "t", "incarnation": 1, "size": size})


def begun(together: Together) -> list[int]:
    return [each.number for each in together.begin()]


def test_together_begins_as_many_as_fit_in_order() -> None:
    together = Together(100)
    messages = [pieces(number, size) for number, size in ((1, 60), (2, 30), (3, 20), (4, 10))]
    for message in messages:
        together.add(message)
    assert begun(together) == [1, 2]
    assert [message in together for message in messages] == [True, True, False, False]
    together.remove(messages[1])
    assert begun(together) == [3, 4]


def test_together_begins_one_that_is_larger_than_the_bound_alone() -> None:
    together = Together(100)
    first, large, last = pieces(1, 10), pieces(2, 200), pieces(3, 10)
    for message in (first, large, last):
        together.add(message)
    assert begun(together) == [1]
    together.remove(first)
    assert begun(together) == [2]
    together.remove(large)
    assert begun(together) == [3]


def test_together_has_no_room_left_of_what_ended_while_it_waited() -> None:
    together = Together(100)
    first, waiting, last = pieces(1, 90), pieces(2, 90), pieces(3, 90)
    for message in (first, waiting, last):
        together.add(message)
    assert begun(together) == [1]
    together.remove(waiting)
    together.remove(waiting)
    together.remove(first)
    assert begun(together) == [3]
    together.clear()
    assert last not in together
