"""Virtual time: a heap of happenings, by their moment and, at equal moments, by their planning."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Happening = tuple[int, int, Callable[..., None], tuple[Any, ...]]


class Timeline:
    """What is still to happen.

    Args:
        tick_ns: everything happens at a multiple of this.

    Attributes:
        now_ns: virtual time.
        happened: how many happenings there were.
    """

    def __init__(self, tick_ns: int = 1) -> None:
        self._tick_ns = tick_ns
        self.now_ns = 0
        self.happened = 0
        self._heap: list[Happening] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def plan(self, at_ns: int, action: Callable[..., None], *args: Any) -> None:
        """Let something happen at a moment, or at the next tick; now at the earliest."""
        self._count += 1
        if at_ns < self.now_ns:
            at_ns = self.now_ns
        at_ns += -at_ns % self._tick_ns
        heapq.heappush(self._heap, (at_ns, self._count, action, args))

    def step(self, until_ns: int) -> bool:
        """Let the next thing happen; False when there is none until then."""
        heap = self._heap
        if not heap or heap[0][0] > until_ns:
            return False
        self.now_ns, _, action, args = heapq.heappop(heap)
        self.happened += 1
        action(*args)
        return True

    def run_until(self, until_ns: int) -> None:
        """Let time pass."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until_ns:
            self.now_ns, _, action, args = pop(heap)
            self.happened += 1
            action(*args)
        self.now_ns = max(self.now_ns, until_ns)
