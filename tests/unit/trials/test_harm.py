"""Which ends of processes are written down, and that harm is taken back, over a cluster that is none."""

from __future__ import annotations

import signal
from typing import cast

from bmgd.chaos.faults import Stop
from bmgd.chaos.history import Exited, Fact, Mended, Resumed
from bmgd.errors import ControlError
from bmgd.trials.cluster import TrialCluster
from bmgd.trials.harm import MISSED_NS, Harm
from bmgd.trials.recorder import Recorder
from bmgd.types import NodeId


class _Cluster:
    size = 2

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.odd: set[int] = set()
        self.stopped: set[int] = set()

    def send(self, node: int, number: signal.Signals) -> None:
        if node in self.odd:
            raise ControlError(f"process of {node} is not the one that was there before")
        (self.stopped.add if number == signal.SIGSTOP else self.stopped.discard)(node)

    def has_ended(self, node: int) -> bool:
        return node in self.gone

    def restart_command(self, node: int) -> str:
        raise AssertionError

    def last_words(self, node: int) -> str:
        return ""


class _Recorder:
    def __init__(self) -> None:
        self.at_ns = 0
        self.facts: list[Fact] = []
        self.daemons: dict[int, object] = {}

    def life_of(self, node: int) -> int:
        return 1

    def now_ns(self) -> int:
        return self.at_ns

    def add(self, fact: Fact) -> None:
        self.facts.append(fact)


def _harm() -> tuple[Harm, _Cluster, _Recorder]:
    cluster, recorder = _Cluster(), _Recorder()
    harm = Harm(
        cast(TrialCluster, cluster),
        cast(Recorder, recorder),
        None,
        None,  # type: ignore[arg-type]
        lambda text: None,
    )
    return harm, cluster, recorder


def test_harm_waits_for_a_joiner_that_changes_its_id() -> None:
    """Its process has one id no more, and the other not yet: that is no end."""
    harm, cluster, recorder = _harm()
    cluster.gone = {1}
    harm.see_ends()
    cluster.gone, recorder.at_ns = set(), MISSED_NS // 2
    harm.see_ends()
    cluster.gone, recorder.at_ns = {1}, 2 * MISSED_NS
    harm.see_ends()
    assert (recorder.facts, harm.ended) == ([], set())


def test_harm_writes_down_an_end_that_lasts() -> None:
    harm, cluster, recorder = _harm()
    cluster.gone = {1}
    harm.see_ends()
    recorder.at_ns = MISSED_NS
    harm.see_ends()
    assert [(type(fact), fact.node) for fact in recorder.facts if isinstance(fact, Exited)] == [
        (Exited, 1)
    ]
    assert harm.ended == {1}


async def test_harm_lets_the_others_go_on_where_one_cannot_be_signalled() -> None:
    harm, cluster, recorder = _harm()
    await harm.carry_out(Stop((NodeId(0), NodeId(1))))
    assert cluster.stopped == {0, 1}
    cluster.odd = {0}
    await harm.undo()
    assert cluster.stopped == {0}
    ends = [fact for fact in recorder.facts if isinstance(fact, Resumed | Mended)]
    assert [type(fact) for fact in ends] == [Resumed, Mended]
