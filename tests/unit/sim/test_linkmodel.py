"""The model before each host's links fires on what breaks a rule, under the name of that rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bmgd.core.effects import Observed
from bmgd.core.events import DeadlineReached
from bmgd.linklayer import LinkLayer
from bmgd.linklayer.contract import BULK, CONTROL, PUT, URGENT, Happening
from bmgd.sim import Network
from bmgd.sim.checkers import watch
from bmgd.sim.checkers.linking import STEP_EFFECTS_MAX
from bmgd.sim.linkmodel import BOUNDED, WatchedEngine
from bmgd.sim.modellink import LOSE_NOTHING, OVERTAKE
from bmgd.types import NodeId
from tests.unit.linklayer.engines import data, goodbye, ping, snapshot

LEFT, RIGHT = 1, 2


class Forged(LinkLayer):
    """A layer whose answers are changed.

    Attributes:
        lie: changes what `take` gives.
        hides: how many happenings `poll` leaves out, from the end.
        takes_all: whether every put is answered with PUT.
        uncounted: relayed frames that it leaves out of its totals.
    """

    lie: Callable[[bytes], bytes] = staticmethod(lambda taken: taken)
    hides = 0
    takes_all = False
    uncounted = 0

    def take(self, link: int, limit: int) -> bytes:
        return self.lie(super().take(link, limit))

    def poll(self, now_ns: int = 0) -> list[Happening]:
        happened = super().poll(now_ns)
        return happened[: len(happened) - self.hides]

    def put(self, link: int, data: bytes, kind: int) -> int:
        result = super().put(link, data, kind)
        return PUT if self.takes_all else result

    def totals(self) -> dict[str, int]:
        totals = super().totals()
        return totals | {"relayed_frames": totals["relayed_frames"] - self.uncounted}


def watched(bulk_bytes_max: int = 1000) -> tuple[Forged, WatchedEngine, list[str]]:
    """A layer with two links, what stands before it, and the names of broken rules."""
    broken: list[str] = []
    layer = Forged(bulk_bytes_max)
    engine = WatchedEngine(
        layer, lambda name, text: broken.append(name), bulk_bytes_max=bulk_bytes_max
    )
    engine.adopt(-1, LEFT, 1)
    engine.adopt(-1, RIGHT, 2)
    engine.publish(snapshot({1: LEFT, 2: RIGHT}))
    return layer, engine, broken


def test_model_is_silent_on_a_layer_that_keeps_the_rules() -> None:
    _, engine, broken = watched()
    engine.feed(LEFT, data(2, "x") + ping(1) + data(2, "y", 0))
    engine.put(RIGHT, ping(2), CONTROL)
    engine.take(RIGHT, 10)
    engine.put(RIGHT, data(2, "z" * 2000), BULK)
    engine.shut(RIGHT, goodbye())
    engine.poll()
    engine.take(RIGHT, 1 << 20)
    engine.feed(RIGHT, goodbye())
    engine.poll()
    engine.heard()
    assert engine.close(LEFT) == []
    assert broken == []


def test_model_fires_when_a_frame_that_was_relayed_is_not_counted() -> None:
    layer, engine, broken = watched()
    layer.uncounted = 1
    engine.feed(LEFT, data(2, "x"))
    engine.poll()
    assert broken == [LOSE_NOTHING]


def test_model_fires_when_a_frame_that_was_put_is_not_written() -> None:
    layer, engine, broken = watched()
    engine.put(LEFT, ping(1) + ping(2), CONTROL)
    layer.lie = lambda taken: taken[len(ping(1)) :]
    engine.take(LEFT, 1 << 20)
    assert broken == [LOSE_NOTHING]


def test_model_fires_when_bulk_goes_before_what_is_urgent() -> None:
    layer, engine, broken = watched()
    engine.put(LEFT, data(1, "bulk"), BULK)
    engine.put(LEFT, ping(1), CONTROL)
    layer.lie = lambda taken: taken[len(ping(1)) :] + taken[: len(ping(1))]
    engine.take(LEFT, 1 << 20)
    assert broken == [OVERTAKE]


def test_model_fires_when_something_goes_into_the_midst_of_a_frame() -> None:
    layer, engine, broken = watched()
    engine.put(LEFT, data(1, "bulk"), BULK)
    engine.take(LEFT, 20)
    engine.put(LEFT, ping(1), CONTROL)
    layer.lie = lambda taken: taken[-len(ping(1)) :] + taken[: -len(ping(1))]
    engine.take(LEFT, 1 << 20)
    assert broken == [OVERTAKE]


@pytest.mark.parametrize(("frame", "kind"), [(data(1, "", 0), BULK), (data(1, "", 1), URGENT)])
def test_model_fires_when_a_frame_is_put_among_another_kind(frame: bytes, kind: int) -> None:
    _, engine, broken = watched()
    engine.put(LEFT, frame, kind)
    assert broken == [OVERTAKE]


def test_model_fires_when_an_outbox_takes_more_than_its_bound() -> None:
    layer, engine, broken = watched(bulk_bytes_max=100)
    layer.takes_all = True
    engine.put(LEFT, data(1, "x" * 200), BULK)
    assert broken == [BOUNDED]


def test_model_fires_when_a_drop_is_counted_twice() -> None:
    layer, engine, broken = watched(bulk_bytes_max=100)
    engine.put(LEFT, data(1, "x" * 200), BULK)
    layer._dropped_bulk_frames += 1
    engine.poll()
    assert broken == [BOUNDED]


def test_model_fires_when_a_frame_that_came_is_told_to_nobody() -> None:
    layer, engine, broken = watched()
    engine.feed(LEFT, ping(1))
    layer.hides = 1
    engine.poll()
    assert broken == [LOSE_NOTHING]


def test_model_fires_when_unsent_frames_are_not_given_back() -> None:
    layer, engine, broken = watched()
    engine.put(LEFT, data(1, "x"), BULK)
    engine.finish(LEFT, 0)
    layer.hides = 1
    engine.poll()
    assert broken == [LOSE_NOTHING]


def test_model_fires_when_a_link_is_not_known_to_be_heard() -> None:
    layer, engine, broken = watched()
    engine.feed(LEFT, data(2))
    layer.heard()
    engine.heard()
    assert broken == [LOSE_NOTHING]


def test_scene_has_what_a_link_breaks_and_what_misses_before_a_goodbye() -> None:
    network = Network(4)
    scene = watch(network)
    network.run(2)
    host = network.hosts[NodeId(0)]
    end = next(iter(host.ends.values()))
    assert end.other is not None
    # The layer of the other end loses a frame that it accepted, behind the model's back.
    other = end.other.host.layer
    assert isinstance(other, WatchedEngine)
    other.accepted[end.other.link] = 10**6
    assert scene.violations == []
    host.layer.feed(end.link, goodbye())
    assert [violation.checker for violation in scene.violations] == [LOSE_NOTHING]


def test_scene_fires_on_a_step_above_its_budget() -> None:
    network = Network(4)
    scene = watch(network)
    network.run(2)
    host = network.hosts[NodeId(0)]
    line = Observed("expired", detail="9 messages of the topic 'x' that nobody came to read")
    effects = [line] * (STEP_EFFECTS_MAX + 1)
    scene.before(host, DeadlineReached())
    scene.after(host, DeadlineReached(), effects[1:])
    assert scene.violations == []
    scene.before(host, DeadlineReached())
    scene.after(host, DeadlineReached(), effects)
    assert [violation.checker for violation in scene.violations] == ["steps-are-bounded"]
