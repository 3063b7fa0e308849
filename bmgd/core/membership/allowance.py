"""How fast others' words may make ids known.

Who claims ids far above all known ones makes every node count those below as unknown, or retired. So
there is a rate of each: some at once, and so many a second.
"""

from __future__ import annotations

from bmgd.types import NODE_ID_MAX

ID_GAP_MAX = 4096
"""A record is not believed that would make this many ids between the founders and it unknown."""
SKIPPED_PER_S = 1000
"""Of ids that others' words skip, `ID_GAP_MAX` at once, and so many a second: who fills the gap that it
has made does not run through the ids."""
RETIRED_AT_ONCE = 2**22
RETIRED_PER_S = 4000
"""Of ids above all known ones that others hold for retired."""


class Allowance:
    """How many ids may become known now; without a bound until `limit` is called.

    Attributes:
        skips: how many ids records may skip.
        retired: how many ids above all known ones may be held for retired.
    """

    __slots__ = ("_at_ns", "retired", "skips")

    def __init__(self) -> None:
        self.skips = self.retired = NODE_ID_MAX + 1
        self._at_ns: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether time allows for more ids than may become known now."""
        return self.skips < ID_GAP_MAX or self.retired < RETIRED_AT_ONCE

    def limit(self, now_ns: int) -> None:
        """From now on others' words make ids known at a rate; called again as time goes on."""
        if self._at_ns is None:
            self._at_ns = now_ns
            self.skips, self.retired = ID_GAP_MAX, RETIRED_AT_ONCE
            return
        # Whole thousandths of a second: what is left over is not lost.
        passed_ms = (now_ns - self._at_ns) // 1_000_000
        self._at_ns += passed_ms * 1_000_000
        self.skips = min(self.skips + passed_ms * SKIPPED_PER_S // 1000, ID_GAP_MAX)
        self.retired = min(self.retired + passed_ms * RETIRED_PER_S // 1000, RETIRED_AT_ONCE)
