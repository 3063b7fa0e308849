"""Prometheus' text format: families of samples, each with HELP and TYPE, and histograms.

https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Row = tuple[Mapping[str, str], float]
"""The labels of one sample, and its value."""


class Histogram:
    """How often something took how long.

    Args:
        bounds_ns: the upper ends of the buckets, ascending; what is above counts too.

    Attributes:
        counts: by bucket, the last one for what is above all bounds.
        sum_ns: of everything that was observed.
        max_ns: the longest since `take_max` was called.
    """

    __slots__ = ("bounds_ns", "counts", "max_ns", "sum_ns")

    def __init__(self, bounds_ns: Sequence[int]) -> None:
        self.bounds_ns = tuple(bounds_ns)
        self.counts = [0] * (len(self.bounds_ns) + 1)
        self.sum_ns = 0
        self.max_ns = 0

    def observe(self, duration_ns: int) -> None:
        """Count one duration. Complexity: O(log buckets)."""
        self.counts[bisect_left(self.bounds_ns, duration_ns)] += 1
        self.sum_ns += duration_ns
        if duration_ns > self.max_ns:
            self.max_ns = duration_ns

    def take_max(self) -> int:
        """The longest since the last call."""
        longest, self.max_ns = self.max_ns, 0
        return longest


class Exposition:
    """Collects families, and writes them as text."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def counter(self, name: str, text: str, value: float | Iterable[Row]) -> None:
        """A family that only grows; `name` ends in ``_total``."""
        self._family(name, "counter", text, value)

    def gauge(self, name: str, text: str, value: float | Iterable[Row]) -> None:
        """A family that goes up and down."""
        self._family(name, "gauge", text, value)

    def histogram(self, name: str, text: str, histogram: Histogram) -> None:
        """A family of one histogram; `name` ends in ``_seconds``."""
        self._head(name, "histogram", text)
        total = 0
        for bound_ns, count in zip(histogram.bounds_ns, histogram.counts, strict=False):
            total += count
            self._lines.append(f'{name}_bucket{{le="{bound_ns / 1e9:.10g}"}} {total}')
        total += histogram.counts[-1]
        self._lines.append(f'{name}_bucket{{le="+Inf"}} {total}')
        self._lines.append(f"{name}_sum {histogram.sum_ns / 1e9!r}")
        self._lines.append(f"{name}_count {total}")

    def text(self) -> str:
        """Everything that was collected."""
        return "\n".join(self._lines) + "\n"

    def _family(self, name: str, kind: str, text: str, value: float | Iterable[Row]) -> None:
        self._head(name, kind, text)
        if isinstance(value, int | float):
            self._lines.append(f"{name} {_number(value)}")
            return
        for labels, number in value:
            pairs = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            self._lines.append(f"{name}{{{pairs}}} {_number(number)}")

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines.append(f"# HELP {name} {text}")
        self._lines.append(f"# TYPE {name} {kind}")


def by_label(label: str, counts: Mapping[str, float]) -> list[Row]:
    """One row for each key of a table of counts."""
    return [({label: key}, value) for key, value in counts.items()]


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
