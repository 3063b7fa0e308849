"""An axis: from values to places on it, and where its ticks stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TICKS: Final = 6
_TICKS_MOST: Final = 13


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis of numbers.

    Args:
        low, high: the values at its ends; low < high, and above 0 if it is logarithmic.
        log: whether it is logarithmic.
        ticks: the values that have a mark, ascending.
    """

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a value stands: 0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def scale(values: Sequence[float], log: bool, powers_of_two: bool = False) -> Scale:
    """An axis that has room for some values.

    Args:
        values: at least one; above 0 if the axis is logarithmic.
        log: whether it is logarithmic.
        powers_of_two: a logarithmic axis has its ticks there and not at powers of ten.
    """
    low, high = min(values), max(values)
    if log:
        return _log_scale(low, high, 2 if powers_of_two else 10)
    if low > 0 and low < high / 2:
        low = 0.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    step = _nice(high - low)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = tuple(round(i * step, 12) for i in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], False, ticks)


def _log_scale(low: float, high: float, base: int) -> Scale:
    first = math.floor(math.log(low, base) + 1e-9)
    last = math.ceil(math.log(high, base) - 1e-9)
    if first == last:
        last += 1
    every = -(-(last - first + 1) // _TICKS_MOST)
    ticks = tuple(float(base) ** i for i in range(first, last + 1, every))
    return Scale(float(base) ** first, float(base) ** last, True, ticks)


def _nice(width: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that makes a few ticks."""
    rough = width / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= rough * 0.999)


def label(value: float, powers_of_two: bool = False) -> str:
    """A tick's text."""
    if powers_of_two and value >= 2**17 and math.log2(value).is_integer():
        return f"2^{int(math.log2(value))}"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return format(value, ".0e").replace("e-0", "e-").replace("e+0", "e")
    return format(value, ".6g")
