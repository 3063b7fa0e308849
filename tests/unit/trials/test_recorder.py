"""What a recorder makes of what daemons show."""

from __future__ import annotations

from typing import cast

import pytest

from bmgd.trials.cluster import TrialCluster
from bmgd.trials.recorder import Recorder, is_linked_exactly
from bmgd.types import UNKNOWN_INCARNATION, Incarnation


@pytest.mark.parametrize(
    ("linked", "exact"), [([1, 4], True), ([1], False), ([1, 2, 4], False), ([1, 4, 4], False)]
)
def test_recorder_knows_exact_links_of_the_living_neighbors(linked: list[int], exact: bool) -> None:
    links = [{"id": peer} for peer in linked]
    status = {"neighbors": [1, 3, 4], "alive": [0, 1, 2, 4], "links": links}
    assert is_linked_exactly(status) == exact


def test_recorder_does_not_know_the_life_of_a_process_that_it_has_not_heard() -> None:
    """It was started and may have ended again, with what it had taken."""
    recorder = Recorder(cast(TrialCluster, None), "topic")
    assert recorder.life_of(1) == UNKNOWN_INCARNATION
    recorder.expect_start(1)
    recorder._on_life(1, Incarnation(7))
    assert recorder.life_of(1) == 7
    recorder.expect_start(1)
    assert recorder.life_of(1) == UNKNOWN_INCARNATION
