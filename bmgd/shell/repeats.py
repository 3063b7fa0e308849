"""One warning per cause: the causes written a short while ago, and how often each came since."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from typing import Final

REPEAT_S: Final = 30.0
"""For so long a warning of the same cause is counted, not written."""

CAUSES_MAX: Final = 256
"""Causes that are remembered; the oldest is forgotten, and written if it comes again."""

_PORT: Final = re.compile(r":\d{1,5}\b")


class Repeats:
    """The causes of warnings, each with when it was written and how often it was left out since."""

    def __init__(self) -> None:
        self._written: OrderedDict[tuple[object, ...], tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._written)

    def admit(self, event: str, peer: int | None, text: str) -> int | None:
        """How many of this cause were left out since the last one; None leaves this one out too.

        A newcomer's port is another one each time: it does not make another cause.
        """
        now_s = time.monotonic()
        cause = (event, peer, _PORT.sub("", text))
        written_s, count = self._written.get(cause, (-REPEAT_S, 0))
        if now_s - written_s < REPEAT_S:
            self._written[cause] = (written_s, count + 1)
            return None
        self._written[cause] = (now_s, 0)
        self._written.move_to_end(cause)
        if len(self._written) > CAUSES_MAX:
            self._written.popitem(last=False)
        return count
