"""When the dead leave the graph: the healing policies that an operator can choose.

    every-death     with the verdict itself
    after:K         once K dead are in the layout
    overhead:P%     once the average way between survivors is more than P percent above the healed graph's
    overhead:H      once the longest way is more than H hops above the healed graph's
    off             never: messages find their way around the dead (for tests)

Whatever the policy, unless off, the dead leave before any node has as many dead neighbors as it has
neighbors (Healing §3.2). What the policies compute is in `bmgd.healing`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Self

from bmgd.dataclass import dataclass
from bmgd.errors import ConfigError

DEATHS_MAX = 1_000_000
PERCENT_MAX = 10_000
HOPS_MAX = 255
_FORM = re.compile(r"(after|overhead):([0-9]{1,9})(%?)")
_FORMS = "every-death, after:K, overhead:PERCENT%, overhead:HOPS or off"


class HealingTrigger(Enum):
    """What a policy looks at."""

    EVERY_DEATH = "every-death"
    DEATHS = "after"
    AVERAGE_HOPS = "overhead percent"
    LONGEST_WAY = "overhead hops"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class HealingPolicy:
    """When the dead leave the graph.

    Args:
        trigger: what is looked at.
        threshold: deaths (1..1,000,000), percent (0..10,000) or hops (0..255); else 0.
    """

    trigger: HealingTrigger = HealingTrigger.EVERY_DEATH
    threshold: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a policy as it is configured.

        Raises:
            ConfigError: the text is no policy, or its number is out of range.
        """
        if text in ("every-death", "off"):
            return cls(HealingTrigger(text))
        found = _FORM.fullmatch(text)
        if found is None or (found[1] == "after" and found[3]):
            raise ConfigError(f"--healing must be {_FORMS}, not {text!r}")
        number = int(found[2])
        if found[1] == "after":
            trigger, low, high = HealingTrigger.DEATHS, 1, DEATHS_MAX
        elif found[3]:
            trigger, low, high = HealingTrigger.AVERAGE_HOPS, 0, PERCENT_MAX
        else:
            trigger, low, high = HealingTrigger.LONGEST_WAY, 0, HOPS_MAX
        if not low <= number <= high:
            raise ConfigError(f"--healing {found[1]}: must be in {low}..{high}, not {number}")
        return cls(trigger, number)

    def __str__(self) -> str:
        match self.trigger:
            case HealingTrigger.DEATHS:
                return f"after:{self.threshold}"
            case HealingTrigger.AVERAGE_HOPS:
                return f"overhead:{self.threshold}%"
            case HealingTrigger.LONGEST_WAY:
                return f"overhead:{self.threshold}"
            case _:
                return str(self.trigger.value)
