"""What one call of a trial's sender counts for."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from bmgd.chaos.plan import KINDS, Workload
from bmgd.trials.recorder import Recorder
from bmgd.trials.sending import Sending


@pytest.mark.parametrize("size", [1, 2, 33])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_sending_counts_at_least_one_message_for_every_kind(kind: str, size: int) -> None:
    """The pause between two calls is as long as their messages take at the wanted rate."""
    sending = Sending(cast(Recorder, None), Workload(), "topic", Random(1))
    assert sending.count_of(kind, size) >= 1
