"""Named deadlines in virtual or real time: set, cancel, and take those that are due, in order."""

from __future__ import annotations

import heapq

TimerKey = tuple[str, int, int]
"""What a deadline is for, and of whom: (purpose, first number, second number)."""


SPARE = 16


class Timers:
    """A heap of deadlines with at most one per key.

    Cancelled entries stay in the heap until they surface or outnumber the living, so `set` and
    `cancel` cost O(log n) and the heap is at most twice the number of keys, and `SPARE`.
    """

    def __init__(self) -> None:
        self._due: dict[TimerKey, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._due

    def set(self, key: TimerKey, at_ns: int) -> None:
        """Let `key` be due at `at_ns`, whatever it was before."""
        self._count += 1
        self._due[key] = (at_ns, self._count)
        heapq.heappush(self._heap, (at_ns, self._count, key))
        self._compact()

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`; nothing happens when it is not set."""
        if self._due.pop(key, None) is not None:
            self._compact()

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._due) + SPARE:
            self._heap = [(at, count, k) for k, (at, count) in self._due.items()]
            heapq.heapify(self._heap)

    def due_ns(self, key: TimerKey) -> int | None:
        """When `key` is due; None where it is not set."""
        due = self._due.get(key)
        return None if due is None else due[0]

    def next_ns(self) -> int | None:
        """When the earliest deadline is due; None without one."""
        heap = self._heap
        while heap:
            at_ns, count, key = heap[0]
            if self._due.get(key) == (at_ns, count):
                return at_ns
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ns: int) -> TimerKey | None:
        """Remove and return the earliest key that is due at `now_ns`; None without one."""
        at_ns = self.next_ns()
        if at_ns is None or at_ns > now_ns:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._due[key]
        self._compact()
        return key
