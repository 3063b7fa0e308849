"""What a checker found: one violation of one invariant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant did not hold.

    Args:
        checker: the invariant's name.
        at_ns: virtual time, or on real clusters the time since the run began.
        node: where it was seen; None for what concerns the whole cluster.
        text: what was seen.
    """

    checker: str
    at_ns: int
    node: int | None
    text: str

    def __str__(self) -> str:
        where = "" if self.node is None else f" at node {self.node}"
        return f"{self.checker}{where} after {self.at_ns / 1e9:.6f} s: {self.text}"

    def to_row(self) -> dict[str, object]:
        """For JSON."""
        return {
            "checker": self.checker,
            "at_s": self.at_ns / 1e9,
            "node": self.node,
            "text": self.text,
        }
