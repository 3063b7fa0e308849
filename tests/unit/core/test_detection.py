"""What is proof of a death, what is only a suspicion, and who may not accuse."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from bmgd.core.effects import AbsorbHeartbeats, Close, Dial, Effect, Observed, Send, Welcome
from bmgd.core.events import (
    AbsorbedBeat,
    DeadlineReached,
    DialFailed,
    Event,
    Greeted,
    Heard,
    HeartbeatsAbsorbed,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.neighbors.detector import BEAT_TIMER, FIRST_MISMATCH_NS, LATE_NS, SILENCE_TIMER
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.sim.wires import ends_between
from bmgd.topology import BinomialGraph
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    NodeState,
    Record,
    Status,
)
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.link_messages import Buckets, Heartbeat, Notice
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S, linked, observed, settle

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)


def linked_node(*links: LinkId) -> Node:
    """Node 9 of 10 in its first nanosecond, with a link to each peer, which has the peer's id."""
    node = Node(Settings(NodeId(9), 10, PEERS, "host9:1"), LIFE, Random(0), 0)
    node.step(0, DeadlineReached())
    for link in links:
        node.step(1, LinkUp(link, NodeId(link), LIFE, f"host{link}:1", UNKNOWN_INCARNATION, 1))
    return node


def verdicts(network: Network, size: int) -> list[tuple[int, str]]:
    """Who was declared dead, and why."""
    return sorted(
        {(o.peer, o.detail) for i in range(size) for o in observed(network, i, "verdict")}
    )


def test_refused_dial_is_proof_of_death() -> None:
    network = Network(16)
    settle(network)
    network.kill(5)
    network.run(0.05)
    assert verdicts(network, 16) == [(5, "refused")]
    assert not [o for i in range(16) for o in observed(network, i, "suspected")]


def test_refused_dial_proves_nothing_behind_a_proxy() -> None:
    network = Network(16, proxied=True)
    settle(network)
    network.kill(5)
    network.run(0.05)
    assert [o.detail for o in observed(network, 4, "suspected")] == ["refused"]
    assert settle(network, [5]) < 1.5
    assert verdicts(network, 16) == [(5, "refused")]


