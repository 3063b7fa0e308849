"""Healing policies as an operator writes them."""

from __future__ import annotations

import pytest

from bmgd.errors import ConfigError
from bmgd.policy import HealingPolicy, HealingTrigger


@pytest.mark.parametrize(
    ("text", "trigger", "threshold"),
    [
        ("every-death", HealingTrigger.EVERY_DEATH, 0),
        ("off", HealingTrigger.OFF, 0),
        ("after:1", HealingTrigger.DEATHS, 1),
        ("after:1000000", HealingTrigger.DEATHS, 1_000_000),
        ("overhead:0%", HealingTrigger.AVERAGE_HOPS, 0),
        ("overhead:15%", HealingTrigger.AVERAGE_HOPS, 15),
        ("overhead:0", HealingTrigger.LONGEST_WAY, 0),
        ("overhead:2", HealingTrigger.LONGEST_WAY, 2),
    ],
)
def test_policy_is_read_and_shown_alike(text: str, trigger: HealingTrigger, threshold: int) -> None:
    policy = HealingPolicy.parse(text)
    assert (policy.trigger, policy.threshold) == (trigger, threshold)
    assert str(policy) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "sometimes", "after", "after:", "after:0", "after:-1", "after:1000001", "after:3%"),
        *("overhead", "overhead:", "overhead:256", "overhead:10001%", "overhead:1.5%", "Off"),
        *("overhead:%", "after:1 ", "after:99999999999999999999", "overhead:-1", "after:٣"),
    ],
)
def test_policy_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--healing"):
        HealingPolicy.parse(text)
