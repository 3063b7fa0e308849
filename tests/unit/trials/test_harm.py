"""Which ends of processes are written down, over a cluster that only says who has ended."""

from __future__ import annotations

from typing import cast

from bmgd.chaos.history import Exited, Fact
from bmgd.trials.cluster import TrialCluster
from bmgd.trials.harm import MISSED_NS, Harm
from bmgd.trials.recorder import Recorder


class _Cluster:
    size = 2

    def __init__(self) -> None:
        self.gone: set[int] = set()

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