@pytest.mark.parametrize(
    "size", [3, 5, 8, 12, *(pytest.param(n, marks=pytest.mark.long) for n in (16, 33))]
)
def test_cut_of_one_link_kills_nobody(size: int) -> None:
    for seed, a in enumerate(range(0, size, max(1, size // 3))):
        for b in BinomialGraph(size).neighbors(a):
            network = Network(size, seed)
            settle(network)
            network.cut(a, b)
            network.run(12)
            assert verdicts(network, size) == [], (a, b)
            network.mend()
            settle(network)


@pytest.mark.parametrize("size", [3, 8, 16])
def test_cut_of_one_link_in_one_direction_kills_nobody(size: int) -> None:
    for seed, b in enumerate(BinomialGraph(size).neighbors(0)):
        for ends in ((0, b), (b, 0)):
            network = Network(size, seed)
            settle(network)
            network.cut(*ends, one_way=True)
            network.run(12)
            assert verdicts(network, size) == [], ends
            network.mend()
            settle(network)


def test_node_that_was_late_suspects_nobody_for_one_timeout() -> None:
    node = Node(Settings(NodeId(9), 10, PEERS, "host9:1"), Incarnation(1 << 32), Random(0), 0)
    node.step(0, DeadlineReached())

    def link_that_times_out(now_ns: int, link: int) -> list[Observed]:
        life = Incarnation(1 << 32)
        up = LinkUp(LinkId(link), NodeId(8), life, "host8:1", UNKNOWN_INCARNATION, link)
        node.step(now_ns, up)
        effects = node.step(now_ns, LinkDown(LinkId(link), Evidence.TIMED_OUT))
        return [e for e in effects if isinstance(e, Observed) and e.event == "suspected"]

    now_ns = 3 * S
    assert link_that_times_out(now_ns, 1) == []
    woken_ns = now_ns
    while now_ns < woken_ns + S:
        now_ns = max(now_ns, node.deadline_ns or 0)
        node.step(now_ns, DeadlineReached())
    assert link_that_times_out(now_ns, 2) == []
    while now_ns < woken_ns + 8 * S:
        now_ns = max(now_ns, node.deadline_ns or 0)
        node.step(now_ns, DeadlineReached())
    assert [o.peer for o in link_that_times_out(now_ns, 3)] == [8]


def test_node_that_is_stopped_again_before_its_deadline_came_accuses_nobody() -> None:
    network = Network(8)
    settle(network)
    host = network.hosts[NodeId(4)]
    links = list(host.node.parts.links.table)

    def step(event: Event) -> list[str]:
        effects = host.node.step(now_ns, event)
        return [e.event for e in effects if isinstance(e, Observed)]

    now_ns = network.now_ns + 3 * S
    assert step(Heard((links[0],))) == ["late"]
    now_ns += 5 * S
    assert step(Heard((links[0],))) == ["late"]
    assert "suspected" not in step(DeadlineReached())


def test_node_that_lags_gives_others_its_own_lag_for_each_process_that_an_answer_passes() -> None:
    settings = Settings(NodeId(9), 10, PEERS, "host9:1")
    node = Node(settings, Incarnation(1 << 32), Random(0), 0)
    node.step(0, DeadlineReached())

    def patience_ns(lag_ns: int, life: int) -> list[int]:
        """The timeout of a dial, and of the question that its failure leads to, after a lag."""
        deadline_ns = node.deadline_ns
        assert deadline_ns is not None
        now_ns = deadline_ns + lag_ns
        node.step(now_ns, DeadlineReached())
        incarnation = Incarnation(life << 32)
        link = LinkId(life)
        node.step(now_ns, LinkUp(link, NodeId(8), incarnation, "host8:1", UNKNOWN_INCARNATION, 1))
        effects = node.step(now_ns, LinkDown(link, Evidence.EOF))
        (dial,) = [e for e in effects if isinstance(e, Dial) and e.peer == 8]
        node.step(now_ns, DialFailed(NodeId(8), Evidence.NO_ANSWER))
        asked_ns = now_ns
        while not [e for e in effects if isinstance(e, Observed) and e.event == "verdict"]:
            now_ns = max(now_ns, node.deadline_ns or 0)
            effects = node.step(now_ns, DeadlineReached())
        return [dial.timeout_ns, now_ns - asked_ns]

    usual = [settings.dial_ns, settings.ask_ns]
    assert patience_ns(0, 1) == usual
    lag_ns = 300_000_000
    # A part of the lag may be forgotten in the step itself: that can be the one of a heartbeat.
    (dial_ns, ask_ns), (usual_dial_ns, usual_ask_ns) = patience_ns(lag_ns, 2), usual
    assert usual_dial_ns + lag_ns < dial_ns <= usual_dial_ns + 2 * lag_ns
    assert usual_ask_ns + 2 * lag_ns < ask_ns <= usual_ask_ns + 4 * lag_ns


def test_dial_that_was_under_way_before_a_link_was_lost_is_begun_again_when_it_is_reset() -> None:
    node = Node(Settings(NodeId(9), 10, PEERS, "host9:1"), Incarnation(1 << 32), Random(0), 0)
    peer, life, now_ns = NodeId(8), Incarnation(1 << 32), 0
    while now_ns < 5 * S:
        now_ns = max(now_ns, node.deadline_ns or 0)
        node.step(now_ns, DeadlineReached())
    for number in (1, 2):
        hello = Greeted(LinkId(number), peer, life, "host8:1", UNKNOWN_INCARNATION, number)
        assert any(isinstance(effect, Welcome) for effect in node.step(now_ns, hello))
        node.step(now_ns, LinkDown(LinkId(number), Evidence.RESET))
        if number == 1:
            # The dial that goes on from here, to the life that was met.
            node.step(now_ns, DialFailed(peer, Evidence.RESET))
            now_ns += 10_000_000
            effects = node.step(now_ns, DeadlineReached())
            assert [e for e in effects if isinstance(e, Dial) and e.peer == peer]
    effects = node.step(now_ns, DialFailed(peer, Evidence.RESET))
    while not any(isinstance(effect, Dial) and effect.peer == peer for effect in effects):
        assert not any(map(_accuses, effects))
        now_ns = max(now_ns, node.deadline_ns or 0)
        effects = node.step(now_ns, DeadlineReached())


def test_peer_that_is_alive_again_over_a_silent_link_is_suspected_at_once() -> None:
    life, now_ns, sequence = LIFE, 1, 0
    heard, silent = LinkId(7), LinkId(8)
    node = linked_node(heard, silent)

    def suspects_by(until_ns: int) -> bool:
        nonlocal now_ns, sequence
        while now_ns < until_ns:
            now_ns = min(max(now_ns, node.deadline_ns or 0), until_ns)
            effects = list(node.step(now_ns, DeadlineReached()))
            sequence += 1
            beat = Heartbeat(sequence, 0, node.parts.context.membership.digest, False)
            effects += node.step(now_ns, Received(heard, beat))
            if any(isinstance(e, Observed) and e.event == "suspected" for e in effects):
                return True
        return False

    assert suspects_by(18 * S // 10)
    for version, status in ((0, Status.DEAD), (1, Status.ALIVE)):
        record = Record(life, version, status, "host8:1")
        node.step(now_ns, Received(heard, Notice(((NodeId(8), record),))))
    assert suspects_by(now_ns + S // 20)


def test_answer_of_one_that_was_not_asked_declares_nobody_dead() -> None:
    """It was asked in an earlier suspicion, and was declared dead before the present one began."""
    life, now_ns = LIFE, 1
    node = linked_node(LinkId(7), LinkId(8))
    gone = [NodeId(i) for i in range(8)]
    dead = Notice(tuple((i, Record(life, 0, Status.EXCLUDED, f"host{i}:1")) for i in gone))
    node.step(now_ns, Received(LinkId(8), dead))

    effects: Sequence[Effect] = ()
    while not any(map(_accuses, effects)):
        now_ns = max(now_ns, node.deadline_ns or 0)
        effects = node.step(now_ns, DeadlineReached())
    assert not [e for e in effects if isinstance(e, Send) and isinstance(e.message, Ask)]
    concurs = Answer(Route(NodeId(9), NodeId(7), life, 0, 1, 9), NodeId(8), life, alive=False)
    assert not any(map(_accuses, node.step(now_ns, Received(LinkId(7), concurs))))


def test_answer_to_an_earlier_suspicion_confirms_no_later_one() -> None:
    life, now_ns, sequence = LIFE, 1, 0
    observer, suspect = LinkId(7), LinkId(8)
    node = linked_node(observer, suspect)
    others = tuple((NodeId(i), Record(life, 0, Status.EXCLUDED, f"host{i}:1")) for i in range(7))
    node.step(now_ns, Received(observer, Notice(others)))

    def heard_on(link: LinkId) -> None:
        nonlocal sequence
        sequence += 1
        beat = Heartbeat(sequence, sequence, node.parts.context.membership.digest, False)
        node.step(now_ns, Received(link, beat))

    def ask_when_silent() -> Ask:
        nonlocal now_ns
        while True:
            now_ns = max(now_ns, node.deadline_ns or 0)
            effects = node.step(now_ns, DeadlineReached())
            heard_on(observer)
            for effect in effects:
                if isinstance(effect, Send) and isinstance(effect.message, Ask):
                    return effect.message

    def verdict_on_answer_to(ask: Ask) -> bool:
        route = Route(NodeId(9), NodeId(7), life, sequence=ask.route.sequence, hop_budget=9)
        answer = Answer(route, NodeId(8), life, alive=False)
        return any(map(_accuses, node.step(now_ns, Received(observer, answer))))

    first = ask_when_silent()
    heard_on(suspect)
    second = ask_when_silent()
    assert not verdict_on_answer_to(first)
    assert verdict_on_answer_to(second)


@pytest.mark.parametrize("alive", [True, False], ids=["it vetoes", "it is silent again"])
def test_observer_whose_answer_is_lost_is_asked_once_more(alive: bool) -> None:
    """The question, or its answer, went with a link that broke (a simulated hour, seed 58)."""
    observer, suspect = LinkId(7), LinkId(8)
    node, now_ns, sequence = linked_node(observer, suspect), 1, 0
    others = tuple((NodeId(i), Record(LIFE, 0, Status.EXCLUDED, f"host{i}:1")) for i in range(7))
    node.step(now_ns, Received(observer, Notice(others)))
    asked: list[tuple[int, Ask]] = []
    verdict_ns = None
    while verdict_ns is None and now_ns < 10 * S:
        now_ns = max(now_ns, node.deadline_ns or 0)
        effects = [*node.step(now_ns, DeadlineReached())]
        sequence += 1
        beat = Heartbeat(sequence, sequence, node.parts.context.membership.digest, False)
        effects += node.step(now_ns, Received(observer, beat))
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Ask):
                asked.append((now_ns, effect.message))
        if len(asked) == 2 and alive:
            route = Route(NodeId(9), NodeId(7), LIFE, sequence=asked[1][1].route.sequence)
            effects += node.step(now_ns, Received(observer, Answer(route, NodeId(8), LIFE, True)))
            assert any(isinstance(e, Observed) and e.event == "vetoed" for e in effects)
            return
        if any(isinstance(e, Observed) and e.event == "verdict" for e in effects):
            verdict_ns = now_ns
    assert not alive
    (first_ns, first), (second_ns, second) = asked
    assert (first.suspect, first.route.sequence) == (second.suspect, second.route.sequence)
    assert verdict_ns == first_ns + node.parts.context.settings.ask_ns
    assert verdict_ns - second_ns == node.parts.context.settings.ask_ns // 4


def _accuses(effect: Effect) -> bool:
    return isinstance(effect, Observed) and effect.event in ("suspected", "verdict")


@pytest.mark.parametrize("met", [Incarnation(1 << 32), Incarnation(2 << 32)])
def test_observer_whose_link_is_just_being_made_vetoes_for_the_life_on_it(met: Incarnation) -> None:
    node = Node(Settings(NodeId(9), 10, PEERS, "host9:1"), Incarnation(1 << 32), Random(0), 0)
    life, now_ns = Incarnation(1 << 32), 1
    node.step(0, DeadlineReached())
    node.step(now_ns, LinkUp(LinkId(1), NodeId(7), life, "host7:1", UNKNOWN_INCARNATION, 1))
    asked = Ask(Route(NodeId(9), NodeId(7), life, 0, 1, 9), NodeId(8), life)
    assert not _answers(node.step(now_ns, Received(LinkId(1), asked)))
    now_ns += 100_000_000
    up = LinkUp(LinkId(2), NodeId(8), met, "host8:1", UNKNOWN_INCARNATION, 2)
    effects = node.step(now_ns, up)
    while not _answers(effects):
        now_ns = max(now_ns, node.deadline_ns or 0)
        assert now_ns < S
        effects = node.step(now_ns, DeadlineReached())
    assert [(a.suspect, a.incarnation, a.alive) for a in _answers(effects)] == [(8, met, True)]


def _answers(effects: Sequence[Effect]) -> list[Answer]:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    return [message for message in sent if isinstance(message, Answer)]


class _Answers(Watcher):
    """What a node answers to those who ask about a suspect."""

    def __init__(self) -> None:
        self.alive: list[bool] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        self.alive += [m.alive for m in sent if isinstance(m, Answer) and host.id == 0]


def test_observer_with_a_dead_link_and_a_live_one_to_the_suspect_vetoes() -> None:
    network = Network(4, 1)
    settle(network)
    zero, one, two = (network.hosts[NodeId(i)] for i in range(3))
    for end in ends_between(zero, one.id):
        assert end.other is not None
        end.dead = end.other.dead = True
    network.run(0.8)
    network.wires.hellos.dial(one, Dial(zero.id, zero.address, zero.node.incarnation, 99, 1 * S))
    network.run(0.1)
    assert linked(network, 0) == [1, 1, 2, 3]
    answers = _Answers()
    network.watchers.append(answers)
    route = Route(zero.id, two.id, two.node.incarnation)
    (end,) = ends_between(zero, two.id)
    network._step(zero, Received(end.link, Ask(route, one.id, one.node.incarnation)))
    network.run(0.3)
    assert answers.alive == [True]


def test_lack_of_own_descriptors_accuses_nobody() -> None:
    """A peer is lost, and no descriptor is left to dial it with: that says nothing of the peer."""
    node = linked_node(LinkId(1), LinkId(8))
    now_ns = 10 * S
    for _ in range(400):
        now_ns = max(now_ns, node.deadline_ns or 0)
        if node.parts.context.state is not NodeState.JOINING:
            break
        node.step(now_ns, DeadlineReached())
    effects = node.step(now_ns, LinkDown(LinkId(8), Evidence.EOF))
    dials = 0
    until_ns = now_ns + 10 * S
    while now_ns < until_ns:
        dialled = [e.peer for e in effects if isinstance(e, Dial)]
        suspected = [e.peer for e in effects if isinstance(e, Observed) and e.event == "suspected"]
        assert 8 not in suspected
        effects = []
        for peer in dialled:
            dials += peer == 8
            effects += node.step(now_ns, DialFailed(peer, Evidence.OWN_LACK))
        now_ns += 10_000_000
        effects += node.step(now_ns, Heard((LinkId(1),)))
        effects += node.step(now_ns, DeadlineReached())
    assert dials > 3


def test_dial_after_a_lack_is_proof_as_ever() -> None:
    node = linked_node(LinkId(1), LinkId(8))
    node.step(2, LinkDown(LinkId(8), Evidence.EOF))
    node.step(3, DialFailed(NodeId(8), Evidence.OWN_LACK))
    effects = node.step(S, DeadlineReached())
    assert [e.peer for e in effects if isinstance(e, Dial) and e.peer == 8] == [8]
    effects = node.step(S + 1, DialFailed(NodeId(8), Evidence.REFUSED))
    assert [e.peer for e in effects if isinstance(e, Observed) and e.event == "verdict"] == [8]


def equal_heartbeat(node: Node, sequence: int, echo: int, *, answer: bool = True) -> Heartbeat:
    return Heartbeat(sequence, echo, node.parts.context.membership.digest, answer)


def test_equal_heartbeat_is_taken_in_without_an_effect() -> None:
    node = linked_node(LinkId(1), LinkId(8))
    link = node.parts.links.table[LinkId(8)]
    link.mismatches = 1
    assert [sequence for sequence, _ in link.unechoed] == [1]
    beat = equal_heartbeat(node, 7, 1)
    assert node.step(3, Received(LinkId(8), beat)) == []
    assert (link.heard_ns, link.echo, link.mismatches, link.agreed) == (3, 7, 0, True)
    assert not link.unechoed
    assert node.counts.received[Heartbeat] == 1
    node.step(3, Received(LinkId(8), equal_heartbeat(node, 6, 0)))
    assert link.echo == 7


def test_differing_digest_is_shown_again_and_compared_when_it_differs_twice_in_a_row() -> None:
    node = linked_node(LinkId(1), LinkId(8))
    link, timers = node.parts.links.table[LinkId(8)], node.parts.context.timers
    asking = node.parts.context.membership.digest, 12345

    def sent(at_ns: int, digest: int) -> list[type]:
        # A watched link whose peer wants no answer: nothing but the digest matters.
        beat = Heartbeat(at_ns, 0, digest, answer=False)
        effects = node.step(at_ns, Received(LinkId(8), beat))
        return [type(e.message) for e in effects if isinstance(e, Send)]

    link.watched_ns = 1
    node.parts.comparison.on_digest(link, asking[0])
    assert link.mismatches == 0
    assert sent(2, asking[1]) == []
    assert timers.due_ns(("digest", 8, 0)) == 2 + FIRST_MISMATCH_NS
    assert sent(3, asking[1]) == [Buckets]
    timers.cancel(("digest", 8, 0))
    assert sent(4, asking[0]) == []
    assert ("digest", 8, 0) not in timers


def test_node_that_is_held_up_before_it_begins_accuses_nobody_for_that() -> None:
    # A record that moves has it look at once who is silent, in the step in which it begins.
    node = Node(Settings(NodeId(9), 10, PEERS, "host9:1"), LIFE, Random(0), 0)
    node.step(1, LinkUp(LinkId(1), NodeId(1), LIFE, "host1:1", UNKNOWN_INCARNATION, 1))
    began_ns = 60 * S
    node.step(began_ns, DeadlineReached())
    detector = node.parts.detector
    detector.look_at(NodeId(1))
    node.step(began_ns, DeadlineReached())
    assert detector.suspects == []
    # From then on it is watched like any other.
    silent_ns = began_ns + detector.timeout_ns
    run_until(node, silent_ns - 1)
    assert detector.suspects == []
    run_until(node, silent_ns)
    assert detector.suspects == [1]


def test_lag_of_exactly_the_bound_is_not_late() -> None:
    for lag_ns, is_late in ((LATE_NS, False), (LATE_NS + 1, True)):
        node = linked_node(LinkId(1), LinkId(8))
        node.parts.links.table[LinkId(8)].watched_ns = 1
        now_ns = (node.deadline_ns or 0) + lag_ns
        effects = node.step(now_ns, Received(LinkId(8), Heartbeat(1, 0, 12345, answer=False)))
        seen = [e.event for e in effects if isinstance(e, Observed)]
        assert ("late" in seen) == is_late


def test_node_that_is_started_late_is_not_late_itself() -> None:
    node = Node(Settings(NodeId(9), 10, PEERS, "host9:1"), LIFE, Random(0), 0)
    effects = node.step(10 * LATE_NS, DeadlineReached())
    assert "late" not in [e.event for e in effects if isinstance(e, Observed)]


def test_node_begins_with_no_patience_beyond_its_settings() -> None:
    node = linked_node(LinkId(1))
    for _ in range(8):
        now_ns = node.deadline_ns
        assert now_ns is not None
        assert now_ns >= node.parts.context.now_ns
        node.step(now_ns, DeadlineReached())
        assert node.parts.detector.stretch_ns == 0


def test_own_lag_stretches_the_timeout() -> None:
    node = linked_node(LinkId(1))
    late_ns = LATE_NS // 2
    node.step((node.deadline_ns or 0) + late_ns, DeadlineReached())
    assert late_ns * 3 // 4 <= node.parts.detector.stretch_ns <= late_ns


def test_own_lag_stretches_the_timeout_where_only_the_watch_for_silence_was_that_late() -> None:
    node = linked_node(LinkId(1))
    timers, lag_ns = node.parts.context.timers, 4 * LATE_NS
    due_ns = (node.deadline_ns or 0) + LATE_NS
    for key in list(timers._due):
        timers.set(key, due_ns + 2 * lag_ns)
    timers.set((SILENCE_TIMER, 0, 0), due_ns)
    timers.set((BEAT_TIMER, 0, 0), due_ns + lag_ns // 2)
    effects = node.step(due_ns + lag_ns, DeadlineReached())
    assert [e.event for e in effects if isinstance(e, Observed)] == ["late"]
    assert node.parts.detector.stretch_ns == lag_ns * 3 // 4


def test_who_is_silent_when_a_late_node_may_accuse_again_is_suspected_then() -> None:
    node = linked_node(LinkId(1))
    detector = node.parts.detector
    node.step((node.deadline_ns or 0) + 2 * LATE_NS, DeadlineReached())
    trusts_until_ns = detector._trusts_until_ns
    run_until(node, trusts_until_ns - 1)
    # By now its own lag counts for less, and the peer is silent.
    detector.look_at(NodeId(1))
    node.step(trusts_until_ns - 1, DeadlineReached())
    assert detector.suspects == []
    run_until(node, trusts_until_ns)
    assert detector.suspects == [1]


def run_until(node: Node, until_ns: int) -> None:
    """Let a node reach its deadlines, each in time."""
    while (due_ns := node.deadline_ns) is not None and due_ns <= until_ns:
        node.step(due_ns, DeadlineReached())


def test_dial_that_fails_while_there_is_a_link_counts_for_nothing() -> None:
    node = linked_node(LinkId(1), LinkId(8))
    peering = node.parts.dialling.peering(NodeId(8))
    peering.dialling, peering.attempts, peering.trying_since_ns = True, 3, 1
    node.parts.dialling.on_dial_failed(DialFailed(NodeId(8), Evidence.EOF))
    assert (peering.dialling, peering.attempts, peering.trying_since_ns) == (False, 0, 0)


def test_peer_that_is_believed_alive_is_not_told_its_own_record_at_a_new_link() -> None:
    node = linked_node(LinkId(1))
    alive = Record(LIFE, 1, Status.ALIVE, "host8:1")
    node.step(2, Received(LinkId(1), Notice(((NodeId(8), alive),))))
    up = LinkUp(LinkId(8), NodeId(8), LIFE, "host8:1", UNKNOWN_INCARNATION, 1)
    effects = node.step(3, up)
    told = [e for e in effects if isinstance(e, Send) and isinstance(e.message, Notice)]
    assert [e for e in told if e.link == 8] == []


def test_of_two_links_none_of_which_renews_the_newest_dial_stays() -> None:
    node = linked_node()
    for link, dial_number in ((LinkId(1), 5), (LinkId(2), 3)):
        effects = node.step(
            int(link),
            Greeted(link, NodeId(8), LIFE, "host8:1", UNKNOWN_INCARNATION, dial_number),
        )
    assert [e.link for e in effects if isinstance(e, Close)] == [2]


def test_equal_heartbeat_finds_that_this_node_was_late() -> None:
    node = linked_node(LinkId(1), LinkId(8))
    effects = node.step(S, Received(LinkId(8), equal_heartbeat(node, 7, 1)))
    assert [e.event for e in effects if isinstance(e, Observed)] == ["late"]
    assert node.parts.links.table[LinkId(1)].heard_ns == S


def test_heartbeat_from_which_something_follows_is_not_only_taken_in() -> None:
    node = linked_node(LinkId(1), LinkId(8))
    other = Heartbeat(7, 1, 12345, answer=True)
    node.step(2, Received(LinkId(8), other))
    assert node.parts.links.table[LinkId(8)].mismatches == 1
    node.parts.links.table[LinkId(1)].watched_ns = 0
    effects = node.step(3, Received(LinkId(1), equal_heartbeat(node, 1, 0)))
    assert [e.link for e in effects if isinstance(e, Send)] == [1]


def test_equal_heartbeat_of_a_suspect_clears_it() -> None:
    node = linked_node(LinkId(1), LinkId(8))
    node.parts.dialling.may_suspect_never_linked = True
    node.step(S // 2, Received(LinkId(1), equal_heartbeat(node, 1, 1)))
    node.parts.detector.suspect(NodeId(8), "silence")
    node.step(S, Received(LinkId(8), equal_heartbeat(node, 1, 1)))
    assert not node.parts.detector._suspicions


def absorbing(effects: list[Effect]) -> list[tuple[int, tuple[LinkId, ...]]]:
    return [(e.digest, e.links) for e in effects if isinstance(e, AbsorbHeartbeats)]


def beating_node() -> tuple[Node, int]:
    """A node that has sent a round of heartbeats, and when."""
    node = linked_node(LinkId(1), LinkId(8))
    effects: list[Effect] = []
    now_ns = 0
    while not absorbing(effects):
        now_ns = node.deadline_ns or 0
        for link in (LinkId(1), LinkId(8)):
            node.step(now_ns, Received(link, equal_heartbeat(node, 1, 1)))
        effects = node.step(now_ns, DeadlineReached())
    assert absorbing(effects) == [(node.parts.context.membership.digest, (1, 8))]
    return node, now_ns


def test_absorbed_heartbeats_count_as_if_the_core_had_got_them() -> None:
    node, now_ns = beating_node()
    link = node.parts.links.table[LinkId(8)]
    link.mismatches = 1
    before, sent = node.counts.received[Heartbeat], link.sequence
    beat = AbsorbedBeat(LinkId(8), now_ns + 5, 90, sent, 3)
    gone = AbsorbedBeat(LinkId(99), now_ns + 5, 1, 0, 1)
    assert node.step(now_ns + 9, HeartbeatsAbsorbed((gone, beat))) == []
    assert (link.heard_ns, link.echo, link.mismatches) == (now_ns + 5, 90, 0)
    assert not link.unechoed
    assert node.counts.received[Heartbeat] == before + 4


def test_absorbing_follows_the_digest_in_the_step_in_which_it_changes() -> None:
    node, now_ns = beating_node()
    before = node.parts.context.membership.digest
    record = Record(Incarnation(1 << 32), 0, Status.DEAD, "h:3")
    effects = node.step(now_ns + 1, Received(LinkId(8), Notice(((NodeId(3), record),))))
    assert node.parts.context.membership.digest != before
    assert absorbing(effects) == [(node.parts.context.membership.digest, (1, 8))]


def test_absorbing_ends_when_somebody_is_suspected_or_a_link_is_no_longer_watched() -> None:
    node, now_ns = beating_node()
    node.parts.dialling.may_suspect_never_linked = True
    effects = node.step(now_ns + 1, LinkDown(LinkId(8), Evidence.TIMED_OUT))
    assert node.parts.detector.suspects == [8]
    assert absorbing(effects) == [(0, ())]
    node, now_ns = beating_node()
    node.parts.detector._watched = frozenset()
    node.parts.detector._watch()
    assert absorbing(node.step(now_ns + 1, Heard((LinkId(1),)))) == [(0, ())]


def test_a_link_that_opens_leaves_heartbeats_on_the_others_absorbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network(16)
    settle(network)
    network.run(2)
    named: list[AbsorbHeartbeats] = []
    plain = Node.step

    def step(node: Node, now_ns: int, event: Event) -> list[Effect]:
        effects = plain(node, now_ns, event)
        named.extend(effect for effect in effects if isinstance(effect, AbsorbHeartbeats))
        return effects

    monkeypatch.setattr(Node, "step", step)
    network.kill(NodeId(5))
    settle(network, [5])
    # Every survivor names the new digest, and some have new links.
    assert len(named) >= 15
    assert all(effect.links for effect in named)
